//! The command line: a noun, then a verb.
//!
//! Most commands are requests to a node; `serve`, `host-setup`, `completion` and `man` are not.

mod address;
mod apply;
mod attach;
mod audit;
mod bench;
mod confirm;
mod disk;
mod drill;
mod events;
mod exit;
mod history;
mod host;
mod job;
mod links;
mod login;
mod manual;
mod map;
#[cfg(test)]
pub mod mentioned;
mod node;
mod output;
mod pool;
mod secret;
mod session;
mod status;
mod sync;
mod table;
mod target;
mod token;
mod top;
mod user;
mod volume;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::{Client, Fingerprint, Trust};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

pub use self::attach::attach_lines;
pub use self::exit::{CliError, Outcome};
pub use self::login::LoginArgs;
use self::output::{Format, Output};
pub use self::table::size;
pub use self::volume::copy::replace as replace_copy;
use crate::attach::Attach;
use crate::host_setup;
use crate::serve::{self, Given};

/// Shared block storage on ordinary Linux servers.
#[derive(Debug, Parser)]
#[command(name = "ursa", version, after_help = exit::HELP, propagate_version = true)]
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
    /// Show cluster health, failure tolerance and recommended actions
    Status(status::Status),
    /// Show the live load of volumes, copies, paths and cores
    Top(top::Top),
    /// Apply a configuration file: volumes, copies, targets, LUN maps, host groups, floating IPs
    Apply(apply::Apply),
    /// Show what `ursa apply` would change
    Diff(apply::Diff),
    /// Export the current configuration, for `ursa apply`
    Export,
    /// Manage the cluster and its nodes
    #[command(subcommand)]
    Node(node::Command),
    /// Manage floating IPs: portals held by one node, taken over by another on failure
    #[command(subcommand)]
    FloatingIp(address::Command),
    /// List a node's block devices and what uses them
    #[command(subcommand)]
    Disk(disk::Command),
    /// Manage pools: the disks that volumes lie on
    #[command(subcommand)]
    Pool(pool::Command),
    /// Manage volumes and their copies
    #[command(subcommand)]
    Volume(volume::Command),
    /// Manage targets: what initiators log in to
    #[command(subcommand)]
    Target(target::Command),
    /// Manage LUN maps: which host group sees which volume, under which target and LUN
    #[command(subcommand)]
    Map(map::Command),
    /// Manage host groups: initiators matched by name, address or CHAP secret
    #[command(subcommand)]
    Host(host::Command),
    /// List or end sessions of initiators
    #[command(subcommand)]
    Session(session::Command),
    /// Manage users of the console
    #[command(subcommand)]
    User(user::Command),
    /// Manage API tokens for scripts and monitoring
    #[command(subcommand)]
    Token(token::Command),
    /// List, pause, resume and cancel jobs
    #[command(subcommand)]
    Job(job::Command),
    /// List or follow events
    Events(events::Events),
    /// Show the last seven days: operations, throughput, latencies, CPU, pool usage
    History(history::History),
    /// Show the audit log of this node or any other: who changed what, and when
    Audit(audit::Audit),
    /// Print settings for hosts, ready to paste
    #[command(subcommand)]
    HostSetup(host_setup::Command),
    /// Attach a LUN of any iSCSI target as a file or block device, without SCSI in the kernel; runs until
    /// SIGTERM
    Attach(Box<Attach>),
    /// Benchmark a file, a block device or any iSCSI target, with the options of DISKSPD
    #[command(subcommand)]
    Bench(bench::Command),
    /// Run a failover demo: three nodes on this machine, one is killed while a volume is in use
    Demo(drill::Demo),
    /// Run a fault-injection drill on a throwaway local cluster
    Drill(Box<drill::Drill>),
    /// Print a shell completion script
    Completion {
        /// Shell
        shell: Shell,
    },
    /// Write manual pages for all commands
    Man(manual::Manual),
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
        Command::Status(status) => return status.main(&client, &output),
        Command::Top(top) => top.run(&client, &output),
        Command::Apply(apply) => apply.run(&client, &output),
        Command::Diff(diff) => diff.run(&client, &output),
        Command::Export => apply::export(&client, &output),
        Command::Node(command) => command.run(&client, &output),
        Command::FloatingIp(command) => command.run(&client, &output),
        Command::Disk(command) => command.run(&client, &output),
        Command::Pool(command) => command.run(&client, &output),
        Command::Volume(command) => command.run(&client, &output),
        Command::Target(command) => command.run(&client, &output),
        Command::Map(command) => command.run(&client, &output),
        Command::Host(command) => command.run(&client, &output),
        Command::Session(command) => command.run(&client, &output),
        Command::User(command) => command.run(&client, &output),
        Command::Token(command) => command.run(&client, &output),
        Command::Job(command) => command.run(&client, &output),
        Command::Events(events) => events.run(&client, &output),
        Command::History(history) => history.run(&client, &output),
        Command::Audit(audit) => audit.run(&client, &output),
        Command::HostSetup(command) => {
            let text = command.text(&client).map_err(exit::CliError::from);
            return exit::code(text.and_then(|text| output.text(&text)));
        }
        Command::Attach(attach) => return exit::code(attach.run()),
        Command::Bench(command) => command.run(&output),
        Command::Demo(demo) => demo.run(&output),
        Command::Drill(drill) => drill.run(&output),
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
