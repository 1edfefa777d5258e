//! A whole node with real sessions, in the simulated world, where a seed determines everything, and on the
//! real kernel.
//!
//! Each simulated scenario runs for a few seeds. `URSA_SEED=n` repeats one; see `docs/testing.md`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod content;
mod links;
mod rig;
mod secrets;
mod seeds;
mod shadow;
mod workload;

mod attentions;
mod connections;
mod control;
mod copy;
mod data;
mod faults;
mod forgetting;
mod full_pool;
mod kernel;
mod lba_status;
mod memory;
mod order;
mod paths;
mod power;
mod provisioning;
mod record;
mod reopening;
mod reservations;
mod sessions;
mod silence;
mod soak;
mod start;
mod stop;
mod tasks;
