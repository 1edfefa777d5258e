//! What a fuzzer does with bytes from outside, so that an assertion fails if our side does not handle them.
//!
//! Each module has a function `run` that takes one input. A fuzzer generates inputs (`fuzz/`, which says what
//! each target is for). So do this crate's tests, from numbers, so that stable Rust finds a change that
//! breaks a target within seconds.

pub mod answers;
pub mod checksum_page;
pub mod cluster_bytes;
mod command;
pub mod commands;
pub mod exports;
mod fields;
pub mod initiator;
pub mod link_frames;
pub mod link_records;
pub mod log_formats;
pub mod login;
pub mod lost_blocks;
pub mod lu_state;
pub mod nbd_client;
pub mod node_record;
pub mod pool_formats;
pub mod replica_wire;
pub mod session;
pub mod text_keys;
mod unit;
pub mod wire;
