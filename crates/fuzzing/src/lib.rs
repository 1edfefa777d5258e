//! What is done with bytes that others wrote, so that something breaks if our side does not hold: a module
//! each, with a function `run` that takes one input.
//!
//! A fuzzer gives them inputs (`fuzz/`, which says what each is for), and so do this crate's tests, which
//! make them from numbers: so that a change that breaks one is seen with it, by stable Rust and within
//! seconds.

pub mod answers;
pub mod cluster_bytes;
mod command;
pub mod commands;
mod fields;
pub mod initiator;
pub mod link_frames;
pub mod link_records;
pub mod log_formats;
pub mod login;
pub mod lu_state;
pub mod node_record;
pub mod pool_formats;
pub mod replica_wire;
pub mod session;
pub mod text_keys;
mod unit;
pub mod wire;
