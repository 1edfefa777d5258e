//! Seeds: none breaks a rule, each is a run, and mistakes are noticed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(debug_assertions)]
mod canaries;
mod ranges;
mod seeds;
