//! `ursa`: a node (`ursa serve`), the command line that talks to it, and tools that use any iSCSI target
//! (`ursa attach`, `ursa bench`).
//!
//! Only this crate uses threads, files and tokio. The crate `node` implements a node, and reaches disks and
//! the network through `rt`.

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
mod same_names;
#[cfg(test)]
mod samples;
mod serve;
mod signals;
mod size;
mod watcher;

use std::process::ExitCode;

/// mimalloc: besides being fast, it asks for huge pages, which make a core's access to RAM volumes a fifth
/// faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    watcher::main_if_asked().unwrap_or_else(cli::main)
}
