//! `ursa volume`.

use api::{
    Client, Comparison, CopyState, Difference, Loss, LossOutcome, RecordPlace, Verification,
    VerificationState, Volume, VolumeChange, VolumeCopy, VolumeCreate, VolumeKind,
};
use clap::{Args, Subcommand, ValueEnum};
use terms::clock::utc;
use terms::loss::single_copy;
use terms::same_names::same_names;
use terms::size::Size;

mod convert;
pub mod copy;
mod latency;
mod scrub;
mod served;
mod set;
mod split_brain;

pub(super) use self::scrub::bad_blocks;
use self::served::{remark, served};
use super::attach::Lun;
use super::confirm::{Confirm, show_would};
use super::error::CliError;
use super::output::Output;
use super::progress::Progress;
use super::sync::sync_line;
use super::table::{Table, fields, list, say_missing, size};

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a volume and a target for it, and show how to attach it
    Create(Create),
    /// List volumes
    List,
    /// Show a volume
    Show {
        /// Volume name or ID
        name: String,
    },
    /// Grow a volume while it is in use
    Resize {
        /// Volume name or ID
        name: String,
        /// New size
        size: Size,
    },
    /// Convert a volume to another kind while it is in use, or cancel that
    Convert {
        /// Volume name or ID
        name: String,
        /// Kind to convert it to
        #[arg(long, value_enum, required_unless_present = "cancel")]
        kind: Option<OnDisk>,
        /// Cancel the conversion; copies that have been converted already are converted back
        #[arg(long, conflicts_with = "kind")]
        cancel: bool,
        /// Show what the command would do, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Rename a volume; hosts are not affected
    Rename {
        /// Volume name or ID
        name: String,
        /// New name
        new_name: String,
    },
    /// Change settings of a volume while it is in use
    Set(set::Set),
    /// Show the read and write latency histogram of a volume
    Latency {
        /// Volume name or ID
        name: String,
        /// Node whose figures to show, by number [default: the queried node, or one that has the volume]
        #[arg(long, value_name = "NUMBER")]
        node: Option<u16>,
    },
    /// Verify a volume: read all copies in sync and compare them block by block
    Verify {
        /// Volume name or ID
        name: String,
        /// Node that runs the verify, by number [default: the queried node, or one that has a copy]
        #[arg(long, value_name = "NUMBER")]
        node: Option<u16>,
    },
    /// Scrub a volume: read everything in use from a node's disks, and repair bad blocks from other copies
    Scrub {
        /// Volume name or ID
        name: String,
        /// Node whose disks are read, by number [default: the queried node, or one that has a copy]
        #[arg(long, value_name = "NUMBER")]
        node: Option<u16>,
    },
    /// Add, move, rebuild and remove copies of a volume while it is in use
    #[command(subcommand)]
    Copy(copy::Command),
    /// Set the split-brain policy of a two-node volume
    SplitBrainPolicy(split_brain::Choice),
    /// Resolve a split brain: choose the node whose data is kept
    ResolveSplitBrain(split_brain::Resolution),
    /// Delete a volume and all its data
    Delete {
        /// Volume name or ID
        name: String,
        /// Delete it even if it is mapped; hosts lose the disk
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// A volume to be made.
#[derive(Args, Debug)]
pub struct Create {
    /// Volume name
    name: String,
    /// Size: 512M, 10G, 1.5T
    #[arg(long)]
    size: Size,
    /// Pool [default: the only one, or the one named default]
    #[arg(long)]
    pool: Option<String>,
    /// Where its data is kept
    #[arg(long, value_enum, default_value_t)]
    kind: Kind,
    /// Compress the blocks of a log volume [default: lz4]
    #[arg(long, value_enum)]
    compression: Option<Compression>,
    /// Give the blocks of a thick volume checksums, which every read verifies; log volumes always have them
    #[arg(long)]
    checksums: bool,
    /// Logical block size in bytes: 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    block_size: u32,
    /// Report a physical block size of 512 bytes, too, instead of 4096
    #[arg(long)]
    native_512: bool,
    /// What writes do when the pool is full; log volumes only [default: fail]
    #[arg(long, value_enum, value_name = "POLICY")]
    when_full: Option<WhenFull>,
    /// Space of the pool that only this volume can use; log volumes only [default: none]
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Size>,
    /// Number of slices, and so cores, to stripe it over: a power of two [default: one per core]
    #[arg(long, value_name = "N")]
    slices: Option<u16>,
    /// Number of copies, each on a different node [default: 2 in a cluster of several nodes, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    copies: Option<u8>,
    /// Nodes to put a copy on, by number: 1,2
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    on: Vec<u16>,
    /// Target, created if it does not exist [default: iqn.2026-11.io.ursa:NAME]
    #[arg(long, value_name = "IQN", conflicts_with = "no_map")]
    target: Option<String>,
    /// Host group to map it to [default: local, this machine]
    #[arg(long, conflicts_with = "no_map")]
    host: Option<String>,
    /// LUN [default: the lowest free one]
    #[arg(long, value_name = "N", conflicts_with = "no_map")]
    lun: Option<u16>,
    /// Do not map it; no host can use it until `ursa map create`
    #[arg(long)]
    no_map: bool,
    /// Show what the command would do, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Where the blocks of a volume are.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Kind {
    /// On the pool's disks, all space reserved at creation
    #[default]
    Thick,
    /// In memory: empty after each start of the node
    Ram,
    /// On the pool's disks, log-structured: thin, with checksums
    Log,
}

/// The kinds of volumes whose blocks are on disks. They can be converted into one another.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum OnDisk {
    /// On the pool's disks, all space reserved
    Thick,
    /// On the pool's disks, log-structured: thin, with checksums
    Log,
}

/// What writes to a log volume do when its pool is full.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WhenFull {
    /// Fail at once: hypervisors pause the virtual machine, others see a full disk
    Fail,
    /// Wait up to 15 seconds for space, then fail
    Pause,
}

/// Whether blocks are compressed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Compression {
    /// With LZ4, if that at least halves a block
    Lz4,
    /// Not at all
    Off,
}

same_names! {
    fn asked_kind(Kind) -> VolumeKind { Thick, Ram, Log }
    /// The kind that an option names.
    pub fn asked_kind_on_disk(OnDisk) -> VolumeKind { Thick, Log }
    fn asked_when_full(WhenFull) -> api::WhenFull { Fail, Pause }
    fn asked_compression(Compression) -> api::Compression { Lz4, Off }
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create(create) => {
                let dry_run = create.dry_run;
                let request = create.request()?;
                if dry_run {
                    let what = format!("Create volume {}", request.name);
                    let would = client.would(|client| client.create_volume(&request))?;
                    return show_would(output, &what, &would);
                }
                let volume = client.create_volume(&request)?;
                // Programs get the response without the portals.
                output.show(&volume, |volume| created(client, volume))
            }
            Command::List => {
                let volumes = client.volumes()?;
                // Programs get a list, as in versions that asked a single node.
                output.show(&volumes.items, |items| table(items))?;
                say_missing(&volumes.missing);
                Ok(())
            }
            Command::Show { name } => {
                let volume = client.volume(&name)?;
                output.show(&volume, |volume| shown(client, volume))
            }
            Command::Resize { name, size } => {
                let change = VolumeChange { size: Some(size.0), ..VolumeChange::default() };
                output.show(&client.change_volume(&name, &change)?, resized)
            }
            Command::Convert { name, kind, cancel: _, dry_run } => {
                convert::run(client, output, &name, kind.map(asked_kind_on_disk), dry_run)
            }
            Command::Rename { name, new_name } => {
                let change = VolumeChange { name: Some(new_name), ..VolumeChange::default() };
                let volume = client.change_volume(&name, &change)?;
                output.show(&volume, |volume| shown(client, volume))
            }
            Command::Set(set) => set.run(client, output),
            Command::Latency { name, node } => {
                output.show(&client.volume_counters(&name, node)?, latency::histogram)
            }
            Command::Verify { name, node } => {
                let mut progress = Progress::on_terminal("compared");
                let tell = |found: &Verification| progress.tell(found.checked_bytes, found.total_bytes);
                let found = client.verify_volume(&name, node, tell);
                drop(progress);
                let found = found?;
                output.show(&found, verified)?;
                if found.equal { Ok(()) } else { Err(CliError::CopiesDiffer(name)) }
            }
            Command::Scrub { name, node } => {
                output.show(&client.scrub_volume(&name, node)?, |found| scrub::shown(&name, found))
            }
            Command::Copy(command) => command.run(client, output),
            Command::SplitBrainPolicy(choice) => choice.run(client, output),
            Command::ResolveSplitBrain(resolution) => resolution.run(client, output),
            Command::Delete { name, force, confirm } => {
                let volume = client.volume(&name)?;
                let what = format!("Delete volume {}", volume.name);
                let done = format!("Volume {} deleted.", volume.name);
                confirm.done(client, output, &what, &done, |client| client.delete_volume(&volume.id, force))
            }
        }
    }
}

impl Create {
    fn request(self) -> Result<VolumeCreate, CliError> {
        let (copies, nodes) = match (self.copies, self.on) {
            (copies, on) if on.is_empty() => (copies, None),
            (Some(copies), on) if usize::from(copies) != on.len() => {
                return Err(CliError::CopiesOnNodes(copies, on.len()));
            }
            (_, on) => (None, Some(on)),
        };
        Ok(VolumeCreate {
            pool: self.pool,
            kind: asked_kind(self.kind),
            block_size: self.block_size,
            native_512: self.native_512,
            slices: self.slices,
            when_full: self.when_full.map(asked_when_full),
            reserve: self.reserve.map(|size| size.0),
            map: !self.no_map,
            target: self.target,
            host: self.host,
            lun: self.lun,
            copies,
            nodes,
            compression: self.compression.map(asked_compression),
            checksums: self.checksums,
            ..VolumeCreate::new(self.name, self.size.0)
        })
    }
}

fn created(client: &Client, volume: &Volume) -> String {
    let what = format!("Volume {} created: {}, {}", volume.name, size(volume.size), volume.kind);
    let redundancy = redundancy(volume);
    let Some(map) = volume.maps.first() else {
        let name = &volume.name;
        return format!(
            "{what}. It is not mapped yet, so no host can use it. Map it: `ursa map create TARGET {name} --host HOST`.\nRedundancy: {redundancy}.\n"
        );
    };
    let (lun, target, host) = (map.lun, &map.target, &map.host);
    let attach = Lun { volume, target, host }.instructions(client);
    format!(
        "{what}. LUN {lun} of target {target} for host group {host}.\nRedundancy: {redundancy}.\n{attach}"
    )
}

fn resized(volume: &Volume) -> String {
    format!(
        "Volume {} resized to {}. Hosts see the new size after `sudo iscsiadm -m session --rescan`; then grow the file system.\n",
        volume.name,
        size(volume.size)
    )
}

fn table(volumes: &[Volume]) -> String {
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "SIZE",
        "USED",
        "RATIO",
        "KIND",
        "CHECKSUMS",
        "BLOCK",
        "NODES",
        "POOL",
        "CLONE OF",
        "TARGET",
        "LUN",
        "HOST",
    ]);
    for volume in volumes {
        let (target, lun, host) = match volume.maps.as_slice() {
            [] => Default::default(),
            [map] => (map.target.clone(), map.lun.to_string(), map.host.clone()),
            maps => (format!("{} maps", maps.len()), String::new(), String::new()),
        };
        table.row([
            volume.name.clone(),
            served::state(volume).into(),
            size(volume.size),
            used(volume),
            ratio(volume).unwrap_or_else(|| "-".into()),
            volume.kind.to_string(),
            checksums(volume).into(),
            volume.block_size.to_string(),
            on(volume),
            volume.pool.clone(),
            clone_of(volume).unwrap_or_else(|| "-".into()),
            target,
            lun,
            host,
        ]);
    }
    if !volumes.iter().any(|volume| volume.compression.is_some()) {
        table.omit("RATIO");
    }
    if !volumes.iter().any(|volume| !volume.kind.has_checksums() && volume.checksums == Some(true)) {
        table.omit("CHECKSUMS");
    }
    if volumes.iter().all(|volume| volume.clone_of.is_none()) {
        table.omit("CLONE OF");
    }
    if volumes.iter().all(|volume| volume.copies.is_empty()) {
        table.omit("NODES");
    }
    let mut text = table.text("No volumes. Create one with `ursa volume create NAME --size 10G`.");
    volumes.iter().filter_map(remark).for_each(|remark| text += &format!("\n{remark}"));
    text
}

/// What a volume uses, and of a log volume what is reserved for it.
fn used(volume: &Volume) -> String {
    match volume.kind.is_thin() && volume.reserved > 0 {
        true => format!("{} ({} reserved)", size(volume.used), size(volume.reserved)),
        false => size(volume.used),
    }
}

/// The volume and the snapshot of which it is a clone.
fn clone_of(volume: &Volume) -> Option<String> {
    volume.clone_of.as_ref().map(|of| format!("{}@{}", of.volume, of.snapshot))
}

/// The numbers of the nodes that have a copy.
fn on(volume: &Volume) -> String {
    list(volume.copies.iter().map(|copy| copy.node), "-")
}

/// The number of copies, and what it means if there is only one.
fn redundancy(volume: &Volume) -> String {
    let node = |copy: &VolumeCopy| match copy.here && copy.node_name.is_empty() {
        true => "this node".to_owned(),
        false => format!("node {} ({})", copy.node, copy.node_name),
    };
    match volume.copies.as_slice() {
        [] => single_copy(volume.kind, "this node"),
        [only] => single_copy(volume.kind, &node(only)),
        copies => {
            let in_sync = copies.iter().filter(|copy| copy.state == CopyState::InSync).count();
            format!("{} copies, {in_sync} in sync", copies.len())
        }
    }
}

fn shown(client: &Client, volume: &Volume) -> String {
    one(volume) + &copies(volume, split_brain::record_place(client))
}

/// The copies, and what the loss of each would do now.
fn copies(volume: &Volume, place: RecordPlace) -> String {
    if volume.copies.is_empty() {
        return String::new();
    }
    let copy = |copy: &VolumeCopy| {
        let here = if copy.here { ", here" } else { "" };
        let leaves = if copy.leaves { ", being removed" } else { "" };
        let sync = copy.sync.as_ref().map(|sync| format!("\n{}", sync_line(sync))).unwrap_or_default();
        format!("on node {} ({}{here}): {}{leaves}{sync}", copy.node, copy.node_name, state(copy.state))
    };
    let all: Vec<String> = volume.copies.iter().map(copy).collect();
    let last = match (volume.epoch, &volume.reason) {
        (Some(epoch), Some(reason)) => format!("epoch {epoch}: {reason}"),
        _ => "-".into(),
    };
    let losses = match volume.losses.as_slice() {
        [] => "unknown: this node could not list the cluster's nodes in time (`ursa node list`)".into(),
        losses => losses.iter().map(loss_line).collect::<Vec<_>>().join("\n"),
    };
    let chosen = split_brain::chosen(volume, place);
    let fork = volume.fork.as_ref().map(|fork| split_brain::fork_line(volume, fork)).unwrap_or_default();
    fork + "\n"
        + &fields([
            ("Copies", all.join("\n")),
            ("Last change", last),
            ("Split-brain policy", chosen),
            ("Verified", volume.comparison.as_ref().map_or_else(|| "-".into(), compared)),
            ("Tolerance", losses),
        ])
}

/// `if node 1 is lost: unavailable until the node returns (only copy in sync)`.
fn loss_line(Loss { node, outcome, text }: &Loss) -> String {
    match outcome {
        LossOutcome::Down => format!("node {node} is {text}"),
        _ => format!("if node {node} is lost: {text}"),
    }
}

/// The result of the last verification, and the time of the next one.
fn compared(found: &Comparison) -> String {
    let outcome = match (found.stopped, found.different_bytes, found.unchecked_bytes) {
        (true, ..) => "interrupted".to_owned(),
        (_, 0, 0) => "equal".to_owned(),
        (_, 0, unchecked) => format!("{} could not be compared", size(unchecked)),
        (_, different, _) => format!("COPIES DIFFER IN {}", size(different)),
    };
    let last = found.last.map_or_else(|| "never".to_owned(), |at| format!("{}: {outcome}", utc(at)));
    let next = match (found.done_bytes, found.next) {
        (Some(done), _) => format!("{} of the next verify run done", size(done)),
        (None, Some(at)) => format!("next after {}", utc(at)),
        (None, None) => "no schedule".to_owned(),
    };
    format!("{last}; {next}")
}

fn state(state: CopyState) -> &'static str {
    match state {
        CopyState::InSync => "in sync",
        CopyState::CatchingUp => "catching up: it takes new writes, resync in progress",
        CopyState::OutOfSync => "OUT OF SYNC: it misses writes",
    }
}

fn verified(found: &Verification) -> String {
    let nodes = list(&found.nodes, "none");
    let place = |place: &Difference| {
        let nodes = list(&place.nodes, "none");
        format!("{} at offset {}, on nodes {nodes}\n", size(place.bytes), place.offset)
    };
    let places: String = found.differences.iter().map(place).collect();
    let verdict = match found.state {
        VerificationState::Running => "Still running.".to_owned(),
        VerificationState::Stopped => {
            format!("Interrupted after {} of {}.", size(found.checked_bytes), size(found.total_bytes))
        }
        VerificationState::Done if found.different_bytes > 0 => format!(
            "THE COPIES DIFFER in {}. Rebuild the wrong copy: `ursa volume copy rebuild`.",
            size(found.different_bytes)
        ),
        VerificationState::Done if found.unchecked_bytes > 0 => format!(
            "{} could not be compared: {}. The rest is equal.",
            size(found.unchecked_bytes),
            found.problem.as_deref().unwrap_or("unknown cause")
        ),
        VerificationState::Done => "The copies in sync are equal.".to_owned(),
    };
    let took = format!("{} in {} s", size(found.checked_bytes), found.took_s);
    format!("{}{places}\n{verdict}\n", fields([("Nodes", nodes), ("Compared", took)]))
}

fn one(volume: &Volume) -> String {
    let maps: Vec<String> = volume
        .maps
        .iter()
        .map(|map| format!("LUN {} of {} for host group {}", map.lun, map.target, map.host))
        .collect();
    let on = match volume.copies.is_empty() {
        true => "this node only".into(),
        false => format!("{}: see Copies", on(volume)),
    };
    fields([
        ("Volume", volume.name.clone()),
        ("Served", served(volume)),
        ("Nodes", on),
        ("Redundancy", redundancy(volume)),
        ("Size", format!("{} ({} bytes)", size(volume.size), volume.size)),
        ("Kind", volume.kind.to_string()),
        ("Clone of", clone_of(volume).unwrap_or_else(|| "-".into())),
        ("Blocks", format!("{} bytes, {} physical", volume.block_size, volume.physical_block_size)),
        ("Pool", volume.pool.clone()),
        ("Reserved", size(volume.reserved)),
        ("Used", size(volume.used)),
        ("When full", volume.when_full.map_or("-", when_full).into()),
        ("Compression", compression(volume).unwrap_or_else(|| "-".into())),
        ("Checksums", checksums(volume).into()),
        ("Slices", volume.slices.to_string()),
        ("Scrubbed", volume.scrub.as_ref().map_or_else(|| "-".into(), scrub::last)),
        ("Maps", if maps.is_empty() { "none".into() } else { maps.join("\n") }),
        ("Linux device", format!("/dev/disk/by-id/wwn-0x{}", volume.naa)),
        ("ID", volume.id.clone()),
    ])
}

fn when_full(policy: api::WhenFull) -> &'static str {
    match policy {
        api::WhenFull::Fail => "fail: writes that need space fail at once",
        api::WhenFull::Pause => "pause: writes that need space wait up to 15 seconds, then fail",
    }
}

/// The compression of a log volume, and what it saves.
fn compression(volume: &Volume) -> Option<String> {
    let set = volume.compression?;
    Some(match ratio(volume) {
        Some(ratio) => format!("{set}, ratio {ratio}"),
        None => set.to_string(),
    })
}

/// Whether reads verify blocks.
fn checksums(volume: &Volume) -> &'static str {
    match volume.checksums {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
}

/// How many bytes of blocks take one byte of space, if known.
fn ratio(volume: &Volume) -> Option<String> {
    let percent = volume.compression_ratio_percent?;
    Some(format!("{}.{:02}", percent / 100, percent % 100))
}

#[cfg(test)]
mod tests {
    use api::CloneOf;
    use terms::samples;

    use super::*;

    #[test]
    fn clones_are_listed_with_what_they_are_clones_of() {
        let of = CloneOf { volume: "image".into(), volume_id: "1".into(), snapshot: "golden".into() };
        let (db, vm) = (samples::volume("db", Vec::new()), samples::volume("vm-1", Vec::new()));
        let vm = Volume { clone_of: Some(of), ..vm };
        assert!(!table(std::slice::from_ref(&db)).contains("CLONE OF"));
        let text = table(&[db, vm.clone()]);
        assert!(text.contains("CLONE OF") && text.contains("image@golden"), "{text}");
        let line = one(&vm).lines().find(|line| line.starts_with("Clone of")).map(str::to_owned);
        assert!(line.as_ref().is_some_and(|line| line.ends_with("image@golden")), "{line:?}");
    }

    #[test]
    fn losses_are_unknown_only_if_no_node_reports_them() {
        let unknown = samples::volume("db", vec![samples::copy(0, 1, CopyState::InSync)]);
        let loss = |node, outcome, text: &str| Loss { node, outcome, text: text.to_owned() };
        let losses =
            vec![loss(1, LossOutcome::Unavailable, "unavailable"), loss(2, LossOutcome::Down, "down now")];
        let known = Volume { losses, ..unknown.clone() };
        let tolerance = |volume: &Volume| {
            let shown = copies(volume, RecordPlace::Nodes);
            let (_, lines) = shown.split_once("Tolerance").unwrap();
            lines.lines().map(str::trim).collect::<Vec<_>>().join("; ")
        };
        assert!(tolerance(&unknown).starts_with("unknown: this node could not list"), "{unknown:?}");
        assert_eq!(tolerance(&known), "if node 1 is lost: unavailable; node 2 is down now");
    }
}
