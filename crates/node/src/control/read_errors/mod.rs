//! Failed reads of this node's disks: counted, reported as events, and shown until an administrator
//! acknowledges them or the pool leaves this node.
//!
//! Unacknowledged ones survive a restart, because the node's record has them ([`kept`]).

mod kept;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Instant};
use rt::CoreId;
use rt::sync::Notify;
use store::{BadBlock, Pool, PoolId, ReadFailure, VolumeInfo};

use super::{Control, Fault, FaultKind, UnreadBlock, VolumeStatus};
use crate::copies::DiskRange;
use crate::data::VolumeId;
use crate::events::code::{BLOCK_REPAIRED, READ_FAILED};
use crate::events::{Event, tell};

/// How many bad blocks of a disk are reported individually, and remembered. A disk with more is reported as a
/// whole.
const BLOCKS_MAX: usize = 16;

/// Failed reads of one block within this time count as one: a command that was split, or tried again.
const ONE_READ: Duration = Duration::from_secs(1);

/// A disk: its pool, and its place there.
type DiskPlace = (PoolId, u16);

/// The failed reads of all disks.
#[derive(Default)]
pub(super) struct ReadErrors {
    disks: RefCell<BTreeMap<DiskPlace, OfDisk>>,
    /// Notified when there is something that the record does not have yet.
    changed: Notify,
}

/// The failed reads of one disk.
#[derive(Default)]
struct OfDisk {
    /// Blocks that were repaired in this life of the node.
    repaired: u64,
    /// Reads that failed in this life of the node, by volume.
    volumes: BTreeMap<VolumeId, u64>,
    /// What has not been acknowledged.
    open: Option<Open>,
    /// Counts the changes of `open`.
    changes: u64,
    /// How many of these changes the node's record has.
    written: u64,
}

struct Open {
    /// Since when, in this life of the node.
    since: Instant,
    /// How long it had lasted when this life began.
    before: Duration,
    blocks: BTreeMap<u64, Found>,
    /// There were more than are remembered.
    more: bool,
}

impl Open {
    fn lasts(&self, now: Instant) -> Duration {
        self.before + now.since(self.since)
    }
}

/// A block that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    volume: VolumeId,
    lba: u64,
    /// The number that a snapshot with the block has in pools, if the volume does not have it now.
    snapshot: Option<u64>,
    /// When it was last read; `None` if in an earlier life of the node.
    at: Option<Instant>,
    repaired: bool,
}

/// Whether a failed read must be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// It was reported before.
    Old,
    /// This block was not known to be bad.
    Block,
    /// The disk has more bad blocks than are reported individually.
    Many,
}

/// The failed reads of a disk in this life of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReadErrors {
    /// The disk's path.
    pub disk: String,
    /// Blocks that were repaired.
    pub repaired: u64,
    /// Reads that failed, by the name of the volume.
    pub failed: BTreeMap<String, u64>,
}

impl OfDisk {
    fn note(
        &mut self,
        now: Instant,
        offset: u64,
        (volume, lba): (VolumeId, u64),
        snapshot: Option<u64>,
    ) -> News {
        let new = || Open { since: now, before: Duration::ZERO, blocks: BTreeMap::new(), more: false };
        let open = self.open.get_or_insert_with(new);
        let is_full = open.blocks.len() >= BLOCKS_MAX;
        let known = open.blocks.get_mut(&offset);
        if known.as_ref().and_then(|found| found.at).is_some_and(|at| now.since(at) < ONE_READ) {
            return News::Old;
        }
        *self.volumes.entry(volume).or_default() += 1;
        let (news, is_changed) = match known {
            Some(found) => {
                found.at = Some(now);
                let was_elsewhere = std::mem::replace(&mut found.snapshot, snapshot) != snapshot;
                (News::Old, std::mem::replace(&mut found.repaired, false) || was_elsewhere)
            }
            None if is_full => match std::mem::replace(&mut open.more, true) {
                true => (News::Old, false),
                false => (News::Many, true),
            },
            None => {
                open.blocks.insert(offset, Found { volume, lba, snapshot, at: Some(now), repaired: false });
                (News::Block, true)
            }
        };
        self.changes += u64::from(is_changed);
        news
    }

    /// Notes a repair. Returns the block if it was known to be bad.
    fn note_repaired(&mut self, offset: u64) -> Option<Found> {
        self.repaired += 1;
        let found = self.open.as_mut()?.blocks.get_mut(&offset)?;
        let is_news = !std::mem::replace(&mut found.repaired, true);
        self.changes += u64::from(is_news);
        is_news.then_some(*found)
    }

    fn is_unwritten(&self) -> bool {
        self.written < self.changes
    }
}

/// The range of all disks of a pool.
fn disks_of(pool: PoolId) -> RangeInclusive<DiskPlace> {
    (pool, 0)..=(pool, u16::MAX)
}

/// Runs `what` on core 0 with the node's control.
pub(super) fn with_control(what: impl FnOnce(&Control) + Send + 'static) {
    let tell = move || {
        if let Some(control) = Control::try_current() {
            what(&control);
        }
    };
    if rt::core() == CoreId(0) { tell() } else { rt::send(CoreId(0), tell) }
}

/// The same with the volume that has this number in its cluster.
pub(super) fn with_volume(number: u32, what: impl FnOnce(&Control, VolumeId) + Send + 'static) {
    with_control(move |control| {
        if let Some(id) = control.reconciler().ok().and_then(|reconciler| reconciler.id_of(number)) {
            what(control, id);
        }
    });
}

/// Notes a failed read of a volume that only this node has, at this offset in the volume. Of a block that
/// only snapshots have, with the number of one of them in pools. From any core.
pub(crate) fn note_bad_block(volume: VolumeId, of_volume: ByteOffset, bad: BadBlock, snapshot: Option<u64>) {
    with_control(move |control| control.note_bad_block(volume, of_volume.0, bad, snapshot));
}

/// The same for this node's copy of the volume with this number in its cluster.
pub(crate) fn note_bad_block_of_copy(
    number: u32,
    of_volume: ByteOffset,
    bad: BadBlock,
    snapshot: Option<u64>,
) {
    with_volume(number, move |control, id| control.note_bad_block(id, of_volume.0, bad, snapshot));
}

/// Notes that `len` bytes of such a copy could neither be read nor repaired, so that a copy goes out of sync.
/// From any core.
pub(crate) fn note_unrepaired_of_copy(number: u32, of_volume: ByteOffset, len: ByteLen, bad: BadBlock) {
    if bad.cause == ReadFailure::Lost {
        return;
    }
    with_volume(number, move |control, id| {
        let Ok(reconciler) = control.reconciler() else { return };
        let Ok((pool, info)) = control.volume_named(&id.to_string()) else { return };
        reconciler.note_unread(id, control.range_of(&pool, &info, of_volume.0, len.0, bad));
    });
}

/// Notes that a block of a volume that only this node has was repaired. From any core.
pub(crate) fn note_repaired_block(volume: VolumeId, bad: BadBlock) {
    with_control(move |control| control.note_repaired_block(volume, bad));
}

/// Notes that a block of such a copy was repaired. From any core.
pub(crate) fn note_repaired_block_of_copy(number: u32, bad: BadBlock) {
    with_volume(number, move |control, id| control.note_repaired_block(id, bad));
}

impl Control {
    /// Notes a failed read of the volume, at this offset in bytes.
    fn note_bad_block(&self, volume: VolumeId, of_volume: u64, bad: BadBlock, snapshot: Option<u64>) {
        if bad.cause == ReadFailure::Lost {
            return; // No disk has failed: that was reported when the block was lost.
        }
        let Ok((pool, info)) = self.volume_named(&volume.to_string()) else { return };
        let lba = of_volume / u64::from(info.block_size.bytes());
        let news = {
            let mut disks = self.read_errors.disks.borrow_mut();
            let disk = disks.entry((pool.id(), bad.disk)).or_default();
            disk.note(rt::now(), bad.disk_offset, (volume, lba), snapshot)
        };
        self.read_errors.changed.notify();
        let (name, disk) = (pool.name(), disk_path(&pool, bad.disk));
        let volume_name = self.shown_name(&info);
        let text = match news {
            News::Old => return,
            News::Block => {
                let of_snapshot = |number| format!(" in snapshot {}", self.name_of_snapshot(number));
                format!(
                    "disk {disk} of pool {name} cannot read byte {}: LBA {lba} of volume {volume_name}{}",
                    bad.disk_offset,
                    snapshot.map(of_snapshot).unwrap_or_default()
                )
            }
            News::Many => format!("disk {disk} of pool {name} cannot read more than {BLOCKS_MAX} blocks"),
        };
        let cause = match bad.cause {
            ReadFailure::Medium | ReadFailure::Map | ReadFailure::Lost => "medium_error",
            ReadFailure::Device => "device_error",
        };
        let range = self.range_of(&pool, &info, of_volume, u64::from(info.block_size.bytes()), bad);
        let event = Event::new(READ_FAILED, disk, text).because(cause).of_volume(volume);
        tell(event.where_unread(Some(range)));
    }

    /// The volume's name as users see it.
    pub(super) fn shown_name(&self, info: &VolumeInfo) -> String {
        self.volume(&info.id.to_string()).map_or_else(|_| info.name.clone(), |status| status.info.name)
    }

    /// The range of `len` bytes of a volume from `of_volume` on that a disk of the pool cannot read.
    fn range_of(&self, pool: &Pool, info: &VolumeInfo, of_volume: u64, len: u64, bad: BadBlock) -> DiskRange {
        let block = u64::from(info.block_size.bytes());
        let lba = of_volume / block;
        DiskRange {
            node: self.number(),
            pool: pool.name(),
            disk: disk_path(pool, bad.disk),
            offset: bad.disk_offset,
            len,
            lba,
            blocks: (of_volume + len).div_ceil(block) - lba,
        }
    }

    /// Notes that a bad block was repaired.
    fn note_repaired_block(&self, volume: VolumeId, bad: BadBlock) {
        if bad.cause == ReadFailure::Lost {
            return;
        }
        let Ok((pool, info)) = self.volume_named(&volume.to_string()) else { return };
        let found = {
            let mut disks = self.read_errors.disks.borrow_mut();
            disks.get_mut(&(pool.id(), bad.disk)).and_then(|disk| disk.note_repaired(bad.disk_offset))
        };
        self.read_errors.changed.notify();
        let Some(Found { lba, .. }) = found else { return };
        let (name, disk) = (pool.name(), disk_path(&pool, bad.disk));
        let volume_name = self.shown_name(&info);
        let text = format!(
            "disk {disk} of pool {name}: bad block at byte {} (LBA {lba} of volume {volume_name}) repaired",
            bad.disk_offset
        );
        let block = u64::from(info.block_size.bytes());
        let range = self.range_of(&pool, &info, lba * block, block, bad);
        tell(Event::new(BLOCK_REPAIRED, disk, text).of_volume(volume).where_unread(Some(range)));
    }

    /// The failed reads of the pool's disks in this life of the node.
    pub(super) fn read_errors(&self, pool: &Pool) -> Vec<DiskReadErrors> {
        let disks = self.read_errors.disks.borrow();
        let name_of = |id: &VolumeId| pool.volume(*id).map_or_else(|| id.to_string(), |info| info.name);
        let each = |((_, disk), errors): (&DiskPlace, &OfDisk)| DiskReadErrors {
            disk: disk_path(pool, *disk),
            repaired: errors.repaired,
            failed: errors.volumes.iter().map(|(id, failed)| (name_of(id), *failed)).collect(),
        };
        // A disk with errors only from an earlier life has not failed a read in this one.
        let failed = disks.range(disks_of(pool.id())).filter(|(_, errors)| !errors.volumes.is_empty());
        failed.map(each).collect()
    }

    /// The faults for failed reads that have not been acknowledged.
    pub(super) fn read_faults(&self) -> Vec<Fault> {
        let disks = self.read_errors.disks.borrow();
        let now = rt::now();
        let of_pool = |pool: Pool| {
            let name = pool.name();
            let disks = disks.range(disks_of(pool.id()));
            let each = |((_, disk), errors): (&DiskPlace, &OfDisk)| {
                let open = errors.open.as_ref()?;
                Some(self.read_failed(&name, disk_path(&pool, *disk), open).lasting(open.lasts(now)))
            };
            disks.filter_map(each).collect::<Vec<_>>()
        };
        self.open_pools().into_iter().flat_map(of_pool).collect()
    }

    fn read_failed(&self, pool: &str, disk: String, open: &Open) -> FaultKind {
        let bad: Vec<&Found> = open.blocks.values().filter(|found| !found.repaired).collect();
        let block = |found: &&Found| {
            let id = found.volume.to_string();
            let volume = self.volume(&id).map_or(id, |VolumeStatus { info, .. }| info.name);
            let snapshot = found.snapshot.map(|number| self.name_of_snapshot(number));
            UnreadBlock { volume, lba: found.lba, snapshot }
        };
        FaultKind::ReadFailed {
            pool: pool.to_owned(),
            disk,
            blocks: open.blocks.len(),
            more: open.more,
            bad: bad.len(),
            first: bad.first().map(block),
        }
    }
}

/// The path of a disk of a pool, by its place there.
pub(super) fn disk_path(pool: &Pool, disk: u16) -> String {
    pool.path_at(disk).map_or_else(|| format!("number {disk}"), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId([7; 16]);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn a_bad_block_is_reported_once_until_acknowledged() {
        let mut disk = OfDisk::default();
        assert_eq!(disk.note(at(0), 512, (VOLUME, 9), None), News::Block);
        assert_eq!(disk.note(at(10), 512, (VOLUME, 9), None), News::Old);
        assert_eq!(disk.volumes[&VOLUME], 1, "it was the same read");
        assert_eq!(disk.note(at(5000), 512, (VOLUME, 9), None), News::Old);
        assert_eq!(disk.volumes[&VOLUME], 2);
        assert_eq!(disk.note(at(5000), 1024, (VOLUME, 10), None), News::Block);
        disk.open = None;
        assert_eq!(disk.note(at(9000), 512, (VOLUME, 9), None), News::Block);
        assert_eq!(disk.note(at(15000), 512, (VOLUME, 9), Some(7)), News::Old);
        let found = disk.open.as_ref().unwrap().blocks[&512];
        assert_eq!(found.snapshot, Some(7), "the volume was repaired");
    }

    #[test]
    fn a_disk_with_many_bad_blocks_is_reported_once_more() {
        let mut disk = OfDisk::default();
        let note = |block| disk.note(at(block), block * 512, (VOLUME, block), None);
        let told: Vec<News> = (0..20).map(note).collect();
        assert_eq!(told[..BLOCKS_MAX], [News::Block; BLOCKS_MAX]);
        assert_eq!(told[BLOCKS_MAX..], [News::Many, News::Old, News::Old, News::Old]);
        assert_eq!(disk.volumes[&VOLUME], 20);
    }

    #[test]
    fn a_repair_is_reported_once() {
        let mut disk = OfDisk::default();
        assert_eq!(disk.note_repaired(512), None, "nobody was told that it was bad");
        disk.note(at(0), 512, (VOLUME, 9), None);
        assert_eq!(disk.note_repaired(512).map(|found| found.lba), Some(9));
        assert_eq!(disk.note_repaired(512), None);
        assert_eq!(disk.note(at(5000), 512, (VOLUME, 9), None), News::Old);
        assert!(disk.note_repaired(512).is_some(), "it was bad again");
    }
}
