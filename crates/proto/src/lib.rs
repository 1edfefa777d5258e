//! Protocols without I/O: bytes, completions and time go in; bytes, operations and deadlines come out.
//!
//! [`block`] is what a volume can be asked to do. [`scsi`] answers commands or turns them into such
//! operations. [`iscsi`] carries commands over TCP. Nothing in this crate reads a clock, draws a random
//! number or waits.

pub mod block;
pub mod canary;
pub mod iscsi;
pub mod scsi;
