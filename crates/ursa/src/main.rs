//! `ursa`: a node (`ursa serve`), the command line that talks to it, and what uses any target (`ursa attach`,
//! `ursa bench`).
//!
//! Here, and only here, are threads, files and tokio; what a node does is in `node`, and reaches the disks
//! and the network through `rt`.

mod attach;
mod block_devices;
mod cli;
mod clock;
mod devices;
mod drill;
mod duration;
mod flow;
mod history;
mod host_setup;
mod http;
mod loss;
mod metrics;
mod priority;
#[cfg(test)]
mod samples;
mod serve;
mod size;
mod watcher;

use std::process::ExitCode;

/// Besides its speed: it asks for huge pages, with which a core finds its way through a volume in memory a
/// fifth faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    watcher::main_if_asked().unwrap_or_else(cli::main)
}
