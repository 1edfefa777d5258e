//! Unacknowledged failed reads in the node's record, so that a failing disk does not look healthy after a
//! restart.
//!
//! They are not in the pool, because its disks are the failing ones: if such a disk fails a write of
//! metadata, the whole pool becomes read-only. The first failed read of a disk is written at once, later ones
//! at most once in [`WRITE_EVERY`]. What could not be written stays in memory and is tried again. An entry is
//! deleted when it is acknowledged, or when its pool leaves this node.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use serde::{Deserialize, Serialize};
use store::{Pool, PoolId, VolumeId};

use super::super::change::Changing;
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, Result};
use super::{DiskPlace, Found, OfDisk, Open, ReadErrors, disks_of};
use crate::record::{Change, Record, delete, set};
use crate::shard::Shard;

/// How often the record is written for failed reads, at most. A failing disk must not keep the record's disk
/// busy.
const WRITE_EVERY: Duration = Duration::from_secs(10);

const READ_ERRORS: &str = "read-errors/";

fn key((pool, disk): DiskPlace) -> String {
    format!("{READ_ERRORS}{pool}/{disk:05}")
}

/// The failed reads of a disk, as the record stores them.
#[derive(Serialize, Deserialize)]
struct KeptErrors {
    /// The pool's identity.
    pool: String,
    /// The disk's index in the pool.
    disk: u16,
    /// Since when, in seconds since 1970; 0 if the node had no wall clock.
    since: u64,
    blocks: Vec<KeptBlock>,
    /// There were more blocks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

#[derive(Serialize, Deserialize)]
struct KeptBlock {
    /// Its offset on the disk, in bytes.
    offset: u64,
    /// The volume's identity.
    volume: String,
    lba: u64,
    /// The number that a snapshot with the block has in pools, if the volume did not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repaired: bool,
}

impl KeptErrors {
    fn of((pool, disk): DiskPlace, open: &Open, now: Instant, unix_now: u64) -> KeptErrors {
        let block = |(offset, found): (&u64, &Found)| KeptBlock {
            offset: *offset,
            volume: found.volume.to_string(),
            lba: found.lba,
            snapshot: found.snapshot,
            repaired: found.repaired,
        };
        KeptErrors {
            pool: pool.to_string(),
            disk,
            since: unix_now.saturating_sub(open.lasts(now).as_secs()),
            blocks: open.blocks.iter().map(block).collect(),
            more: open.more,
        }
    }

    /// `None` if the pool's identity is invalid.
    fn parse(self, now: Instant, unix_now: u64) -> Option<(DiskPlace, Open)> {
        let block = |KeptBlock { offset, volume, lba, snapshot, repaired }: KeptBlock| {
            Some((offset, Found { volume: VolumeId::parse(&volume)?, lba, snapshot, at: None, repaired }))
        };
        let before = if self.since == 0 { 0 } else { unix_now.saturating_sub(self.since) };
        let open = Open {
            since: now,
            before: Duration::from_secs(before),
            blocks: self.blocks.into_iter().filter_map(block).collect(),
            more: self.more,
        };
        Some(((PoolId::parse(&self.pool)?, self.disk), open))
    }
}

impl ReadErrors {
    /// What an earlier life of the node has left in its record.
    pub(in crate::control) fn restored(record: &Record, unix_now: u64) -> ReadErrors {
        let kept: Vec<KeptErrors> = record.list(READ_ERRORS);
        let parsed = kept.into_iter().filter_map(|kept| kept.parse(rt::now(), unix_now));
        let of_disk = |open| OfDisk { open: Some(open), ..OfDisk::default() };
        let disks = parsed.map(|(place, open)| (place, of_disk(open))).collect();
        ReadErrors { disks: RefCell::new(disks), ..ReadErrors::default() }
    }

    fn has_unwritten(&self) -> bool {
        self.disks.borrow().values().any(OfDisk::is_unwritten)
    }

    /// The changes that the record lacks, and the change number that each disk has with them.
    fn unwritten(&self, now: Instant, unix_now: u64) -> (Vec<Change>, Vec<(DiskPlace, u64)>) {
        let disks = self.disks.borrow();
        let unwritten = disks.iter().filter(|(_, disk)| disk.is_unwritten());
        let change = |(place, disk): (&DiskPlace, &OfDisk)| {
            let change = match &disk.open {
                Some(open) => set(key(*place), &KeptErrors::of(*place, open, now, unix_now)),
                None => delete(key(*place)),
            };
            (change, (*place, disk.changes))
        };
        unwritten.map(change).unzip()
    }

    fn note_written(&self, written: Vec<(DiskPlace, u64)>) {
        let mut disks = self.disks.borrow_mut();
        for (place, changes) in written {
            if let Some(disk) = disks.get_mut(&place) {
                disk.written = changes;
            }
        }
    }

    /// The disks of a pool with something to acknowledge, each with its change number.
    fn open_of(&self, pool: PoolId) -> Vec<(DiskPlace, u64)> {
        let disks = self.disks.borrow();
        let open = disks.range(disks_of(pool)).filter(|(_, disk)| disk.open.is_some());
        open.map(|(place, disk)| (*place, disk.changes)).collect()
    }

    /// Acknowledges these disks up to that change number, after they were deleted from the record. Later
    /// changes remain.
    fn acknowledge(&self, seen: Vec<(DiskPlace, u64)>) {
        let mut disks = self.disks.borrow_mut();
        for (place, changes) in seen {
            if let Some(disk) = disks.get_mut(&place).filter(|disk| disk.changes == changes) {
                (disk.open, disk.written) = (None, changes);
            }
        }
    }

    /// The changes that delete a pool's entries from the record.
    pub(in crate::control) fn without(&self, pool: PoolId) -> Vec<Change> {
        self.disks.borrow().range(disks_of(pool)).map(|(place, _)| delete(key(*place))).collect()
    }

    /// Forgets a disk that has left its pool. Returns the changes that delete it from the record.
    fn forget_disk(&self, place: DiskPlace) -> Vec<Change> {
        let forgotten = self.disks.borrow_mut().remove(&place);
        forgotten.map(|_| delete(key(place))).into_iter().collect()
    }

    /// Forgets a pool that has left this node.
    pub(in crate::control) fn forget(&self, pool: PoolId) {
        self.disks.borrow_mut().retain(|(of, _), _| *of != pool);
    }
}

impl Control {
    /// Writes failed reads to the record whenever necessary, until the node stops.
    pub(in crate::control) async fn keep_read_errors(self: Rc<Control>) {
        loop {
            self.read_errors.changed.until(|| self.read_errors.has_unwritten()).await;
            if let Err(error) = self.write_read_errors().await {
                tracing::debug!(%error, "failed reads could not be written to the node's record yet");
            }
            rt::sleep(WRITE_EVERY).await;
        }
    }

    async fn write_read_errors(self: &Rc<Control>) -> Result<()> {
        self.change(Doing::WriteReadErrors.of(self.name()), [Thing::Record], |control, changing| async move {
            let unix_now = (Shard::current().config().unix_now)();
            let (changes, written) = control.read_errors.unwritten(rt::now(), unix_now);
            control.commit(&changing, changes).await?;
            control.read_errors.note_written(written);
            Ok(())
        })
        .await
    }

    /// Forgets the failed reads of a disk that was removed from its pool: another disk may get its place.
    ///
    /// # Errors
    /// The node's record cannot be written, so that a restart would show them again.
    pub(in crate::control) async fn forget_read_errors(
        &self,
        changing: &Rc<Changing>,
        pool: &Pool,
        place: u16,
    ) -> Result<()> {
        let _record = changing.hold([Thing::Record]).await?;
        let changes = self.read_errors.forget_disk((pool.id(), place));
        if changes.is_empty() { Ok(()) } else { self.commit(changing, changes).await }
    }

    /// Acknowledges the failed reads of a pool's disks. Further ones are reported again.
    ///
    /// # Errors
    /// [`super::super::ControlError::NotFound`]; the node's record cannot be written, so that a restart would
    /// show them again.
    pub async fn acknowledge_read_errors(self: &Rc<Control>, pool: &str) -> Result<()> {
        let id = self.pool_named(pool)?.id();
        if self.read_errors.open_of(id).is_empty() {
            return Ok(());
        }
        self.change(Doing::AcknowledgeReadErrors.of(pool), [Thing::Record], |control, changing| async move {
            let seen = control.read_errors.open_of(id);
            let changes = seen.iter().map(|(place, _)| delete(key(*place))).collect();
            control.commit(&changing, changes).await?;
            control.read_errors.acknowledge(seen);
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version_1::check;

    const PLACE: DiskPlace = (PoolId([3; 16]), 1);
    const VOLUME: VolumeId = VolumeId([7; 16]);
    const YEAR_2027: u64 = 1_800_000_000;

    /// What version 1 has in the node's record. Later versions must read it.
    #[test]
    fn an_entry_of_version_1_is_read_and_keeps_what_it_says() {
        check::<KeptErrors>(&json!({
            "pool": "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf", "disk": 1, "since": 1790000000,
            "blocks": [
                {"offset": 4096, "volume": "00000000000000000000000000000001", "lba": 24, "repaired": true},
                {"offset": 8192, "volume": "00000000000000000000000000000001", "lba": 32},
                {"offset": 12288, "volume": "00000000000000000000000000000001", "lba": 40, "snapshot": 5}
            ],
            "more": true
        }));
    }

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn failing() -> ReadErrors {
        let errors = ReadErrors::default();
        let mut disk = OfDisk::default();
        disk.note(at(100), 4096, (VOLUME, 9), Some(7));
        disk.note(at(100), 8192, (VOLUME, 10), None);
        disk.note_repaired(8192);
        errors.disks.borrow_mut().insert(PLACE, disk);
        errors
    }

    #[test]
    fn unacknowledged_errors_survive_a_restart() {
        let errors = failing();
        let (changes, written) = errors.unwritten(at(160), YEAR_2027);
        let [(at_key, Some(value))] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(at_key, "read-errors/03030303030303030303030303030303/00001");
        let kept: KeptErrors = serde_json::from_str(value.get()).unwrap();
        // The machine was restarted, too, so its clock starts again.
        let (place, open) = kept.parse(at(5), YEAR_2027 + 3600).unwrap();
        assert_eq!(place, PLACE);
        assert_eq!(open.lasts(at(6)), Duration::from_secs(60 + 3600 + 1));
        let block = |(at, it): (&u64, &Found)| (*at, it.lba, it.snapshot, it.repaired);
        let blocks: Vec<_> = open.blocks.iter().map(block).collect();
        assert_eq!(blocks, [(4096, 9, Some(7), false), (8192, 10, None, true)]);
        errors.note_written(written);
        assert!(!errors.has_unwritten());
    }

    #[test]
    fn errors_during_an_acknowledgement_are_not_acknowledged() {
        let errors = failing();
        let seen = errors.open_of(PLACE.0);
        errors.disks.borrow_mut().get_mut(&PLACE).unwrap().note(at(101), 0, (VOLUME, 1), None);
        errors.acknowledge(seen);
        assert_eq!(errors.open_of(PLACE.0).len(), 1);
        assert!(errors.has_unwritten());
        errors.acknowledge(errors.open_of(PLACE.0));
        assert!(errors.open_of(PLACE.0).is_empty() && !errors.has_unwritten());
    }

    #[test]
    fn a_block_that_fails_again_and_again_is_written_once() {
        let errors = failing();
        let (_, written) = errors.unwritten(at(160), YEAR_2027);
        errors.note_written(written);
        for second in 200..300 {
            errors.disks.borrow_mut().get_mut(&PLACE).unwrap().note(at(second), 4096, (VOLUME, 9), Some(7));
        }
        assert!(!errors.has_unwritten());
        errors.disks.borrow_mut().get_mut(&PLACE).unwrap().note(at(300), 8192, (VOLUME, 10), None);
        assert!(errors.has_unwritten(), "it is bad again");
    }
}
