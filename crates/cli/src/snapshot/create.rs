//! `ursa snapshot create`.

use std::time::Duration;

use api::{Client, Snapshot, SnapshotCopyState, SnapshotCreate};
use clap::Args;
use terms::clock::{unix_now, utc};

use super::super::error::CliError;
use super::super::output::Output;
use super::super::table::list;
use super::hooks::Hooks;
use super::labels::parse_label;
use super::pause;
use crate::duration::parse_duration;

/// What to take a snapshot of.
#[derive(Args, Debug)]
pub struct Create {
    /// Volumes, separated by commas
    #[arg(required = true, value_name = "VOLUME", value_delimiter = ',')]
    volumes: Vec<String>,
    /// Name of the snapshot [default: the time, such as 2026-11-29T21.50.45Z]
    #[arg(long)]
    name: Option<String>,
    /// Delete it automatically after this time: 12h, 7d. Not while it is on hold [default: never]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    expires: Option<Duration>,
    /// Label; may be repeated
    #[arg(long = "label", value_parser = parse_label, value_name = "KEY=VALUE")]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    hooks: Hooks,
}

impl Create {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let Create { volumes, name, expires, labels, hooks } = self;
        let wanted = SnapshotCreate {
            volumes,
            name: name.unwrap_or_else(|| name_at(unix_now())),
            expires_after: expires.map(|after| after.as_secs()),
            labels: labels.into_iter().collect(),
        };
        let (name, volumes) = (wanted.name.clone(), wanted.volumes.clone());
        let client = client.clone();
        let (snapshot, after) = hooks.around((&name, &volumes), move || client.create_snapshot(&wanted))?;
        let shown = output.show(&snapshot, created);
        // Something may still be frozen, and that is worse than a closed pipe.
        after.map_err(|failure| CliError::HookAfter(snapshot.name, failure))?;
        shown
    }
}

/// The name of a snapshot that gets none.
fn name_at(seconds: u64) -> String {
    utc(seconds).replace(' ', "T").replace(':', ".")
}

/// What was taken, for people.
pub(super) fn created(snapshot: &Snapshot) -> String {
    let volumes = list(snapshot.volumes.iter().map(|of| &of.volume), "-");
    let lacking = snapshot.volumes.iter().flat_map(|of| {
        let absent = of.copies.iter().filter(|copy| copy.state == SnapshotCopyState::Absent);
        absent.map(move |copy| {
            format!("The snapshot is not on {}: its copy of {} is out of sync.\n", copy.node_name, of.volume)
        })
    });
    let lacking: String = lacking.collect();
    format!("Snapshot {} of {volumes} taken. I/O pause: {}.\n{lacking}", snapshot.name, pause(snapshot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_without_a_name_is_named_after_its_time() {
        assert_eq!(name_at(1_795_348_984), "2026-11-22T12.03.04Z");
    }
}
