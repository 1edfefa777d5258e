//! Recovery: finds the newest root, and replays the records after it.
//!
//! The segments that the root announces are scanned from head to head, and slot by slot where there is none.
//! Every intact record is taken, in the order of sequence numbers. Records that a later record knew to be
//! durable must be there; otherwise the log is damaged, and is opened only if nobody relies on its data
//! ([`LogHandle::may_lack_records`](super::LogHandle::may_lack_records)). Before the log acknowledges
//! anything again, everything is merged and a new root is written.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, crc32c};
use rt::DiskError;

use super::checkpoint::CheckpointError;
use super::marks::{Mark, Origin, Restore, Standing};
use super::pack::is_intact;
use super::place::{Place, QUARTER_BYTES, SLOT_BYTES, SLOT_QUARTERS};
use super::record::{DATA_SLOTS_MAX, Entry, Head, What};
use super::root::{Replay, Root, Run};
use super::segment::{Kind, Segments, Used, Zone};
use super::state::{STATE_BYTES, State, from_slot};
use super::{Inner, Running, Usage};
use crate::canary::{Canary, makes};

/// How many bytes of a segment are read at once; more than the longest record has.
const WINDOW_BYTES: usize = 1 << 20;

const _: () = assert!(WINDOW_BYTES > (1 + DATA_SLOTS_MAX) * SLOT_BYTES, "a window holds the longest record");

/// How many times recovery tries to read a log, and a checkpoint what it merges, and the pause after a failed
/// attempt.
pub(super) const READS_MAX: u32 = 4;
pub(super) const READ_AGAIN: Duration = Duration::from_millis(250);

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoveryError {
    #[error("its roots are damaged: restore the pool's disk from a copy")]
    NoRoot,
    #[error("a newer root was written than can be read: restore the pool's disk from a copy")]
    OlderRoot,
    #[error("the state that its root names is damaged: restore the pool's disk from a copy")]
    State,
    #[error("segment {0} does not belong to this log: the pool was set back or is damaged")]
    Foreign(u32),
    #[error("record {0} was acknowledged as durable and cannot be read: restore the pool's disk from a copy")]
    RecordMissing(u64),
    #[error(
        "it holds data of a volume that is newer than the pool's metadata (branch {0}): some of the pool's disks were set back"
    )]
    NewerBranch(u32),
    #[error("a disk failed")]
    Disk(#[from] DiskError),
    #[error("what was found could not be merged")]
    Checkpoint(#[from] CheckpointError),
}

/// A record that was found.
struct Found {
    place: Place,
    entries: Vec<Entry>,
    /// The data matches the checksums.
    whole: bool,
}

/// What was found of the state that the root names.
struct Gathered {
    bytes: Vec<u8>,
    /// The slots that were not found yet.
    missing: BTreeSet<usize>,
}

impl Gathered {
    /// Takes what was read at `place` for slot `number`, if that is missing and this is it.
    fn take(&mut self, root: u64, number: usize, slot: &[u8], place: Place) {
        if !self.missing.contains(&number) {
            return;
        }
        let Some(part) = from_slot(slot, root, number as u32) else {
            tracing::warn!(number, ?place, "a part of the state of a log's map cannot be read");
            return;
        };
        self.bytes[number * STATE_BYTES..(number + 1) * STATE_BYTES].copy_from_slice(part);
        self.missing.remove(&number);
    }
}

/// What the announced segments hold.
#[derive(Default)]
struct Findings {
    records: BTreeMap<u64, Found>,
    durable_below: u64,
    newest_root: u64,
}

impl Inner {
    /// Recovers the log's state. Afterwards it may serve.
    pub(super) async fn recover(self: &Rc<Inner>) -> Result<(), RecoveryError> {
        let mut replayed = self.find_and_replay(false).await;
        // A read failure may be temporary.
        for attempt in 2..=READS_MAX {
            if replayed.is_ok() || self.closing.get() {
                break;
            }
            rt::sleep(READ_AGAIN).await;
            self.state.replace(Running::new(&self.handle));
            let may_lack_records = attempt == READS_MAX && self.handle.may_lack_records();
            replayed = self.find_and_replay(may_lack_records).await;
        }
        replayed?;
        // If so, the catalog is older than the log. The branch would pass for that of a deleted volume, and
        // its data would be removed, or show up in the next new volume.
        if let Some(newer) = self.state.borrow().next_branch(self.handle.next_branch()) {
            return Err(RecoveryError::NewerBranch(newer));
        }
        self.flush().await.map_err(|_| DiskError::Latched)?;
        // The root may give up a zone.
        self.take_reserves();
        let checkpoint = self.checkpoint().await;
        self.state.borrow_mut().checkpoints += 1;
        Ok(checkpoint?)
    }

    /// Reads all that there is, and applies it. Changes nothing on the disks.
    async fn find_and_replay(&self, may_lack_records: bool) -> Result<(), RecoveryError> {
        let (root, findings) = self.find().await?;
        let clones = self.handle.origins();
        self.state.borrow_mut().replay(&root, findings, &clones, may_lack_records)
    }

    /// Reads the root, the state and the records.
    async fn find(&self) -> Result<(Root, Findings), RecoveryError> {
        let root = self.read_root().await?;
        let state = self.read_state(&root).await?;
        self.load(&root, state)?;
        let mut findings = Findings::default();
        for replay in &root.replay {
            self.walk(*replay, &root, &mut findings).await?;
        }
        Ok((root, findings))
    }

    async fn read_root(&self) -> Result<Root, RecoveryError> {
        let mut newest: Option<Root> = None;
        let roots = self.handle.use_roots().await;
        self.take_disks();
        let mirrors = if makes(Canary::RootOnce) { 1 } else { roots.places.len() };
        for (disk, offset) in roots.places.iter().copied().take(mirrors) {
            for number in 0..2 {
                let disk = Rc::clone(self.disks.borrow().disk(disk));
                let bytes = disk.read(offset + Root::offset(number), Buf::uncleared(SLOT_BYTES)).await;
                let Ok(bytes) = bytes else { continue };
                let root = Root::decode(&bytes).filter(|root| {
                    root.identity == self.handle.identity && root.segment_shift == self.handle.segment_shift
                });
                let is_newer = |root: &Root| newest.as_ref().is_none_or(|newest| root.number > newest.number);
                if let Some(root) = root.filter(is_newer) {
                    newest = Some(root);
                }
            }
        }
        newest.ok_or(RecoveryError::NoRoot)
    }

    async fn read_state(&self, root: &Root) -> Result<State, RecoveryError> {
        let zones = self.handle.zones();
        let mut segments = Segments::new(self.handle.slots(), self.handle.zone_segments);
        for (number, (disk, offset)) in zones {
            segments.add_zone(number, Zone { disk, offset, leaving: false });
        }
        self.state.borrow_mut().segments = segments;
        let slots: usize = root.copies[0].iter().map(|run| usize::from(run.slots)).sum();
        let wanted = (root.state_len as usize).div_ceil(STATE_BYTES);
        if wanted > slots {
            return Err(RecoveryError::State);
        }
        let mut state = Gathered { bytes: vec![0; wanted * STATE_BYTES], missing: (0..wanted).collect() };
        self.gather_state(root, &root.copies[0], &mut state).await?;
        let lost = state.missing.len();
        if lost > 0 && !makes(Canary::StateOnce) {
            self.gather_state(root, &root.copies[1], &mut state).await?;
        }
        let bytes = state.bytes.get(..root.state_len as usize).ok_or(RecoveryError::State)?;
        if !state.missing.is_empty() || crc32c(bytes) != root.state_crc {
            return Err(RecoveryError::State);
        }
        if lost > 0 {
            let log = self.handle.number;
            tracing::error!(
                log,
                slots = lost,
                "a part of the state of a log's map was lost, and taken from its second copy"
            );
            self.state.borrow_mut().state_repaired = lost as u64;
        }
        State::decode(bytes, self.handle.slots()).ok_or(RecoveryError::State)
    }

    /// Reads from one copy of the state what is still missing.
    async fn gather_state(
        &self,
        root: &Root,
        copy: &[Run],
        state: &mut Gathered,
    ) -> Result<(), RecoveryError> {
        let mut number = 0;
        for run in copy {
            if u32::from(run.slot) + u32::from(run.slots) > self.handle.slots() {
                return Err(RecoveryError::State);
            }
            let (mut slot, end) = (usize::from(run.slot), usize::from(run.slot) + usize::from(run.slots));
            while slot < end {
                let count = (WINDOW_BYTES / SLOT_BYTES).min(end - slot);
                if state.missing.range(number..number + count).next().is_some() {
                    let place = Place::new(run.segment, slot as u16);
                    let read = self.read_slots(place, count).await?;
                    for (index, bytes) in read.chunks(SLOT_BYTES).enumerate() {
                        state.take(root.number, number + index, bytes, place.plus(index as u16));
                    }
                }
                (slot, number) = (slot + count, number + count);
            }
        }
        Ok(())
    }

    /// Turns the state that the root names into the running state.
    fn load(&self, root: &Root, loaded: State) -> Result<(), RecoveryError> {
        let mut state = self.state.borrow_mut();
        state.root = root.number;
        state.root_sequence = root.sequence;
        state.runs = root.copies.clone();
        state.state_len = root.state_len as usize;
        state.append.next = root.sequence;
        let segments = &mut state.segments;
        for (segment, data) in loaded.data {
            segments.begin(segment, data.generation, Kind::Data);
            segments.packed += u64::from(data.packed);
            if let Some(used) = segments.used.get_mut(&segment) {
                let set: u32 = data.bits.iter().map(|word| word.count_ones()).sum();
                let (packed, bits) = (data.packed, data.bits);
                *used = Used { packed, bits, open: false, newest: data.newest, ..used.clone() };
                used.live = set * used.quarters_per_bit();
                segments.live += u64::from(used.live);
            }
        }
        for (segment, generation) in loaded.map {
            segments.begin(segment, generation, Kind::Map);
            segments.seal(segment);
        }
        for place in loaded.leaves.values() {
            segments.add_leaf(place.segment, place.len);
        }
        let foreign = segments.used.keys().find(|segment| segments.locate(**segment).is_none());
        if let Some(foreign) = foreign.or(root
            .replay
            .iter()
            .map(|replay| &replay.segment)
            .find(|segment| segments.locate(**segment).is_none()))
        {
            return Err(RecoveryError::Foreign(*foreign));
        }
        let used = std::mem::take(&mut segments.free);
        segments.free = used.into_iter().filter(|segment| !segments.used.contains_key(segment)).collect();
        for ((era, _), place) in &loaded.leaves {
            let (blocks, quarters) = (u64::from(place.blocks), u64::from(place.quarters));
            state.add_used(era.branch, Usage { blocks, quarters });
            state.hold(*era, place);
        }
        state.leaves = loaded.leaves;
        state.marks = loaded.marks;
        Ok(())
    }

    /// Scans an announced segment.
    async fn walk(&self, replay: Replay, root: &Root, findings: &mut Findings) -> Result<(), RecoveryError> {
        let slots = self.handle.slots() as usize;
        let window_slots = (WINDOW_BYTES / SLOT_BYTES).min(slots);
        let mut slot = usize::from(replay.from);
        let (mut start, mut window) = (slot, Buf::zeroed(0));
        while slot < slots {
            if self.closing.get() {
                return Err(CheckpointError::Closed.into());
            }
            if slot >= start + window.len() / SLOT_BYTES {
                start = slot;
                let count = window_slots.min(slots - slot);
                let place = Place::new(replay.segment, slot as u16);
                window = self.read_slots(place, count).await?;
            }
            let loaded = start + window.len() / SLOT_BYTES;
            let bytes = &mut window[(slot - start) * SLOT_BYTES..];
            let place = Place::new(replay.segment, slot as u16);
            let head = Head::decode(&bytes[..SLOT_BYTES]);
            let head = head.filter(|head| head.generation == replay.generation && head.place == place);
            let Some(head) = head.filter(|head| slot + 1 + head.data_slots() <= slots) else {
                slot += 1;
                continue;
            };
            let end = slot + 1 + head.data_slots();
            if end > loaded {
                // Read the whole record, which fits into a window.
                window = Buf::zeroed(0);
                continue;
            }
            slot = end;
            findings.durable_below = findings.durable_below.max(head.durable_below);
            findings.newest_root = findings.newest_root.max(head.root);
            if head.sequence >= root.sequence {
                let packed = head.stored().filter(|(_, place)| place.size().is_packed()).count();
                if packed > 0 {
                    self.effort.wait().await;
                    self.effort.spend(packed);
                }
                let whole = is_whole(&head, bytes);
                findings.records.insert(head.sequence, Found { place, entries: head.entries, whole });
            }
        }
        Ok(())
    }

    /// Reads slots. A slot that the disk cannot read returns zeros, which are no record.
    pub(super) async fn read_slots(&self, place: Place, count: usize) -> Result<Buf, RecoveryError> {
        let (disk, _, at) = self.locate(place).ok_or(RecoveryError::Foreign(place.segment))?;
        match disk.read(at, Buf::uncleared(count * SLOT_BYTES)).await {
            Ok(bytes) => Ok(bytes),
            Err(DiskError::Media(_)) => {
                let mut bytes = Buf::zeroed(count * SLOT_BYTES);
                for (number, slot) in bytes.chunks_mut(SLOT_BYTES).enumerate() {
                    let read = disk.read(at + (number * SLOT_BYTES) as u64, Buf::uncleared(SLOT_BYTES)).await;
                    if let Ok(read) = read {
                        slot.copy_from_slice(&read);
                    }
                }
                Ok(bytes)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the data of a record matches its head; `bytes` begin with the head.
fn is_whole(head: &Head, bytes: &mut [u8]) -> bool {
    let start = u32::from(head.place.slot) * SLOT_QUARTERS;
    head.stored().all(|(entry, place)| {
        let at = (place.quarter() - start) as usize * QUARTER_BYTES;
        let stored = bytes.get_mut(at..at + place.size().bytes());
        entry.crc().zip(stored).is_some_and(|(crc, stored)| is_intact(stored, place.size(), crc))
    })
}

impl super::Running {
    /// Applies what was found.
    ///
    /// With `may_lack_records`, blocks whose newest record is missing become older than they were. All that
    /// the map says of them is still there: what it names is not written over before the next root. Snapshots
    /// are gone then: nobody knows what they lack, and a resync changes only what is there now. Those that
    /// clones are read through stay, but only for these.
    fn replay(
        &mut self,
        root: &Root,
        findings: Findings,
        clones: &BTreeMap<u32, Origin>,
        may_lack_records: bool,
    ) -> Result<(), RecoveryError> {
        let Findings { records, durable_below, newest_root } = findings;
        if newest_root > root.number {
            return Err(RecoveryError::OlderRoot);
        }
        let missing = (root.sequence..durable_below).find(|sequence| !records.contains_key(sequence));
        let missing = missing.filter(|_| !makes(Canary::HoleIgnored));
        if let Some(missing) = missing {
            if !may_lack_records {
                return Err(RecoveryError::RecordMissing(missing));
            }
            tracing::error!(
                missing,
                "a log lacks records that were acknowledged as durable: it is opened, because all volumes in it are about to be resynced in full"
            );
        }
        let generations: BTreeMap<u32, u64> =
            root.replay.iter().map(|replay| (replay.segment, replay.generation)).collect();
        // A record that is known to be durable but not intact has rotted. It is applied, and reads of its bad
        // blocks fail.
        let counts = |sequence: u64, found: &Found| {
            let may_be_torn = sequence >= durable_below || makes(Canary::RotDropped);
            // What the cleaner has moved is still in its old place, which is free only when a root has merged
            // the move.
            let moves = found.entries.iter().any(|entry| matches!(entry.what, What::Moved { .. }));
            found.whole || !moves && (!may_be_torn || makes(Canary::TakeWithoutChecksum))
        };
        // The record of a snapshot may come after others of its era.
        let counted = records.iter().filter(|&(sequence, found)| counts(*sequence, found));
        for entry in counted.flat_map(|(_, found)| &found.entries) {
            self.marks.note(entry.era);
            let Entry { branch, era, block, what } = *entry;
            match what {
                What::Taken { snapshot: id } => {
                    self.marks.taken(branch, Mark { era, id, time: block, standing: Standing::Kept });
                }
                What::Restored { restore: id } => {
                    self.marks.restored(branch, Restore { era, id, to: block as u32 });
                }
                _ => {}
            }
        }
        self.marks.set_origins(clones);
        self.marks.drop_unfinished();
        if missing.is_some() {
            self.marks.replace_missing(clones);
            self.marks.delete_all();
        }
        for (sequence, found) in records {
            self.append.next = sequence + 1;
            if !counts(sequence, &found) {
                continue;
            }
            let Found { place, entries, .. } = found;
            if !self.segments.used.contains_key(&place.segment) {
                let generation = generations.get(&place.segment).copied().unwrap_or_default();
                self.segments.begin(place.segment, generation, Kind::Data);
                self.segments.seal(place.segment);
                self.segments.free.retain(|segment| *segment != place.segment);
            }
            self.apply(sequence, place, &entries);
        }
        self.append.next = self.append.next.max(durable_below);
        Ok(())
    }
}
