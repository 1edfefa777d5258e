//! `ursa`: a node (`ursa serve`), and the command line that talks to it.
//!
//! Here, and only here, are threads, files and tokio; what a node does is in `node`, and reaches the disks and the
//! network through `rt`.

mod cli;
mod host_setup;
#[allow(dead_code, unused_imports, reason = "`ursa serve` is about to use it")]
mod http;
#[allow(dead_code, reason = "`ursa serve` is about to use it")]
mod metrics;
mod serve;
mod size;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
