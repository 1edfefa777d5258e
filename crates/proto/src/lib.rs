//! Protocols without I/O: bytes, completions and time go in; bytes, operations and deadlines come out.
//!
//! [`scsi`] answers commands or turns them into operations on a volume. [`iscsi`] carries commands over TCP.
//! Nothing in this crate reads a clock, draws a random number or waits.

pub mod canary;
pub mod iscsi;
pub mod scsi;
