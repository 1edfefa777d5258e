//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Since, SyncPaused, VolumeFork, VolumeStrategy};

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its identity for ever: also its SCSI serial number.
    pub id: String,
    /// Its name: unique in the cluster with copies, else in the node that has it.
    pub name: String,
    /// Its pool. Empty if it was made on other nodes a moment ago, no pool was named, and none of them has answered since.
    pub pool: String,
    /// Where its blocks are.
    pub kind: VolumeKind,
    /// Its size in bytes.
    pub size: u64,
    /// Its logical block in bytes: 512 or 4096.
    pub block_size: u32,
    /// Its physical block in bytes.
    pub physical_block_size: u32,
    /// Over how many slices, and so cores, it is striped.
    pub slices: u16,
    /// What it takes of the pool (thick) or of memory at most (RAM), in bytes.
    pub reserved: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its NAA name in hexadecimal: `/dev/disk/by-id/wwn-0x...` on Linux hosts.
    pub naa: String,
    /// Where it is mapped.
    pub maps: Vec<VolumeMap>,
    /// Why the node that was asked, or the one that alone has it, does not serve it, and what to do; absent if it does. Other nodes serve it all the same while a copy on them is in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether hosts can read and write it through this node now.
    #[serde(default = "yes")]
    pub serving: bool,
    /// Its copies, by slot; empty if one node alone has it, and it is not in the cluster's record.
    #[serde(default)]
    pub copies: Vec<VolumeCopy>,
    /// The number of the node that alone has it; absent with copies, and without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// How often it has changed which copies are in sync; absent without copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Why that was changed last; absent without copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was chosen for the case that its nodes do not hear of each other; absent if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<VolumeStrategy>,
    /// A node has gone on alone with it, and that is not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<VolumeFork>,
    /// What the loss of each node that has a copy would do now; absent without copies, and where that cannot be said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// How its copies were compared last, and when they are next; absent without copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// How a volume's copies were compared last, and when they are next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// When the last one ended, in seconds since 1970; absent: they were not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The node that compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Somebody stopped it before its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Bytes that it found to differ.
    #[serde(default)]
    pub different_bytes: u64,
    /// Bytes that it could not compare.
    #[serde(default)]
    pub unchecked_bytes: u64,
    /// How many bytes are compared of the one that was begun by schedule and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_bytes: Option<u64>,
    /// When the next one is due by schedule, in seconds since 1970, if all copies are in sync then; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// What the loss of a node would do to a volume now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Loss {
    /// The number of the node.
    pub node: u16,
    /// What, for programs.
    pub outcome: LossOutcome,
    /// The same in words.
    pub text: String,
}

/// What the loss of a node does to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossOutcome {
    /// The node is not there now.
    DownNow,
    /// Nothing changes: its copy is not in sync.
    Nothing,
    /// The volume goes on after a moment.
    GoesOn,
    /// The other node goes on alone; if only the link is lost both do, and one's data is given up later.
    GoesOnAlone,
    /// Nobody serves the volume until the node is back.
    Stops,
    /// The data is lost.
    DataLost,
}

/// A copy of a volume on a node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeCopy {
    /// The number of its node.
    pub node: u16,
    /// The name of its node; empty if there is no such node any more.
    pub node_name: String,
    /// Its place among the copies.
    pub slot: u8,
    /// What it may do.
    pub state: CopyState,
    /// It is on the node that was asked.
    pub here: bool,
    /// It is taken off its node as soon as others allow it; absent: it stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// How far it is from being in sync; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<CopySync>,
}

/// A copy to be added to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CopyCreate {
    /// The number of the node that gets it.
    pub node: u16,
    /// The pool there; absent: the only one, or the one named `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The number of the node whose copy is taken away when the new one is in sync: the copy moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<u16>,
}

/// How far a copy is that is not in sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopySync {
    /// Bytes that there were to copy when it began, with what hosts have written since. What it misses is counted in regions of 64 KiB.
    pub total_bytes: u64,
    /// Bytes that are left of them.
    pub left_bytes: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// How fast, over the last five seconds.
    pub bytes_per_second: u64,
    /// How long it takes if it goes on like that; absent if nobody can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Why it missed writes.
    pub cause: String,
    /// Since when it is not in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// What keeps it from going faster, if not the disks and the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_by: Option<SyncRestraint>,
    /// What it waits for; absent if it gets on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Who has paused it, and when: it stays as it is until somebody has it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SyncPaused>,
}

/// What keeps a sync from going faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncRestraint {
    /// Hosts' writes, which would take too long.
    Hosts,
    /// What the node that gives it may give: `sync-bytes-per-second-max`.
    NodeLimit,
    /// What all nodes of the cluster may give together: `ursa node sync-limit`.
    ClusterLimit,
    /// The node that gives it brings other volumes up to date first.
    Turn,
    /// Somebody has paused it.
    Paused,
}

/// What a copy may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// It has every write that hosts were told of, and serves.
    InSync,
    /// It takes new writes, and is given what it missed.
    Joining,
    /// It misses writes.
    Outside,
}

/// Whether the copies of a volume are equal: what has come of comparing them while hosts use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// How far it is.
    pub state: VerificationState,
    /// All of the volume was compared, and is the same in all copies in sync.
    pub equal: bool,
    /// Bytes of the volume.
    pub total_bytes: u64,
    /// Bytes that were looked at.
    pub checked_bytes: u64,
    /// Bytes among them that could not be compared.
    pub unchecked_bytes: u64,
    /// Why the last of these could not; absent if all could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Bytes that are not the same in all copies.
    pub different_bytes: u64,
    /// Where, for the first 256 places.
    pub differences: Vec<Difference>,
    /// The numbers of the nodes whose copies were compared, all the way.
    pub nodes: Vec<u16>,
    /// Seconds since it began.
    pub age_s: u64,
    /// Seconds that it has taken.
    pub took_s: u64,
}

/// How far a comparison of copies is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationState {
    /// It goes on.
    Running,
    /// All was looked at.
    Done,
    /// Somebody has stopped it, or the node was stopped.
    Stopped,
}

/// A part of a volume that is not the same in all its copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Where it begins, in bytes from the volume's first.
    pub offset: u64,
    /// How many bytes it has: a whole region, of which one byte may differ.
    pub bytes: u64,
    /// The numbers of the nodes whose copies differ from most others; all, if no content is that of most.
    pub nodes: Vec<u16>,
}

/// Where a volume's blocks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeKind {
    /// In place on the pool's disks, all space taken at creation.
    #[default]
    Thick,
    /// In memory: empty after each start of the node.
    Ram,
}

/// A LUN map as its volume shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeMap {
    /// The target's iSCSI name.
    pub target: String,
    /// The logical unit number there.
    pub lun: u16,
    /// The host group that sees it.
    pub host: String,
}

/// A volume to be made, and the map that makes it usable. All of it is done or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// Its size in bytes; it is rounded up to whole blocks.
    #[schema(minimum = 1)]
    pub size: u64,
    /// The pool; absent: the only one, or the one named `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Where its blocks are.
    #[serde(default)]
    pub kind: VolumeKind,
    /// The logical block: 512 or 4096.
    #[serde(default = "default_block_size")]
    #[schema(default = 512)]
    pub block_size: u32,
    /// Say that the physical block has 512 bytes, too; otherwise a volume with 512-byte blocks is a 512e one.
    #[serde(default)]
    pub native_512: bool,
    /// Over how many slices it is striped, a power of two; absent: one a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u16>,
    /// Make it a LUN of a target at once.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub map: bool,
    /// The target, made if it does not exist; absent: `iqn.2026-11.io.ursa:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The host group to map it for; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The logical unit number; absent: the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 255)]
    pub lun: Option<u16>,
    /// How many copies it has, each on a different node, this one among them if it has room. Absent, like `nodes` and `local`: two in a
    /// cluster of several nodes (witnesses do not count), otherwise one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4)]
    pub copies: Option<u8>,
    /// On which nodes it has a copy, by number; not together with `copies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 4)]
    pub nodes: Option<Vec<u16>>,
    /// A single copy on this node, kept out of the cluster's record: it is served without a quorum, and can never get a second copy. Not together with `copies` or `nodes`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(default = false)]
    pub local: bool,
}

impl VolumeCreate {
    /// A thick volume with everything else as it is by default.
    pub fn new(name: impl Into<String>, size: u64) -> VolumeCreate {
        VolumeCreate {
            name: name.into(),
            size,
            pool: None,
            kind: VolumeKind::default(),
            block_size: default_block_size(),
            native_512: false,
            slices: None,
            map: true,
            target: None,
            host: None,
            lun: None,
            copies: None,
            nodes: None,
            local: false,
        }
    }
}

/// What to change of a volume; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// Its new size in bytes, larger than it is; it is rounded up to whole blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

fn default_block_size() -> u32 {
    512
}

fn yes() -> bool {
    true
}
