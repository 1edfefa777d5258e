//! The catalog, which is a pool's metadata: its disks, its host, its volumes and where they lie.
//!
//! A catalog is small and written as a whole, so a change is either complete or absent. It is cheap to clone:
//! volumes are shared until one changes.

mod encoding;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use base::{BlockSize, ByteLen};

use crate::copy::{self, CopyOf, CopyState, MAP_PAGE_BYTES, PoolMark};
use crate::extent::ExtentRun;
use crate::id::{DiskId, HostId, VolumeId};
use crate::log::marks::Origin;
use crate::log::place::{SEGMENT_SLOTS_MAX, SEGMENT_SLOTS_MIN, SEGMENTS_MAX, SLOT_BYTES, SLOT_QUARTERS};
use crate::log::root::ROOTS_BYTES;
use crate::stripe::Stripe;
use crate::thick::checksum_pages;

/// How many volumes a pool can have: four times what a node is expected to have.
pub const VOLUMES_MAX: usize = 4096;

/// How many slices a volume can have: more cores than one volume can use.
pub const SLICES_MAX: u16 = 64;

/// Maximum length of a name: that of a DNS label, so that a name can be part of a target's name.
pub const NAME_BYTES_MAX: usize = 63;

/// Maximum bytes of a logical unit's state: reservations of 256 initiators with the longest names (223
/// bytes).
pub const LU_STATE_BYTES_MAX: usize = 64 << 10;

/// How deep clones of clones can be: a block may have to be looked for in as many volumes, and one more.
pub const CLONE_DEPTH_MAX: usize = 4;

/// Maximum size of a volume: 64 PiB, so that no sum of a few of them overflows.
pub const CAPACITY_MAX: ByteLen = ByteLen(1 << 56);

/// A server, as a pool remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The host's identity.
    pub id: HostId,
    /// The host's name, for people. Names longer than [`NAME_BYTES_MAX`] bytes are cut.
    pub name: String,
}

base::shows!(Display for Host, |it| "{} ({})", it.name, it.id);

// The numbers are those in the catalog and between nodes.
base::numbered! {
    /// Where the blocks of a volume are stored.
    pub enum VolumeKind: u8 {
        /// In place on the pool's disks. All space is taken when the volume is created.
        Thick = 1,
        /// In memory: empty after each start. Only the definition of the volume is in the pool.
        Ram = 2,
        /// In the pool's logs: never in place, and taking space only for what was written. Volumes share the
        /// room.
        Log = 3,
    }

    /// What a write does that finds the pool of its log volume full.
    #[derive(Default)]
    pub enum WhenFull: u8 {
        /// It fails at once.
        #[default]
        Fail = 1,
        /// It waits for room for a while first. The store only keeps this for the node.
        Pause = 2,
    }

    /// Whether the blocks of a log-structured volume are compressed.
    #[derive(Default)]
    pub enum Compression: u8 {
        /// Blocks are stored as they are.
        Off = 0,
        /// Blocks that LZ4 makes half as large take half a block's space, or a quarter.
        #[default]
        Lz4 = 1,
    }
}

/// How a log volume shares the space of its pool with the others. Other volumes have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpacePolicy {
    /// What its writes do when there is no room.
    pub when_full: WhenFull,
    /// Space that only this volume can use.
    pub reserve: ByteLen,
}

impl SpacePolicy {
    /// The quarters of slots of the reserve in each log of a volume with this many slices: whole slots.
    pub(crate) fn reserved_quarters(self, slices: u16) -> u64 {
        self.reserve.0.div_ceil(u64::from(slices)).div_ceil(SLOT_BYTES as u64) * u64::from(SLOT_QUARTERS)
    }

    pub(crate) fn suits(self, kind: VolumeKind, capacity: ByteLen) -> bool {
        match kind {
            VolumeKind::Log => self.reserve <= capacity,
            VolumeKind::Thick | VolumeKind::Ram => self == SpacePolicy::default(),
        }
    }
}

/// What distinguishes the kinds. Other crates ask for these properties, not for a kind by its name: so a new
/// kind is one variant and its properties.
impl VolumeKind {
    /// Whether its blocks are on disks, and survive a restart of the node.
    pub const fn is_durable(self) -> bool {
        match self {
            VolumeKind::Thick | VolumeKind::Log => true,
            VolumeKind::Ram => false,
        }
    }

    /// Whether it takes the space of its pool as blocks are written, and shares it with other volumes. So a
    /// write may find no space, and the volume has a [`SpacePolicy`].
    pub const fn is_thin(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// Whether it can have snapshots.
    pub const fn has_snapshots(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// Whether its blocks can be compressed.
    pub const fn is_compressible(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// Whether each block has a checksum. A durable volume of another kind has checksums if it was created
    /// with them.
    pub const fn has_checksums(self) -> bool {
        match self {
            VolumeKind::Log => true,
            VolumeKind::Thick | VolumeKind::Ram => false,
        }
    }

    /// As in "a thick volume".
    pub const fn name(self) -> &'static str {
        match self {
            VolumeKind::Thick => "thick",
            VolumeKind::Ram => "RAM",
            VolumeKind::Log => "log",
        }
    }

    /// The kind that a volume of this one can be converted to.
    pub fn other(self) -> Option<VolumeKind> {
        match self {
            VolumeKind::Thick => Some(VolumeKind::Log),
            VolumeKind::Log => Some(VolumeKind::Thick),
            VolumeKind::Ram => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// The pool's name.
    pub name: String,
    /// The host that opened the pool last.
    pub host: Host,
    /// The host has closed the pool properly.
    pub exported: bool,
    /// By place in the pool.
    pub disks: Vec<DiskEntry>,
    pub volumes: BTreeMap<VolumeId, Rc<VolumeEntry>>,
    /// How far the pool has come; a pool that never had copies has no mark.
    pub mark: PoolMark,
    /// The superblocks of every disk have at least this generation: a disk that has only older ones was set
    /// back.
    pub sealed: u64,
    /// The logs that hold the log-structured volumes.
    pub logs: Logs,
}

/// The logs of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Logs {
    /// The extents of the roots, in two mirrors; empty while the pool has no log.
    pub roots: [Vec<ExtentRun>; 2],
    /// The branch of the next log volume. A branch is never reused, even after its volume was deleted.
    pub next_branch: u32,
    /// By number. Slice `s` of every log volume lies in log `s`.
    pub logs: BTreeMap<u16, LogEntry>,
}

/// One log of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub identity: [u8; 16],
    /// log2 of the bytes of a segment.
    pub segment_shift: u8,
    /// Number of segments of a zone.
    pub zone_segments: u32,
    /// The zones that the pool has lent the log, by number.
    pub zones: BTreeMap<u32, ExtentRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskEntry {
    pub id: DiskId,
    pub bytes: u64,
    pub extents: u32,
    /// The disk is leaving the pool: nothing new gets extents of it.
    pub leaving: bool,
}

impl DiskEntry {
    /// The entry of a place whose disk was removed. All its bytes are zero.
    pub(crate) const VACANT: DiskEntry =
        DiskEntry { id: DiskId([0; 16]), bytes: 0, extents: 0, leaving: false };

    pub(crate) fn is_vacant(&self) -> bool {
        *self == DiskEntry::VACANT
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeEntry {
    pub name: String,
    pub kind: VolumeKind,
    pub block_size: BlockSize,
    /// log2 of the logical blocks per physical block.
    pub physical_exponent: u8,
    pub stripe: Stripe,
    pub capacity: ByteLen,
    /// The time of creation, in seconds since 1970.
    pub created: u64,
    /// Which copy of a volume it is, if it has others.
    pub copy: Option<CopyOf>,
    /// The state of the logical unit, which the store does not interpret.
    pub lu_state: Vec<u8>,
    /// The extents of each slice; empty lists for a volume in memory, or in logs.
    pub slices: Vec<Vec<ExtentRun>>,
    /// The extents of its slices' dirty maps, if it is a copy on disks.
    pub map: Vec<ExtentRun>,
    /// The extents of the checksums of its slices, if it is thick and has some.
    pub checksums: Option<Vec<ExtentRun>>,
    /// Identifies a log-structured volume in the logs; 0 for other volumes.
    pub branch: u32,
    /// What a log-structured volume is a clone of, if it is one.
    pub origin: Option<Origin>,
    /// How a log-structured volume shares the space of the pool.
    pub space: SpacePolicy,
    /// Whether the blocks of a log-structured volume are compressed; off for other volumes.
    pub compression: Compression,
    /// The layout that it is being converted to.
    pub next: Option<OtherLayout>,
}

/// Where a volume lies that is thick or log-structured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherLayout {
    pub kind: VolumeKind,
    /// As [`VolumeEntry::slices`].
    pub slices: Vec<Vec<ExtentRun>>,
    /// As [`VolumeEntry::checksums`].
    pub checksums: Option<Vec<ExtentRun>>,
    /// As [`VolumeEntry::branch`].
    pub branch: u32,
    /// As [`VolumeEntry::origin`]. The layout that a clone has left has one, the one that a volume is being
    /// converted to never.
    pub origin: Option<Origin>,
    /// As [`VolumeEntry::compression`].
    pub compression: Compression,
}

impl VolumeEntry {
    /// All extents of the volume, with those of the layout that it is being converted to.
    pub(crate) fn runs(&self) -> impl Iterator<Item = ExtentRun> {
        let next = self.next.iter().flat_map(OtherLayout::runs);
        let checksums = self.checksums.iter().flatten();
        self.slices.iter().flatten().chain(&self.map).chain(checksums).copied().chain(next)
    }

    /// What identifies it in the logs: its branch, and that of the layout that it is being converted to; and
    /// whether the blocks there are compressed.
    pub(crate) fn branches(&self) -> impl Iterator<Item = (u32, Compression)> {
        let own = (self.kind == VolumeKind::Log).then_some((self.branch, self.compression));
        let next = self.next.as_ref().filter(|next| next.kind == VolumeKind::Log);
        own.into_iter().chain(next.map(|next| (next.branch, next.compression)))
    }

    /// Whether it lies in logs, or is about to.
    pub(crate) fn needs_logs(&self) -> bool {
        self.branches().next().is_some()
    }

    /// In how many logs it has blocks, or is about to: slice s lies in log s, and a small volume leaves the
    /// last slices empty.
    pub(crate) fn logs_used(&self) -> u16 {
        if !self.needs_logs() {
            return 0;
        }
        let has_bytes = |slice: &u16| self.stripe.slice_len(*slice, self.capacity).0 > 0;
        (0..self.stripe.slices()).rev().find(has_bytes).map_or(0, |last| last + 1)
    }

    /// Whether its slices have dirty maps: other nodes have copies, or may have had some.
    pub(crate) fn has_map(&self) -> bool {
        self.copy.is_some_and(|copy| !matches!(copy.state, CopyState::Sole | CopyState::New))
    }

    pub(crate) fn extents(&self) -> u64 {
        count(self.runs())
    }
}

fn count(runs: impl IntoIterator<Item = ExtentRun>) -> u64 {
    runs.into_iter().map(|run| u64::from(run.count)).sum()
}

/// What can be wrong with a catalog whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The catalog ends too early or too late.
    #[error("its length is wrong")]
    Length,
    /// A field of the pool has an impossible value.
    #[error("a field of the pool is invalid")]
    Pool,
    /// A field of a volume has an impossible value.
    #[error("a field of volume {0} is invalid")]
    Volume(VolumeId),
    /// Two volumes have the same name or identity.
    #[error("volume {0} is listed twice")]
    Twice(VolumeId),
    /// A volume lies outside its disk, overlaps another volume, or has too few extents.
    #[error("the extents of volume {0} are invalid")]
    Extents(VolumeId),
    /// A log lies outside its disk or overlaps something else, or a volume lies in logs that do not exist.
    #[error("the logs are invalid")]
    Logs,
}

/// Whether `name` is a valid name of a volume or pool.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

impl Catalog {
    /// Whether the catalog names this disk.
    pub(crate) fn has_disk(&self, id: DiskId) -> bool {
        self.disks.iter().any(|disk| disk.id == id && !disk.is_vacant())
    }

    /// Checks that each log volume lies in logs that exist, and that each log is possible.
    fn check_logs(&self, extent_bytes: u64) -> Result<(), Malformed> {
        let Logs { roots, next_branch, logs } = &self.logs;
        let numbered = logs.keys().copied().eq(0..logs.len() as u16) && logs.len() <= usize::from(SLICES_MAX);
        let roots_wanted = if logs.is_empty() { 0 } else { roots_bytes().div_ceil(extent_bytes) };
        let rooted = roots.iter().all(|runs| count(runs.iter().copied()) == roots_wanted);
        let sound = logs.values().all(|log| log.is_sound(extent_bytes));
        let mut branches = BTreeSet::new();
        let placed = self.volumes.values().filter(|volume| volume.needs_logs()).all(|volume| {
            let has_logs = usize::from(volume.stripe.slices()) <= logs.len();
            has_logs && volume.branches().all(|(branch, _)| branch < *next_branch && branches.insert(branch))
        });
        let is_rooted = |volume: &Rc<VolumeEntry>| {
            let Some(origin) = volume.origin else { return true };
            // Otherwise, clones could be read in a circle.
            origin.branch < volume.branch && self.clone_depth(volume).is_some()
        };
        let cloned = self.volumes.values().all(is_rooted);
        if numbered && rooted && sound && placed && cloned { Ok(()) } else { Err(Malformed::Logs) }
    }

    /// The volume with this branch.
    pub(crate) fn of_branch(&self, branch: u32) -> Option<(VolumeId, &Rc<VolumeEntry>)> {
        let mut volumes = self.volumes.iter();
        let is_it = |volume: &VolumeEntry| volume.kind == VolumeKind::Log && volume.branch == branch;
        volumes.find(|(_, volume)| is_it(volume)).map(|(id, volume)| (*id, volume))
    }

    /// How deep a volume is a clone: 0 if it is none, 1 if it is one of a volume that is none. `None` if one
    /// of these volumes is missing, or it is more than [`CLONE_DEPTH_MAX`].
    pub(crate) fn clone_depth(&self, volume: &VolumeEntry) -> Option<usize> {
        let mut volume = volume;
        for depth in 0..=CLONE_DEPTH_MAX {
            let Some(origin) = volume.origin else { return Some(depth) };
            volume = self.of_branch(origin.branch)?.1;
        }
        None
    }

    /// Removes the logs that no volume needs: nobody uses their extents.
    pub(crate) fn drop_unneeded_logs(&mut self) {
        let volumes = self.volumes.values().filter(|volume| volume.needs_logs());
        let needed = volumes.map(|volume| volume.stripe.slices()).max().unwrap_or(0);
        self.logs.logs.retain(|number, _| *number < needed);
        if self.logs.logs.is_empty() {
            self.logs.roots = Default::default();
        }
    }

    /// How many logs, from the first on, have blocks of a volume that is not about to be resynced in full.
    pub(crate) fn logs_relied_on(&self) -> u16 {
        let is_relied_on =
            |volume: &&Rc<VolumeEntry>| volume.copy.is_none_or(|copy| !copy.state.is_untrusted());
        self.volumes.values().filter(is_relied_on).map(|volume| volume.logs_used()).max().unwrap_or(0)
    }

    /// Marks the content of all copies as set back.
    pub(crate) fn distrust_copies(&mut self) {
        for volume in self.volumes.values_mut() {
            if let Some(copy @ CopyOf { state: CopyState::Trusted { epoch }, .. }) = volume.copy {
                let copy = CopyOf { state: CopyState::SetBack { epoch }, ..copy };
                Rc::make_mut(volume).copy = Some(copy);
            }
        }
    }

    /// Checks that the whole catalog is possible: after `decode`, and in tests after each change.
    pub(crate) fn check(&self, extent_bytes: u64) -> Result<(), Malformed> {
        let mut names = BTreeMap::new();
        let mut runs: Vec<(ExtentRun, Option<VolumeId>)> = Vec::new();
        for (id, volume) in &self.volumes {
            if names.insert(&volume.name, id).is_some() {
                return Err(Malformed::Twice(*id));
            }
            if !volume.has_room(extent_bytes) {
                return Err(Malformed::Extents(*id));
            }
            runs.extend(volume.runs().map(|run| (run, Some(*id))));
        }
        self.check_logs(extent_bytes)?;
        runs.extend(self.logs.runs().map(|run| (run, None)));
        let overlap = |volume: Option<VolumeId>| volume.map_or(Malformed::Logs, Malformed::Extents);
        let inside = |run: &ExtentRun| {
            let disk = self.disks.get(usize::from(run.disk));
            let end = run.start.checked_add(run.count);
            run.count > 0 && disk.zip(end).is_some_and(|(disk, end)| end <= disk.extents)
        };
        if let Some((_, id)) = runs.iter().find(|(run, _)| !inside(run)) {
            return Err(overlap(*id));
        }
        runs.sort_unstable();
        match runs
            .windows(2)
            .find(|pair| pair[0].0.disk == pair[1].0.disk && pair[0].0.end() > pair[1].0.start)
        {
            Some(pair) => Err(overlap(pair[1].1)),
            None => Ok(()),
        }
    }
}

/// Bytes of the roots of as many logs as a pool can have.
pub(crate) fn roots_bytes() -> u64 {
    u64::from(SLICES_MAX) * ROOTS_BYTES
}

impl LogEntry {
    pub(crate) fn zone_extents(&self, extent_bytes: u64) -> u64 {
        (u64::from(self.zone_segments) << self.segment_shift) / extent_bytes
    }

    fn is_sound(&self, extent_bytes: u64) -> bool {
        let slots = 1u64.checked_shl(u32::from(self.segment_shift)).unwrap_or(0) / SLOT_BYTES as u64;
        let zone_bytes = u64::from(self.zone_segments) << self.segment_shift.min(30);
        let highest = self.zones.last_key_value().map_or(0, |(number, _)| u64::from(*number) + 1);
        (u64::from(SEGMENT_SLOTS_MIN)..=u64::from(SEGMENT_SLOTS_MAX)).contains(&slots)
            && self.zone_segments > 0
            && zone_bytes.is_multiple_of(extent_bytes)
            && highest * u64::from(self.zone_segments) <= u64::from(SEGMENTS_MAX)
            && self.zones.values().all(|run| u64::from(run.count) == self.zone_extents(extent_bytes))
    }
}

impl Logs {
    pub(crate) fn runs(&self) -> impl Iterator<Item = ExtentRun> {
        let zones = self.logs.values().flat_map(|log| log.zones.values());
        self.roots.iter().flatten().chain(zones).copied()
    }
}

impl VolumeEntry {
    /// Whether each slice, and the map, has exactly the extents that it needs.
    fn has_room(&self, extent_bytes: u64) -> bool {
        let count = |runs: &[ExtentRun]| count(runs.iter().copied());
        let of_checksums = self.checksum_bytes(self.capacity).div_ceil(extent_bytes);
        let has_all = |kind: VolumeKind, slices: &[Vec<ExtentRun>], checksums: &Option<Vec<ExtentRun>>| {
            let wanted = |slice| self.extents_wanted_as(kind, slice, self.capacity, extent_bytes);
            slices.len() == usize::from(self.stripe.slices())
                && slices.iter().zip(0..).all(|(runs, slice)| count(runs) == wanted(slice))
                && checksums.as_ref().is_none_or(|runs| count(runs) == of_checksums)
        };
        count(&self.map) == self.map_extents_wanted(self.capacity, extent_bytes)
            && has_all(self.kind, &self.slices, &self.checksums)
            && self.next.as_ref().is_none_or(|next| has_all(next.kind, &next.slices, &next.checksums))
    }

    pub(crate) fn extents_wanted(&self, slice: u16, capacity: ByteLen, extent_bytes: u64) -> u64 {
        self.extents_wanted_as(self.kind, slice, capacity, extent_bytes)
    }

    fn extents_wanted_as(&self, kind: VolumeKind, slice: u16, capacity: ByteLen, extent_bytes: u64) -> u64 {
        match kind {
            VolumeKind::Thick => self.stripe.slice_len(slice, capacity).0.div_ceil(extent_bytes),
            VolumeKind::Ram | VolumeKind::Log => 0,
        }
    }

    pub(crate) fn map_extents_wanted(&self, capacity: ByteLen, extent_bytes: u64) -> u64 {
        match self.kind {
            VolumeKind::Thick | VolumeKind::Log => self.map_bytes(capacity).div_ceil(extent_bytes),
            VolumeKind::Ram => 0,
        }
    }

    pub(crate) fn checksum_extents_wanted(&self, capacity: ByteLen, extent_bytes: u64) -> u64 {
        match self.checksums {
            Some(_) => self.checksum_bytes(capacity).div_ceil(extent_bytes),
            None => 0,
        }
    }

    /// The bytes of the pages of checksums of all slices, each taken to be as long as the first.
    fn checksum_bytes(&self, capacity: ByteLen) -> u64 {
        let pages = checksum_pages(self.stripe.slice_len(0, capacity).0);
        pages * u64::from(self.stripe.slices()) * MAP_PAGE_BYTES as u64
    }

    /// How much memory a RAM volume of `capacity` takes.
    pub(crate) fn memory_wanted(&self, capacity: ByteLen) -> ByteLen {
        ByteLen(capacity.0 + self.map_bytes(capacity))
    }

    /// The bytes of the map pages of all slices, each taken to be as long as the first.
    fn map_bytes(&self, capacity: ByteLen) -> u64 {
        match self.has_map() {
            false => 0,
            true => {
                let pages = copy::map_pages(self.stripe.slice_len(0, capacity));
                // A volume in memory keeps its list of lost blocks in the open slice.
                let list = u64::from(pages > 0 && self.kind != VolumeKind::Ram);
                (list + pages) * u64::from(self.stripe.slices()) * MAP_PAGE_BYTES as u64
            }
        }
    }
}

impl OtherLayout {
    pub(crate) fn runs(&self) -> impl Iterator<Item = ExtentRun> {
        self.slices.iter().flatten().chain(self.checksums.iter().flatten()).copied()
    }
}
