//! Links between nodes: in simulated worlds, and over loopback with TLS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod credentials;
mod death_notice;
mod joining;
mod loopback;
mod node;
mod recorder;
mod refusals;
mod world;
