//! The command line: a noun, then a verb.

mod exit;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use self::exit::Outcome;
use crate::serve::{self, Given};

/// Shared block storage on ordinary Linux servers.
#[derive(Debug, Parser)]
#[command(name = "ursa", version, after_help = exit::HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node: export volumes over iSCSI until SIGTERM.
    Serve(Given),
}

/// Does what the arguments say.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Serve(given) => exit::code(serve::main(given)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
