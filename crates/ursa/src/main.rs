//! `ursa`: a node (`ursa serve`), the command line that talks to it, and tools that use any iSCSI target
//! (`ursa attach`, `ursa bench`).
//!
//! The crates `server`, `cli` and `tools` implement them; here is only how they are called. These three use
//! threads, files and tokio; what is below them reaches disks and the network through `rt`.

mod arguments;
mod manual;
#[cfg(test)]
mod mentioned;

use std::process::ExitCode;

use server::watcher;

/// mimalloc: besides being fast, it asks for huge pages, which make a core's access to RAM volumes a fifth
/// faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    watcher::main_if_asked().unwrap_or_else(arguments::main)
}
