//! The command line: a noun, then a verb.
//!
//! Most commands are requests to a node, and in the crate `cli`; `serve` is in `server`, and what uses
//! targets and clusters of its own in `tools`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::{Client, Fingerprint, Trust};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use cli::{CliError, Format, Output};
use server::serve::{self, Given};
use terms::exit;
use tools::attach::Attach;
use tools::{Demo, Drill, bench};

use crate::manual::Manual;

/// What `ursa --help` says about exit codes.
const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  refused or failed; the message says why
  2  invalid arguments or settings
  3  no node answered
  4  the node was stopped by a bug in the program (ursa serve)
ursa status --check has its own exit codes: see its --help.";

/// Shared block storage on ordinary Linux servers.
#[derive(Debug, Parser)]
#[command(name = "ursa", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// API of the node to contact
    #[arg(long, global = true, help_heading = "Global options", value_name = "URL", env = "URSA_API", default_value_t = default_url(), hide_env_values = true)]
    api: String,

    /// File with an API token [default: the token in URSA_TOKEN, or this machine's local token]
    #[arg(long, global = true, help_heading = "Global options", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// SHA-256 fingerprint of a node's certificate, for https://; the node prints it when it starts
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "SHA256",
        env = "URSA_FINGERPRINT",
        hide_env_values = true,
        conflicts_with = "ca"
    )]
    fingerprint: Option<Fingerprint>,

    /// PEM file with the CA certificates that have signed a node's certificate, for https://
    #[arg(
        long,
        global = true,
        help_heading = "Global options",
        value_name = "FILE",
        env = "URSA_CA",
        hide_env_values = true
    )]
    ca: Option<PathBuf>,

    /// Output format
    #[arg(
        short,
        long,
        global = true,
        help_heading = "Global options",
        value_enum,
        value_name = "FORMAT",
        default_value_t
    )]
    output: Format,

    #[command(subcommand)]
    command: Command,
}

fn default_url() -> String {
    format!("http://{}", api::DEFAULT_LISTEN)
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node: export volumes over iSCSI until SIGTERM
    Serve(Box<Given>),
    /// A request to a node
    #[command(flatten)]
    Request(Box<cli::Command>),
    /// Attach a LUN of any iSCSI target as a file or block device, without SCSI in the kernel; runs until
    /// SIGTERM
    Attach(Box<Attach>),
    /// Benchmark a file, a block device or any iSCSI target, with the options of DISKSPD
    #[command(subcommand)]
    Bench(bench::Command),
    /// Run a failover demo: three nodes on this machine, one is killed while a volume is in use
    Demo(Demo),
    /// Run a fault-injection drill on a throwaway local cluster
    Drill(Box<Drill>),
    /// Print a shell completion script
    Completion {
        /// Shell
        shell: Shell,
    },
    /// Write manual pages for all commands
    Man(Manual),
}

/// Executes the command that the arguments name.
pub fn main() -> ExitCode {
    let cli = match bench::letters::expand(std::env::args_os().collect()) {
        Ok(arguments) => Cli::parse_from(arguments),
        Err(error) => return exit::wrong_arguments(&error),
    };
    let output = Output::new(cli.output);
    let client = match client(&cli.api, cli.trust(), cli.token_file.as_deref()) {
        Ok(client) => client,
        Err(error) => return exit::code(Err(error)),
    };
    let result = match cli.command {
        Command::Serve(given) => return exit::code(serve::main(*given)),
        Command::Request(command) => return command.run(&client, &output),
        Command::Attach(attach) => return exit::code(attach.run()),
        Command::Bench(command) => return exit::code(command.run(&output)),
        Command::Demo(demo) => return exit::code(demo.run(&output)),
        Command::Drill(drill) => return exit::code(drill.run(&output)),
        Command::Completion { shell } => completion(shell),
        Command::Man(manual) => manual.run(&output),
    };
    exit::code(result)
}

impl Cli {
    /// How the node's certificate is verified; `None`: the arguments do not say.
    fn trust(&self) -> Result<Option<Trust>, CliError> {
        Ok(match (&self.fingerprint, &self.ca) {
            (Some(fingerprint), _) => Some(Trust::Fingerprint(*fingerprint)),
            (None, Some(file)) => Some(Trust::authorities(file)?),
            (None, None) => None,
        })
    }
}

/// A client with the token from the file, if one is given.
fn client(
    url: &str,
    trust: Result<Option<Trust>, CliError>,
    token_file: Option<&Path>,
) -> Result<Client, CliError> {
    let token = match token_file {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            Some(read.map_err(|error| CliError::Secret(path.to_owned(), error))?)
        }
        None => std::env::var("URSA_TOKEN").ok().filter(|token| !token.is_empty()),
    };
    let client = Client::new(url);
    let client = match trust? {
        Some(trust) => client.with_trust(&trust),
        None => client,
    };
    Ok(match token {
        Some(token) => client.with_token(token.trim()),
        None => client,
    })
}

fn completion(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ursa", &mut script);
    std::io::stdout().write_all(&script).map_err(CliError::Print)
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
