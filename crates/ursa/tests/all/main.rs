//! Tests of the real binary: start, requests, stop, kill.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod access;
mod command_line;
mod crowd;
mod declared;
mod everywhere;
mod life;
mod monitoring;
mod no_io_uring;
mod node;
mod pools;
mod refusals;
mod top;
