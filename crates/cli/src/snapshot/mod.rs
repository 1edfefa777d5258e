//! `ursa snapshot`.

mod clone;
mod create;
mod diff;
mod export;
mod files;
pub(super) mod hooks;
mod import;
mod labels;
mod schedule;
mod serve;

use std::time::Duration;

use api::{
    Client, DryRun, Snapshot, SnapshotChange, SnapshotCopy, SnapshotCopyState, SnapshotRestore,
    SnapshotRestored, SnapshotState, SnapshotVolume,
};
use clap::Subcommand;
use terms::clock::{unix_now, utc};

use self::clone::Clones;
use self::create::Create;
use self::diff::VolumeAt;
use self::export::Export;
pub use self::export::ExportError;
use self::import::Import;
pub use self::import::ImportError;
use self::labels::parse_label;
use self::serve::Serve;
pub use self::serve::ServeError;
use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::table::{Table, fields, list, size};
use crate::duration::parse_duration;

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take a snapshot of one or several log volumes, all at one point in time
    ///
    /// Commands of hosts wait meanwhile: for 500 ms at most, or the snapshot is not taken. It is taken on all
    /// copies that are in sync.
    ///
    /// --before and --after freeze file systems or prepare a database, and let them continue. Both have the
    /// name of the snapshot in URSA_SNAPSHOT and its volumes in URSA_VOLUMES, and no terminal. Once --before
    /// has been started, --after is always executed, even after Ctrl-C.
    Create(Create),
    /// List snapshots: of all volumes, or of one
    List {
        /// Volume
        volume: Option<String>,
        /// Only snapshots with this label, or with a label with this key; may be repeated
        #[arg(long = "label", value_name = "KEY[=VALUE]", value_delimiter = ',')]
        labels: Vec<String>,
    },
    /// Show a snapshot, and which copies have it
    Show {
        /// Snapshot name or number
        snapshot: String,
    },
    /// Show what differs between two snapshots of a volume
    ///
    /// Ranges of bytes, in whole blocks of 4 KiB that read differently. With -o json, each line is a page of
    /// ranges, as the API returns it.
    Diff {
        /// What to compare with, usually the older snapshot
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        from: VolumeAt,
        /// The snapshot whose content is described. What the volume holds now is not compared: it changes
        #[arg(value_name = "VOLUME@SNAPSHOT")]
        to: Option<VolumeAt>,
    },
    /// Export what a volume held in a snapshot to a file, for a backup
    ///
    /// Blocks of zeros are left out. With --since, the file has only what has changed since an earlier
    /// snapshot. An export that was interrupted is incomplete, and continues with --resume.
    Export(Export),
    /// Import exports of a volume into a file or block device
    ///
    /// First a full export, then incremental ones that follow it, at once or one by one. The files are
    /// checked before anything is changed. To import into a volume, attach it (`ursa attach`), and name the
    /// file or device.
    Import(Import),
    /// Serve a snapshot over NBD, read-only, for qemu-img, nbdcopy and backup programs
    ///
    /// It runs until Ctrl-C or SIGTERM. Clients learn where the volume has data (base:allocation), and with
    /// --since what has changed since an earlier snapshot (qemu:dirty-bitmap:SNAPSHOT), so that they copy
    /// nothing else. While the node does not answer, reads wait for up to two minutes.
    Serve(Serve),
    /// Restore volumes to a snapshot, all at one point in time
    ///
    /// It takes the same time at any size. What the volumes are now is kept as a snapshot, unless it is
    /// discarded. Hosts that are logged in and see the volumes are named first, and nothing is done without
    /// --force.
    Restore {
        /// Snapshot name or number
        snapshot: String,
        /// Restore only these of its volumes, separated by commas
        #[arg(long, value_name = "VOLUME", value_delimiter = ',')]
        volumes: Vec<String>,
        /// Do not keep what the volumes are now
        #[arg(long)]
        discard: bool,
        /// Restore although hosts use the volumes: unmount there first
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Create clones of a snapshot: volumes that begin as what it has, and can be written
    ///
    /// It takes no longer for a large volume, and no space but for what is written to the clones. Their
    /// copies are on the nodes whose copies have the snapshot. As long as there are clones, the snapshot
    /// cannot be deleted.
    Clone(Clones),
    /// Take snapshots at an interval, and delete old ones
    #[command(subcommand)]
    Schedule(schedule::Command),
    /// Delete snapshots; their space is freed in the background
    Delete {
        /// Snapshot names or numbers
        #[arg(required = true, value_name = "SNAPSHOT")]
        snapshots: Vec<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Change when a snapshot expires, and its labels
    Change {
        /// Snapshot name or number
        snapshot: String,
        /// Delete it automatically after this time, from now on: 12h, 7d. Not while it is on hold
        #[arg(long, value_parser = parse_duration, value_name = "TIME")]
        expires: Option<Duration>,
        /// Do not delete it automatically
        #[arg(long, conflicts_with = "expires")]
        no_expiry: bool,
        /// Set a label; may be repeated
        #[arg(long = "label", value_parser = parse_label, value_name = "KEY=VALUE")]
        labels: Vec<(String, String)>,
        /// Remove the label with this key; may be repeated
        #[arg(long = "remove-label", value_name = "KEY")]
        remove_labels: Vec<String>,
    },
    /// Put a snapshot on hold, so that it cannot be deleted
    Hold {
        /// Snapshot name or number
        snapshot: String,
    },
    /// Release a snapshot that is on hold
    Release {
        /// Snapshot name or number
        snapshot: String,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create(create) => create.run(client, output),
            Command::List { volume, labels } => {
                let label = (!labels.is_empty()).then(|| labels.join(","));
                output.list(&client.snapshots(volume.as_deref(), label.as_deref())?, table)
            }
            Command::Show { snapshot } => output.show(&client.snapshot(&snapshot)?, shown),
            Command::Diff { from, to } => diff::run(client, output, from, to),
            Command::Export(export) => export.run(client, output),
            Command::Import(import) => import.run(output),
            Command::Serve(serve) => serve.run(client, output),
            Command::Restore { snapshot, volumes, discard, force, confirm } => {
                let what = format!("Restore volumes to snapshot {snapshot}");
                let restore = SnapshotRestore { volumes, discard, force };
                let change = |client: &Client| client.restore_snapshot(&snapshot, &restore);
                confirm.show(client, output, (&what, true), change, restored)
            }
            Command::Clone(clones) => clones.run(client, output),
            Command::Schedule(command) => command.run(client, output),
            Command::Delete { snapshots, confirm } => {
                let what = format!("Delete {}", list(&snapshots, "nothing"));
                if confirm.go_on_if(output, &what, true, || would_delete(client, &snapshots))? {
                    for snapshot in &snapshots {
                        client.delete_snapshot(snapshot)?;
                        output.done(&format!("Snapshot {snapshot} deleted."))?;
                    }
                }
                Ok(())
            }
            Command::Change { snapshot, expires, no_expiry, labels, remove_labels } => {
                let expires_after = if no_expiry { Some(0) } else { expires.map(|after| after.as_secs()) };
                let labels = labels.into_iter().collect();
                let change = SnapshotChange { held: None, expires_after, labels, remove_labels };
                output.show(&client.change_snapshot(&snapshot, &change)?, shown)
            }
            Command::Hold { snapshot } => set_hold(client, output, &snapshot, true),
            Command::Release { snapshot } => set_hold(client, output, &snapshot, false),
        }
    }
}

fn would_delete(client: &Client, snapshots: &[String]) -> Result<DryRun, api::ClientError> {
    let mut all = DryRun { would: Vec::new(), candidates: Vec::new() };
    for snapshot in snapshots {
        all.would.extend(client.would(|client| client.delete_snapshot(snapshot))?.would);
    }
    Ok(all)
}

fn set_hold(client: &Client, output: &Output, snapshot: &str, held: bool) -> Result<(), CliError> {
    let change = SnapshotChange { held: Some(held), ..SnapshotChange::default() };
    output.show(&client.change_snapshot(snapshot, &change)?, |changed| held_or_released(changed, unix_now()))
}

/// `now`: in seconds since 1970.
fn held_or_released(changed: &Snapshot, now: u64) -> String {
    let Snapshot { name, held, expires, .. } = changed;
    match (held, expires) {
        (true, _) => format!("Snapshot {name} is on hold: it cannot be deleted.\n"),
        (false, Some(at)) if *at <= now => {
            format!("Snapshot {name} is released. It has expired, and is deleted in a few seconds.\n")
        }
        (false, _) => format!("Snapshot {name} is released.\n"),
    }
}

fn restored(restored: &SnapshotRestored) -> String {
    let SnapshotRestored { snapshot, volumes, kept, pause_us } = restored;
    let volumes = list(volumes, "-");
    let kept = kept
        .as_ref()
        .map_or(String::new(), |kept| format!("What was there before is in snapshot {}.\n", kept.name));
    format!("Restored {volumes} to snapshot {snapshot}. Hosts had to wait for {}.\n{kept}", ms(*pause_us))
}

fn table(snapshots: &[Snapshot]) -> String {
    let mut table = Table::new(&[
        "NUMBER", "NAME", "STATE", "CREATED", "VOLUMES", "COPIES", "FREES", "PAUSE", "HOLD", "EXPIRES",
        "LABELS",
    ]);
    for snapshot in snapshots {
        table.row([
            snapshot.number.to_string(),
            snapshot.name.clone(),
            state(snapshot.state).into(),
            utc(snapshot.created),
            list(snapshot.volumes.iter().map(|of| &of.volume), "-"),
            list(snapshot.volumes.iter().map(copies), "-"),
            frees(&snapshot.volumes),
            pause(snapshot),
            String::from(if snapshot.held { "yes" } else { "-" }),
            snapshot.expires.map_or("-".into(), utc),
            labels::shown(&snapshot.labels),
        ]);
    }
    // Most snapshots have none.
    if snapshots.iter().all(|snapshot| snapshot.labels.is_empty()) {
        table.omit("LABELS");
    }
    table.text("No snapshots. Take one with `ursa snapshot create`.")
}

fn shown(snapshot: &Snapshot) -> String {
    let head = fields([
        ("Name", snapshot.name.clone()),
        ("Number", snapshot.number.to_string()),
        ("State", state(snapshot.state).into()),
        ("Created", utc(snapshot.created)),
        ("I/O pause", pause(snapshot)),
        ("On hold", String::from(if snapshot.held { "yes, it cannot be deleted" } else { "no" })),
        ("Expires", snapshot.expires.map_or("never".into(), utc)),
        ("Labels", labels::shown(&snapshot.labels)),
        ("Schedule", snapshot.schedule.clone().unwrap_or_else(|| "-".into())),
        ("Reclaimable", frees(&snapshot.volumes)),
    ]);
    let mut table = Table::new(&["VOLUME", "SIZE", "NODE", "NAME", "COPY", "FREES"]);
    for of in &snapshot.volumes {
        for copy in &of.copies {
            table.row([
                of.volume.clone(),
                size(of.size),
                copy.node.to_string(),
                copy.node_name.clone(),
                copy_state(copy.state).into(),
                frees_of(copy),
            ]);
        }
    }
    format!(
        "{head}\n{}",
        table.text("The cluster has no copies of these volumes: their pools may have been exported.")
    )
}

fn state(state: SnapshotState) -> &'static str {
    match state {
        SnapshotState::Preparing => "preparing",
        SnapshotState::Restoring => "restoring",
        SnapshotState::Complete => "complete",
        SnapshotState::Deleting => "deleting",
    }
}

fn copy_state(state: SnapshotCopyState) -> &'static str {
    match state {
        SnapshotCopyState::Present => "present",
        SnapshotCopyState::Missing => "MISSING",
        SnapshotCopyState::Unknown => "present (node not reached)",
        SnapshotCopyState::Absent => "absent",
    }
}

/// How many of a volume's copies have the snapshot.
fn copies(of: &SnapshotVolume) -> String {
    let has =
        |copy: &&SnapshotCopy| matches!(copy.state, SnapshotCopyState::Present | SnapshotCopyState::Unknown);
    format!("{}/{}", of.copies.iter().filter(has).count(), of.copies.len())
}

/// What deleting a snapshot frees: for each volume in the pool in which it frees most.
fn frees(volumes: &[SnapshotVolume]) -> String {
    let most = volumes
        .iter()
        .filter_map(|of| of.copies.iter().filter(|copy| copy.frees.is_some()).max_by_key(|copy| copy.frees));
    let most: Vec<&SnapshotCopy> = most.collect();
    if most.is_empty() {
        return "-".into();
    }
    let bytes = size(most.iter().filter_map(|copy| copy.frees).sum());
    match most.iter().all(|copy| copy.frees_is_exact) {
        true => bytes,
        false => format!("up to {bytes}"),
    }
}

fn frees_of(copy: &SnapshotCopy) -> String {
    match copy.frees {
        None => "-".into(),
        Some(bytes) if copy.frees_is_exact => size(bytes),
        Some(bytes) => format!("up to {}", size(bytes)),
    }
}

fn pause(snapshot: &Snapshot) -> String {
    snapshot.pause_us.map_or("-".into(), ms)
}

fn ms(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us / 100 % 10)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn snapshot() -> Snapshot {
        let copy = |node, state, frees, frees_is_exact| SnapshotCopy {
            node,
            node_name: format!("san{node}"),
            state,
            frees,
            frees_is_exact,
        };
        let of = |volume: &str, copies| SnapshotVolume {
            volume: volume.into(),
            volume_id: volume.into(),
            size: 1 << 30,
            copies,
        };
        let (present, absent) = (SnapshotCopyState::Present, SnapshotCopyState::Absent);
        Snapshot {
            number: 7,
            name: "before-upgrade".into(),
            state: SnapshotState::Complete,
            created: 1_795_348_984,
            pause_us: Some(12_340),
            held: false,
            expires: None,
            labels: BTreeMap::new(),
            schedule: None,
            volumes: vec![
                of("db", vec![copy(1, present, Some(1 << 20), true), copy(2, present, Some(3 << 20), true)]),
                of("logs", vec![copy(1, present, Some(1 << 20), false), copy(2, absent, None, false)]),
            ],
        }
    }

    #[test]
    fn a_list_says_what_each_snapshot_holds_and_has_cost() {
        let text = table(&[snapshot()]);
        let row = text.lines().nth(1).unwrap();
        let cells = ["7", "before-upgrade", "complete", "2026-11-22 12:03:04Z", "db, logs", "2/2, 1/2"];
        for cell in cells.into_iter().chain(["up to 4M", "12.3 ms"]) {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        assert!(table(&[]).contains("ursa snapshot create"));
    }

    #[test]
    fn expiry_and_labels_are_shown() {
        let expires = Some(1_795_348_984);
        let labels = BTreeMap::from([("app".into(), "shop".into()), ("ticket".into(), "4711".into())]);
        let labelled = Snapshot { expires, labels, ..snapshot() };
        let text = table(&[snapshot(), labelled.clone()]);
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(rows[0].split_whitespace().rev().take(3).collect::<Vec<_>>(), ["-"; 3], "{text}");
        assert!(rows[1].ends_with("2026-11-22 12:03:04Z  app=shop, ticket=4711"), "{text}");
        assert!(!table(&[snapshot()]).contains("LABELS"));
        let text = shown(&labelled);
        assert!(text.contains("2026-11-22 12:03:04Z") && text.contains("app=shop, ticket=4711"), "{text}");
        assert!(shown(&snapshot()).contains("never"));
    }

    #[test]
    fn a_release_says_if_the_snapshot_has_expired_meanwhile() {
        let released = Snapshot { expires: Some(500), ..snapshot() };
        assert_eq!(held_or_released(&released, 499), "Snapshot before-upgrade is released.\n");
        assert!(held_or_released(&released, 500).contains("is deleted in a few seconds"));
        assert!(held_or_released(&snapshot(), 500).ends_with("is released.\n"));
        let held = Snapshot { held: true, ..released };
        assert!(held_or_released(&held, 500).contains("is on hold"));
    }

    #[test]
    fn a_copy_that_lacks_it_is_named() {
        let text = shown(&snapshot());
        assert!(text.contains("absent") && text.contains("present"), "{text}");
        let text = create::created(&snapshot());
        assert!(text.contains("The snapshot is not on san2: its copy of logs is out of sync."), "{text}");
        assert!(text.contains("I/O pause: 12.3 ms"), "{text}");
    }

    #[test]
    fn a_restore_says_where_the_state_before_is() {
        let all = SnapshotRestored {
            snapshot: "before-upgrade".into(),
            volumes: vec!["db".into(), "logs".into()],
            kept: Some(Snapshot { name: "before-restore-of-before-upgrade-8".into(), ..snapshot() }),
            pause_us: 8_150,
        };
        assert_eq!(
            restored(&all),
            "Restored db, logs to snapshot before-upgrade. Hosts had to wait for 8.1 ms.\n\
             What was there before is in snapshot before-restore-of-before-upgrade-8.\n"
        );
        assert_eq!(restored(&SnapshotRestored { kept: None, ..all }).lines().count(), 1);
    }
}
