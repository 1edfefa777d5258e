//! The catalog, which is a pool's metadata: its disks, its host, its volumes and where they lie.
//!
//! Byte table: `docs/formats/pool.md`. A catalog is small and written as a whole, so a change is either
//! complete or absent. It is cheap to clone: volumes are shared until one changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use base::{BlockSize, ByteLen};

use crate::copy::{self, COPIES_MAX, CopyOf, CopyState, MAP_PAGE_BYTES, PoolMark};
use crate::cursor::{Cursor, put_text};
use crate::extent::ExtentRun;
use crate::geometry::DISKS_MAX;
use crate::id::{ClusterId, DiskId, HostId, VolumeId};
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

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.id)
    }
}

/// Where the blocks of a volume are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// In place on the pool's disks. All space is taken when the volume is created.
    Thick,
    /// In memory: empty after each start. Only the definition of the volume is in the pool.
    Ram,
    /// In the pool's logs: never in place, and taking space only for what was written. Volumes share the
    /// room.
    Log,
}

/// What a write does that finds the pool of its log volume full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It fails at once.
    #[default]
    Fail,
    /// It waits for room for a while first. The store only keeps this for the node.
    Pause,
}

impl WhenFull {
    fn code(self) -> u8 {
        match self {
            WhenFull::Fail => 1,
            WhenFull::Pause => 2,
        }
    }

    fn from_code(code: u8) -> Option<WhenFull> {
        match code {
            1 => Some(WhenFull::Fail),
            2 => Some(WhenFull::Pause),
            _ => None,
        }
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

    /// Whether a volume of this kind and capacity can have it.
    pub(crate) fn suits(self, kind: VolumeKind, capacity: ByteLen) -> bool {
        match kind {
            VolumeKind::Log => self.reserve <= capacity,
            VolumeKind::Thick | VolumeKind::Ram => self == SpacePolicy::default(),
        }
    }
}

/// Whether the blocks of a log-structured volume are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Blocks are stored as they are.
    Off,
    /// Blocks that LZ4 makes half as large take half a block's space, or a quarter.
    #[default]
    Lz4,
}

impl Compression {
    /// The number of this setting in the catalog and between nodes.
    pub fn code(self) -> u8 {
        match self {
            Compression::Off => 0,
            Compression::Lz4 => 1,
        }
    }

    /// The setting with this number.
    pub fn from_code(code: u8) -> Option<Compression> {
        match code {
            0 => Some(Compression::Off),
            1 => Some(Compression::Lz4),
            _ => None,
        }
    }
}

/// Set in the number of the kind of a volume that is being converted to another one.
const CONVERTING: u8 = 0x80;
/// Set in the number of the kind of a thick volume with checksums.
const CHECKSUMS: u8 = 0x40;
/// Set in the number of the kind of a volume that is being converted to a thick one with checksums.
const CHECKSUMS_NEXT: u8 = 0x20;

/// The encoding of [`CopyState`] in the catalog.
const COPY_NONE: u8 = 0;
const COPY_BLANK: u8 = 1;
const COPY_TRUSTED: u8 = 2;
const COPY_SET_BACK: u8 = 3;
const COPY_SOLE: u8 = 4;
const COPY_NEW: u8 = 5;

impl VolumeKind {
    /// The number of this kind in the catalog and between nodes.
    pub fn code(self) -> u8 {
        match self {
            VolumeKind::Thick => 1,
            VolumeKind::Ram => 2,
            VolumeKind::Log => 3,
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

    /// The kind with this number.
    pub fn from_code(code: u8) -> Option<VolumeKind> {
        match code {
            1 => Some(VolumeKind::Thick),
            2 => Some(VolumeKind::Ram),
            3 => Some(VolumeKind::Log),
            _ => None,
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

/// The bit of a disk's number of extents that says that the disk is leaving.
const LEAVING: u32 = 1 << 31;

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

    /// Whether its slices have dirty maps: other nodes have copies, or may have had some.
    pub(crate) fn has_map(&self) -> bool {
        self.copy.is_some_and(|copy| !matches!(copy.state, CopyState::Sole | CopyState::New))
    }

    /// How many extents the volume has.
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
        if numbered && rooted && sound && placed { Ok(()) } else { Err(Malformed::Logs) }
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

    /// Marks the content of all copies as set back.
    pub(crate) fn distrust_copies(&mut self) {
        for volume in self.volumes.values_mut() {
            if let Some(copy @ CopyOf { state: CopyState::Trusted { epoch }, .. }) = volume.copy {
                let copy = CopyOf { state: CopyState::SetBack { epoch }, ..copy };
                Rc::make_mut(volume).copy = Some(copy);
            }
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, &self.name);
        bytes.extend_from_slice(&self.host.id.0);
        put_text(&mut bytes, &self.host.name);
        bytes.push(u8::from(self.exported));
        bytes.extend_from_slice(&(self.disks.len() as u16).to_le_bytes());
        for disk in &self.disks {
            bytes.extend_from_slice(&disk.id.0);
            bytes.extend_from_slice(&disk.bytes.to_le_bytes());
            let leaving = if disk.leaving { LEAVING } else { 0 };
            bytes.extend_from_slice(&(disk.extents | leaving).to_le_bytes());
        }
        bytes.extend_from_slice(&(self.volumes.len() as u32).to_le_bytes());
        for (id, volume) in &self.volumes {
            bytes.extend_from_slice(&id.0);
            volume.encode(&mut bytes);
        }
        bytes.extend_from_slice(&self.mark.count.to_le_bytes());
        bytes.extend_from_slice(&self.mark.at.to_le_bytes());
        bytes.extend_from_slice(&self.sealed.to_le_bytes());
        self.logs.encode(&mut bytes);
        bytes
    }

    /// Decodes what [`Catalog::encode`] wrote, and checks that it is possible, with extents of
    /// `extent_bytes`.
    pub(crate) fn decode(bytes: &[u8], extent_bytes: u64) -> Result<Catalog, Malformed> {
        let mut fields = Cursor::new(bytes);
        let mut catalog = Catalog::decode_pool(&mut fields)?;
        let count = fields.u32().ok_or(Malformed::Length)?;
        if count as usize > VOLUMES_MAX {
            return Err(Malformed::Pool);
        }
        for _ in 0..count {
            let id = VolumeId(fields.id().ok_or(Malformed::Length)?);
            let volume = VolumeEntry::decode(&mut fields).ok_or(Malformed::Volume(id))?;
            if catalog.volumes.insert(id, Rc::new(volume)).is_some() {
                return Err(Malformed::Twice(id));
            }
        }
        let mut number = || fields.u64().ok_or(Malformed::Length);
        catalog.mark = PoolMark { count: number()?, at: number()? };
        catalog.sealed = number()?;
        // A pool that never had a log has no such part; nor had any pool before there were logs.
        if !fields.is_at_end() {
            catalog.logs = Logs::decode(&mut fields).ok_or(Malformed::Length)?;
        }
        if !fields.is_at_end() {
            return Err(Malformed::Length);
        }
        catalog.check(extent_bytes)?;
        Ok(catalog)
    }

    fn decode_pool(fields: &mut Cursor<'_>) -> Result<Catalog, Malformed> {
        let name = fields.text().ok_or(Malformed::Length)?.to_owned();
        let id = HostId(fields.id().ok_or(Malformed::Length)?);
        let host = Host { id, name: fields.text().ok_or(Malformed::Length)?.to_owned() };
        let exported = fields.u8().ok_or(Malformed::Length)? != 0;
        let count = fields.u16().ok_or(Malformed::Length)?;
        if count == 0 || usize::from(count) > DISKS_MAX {
            return Err(Malformed::Pool);
        }
        let disk = |fields: &mut Cursor<'_>| {
            let (id, bytes, extents) = (DiskId(fields.id()?), fields.u64()?, fields.u32()?);
            Some(DiskEntry { id, bytes, extents: extents & !LEAVING, leaving: extents & LEAVING != 0 })
        };
        let disks = (0..count).map(|_| disk(fields)).collect::<Option<Vec<DiskEntry>>>();
        let disks = disks.ok_or(Malformed::Length)?;
        let is_leaving = |disk: &&DiskEntry| disk.leaving;
        if disks.iter().all(DiskEntry::is_vacant) || disks.iter().filter(is_leaving).count() > 1 {
            return Err(Malformed::Pool);
        }
        Ok(Catalog {
            name,
            host,
            exported,
            disks,
            volumes: BTreeMap::new(),
            mark: PoolMark::default(),
            sealed: 0,
            logs: Logs::default(),
        })
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
    /// How many extents a zone has.
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
    /// All extents of the logs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = ExtentRun> {
        let zones = self.logs.values().flat_map(|log| log.zones.values());
        self.roots.iter().flatten().chain(zones).copied()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        if self.logs.is_empty() && self.next_branch == 0 {
            return;
        }
        bytes.extend_from_slice(&self.next_branch.to_le_bytes());
        self.roots.iter().for_each(|runs| encode_runs(runs, bytes));
        bytes.extend_from_slice(&(self.logs.len() as u16).to_le_bytes());
        for (number, log) in &self.logs {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&log.identity);
            bytes.push(log.segment_shift);
            bytes.extend_from_slice(&log.zone_segments.to_le_bytes());
            bytes.extend_from_slice(&(log.zones.len() as u32).to_le_bytes());
            for (zone, run) in &log.zones {
                bytes.extend_from_slice(&zone.to_le_bytes());
                encode_run(run, bytes);
            }
        }
    }

    fn decode(fields: &mut Cursor<'_>) -> Option<Logs> {
        let next_branch = fields.u32()?;
        let roots = [decode_runs(fields)?, decode_runs(fields)?];
        let mut logs = BTreeMap::new();
        for _ in 0..fields.u16()? {
            let number = fields.u16()?;
            let (identity, segment_shift, zone_segments) = (fields.id()?, fields.u8()?, fields.u32()?);
            let mut zones = BTreeMap::new();
            for _ in 0..fields.u32()? {
                let zone = fields.u32()?;
                if zones.insert(zone, decode_run(fields)?).is_some() {
                    return None;
                }
            }
            let log = LogEntry { identity, segment_shift, zone_segments, zones };
            if logs.insert(number, log).is_some() {
                return None;
            }
        }
        Some(Logs { roots, next_branch, logs })
    }
}

impl VolumeEntry {
    fn encode(&self, bytes: &mut Vec<u8>) {
        put_text(bytes, &self.name);
        let has_next = self.next.as_ref().is_some_and(|next| next.checksums.is_some());
        let flags = [
            (self.next.is_some(), CONVERTING),
            (self.checksums.is_some(), CHECKSUMS),
            (has_next, CHECKSUMS_NEXT),
        ];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        bytes.push(self.kind.code() | flags);
        bytes.push(self.block_size.shift() as u8);
        bytes.push(self.physical_exponent);
        bytes.push(self.stripe.unit().0.trailing_zeros() as u8);
        bytes.extend_from_slice(&self.capacity.0.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        let epoch = match self.copy.map(|copy| copy.state) {
            None | Some(CopyState::Blank | CopyState::Sole | CopyState::New) => 0,
            Some(CopyState::Trusted { epoch } | CopyState::SetBack { epoch }) => epoch,
        };
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&(self.lu_state.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.lu_state);
        bytes.extend_from_slice(&(self.slices.len() as u16).to_le_bytes());
        self.slices.iter().for_each(|runs| encode_runs(runs, bytes));
        self.encode_copy(bytes);
        self.checksums.iter().for_each(|runs| encode_runs(runs, bytes));
        if self.kind == VolumeKind::Log {
            bytes.extend_from_slice(&self.branch.to_le_bytes());
            bytes.push(self.space.when_full.code());
            bytes.extend_from_slice(&self.space.reserve.0.to_le_bytes());
            bytes.push(self.compression.code());
        }
        match &self.next {
            Some(next) if next.kind == VolumeKind::Log => {
                bytes.extend_from_slice(&next.branch.to_le_bytes());
                bytes.push(next.compression.code());
            }
            Some(next) => next.slices.iter().chain(&next.checksums).for_each(|runs| encode_runs(runs, bytes)),
            None => {}
        }
    }

    fn encode_copy(&self, bytes: &mut Vec<u8>) {
        let Some(copy) = self.copy else {
            bytes.push(COPY_NONE);
            return;
        };
        bytes.push(match copy.state {
            CopyState::Blank => COPY_BLANK,
            CopyState::Sole => COPY_SOLE,
            CopyState::New => COPY_NEW,
            CopyState::Trusted { .. } => COPY_TRUSTED,
            CopyState::SetBack { .. } => COPY_SET_BACK,
        });
        bytes.push(copy.slot);
        bytes.extend_from_slice(&copy.cluster.0);
        encode_runs(&self.map, bytes);
    }

    fn decode(fields: &mut Cursor<'_>) -> Option<VolumeEntry> {
        let name = fields.text()?.to_owned();
        let code = fields.u8()?;
        let kind = VolumeKind::from_code(code & !(CONVERTING | CHECKSUMS | CHECKSUMS_NEXT))?;
        let block_size = BlockSize::from_bytes(1u32.checked_shl(fields.u8()?.into())?)?;
        let physical_exponent = fields.u8()?;
        let unit = 1u64.checked_shl(fields.u8()?.into())?;
        let capacity = ByteLen(fields.u64()?);
        let created = fields.u64()?;
        let epoch = fields.u64()?;
        let lu_state_len = fields.u32()? as usize;
        if lu_state_len > LU_STATE_BYTES_MAX {
            return None;
        }
        let lu_state = fields.take(lu_state_len)?.to_vec();
        let count = fields.u16()?;
        let sound = is_name(&name)
            && count.is_power_of_two()
            && count <= SLICES_MAX
            && capacity.0 > 0
            && capacity <= CAPACITY_MAX
            && capacity.0.is_multiple_of(u64::from(block_size.bytes()))
            && (u64::from(BlockSize::B4096.bytes())..=CAPACITY_MAX.0).contains(&unit);
        if !sound {
            return None;
        }
        let slices = (0..count).map(|_| decode_runs(fields)).collect::<Option<Vec<Vec<ExtentRun>>>>()?;
        let stripe = Stripe::new(count, ByteLen(unit));
        let (copy, map) = decode_copy(epoch, fields)?;
        let checksums = match (code & CHECKSUMS != 0, kind) {
            (false, _) => None,
            (true, VolumeKind::Thick) => Some(decode_runs(fields)?),
            (true, VolumeKind::Ram | VolumeKind::Log) => return None,
        };
        let (mut branch, mut space, mut compression) = (0, SpacePolicy::default(), Compression::Off);
        if kind == VolumeKind::Log {
            branch = fields.u32()?;
            let when_full = WhenFull::from_code(fields.u8()?)?;
            space = SpacePolicy { when_full, reserve: ByteLen(fields.u64()?) };
            compression = Compression::from_code(fields.u8()?)?;
        }
        if !space.suits(kind, capacity) {
            return None;
        }
        let has_next = code & CHECKSUMS_NEXT != 0;
        let next = match code & CONVERTING != 0 {
            true => Some(OtherLayout::decode(kind, count, has_next, fields)?),
            false if has_next => return None,
            false => None,
        };
        Some(VolumeEntry {
            name,
            kind,
            block_size,
            physical_exponent,
            stripe,
            capacity,
            created,
            copy,
            lu_state,
            slices,
            map,
            checksums,
            branch,
            space,
            compression,
            next,
        })
    }

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

    /// How many extents `slice` needs in a volume of `capacity`.
    pub(crate) fn extents_wanted(&self, slice: u16, capacity: ByteLen, extent_bytes: u64) -> u64 {
        self.extents_wanted_as(self.kind, slice, capacity, extent_bytes)
    }

    fn extents_wanted_as(&self, kind: VolumeKind, slice: u16, capacity: ByteLen, extent_bytes: u64) -> u64 {
        match kind {
            VolumeKind::Thick => self.stripe.slice_len(slice, capacity).0.div_ceil(extent_bytes),
            VolumeKind::Ram | VolumeKind::Log => 0,
        }
    }

    /// How many extents the map needs in a volume of `capacity`.
    pub(crate) fn map_extents_wanted(&self, capacity: ByteLen, extent_bytes: u64) -> u64 {
        match self.kind {
            VolumeKind::Thick | VolumeKind::Log => self.map_bytes(capacity).div_ceil(extent_bytes),
            VolumeKind::Ram => 0,
        }
    }

    /// How many extents the checksums need in a volume of `capacity`.
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
    /// Decodes the layout that a volume of this kind, with `count` slices, is being converted to.
    fn decode(
        from: VolumeKind,
        count: u16,
        has_checksums: bool,
        fields: &mut Cursor<'_>,
    ) -> Option<OtherLayout> {
        let kind = from.other()?;
        let slices = vec![Vec::new(); count.into()];
        let mut next =
            OtherLayout { kind, slices, checksums: None, branch: 0, compression: Compression::Off };
        match kind {
            VolumeKind::Log if has_checksums => return None,
            VolumeKind::Log => {
                next.branch = fields.u32()?;
                next.compression = Compression::from_code(fields.u8()?)?;
            }
            VolumeKind::Thick | VolumeKind::Ram => {
                for runs in &mut next.slices {
                    *runs = decode_runs(fields)?;
                }
                if has_checksums {
                    next.checksums = Some(decode_runs(fields)?);
                }
            }
        }
        Some(next)
    }

    /// All extents of the layout.
    pub(crate) fn runs(&self) -> impl Iterator<Item = ExtentRun> {
        self.slices.iter().flatten().chain(self.checksums.iter().flatten()).copied()
    }
}

fn encode_runs(runs: &[ExtentRun], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(runs.len() as u32).to_le_bytes());
    runs.iter().for_each(|run| encode_run(run, bytes));
}

fn encode_run(run: &ExtentRun, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&run.disk.to_le_bytes());
    bytes.extend_from_slice(&run.start.to_le_bytes());
    bytes.extend_from_slice(&run.count.to_le_bytes());
}

/// Decodes which copy a volume is, and where its map lies.
fn decode_copy(epoch: u64, fields: &mut Cursor<'_>) -> Option<(Option<CopyOf>, Vec<ExtentRun>)> {
    let state = match fields.u8()? {
        COPY_NONE if epoch == 0 => return Some((None, Vec::new())),
        COPY_BLANK if epoch == 0 => CopyState::Blank,
        COPY_SOLE if epoch == 0 => CopyState::Sole,
        COPY_NEW if epoch == 0 => CopyState::New,
        COPY_TRUSTED => CopyState::Trusted { epoch },
        COPY_SET_BACK => CopyState::SetBack { epoch },
        _ => return None,
    };
    let slot = fields.u8().filter(|slot| *slot < COPIES_MAX)?;
    let cluster = ClusterId(fields.id()?);
    Some((Some(CopyOf { cluster, slot, state }), decode_runs(fields)?))
}

fn decode_runs(fields: &mut Cursor<'_>) -> Option<Vec<ExtentRun>> {
    let count = fields.u32()?;
    // Not allocated in advance: a damaged count must not take that much memory.
    (0..count).map(|_| decode_run(fields)).collect()
}

fn decode_run(fields: &mut Cursor<'_>) -> Option<ExtentRun> {
    Some(ExtentRun { disk: fields.u16()?, start: fields.u32()?, count: fields.u32()? })
}
