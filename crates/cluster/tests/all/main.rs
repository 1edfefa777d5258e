//! The engines of the cluster's record: one suite for all, and a simulation of the embedded one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod embedded;
mod etcd;
mod memory;
mod sim;
