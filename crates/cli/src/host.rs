//! `ursa host`.

use api::{Client, Host, HostChange, HostCreate};
use clap::{Args, Subcommand};

use super::confirm::{Confirm, show_would};
use super::error::CliError;
use super::output::Output;
use super::secret::ChapArgs;
use super::table::{Table, fields, list};

/// What to do with host groups.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a host group; initiators match by name, address or CHAP secret
    Create {
        /// Host group name
        name: String,
        #[command(flatten)]
        members: Members,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Change a host group; anything not specified stays as it is
    Set {
        /// Host group name
        name: String,
        #[command(flatten)]
        members: Members,
        #[command(flatten)]
        chap: ChapArgs,
        /// Match any initiator name
        #[arg(long, conflicts_with = "initiators")]
        any_initiator: bool,
        /// Match any address
        #[arg(long, conflicts_with = "addresses")]
        any_address: bool,
        /// Require no CHAP secret
        #[arg(long, conflicts_with = "chap_user")]
        no_chap: bool,
        /// Show what the command would do, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// List host groups
    List,
    /// Show a host group
    Show {
        /// Host group name
        name: String,
    },
    /// Delete a host group that no LUN map uses
    Delete {
        /// Host group name
        name: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// Who belongs to a host group.
#[derive(Args, Debug)]
pub struct Members {
    /// Initiator name (IQN); can be repeated [default: any]
    #[arg(long = "initiator", value_name = "IQN")]
    initiators: Vec<String>,
    /// Address or network, such as 10.1.0.0/16; can be repeated [default: any]
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { name, members: Members { initiators, addresses }, chap } => {
                let host = HostCreate { name, initiators, addresses, chap: chap.read()? };
                output.show(&client.create_host(&host)?, one)
            }
            Command::Set { name, members, chap, any_initiator, any_address, no_chap, dry_run } => {
                let before = client.host(&name)?;
                let kept = |new: Vec<String>, any: bool, before| match new.is_empty() && !any {
                    true => before,
                    false => new,
                };
                let change = HostChange {
                    initiators: kept(members.initiators, any_initiator, before.initiators),
                    addresses: kept(members.addresses, any_address, before.addresses),
                    chap: if no_chap { Some(None) } else { chap.read()?.map(Some) },
                };
                if dry_run {
                    let would = client.would(|client| client.change_host(&name, &change))?;
                    return show_would(output, &format!("Change host group {name}"), &would);
                }
                output.show(&client.change_host(&name, &change)?, one)
            }
            Command::List => output.show(&client.hosts()?, |hosts| table(hosts)),
            Command::Show { name } => output.show(&client.host(&name)?, one),
            Command::Delete { name, confirm } => {
                let what = format!("Delete host group {name}");
                let done = format!("Host group {name} deleted.");
                confirm.done(client, output, &what, &done, |client| client.delete_host(&name))
            }
        }
    }
}

const ANY: &str = "any";

fn table(hosts: &[Host]) -> String {
    let mut table = Table::new(&["NAME", "INITIATORS", "ADDRESSES", "CHAP", ""]);
    for host in hosts {
        table.row([
            host.name.clone(),
            list(&host.initiators, ANY),
            list(&host.addresses, ANY),
            host.chap_user.clone().unwrap_or_else(|| "-".into()),
            if host.built_in { "built in".into() } else { String::new() },
        ]);
    }
    table.text("No host groups.")
}

fn one(host: &Host) -> String {
    let lines = |items: &[String]| if items.is_empty() { ANY.to_owned() } else { items.join("\n") };
    fields([
        ("Host group", host.name.clone()),
        ("Initiators", lines(&host.initiators)),
        ("Addresses", lines(&host.addresses)),
        ("CHAP", host.chap_user.clone().unwrap_or_else(|| "none".into())),
    ])
}
