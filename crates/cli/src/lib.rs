//! The commands that are requests to a node, and what makes a command: formats of output, tables, errors.
//!
//! The crate `ursa` adds the arguments that all commands have.

mod address;
mod apply;
mod attach;
mod audit;
mod confirm;
mod disk;
mod duration;
mod error;
mod events;
mod history;
mod host;
mod job;
mod links;
mod map;
pub mod mentioned;
mod node;
mod output;
mod pool;
mod progress;
mod secret;
mod session;
mod snapshot;
mod status;
mod sync;
mod table;
mod target;
mod token;
mod top;
mod user;
mod volume;

use std::process::ExitCode;

use api::Client;
use clap::Subcommand;
use terms::exit::code;
use terms::host_setup;

pub use self::error::CliError;
pub use self::output::{Format, Output};
pub use self::table::{Table, size};
pub use self::volume::copy::replace as replace_copy;
pub use self::volume::{OnDisk, asked_kind_on_disk};

/// A request to a node.
#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// Manage snapshots of volumes
    #[command(subcommand)]
    Snapshot(snapshot::Command),
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
}

impl Command {
    /// Executes the command. Prints an error, and returns the exit code.
    pub fn run(self, client: &Client, output: &Output) -> ExitCode {
        let result = match self {
            Command::Status(status) => return status.main(client, output),
            Command::Top(top) => top.run(client, output),
            Command::Apply(apply) => apply.run(client, output),
            Command::Diff(diff) => diff.run(client, output),
            Command::Export => apply::export(client, output),
            Command::Node(command) => command.run(client, output),
            Command::FloatingIp(command) => command.run(client, output),
            Command::Disk(command) => command.run(client, output),
            Command::Pool(command) => command.run(client, output),
            Command::Volume(command) => command.run(client, output),
            Command::Snapshot(command) => command.run(client, output),
            Command::Target(command) => command.run(client, output),
            Command::Map(command) => command.run(client, output),
            Command::Host(command) => command.run(client, output),
            Command::Session(command) => command.run(client, output),
            Command::User(command) => command.run(client, output),
            Command::Token(command) => command.run(client, output),
            Command::Job(command) => command.run(client, output),
            Command::Events(events) => events.run(client, output),
            Command::History(history) => history.run(client, output),
            Command::Audit(audit) => audit.run(client, output),
            Command::HostSetup(command) => {
                let text = command.text(client).map_err(CliError::from);
                return code(text.and_then(|text| output.text(&text)));
            }
        };
        code(result)
    }
}
