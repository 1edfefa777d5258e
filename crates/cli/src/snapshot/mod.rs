//! `ursa snapshot`.

mod diff;
mod export;
mod import;
mod schedule;

use api::{
    Client, DryRun, Snapshot, SnapshotChange, SnapshotCopy, SnapshotCopyState, SnapshotCreate,
    SnapshotRestore, SnapshotRestored, SnapshotState, SnapshotVolume,
};
use clap::Subcommand;
use terms::clock::{unix_now, utc};

use self::diff::VolumeAt;
use self::export::Export;
pub use self::export::ExportError;
use self::import::Import;
pub use self::import::ImportError;
use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::table::{Table, fields, list, size};

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Take a snapshot of one or several log volumes, all at one point in time
    ///
    /// Commands of hosts wait meanwhile: for 500 ms at most, or the snapshot is not taken. It is taken on all
    /// copies that are in sync.
    Create {
        /// Volumes, separated by commas
        #[arg(required = true, value_name = "VOLUME", value_delimiter = ',')]
        volumes: Vec<String>,
        /// Name of the snapshot [default: the time, such as 2026-11-29T21.50.45Z]
        #[arg(long)]
        name: Option<String>,
    },
    /// List snapshots: of all volumes, or of one
    List {
        /// Volume
        volume: Option<String>,
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
            Command::Create { volumes, name } => {
                let name = name.unwrap_or_else(|| name_at(unix_now()));
                output.show(&client.create_snapshot(&SnapshotCreate { volumes, name })?, created)
            }
            Command::List { volume } => output.list(&client.snapshots(volume.as_deref())?, table),
            Command::Show { snapshot } => output.show(&client.snapshot(&snapshot)?, shown),
            Command::Diff { from, to } => diff::run(client, output, from, to),
            Command::Export(export) => export.run(client, output),
            Command::Import(import) => import.run(output),
            Command::Restore { snapshot, volumes, discard, force, confirm } => {
                let what = format!("Restore volumes to snapshot {snapshot}");
                let restore = SnapshotRestore { volumes, discard, force };
                let change = |client: &Client| client.restore_snapshot(&snapshot, &restore);
                confirm.show(client, output, (&what, true), change, restored)
            }
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
            Command::Hold { snapshot } => set_hold(client, output, &snapshot, true),
            Command::Release { snapshot } => set_hold(client, output, &snapshot, false),
        }
    }
}

/// The name of a snapshot that gets none.
fn name_at(seconds: u64) -> String {
    utc(seconds).replace(' ', "T").replace(':', ".")
}

fn would_delete(client: &Client, snapshots: &[String]) -> Result<DryRun, api::ClientError> {
    let mut all = DryRun { would: Vec::new(), candidates: Vec::new() };
    for snapshot in snapshots {
        all.would.extend(client.would(|client| client.delete_snapshot(snapshot))?.would);
    }
    Ok(all)
}

fn set_hold(client: &Client, output: &Output, snapshot: &str, held: bool) -> Result<(), CliError> {
    let changed = client.change_snapshot(snapshot, &SnapshotChange { held })?;
    output.show(&changed, |changed| match changed.held {
        true => format!("Snapshot {} is on hold: it cannot be deleted.\n", changed.name),
        false => format!("Snapshot {} is released.\n", changed.name),
    })
}

fn created(snapshot: &Snapshot) -> String {
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

fn restored(restored: &SnapshotRestored) -> String {
    let SnapshotRestored { snapshot, volumes, kept, pause_us } = restored;
    let volumes = list(volumes, "-");
    let kept = kept
        .as_ref()
        .map_or(String::new(), |kept| format!("What was there before is in snapshot {}.\n", kept.name));
    format!("Restored {volumes} to snapshot {snapshot}. Hosts had to wait for {}.\n{kept}", ms(*pause_us))
}

fn table(snapshots: &[Snapshot]) -> String {
    let mut table =
        Table::new(&["NUMBER", "NAME", "STATE", "CREATED", "VOLUMES", "COPIES", "FREES", "PAUSE", "HOLD"]);
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
        ]);
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
    fn a_copy_that_lacks_it_is_named() {
        let text = shown(&snapshot());
        assert!(text.contains("absent") && text.contains("present"), "{text}");
        let text = created(&snapshot());
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

    #[test]
    fn a_snapshot_without_a_name_is_named_after_its_time() {
        assert_eq!(name_at(1_795_348_984), "2026-11-22T12.03.04Z");
    }
}
