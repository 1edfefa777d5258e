//! `ursa target`.

use api::{Client, Target, TargetChange, TargetCreate};
use clap::Subcommand;

use super::confirm::{Confirm, show_would};
use super::error::CliError;
use super::map;
use super::output::Output;
use super::secret::ChapArgs;
use super::table::{Table, fields};

/// What to do with targets.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a target; LUN maps add volumes to it
    Create {
        /// Target name (IQN): iqn.YYYY-MM.reversed.domain:name
        name: String,
        /// Alias: a descriptive name
        #[arg(long)]
        alias: Option<String>,
        #[command(flatten)]
        chap: ChapArgs,
    },
    /// Change a target; anything not specified stays as it is, and sessions continue
    Set {
        /// Target name (IQN)
        name: String,
        /// New alias
        #[arg(long)]
        alias: Option<String>,
        /// Remove the alias
        #[arg(long, conflicts_with = "alias")]
        no_alias: bool,
        #[command(flatten)]
        chap: ChapArgs,
        /// Remove the CHAP secret
        #[arg(long, conflicts_with = "chap_user")]
        no_chap: bool,
        /// Show what the command would do, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// List targets
    List,
    /// Show a target with its LUNs
    Show {
        /// Target name (IQN)
        name: String,
    },
    /// Delete a target; its sessions end, its volumes stay
    Delete {
        /// Target name (IQN)
        name: String,
        /// Delete it even if it has LUNs
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { name, alias, chap } => {
                let target = client.create_target(&TargetCreate { name, alias, chap: chap.read()? })?;
                output.show(&target, one)
            }
            Command::Set { name, alias, no_alias, chap, no_chap, dry_run } => {
                let change = TargetChange {
                    alias: if no_alias { Some(None) } else { alias.map(Some) },
                    chap: if no_chap { Some(None) } else { chap.read()?.map(Some) },
                };
                if dry_run {
                    let would = client.would(|client| client.change_target(&name, &change))?;
                    return show_would(output, &format!("Change target {name}"), &would);
                }
                let mut target = client.change_target(&name, &change)?;
                map::name_volumes(client, target.maps.iter_mut())?;
                output.show(&target, one)
            }
            Command::List => output.show(&client.targets()?, |targets| table(targets)),
            Command::Show { name } => {
                let mut target = client.target(&name)?;
                map::name_volumes(client, target.maps.iter_mut())?;
                output.show(&target, one)
            }
            Command::Delete { name, force, confirm } => {
                let (what, done) = (format!("Delete target {name}"), format!("Target {name} deleted."));
                confirm.done(client, output, &what, &done, |client| client.delete_target(&name, force))
            }
        }
    }
}

fn table(targets: &[Target]) -> String {
    let mut table = Table::new(&["NAME", "LUNS", "CHAP", "ALIAS"]);
    for target in targets {
        table.row([
            target.name.clone(),
            target.maps.len().to_string(),
            target.chap_user.clone().unwrap_or_default(),
            target.alias.clone().unwrap_or_default(),
        ]);
    }
    table.text("No targets. `ursa volume create` creates one with a volume, `ursa target create` one alone.")
}

fn one(target: &Target) -> String {
    let head = fields([
        ("Target", target.name.clone()),
        ("Alias", target.alias.clone().unwrap_or_default()),
        ("CHAP", target.chap_user.clone().unwrap_or_else(|| "none".into())),
    ]);
    let mut table = Table::new(&["LUN", "VOLUME", "HOST"]);
    for map in &target.maps {
        table.row([map.lun.to_string(), map::volume(map), map.host.clone()]);
    }
    format!("{head}\n{}", table.text("No LUNs. Map a volume with `ursa map create`."))
}
