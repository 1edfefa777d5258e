//! `ursa volume copy`.

use std::thread;
use std::time::{Duration, Instant};

use api::{Client, ClientError, CopyCreate, CopyState, DryRun, Volume};
use clap::Subcommand;

use super::super::confirm::Confirm;
use super::super::error::CliError;
use super::super::output::Output;

/// How long `replace` waits until the old copy is gone.
const GONE_DEADLINE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What to do with copies.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Add a copy on another node; it resyncs in the background
    Add {
        /// Volume name or ID
        volume: String,
        /// Node of the copy, by number
        #[arg(long = "on", value_name = "NODE")]
        node: u16,
        /// Pool on that node [default: the only one, or the one named default]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Remove a copy from its node and delete its data; never the last one in sync
    Remove {
        /// Volume name or ID
        volume: String,
        /// Node that has the copy, by number; it may be down
        #[arg(long = "on", value_name = "NODE")]
        node: u16,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Move a copy: add one, and remove the other when the new one is in sync
    Move {
        /// Volume name or ID
        volume: String,
        /// Node that has the copy, by number
        #[arg(long, value_name = "NODE")]
        from: u16,
        /// Node to move it to, by number
        #[arg(long, value_name = "NODE")]
        to: u16,
        /// Pool on that node [default: the only one, or the one named default]
        #[arg(long)]
        pool: Option<String>,
    },
    /// Rebuild a copy in another pool of its node after a disk failure
    Rebuild {
        /// Volume name or ID
        volume: String,
        /// Node of the copy, by number
        #[arg(long = "on", value_name = "NODE")]
        node: u16,
        /// Pool on that node [default: the only one, or the one named default]
        #[arg(long)]
        pool: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Add { volume, node, pool } => {
                let copy = CopyCreate { node, pool, instead_of: None };
                let added = client.add_copy(&volume, &copy)?;
                output.show(&added, |volume| begun(volume, node, None))
            }
            Command::Remove { volume, node, confirm } => {
                let what = format!("Remove the copy of volume {volume} from node {node}");
                let done = format!(
                    "Copy of volume {volume} removed from node {node}. The node deletes its data at once, or when it is back."
                );
                confirm.done(client, output, &what, &done, |client| client.remove_copy(&volume, node))
            }
            Command::Move { volume, from, to, pool } => {
                let copy = CopyCreate { node: to, pool, instead_of: Some(from) };
                let moved = client.add_copy(&volume, &copy)?;
                output.show(&moved, |volume| begun(volume, to, Some(from)))
            }
            Command::Rebuild { volume, node, pool, confirm } => {
                let known = client.volume(&volume)?;
                let what = format!("Rebuild the copy of volume {} on node {node}", known.name);
                let would = || would_replace(client, &known, node, pool.clone());
                if confirm.go_on_if(output, &what, true, would)? {
                    let added = replace(client, &known.id, node, pool, || {})?;
                    output.show(&added, |volume| begun(volume, node, None))?;
                }
                Ok(())
            }
        }
    }
}

/// What [`replace`] would do: two changes, for each of which the node has a dry run.
fn would_replace(
    client: &Client,
    volume: &Volume,
    node: u16,
    pool: Option<String>,
) -> Result<DryRun, ClientError> {
    if !volume.copies.iter().any(|copy| copy.node == node) {
        let copy = CopyCreate { node, pool, instead_of: None };
        return client.would(|client| client.add_copy(&volume.id, &copy));
    }
    let mut would = client.would(|client| client.remove_copy(&volume.id, node))?;
    let place = pool.map(|pool| format!(", in pool {pool}")).unwrap_or_default();
    would.would.push(format!("then a new copy is created there{place} and resynced in full from the others"));
    Ok(would)
}

/// Removes the copy, unless an earlier attempt has, and creates it again in that pool.
///
/// `gone` is called in between.
pub fn replace(
    client: &Client,
    volume: &str,
    node: u16,
    pool: Option<String>,
    gone: impl FnOnce(),
) -> Result<Volume, CliError> {
    let is_there = || -> Result<bool, CliError> {
        Ok(client.volume(volume)?.copies.iter().any(|copy| copy.node == node))
    };
    if is_there()? {
        client.remove_copy(volume, node)?;
    }
    let end = Instant::now() + GONE_DEADLINE;
    while is_there()? && Instant::now() < end {
        thread::sleep(LOOK_EVERY);
    }
    // After the deadline, the node's error says why it cannot add a copy.
    gone();
    Ok(client.add_copy(volume, &CopyCreate { node, pool, instead_of: None })?)
}

fn begun(volume: &Volume, node: u16, from: Option<u16>) -> String {
    let then = match from {
        Some(from) => format!(" The copy on node {from} is removed when that is done."),
        None => String::new(),
    };
    let in_sync = volume.copies.iter().any(|copy| copy.node == node && copy.state == CopyState::InSync);
    match in_sync {
        true => format!("Copy of volume {} on node {node} added, in sync.{then}\n", volume.name),
        false => format!(
            "Copy of volume {} on node {node} added, full resync in progress.{then} `ursa volume show {}` shows its progress.\n",
            volume.name, volume.name
        ),
    }
}
