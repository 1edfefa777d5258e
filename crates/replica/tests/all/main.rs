//! Tests of the protocol through its public interface.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod added;
mod copies;
mod failed;
mod late;
mod lost_map;
mod model;
mod orphans;
mod ticks;
