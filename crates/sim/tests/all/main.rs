//! Seeds break no rule, are reproducible, and detect mistakes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(debug_assertions)]
mod canaries;
mod ranges;
mod seeds;
