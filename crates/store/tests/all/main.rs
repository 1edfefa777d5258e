//! Tests of pools and slices as the node uses them.

#![allow(clippy::unwrap_used, reason = "all of this is tests, and the lint only knows test functions")]

mod add_disk;
mod checksums;
mod clones;
mod convert;
mod copy;
mod crowd;
mod disk;
mod faults;
mod file;
mod leaving;
mod model;
mod refusal;
mod remove_disk;
mod set_back;
mod shared_block;
