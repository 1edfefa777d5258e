//! Links between nodes: in simulated worlds, and over loopback with TLS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loopback;
mod recorder;
mod world;
