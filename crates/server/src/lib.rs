//! `ursa serve`: a node as a process, with its HTTP interface, metrics, history and watcher.
//!
//! The crate `node` implements a node, and reaches disks and the network through `rt`. What is here runs on
//! threads of its own, with files and tokio, and passes requests to the node as messages.

mod block_devices;
mod devices;
mod flow;
mod history;
mod http;
mod metrics;
mod priority;
pub mod serve;
pub mod watcher;
