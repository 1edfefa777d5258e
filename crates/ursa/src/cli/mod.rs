//! The command line: a noun, then a verb. Everything but `serve`, `host-setup`, `completion` and `man` is a request to a node.

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
    /// The node to talk to
    #[arg(long, global = true, help_heading = "Options of all commands", value_name = "URL", env = "URSA_API", default_value_t = default_url(), hide_env_values = true)]
    api: String,

    /// A file with a token to prove oneself with; URSA_TOKEN is the token itself [default: what a node leaves for its user on this machine]
    #[arg(long, global = true, help_heading = "Options of all commands", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// The certificate of a node at https://, by its SHA-256, which the node prints at its start
    #[arg(
        long,
        global = true,
        help_heading = "Options of all commands",
        value_name = "SHA256",
        env = "URSA_FINGERPRINT",
        hide_env_values = true,
        conflicts_with = "ca"
    )]
    fingerprint: Option<Fingerprint>,

    /// A file with the certificates, in PEM, of who has signed that of a node at https://
    #[arg(
        long,
        global = true,
        help_heading = "Options of all commands",
        value_name = "FILE",
        env = "URSA_CA",
        hide_env_values = true
    )]
    ca: Option<PathBuf>,

    /// How to show the answer
    #[arg(
        short,
        long,
        global = true,
        help_heading = "Options of all commands",
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
    /// Show on one screen how it is, what can still be lost, and what to do
    Status(status::Status),
    /// Show live what volumes, copies, paths and cores do
    Top(top::Top),
    /// Make what hosts use as a file says: volumes, copies, targets, LUN maps, host groups, floating addresses
    Apply(apply::Apply),
    /// Show what `ursa apply` would change
    Diff(apply::Diff),
    /// Print the file that makes what there is, for `ursa apply`
    Export,
    /// Nodes: clusters of servers whose volumes have copies on several of them
    #[command(subcommand)]
    Node(node::Command),
    /// Floating addresses: portals that are on one node at a time, and move when it is lost
    #[command(subcommand)]
    Address(address::Command),
    /// Disks: the block devices of a node's machine, and what uses them
    #[command(subcommand)]
    Disk(disk::Command),
    /// Pools: the disks that volumes lie on
    #[command(subcommand)]
    Pool(pool::Command),
    /// Volumes: block devices for hosts
    #[command(subcommand)]
    Volume(volume::Command),
    /// Targets: what initiators log in to
    #[command(subcommand)]
    Target(target::Command),
    /// LUN maps: which volume is which LUN of which target, and for whom
    #[command(subcommand)]
    Map(map::Command),
    /// Host groups: initiators by name, address and CHAP secret
    #[command(subcommand)]
    Host(host::Command),
    /// Sessions: who is logged in
    #[command(subcommand)]
    Session(session::Command),
    /// Users: who logs in to the console
    #[command(subcommand)]
    User(user::Command),
    /// Tokens: what scripts and monitoring prove themselves with
    #[command(subcommand)]
    Token(token::Command),
    /// Jobs: what is under way, and how it has ended
    #[command(subcommand)]
    Job(job::Command),
    /// Show what has happened, and what happens
    Events(events::Events),
    /// Show what has gone on in the last seven days: operations, bytes, latencies, CPU, how full pools are
    History(history::History),
    /// Show who has done what on the node, or on any other
    Audit(audit::Audit),
    /// Print settings for the machines that use volumes, ready to paste
    #[command(subcommand)]
    HostSetup(host_setup::Command),
    /// Show a unit of any iSCSI target as a file or block device of this host, whose kernel need not know SCSI; runs until SIGTERM
    Attach(Box<Attach>),
    /// Measure a file, a block device or any iSCSI target, in DISKSPD's terms
    #[command(subcommand)]
    Bench(bench::Command),
    /// Show what Ursa is for: three nodes on this machine, one is killed while a volume is in use
    Demo(drill::Demo),
    /// Do harm to a cluster of our own on this machine while a volume is in use, and judge how it takes it
    Drill(Box<drill::Drill>),
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// Write manual pages of all commands
    Man(manual::Manual),
}

/// Does what the arguments say.
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
        Command::Address(command) => command.run(&client, &output),
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
    /// By what the node's certificate is known; `None`: nobody has said.
    fn trust(&self) -> Result<Option<Trust>, CliError> {
        Ok(match (&self.fingerprint, &self.ca) {
            (Some(fingerprint), _) => Some(Trust::Fingerprint(*fingerprint)),
            (None, Some(file)) => Some(Trust::authorities(file)?),
            (None, None) => None,
        })
    }
}

/// A client with the token that was given, if one was.
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
