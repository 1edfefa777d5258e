//! Blocks that this node's disk cannot read (R25 in `docs/why/replication.md`).
//!
//! Hosts get their data from another copy in sync, and the blocks are rewritten with it. If a rewrite fails,
//! this copy leaves.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::{Apply, ApplyId, Blocks, DiskFault, Payload, Standing, Unreadable};
use rt::sync::{Notify, Sender, oneshot};
use store::{BadBlock, BadVersion, MAP_UNIT, ReadFailure, SliceError};

use super::super::SILENT_MAX;
use super::super::fetch::{HOST_WAITS, NOBODY_WAITS, NotFetched};
use super::reads::Reading;
use super::{LOOK_AGAIN, SliceCopy};
use crate::canary::{Canary, makes};
use crate::control::{note_bad_block_of_copy, note_repaired_block_of_copy, note_unrepaired_of_copy};

/// How long the disk may take for a read before another copy is asked, too.
///
/// A healthy disk takes a hundredth of that. A disk that retries a bad block takes seconds, and initiators
/// give up a path after five.
const ASKED_ELSEWHERE_AFTER: Duration = Duration::from_secs(1);

/// The size that a physical block of a disk may have, in bytes, whatever its logical blocks are.
///
/// Where such a block cannot be read, only a write of all of it helps.
pub(super) const PHYSICAL_BLOCK: u64 = 4096;

/// How many repairs of a slice's copy may be under way at the same time.
///
/// The next read finds what is not repaired now.
const REPAIRS_AT_ONCE_MAX: usize = 4;

/// How many of the disk's blocks one read may have repaired, for the same reason.
const REPAIRS_A_READ_MAX: usize = 32;

/// How many bad blocks within [`FAILING_WITHIN`] a slice's copy may have before it leaves.
///
/// Disks that begin to fail do so faster and faster, and each read from another copy costs a round trip and
/// another disk's time. A scratch or a weak track makes fewer.
const BAD_BLOCKS_MAX: usize = 64;
const FAILING_WITHIN: Duration = Duration::from_secs(3600);

/// How many attempts a repair has, since hosts' writes may overtake it.
const ATTEMPTS_MAX: u32 = 5;

/// How many of these, the last ones, lock the range on all nodes: otherwise hosts that write to other blocks
/// there all the time would overtake each attempt.
const LOCKED_ATTEMPTS: u32 = 2;

/// If the map cannot be read, each attempt takes so much less of it than the one before, down to a block.
/// Hosts may write to a few blocks of a part all the time, and then all of it is never valid at once.
const LESS_OF_MAP: u64 = 8;

const _: () =
    assert!(MAP_UNIT / LESS_OF_MAP.pow(3) <= PHYSICAL_BLOCK, "the attempts with a lock take a block");

/// How long a repair waits for that lock, and then for each other copy. Hosts' commands there wait meanwhile,
/// and their writes begin within [`super::super::HOLD_MAX`] or not at all.
const LOCK_WAITS: Duration = Duration::from_millis(1500);
const LOCKED_WAITS: Duration = Duration::from_millis(250);

/// How long an attempt waits for writes under way in its range. Another one may always be under way.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);

/// The same for a lost block: once for the physical block, once for the lost part of it.
const LOST_ATTEMPTS_MAX: u32 = 2;

/// The repairs of a slice's copy.
#[derive(Default)]
pub(in crate::copies) struct Repairs {
    under_way: Cell<usize>,
    /// The units that are being repaired.
    units: Rewrites,
    /// The same of parts of the slice of which the map cannot be read.
    parts: Rewrites,
    /// Repairs that were handed to the protocol: the block that each is to repair, and the task that waits
    /// for its end.
    waiting: RefCell<BTreeMap<ApplyId, (BadBlock, Sender<bool>)>>,
    /// Whether a read was late, and the disk is being probed.
    probing: Cell<bool>,
    /// When blocks were found bad, within [`FAILING_WITHIN`]; and the part of the slice, if the map cannot be
    /// read there.
    bad: RefCell<VecDeque<(Instant, Option<u64>)>>,
}

impl Repairs {
    /// Ends all waiting: the protocol may have forgotten the writes that were handed out.
    pub fn forget(&self) {
        self.waiting.take();
    }

    /// Counts one more bad block. If the map cannot be read, `part` is the number of the [`MAP_UNIT`]: all
    /// blocks there count as one, because a single sector of the disk is bad.
    ///
    /// Returns whether there are too many.
    fn add_bad(&self, now: Instant, part: Option<u64>) -> bool {
        let mut bad = self.bad.borrow_mut();
        while bad.front().is_some_and(|(at, _)| now.since(*at) > FAILING_WITHIN) {
            bad.pop_front();
        }
        if part.is_none() || bad.iter().all(|(_, known)| *known != part) {
            bad.push_back((now, part));
        }
        bad.len() > BAD_BLOCKS_MAX
    }
}

/// Who waits for a repair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A read, whose command may have locked the range.
    Read,
    /// Nobody.
    Nobody,
}

/// The units that are being rewritten as a whole, by their offsets.
#[derive(Default)]
pub(super) struct Rewrites {
    units: RefCell<BTreeSet<u64>>,
    /// Notified when one has ended.
    ended: Notify,
}

/// One of them, until this is dropped.
pub(super) struct Rewriting<'a>(&'a Rewrites, u64);

impl Rewrites {
    /// Begins a rewrite; `None`: one of this unit is under way already.
    pub(super) fn begin(&self, unit: u64) -> Option<Rewriting<'_>> {
        self.units.borrow_mut().insert(unit).then(|| Rewriting(self, unit))
    }

    fn is_under_way(&self, unit: u64) -> bool {
        self.units.borrow().contains(&unit)
    }

    /// Waits until no rewrite of the unit is under way.
    pub(super) async fn until_ended(&self, unit: u64) {
        self.ended.until(|| !self.is_under_way(unit)).await;
    }
}

impl Drop for Rewriting<'_> {
    fn drop(&mut self) {
        self.0.units.borrow_mut().remove(&self.1);
        self.0.ended.notify();
    }
}

/// Why a host's read has no data yet.
pub(super) enum Unread {
    /// Another copy in sync may have it, but did not give it now.
    Again,
    /// No copy has it.
    Error(SliceError),
}

impl SliceCopy {
    /// Reads for a host, from this disk or from another copy.
    ///
    /// The caller has checked that this copy may be read, and checks it again afterwards.
    pub(super) async fn read_somewhere(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<Chain, Unread> {
        let range = offset.0..offset.0 + len.0;
        let mut local = pin!(self.layout.read(offset, len));
        loop {
            if let Some(read) = self.unless_late(range.clone(), local.as_mut()).await {
                return match read {
                    Err(SliceError::Unreadable(bad)) if !makes(Canary::ReadHere) => {
                        self.read_elsewhere(bad, range).await
                    }
                    read => read.map_err(Unread::Error),
                };
            }
            // This copy is no longer in sync: its hosts have other paths.
            if self.others_in_sync().is_none() {
                return Err(Unread::Again);
            }
            let mut fetched = pin!(self.fetch(range.clone(), HOST_WAITS));
            let first = std::future::poll_fn(|context| {
                if let Poll::Ready(read) = local.as_mut().poll(context) {
                    return Poll::Ready(Ok(read));
                }
                fetched.as_mut().poll(context).map(Err)
            });
            match first.await {
                Ok(Err(SliceError::Unreadable(bad))) => return self.read_elsewhere(bad, range).await,
                Ok(read) => return read.map_err(Unread::Error),
                Err(Ok(data)) => return Ok(data),
                Err(Err(_)) => {}
            }
        }
    }

    /// What this node's disk answers to a read of this range.
    ///
    /// `None`: the answer is late and another copy in sync can be asked, or this copy is no longer in sync.
    pub(super) async fn unless_late<F: Future>(
        self: &Rc<Self>,
        range: Range<u64>,
        mut read: Pin<&mut F>,
    ) -> Option<F::Output> {
        loop {
            if let Ok(read) = rt::timeout(ASKED_ELSEWHERE_AFTER, read.as_mut()).await {
                return Some(read);
            }
            if !self.others_in_sync()?.is_empty() && !makes(Canary::LateAwaited) {
                self.probe(range);
                return None;
            }
        }
    }

    /// Gives up this copy's unreliable disk: the copy leaves, if another one is in sync.
    pub fn give_up_disk(self: &Rc<Self>, fault: DiskFault) {
        self.tell(|replica| replica.give_up_disk(fault));
    }

    /// Probes the disk, since a read of this range is late: if the disk does not answer the probe either, the
    /// copy leaves.
    ///
    /// The sender of the late read may have given up by now, and so miss that the disk could not read the
    /// range after all.
    fn probe(self: &Rc<Self>, range: Range<u64>) {
        if self.repairs.probing.replace(true) {
            return;
        }
        let copy = Rc::clone(self);
        rt::spawn(async move {
            // Unit by unit: finding the bad one takes several reads of the disk, and each of them counts as
            // an answer.
            let (mut next, mut answer) = (range.start, None);
            while next < range.end {
                let unit = copy.unit_at(next);
                next = unit.end;
                answer = copy.answer_to_probe(unit).await;
                if !matches!(answer, Some(Ok(_))) {
                    break;
                }
            }
            copy.repairs.probing.set(false);
            match answer {
                None if !copy.has_failed() && !makes(Canary::HangUnseen) => {
                    tracing::error!(copy = %copy.address, "the disk of a copy has not responded to reads for seconds: other copies continue without it");
                    copy.give_up_disk(DiskFault::Silent);
                }
                Some(Err(SliceError::Unreadable(bad))) => {
                    copy.note_bad(bad);
                    copy.repair_soon(bad, range.end);
                }
                None | Some(_) => {}
            }
        })
        .detach();
    }

    /// What the disk answers to a read of this unit; `None`: nothing within [`SILENT_MAX`].
    async fn answer_to_probe(&self, unit: Range<u64>) -> Option<Result<Chain, SliceError>> {
        let len = ByteLen(unit.end - unit.start);
        let mut read = pin!(self.layout.read(ByteOffset(unit.start), len));
        // Second by second, so that a pause of the process counts as one second.
        for _ in 0..SILENT_MAX.as_secs() {
            if let Ok(answer) = rt::timeout(Duration::from_secs(1), read.as_mut()).await {
                return Some(answer);
            }
        }
        None
    }

    /// Reads from other copies what this disk could not read: the whole range, or in parts what no single
    /// disk can read as a whole.
    async fn read_elsewhere(self: &Rc<Self>, bad: BadBlock, range: Range<u64>) -> Result<Chain, Unread> {
        self.note_bad(bad);
        let unit = self.read_unit();
        let mut data = Chain::new();
        let mut rest = vec![(range.clone(), Some(bad))];
        while let Some((part, known)) = rest.pop() {
            let (offset, len) = (ByteOffset(part.start), ByteLen(part.end - part.start));
            let bad = match known {
                Some(bad) => Some(bad),
                None => match self.unless_late(part.clone(), pin!(self.layout.read(offset, len))).await {
                    Some(Ok(read)) => {
                        data.append(read);
                        continue;
                    }
                    Some(Err(SliceError::Unreadable(bad))) => Some(bad),
                    Some(Err(error)) => return Err(Unread::Error(error)),
                    None => None,
                },
            };
            match (self.fetch(part.clone(), HOST_WAITS).await, bad) {
                (Ok(fetched), _) => data.append(fetched),
                (Err(NotFetched::Later), _) => return Err(Unread::Again),
                // The other copy's bad blocks need not be the same as this one's.
                (Err(NotFetched::Nowhere), _)
                    if len.0 > unit && self.replica.borrow().has_others_in_sync() =>
                {
                    let middle = (part.start + len.0 / 2).next_multiple_of(unit);
                    let middle = if middle < part.end { middle } else { part.start / unit * unit + unit };
                    rest.push((middle..part.end, None));
                    rest.push((part.start..middle, None));
                }
                (Err(NotFetched::Nowhere), Some(bad)) => {
                    return Err(Unread::Error(SliceError::Unreadable(bad)));
                }
                // This disk is only late, and may still read it.
                (Err(NotFetched::Nowhere), None) => return Err(Unread::Again),
            }
        }
        self.repair_soon(bad, range.end);
        Ok(data)
    }

    /// The smallest unit that both the disk and the volume read and write, in bytes.
    fn read_unit(&self) -> u64 {
        self.layout.write_unit().max(u64::from(self.block_bytes()))
    }

    /// The part of the slice that is read and written at once around a bad block.
    ///
    /// For a lost block it is a physical block: another disk may have lost it because its physical blocks are
    /// that large.
    pub(super) fn unit_of(&self, bad: BadBlock) -> Range<u64> {
        match bad.cause {
            ReadFailure::Lost => self.around(bad.offset.0, self.read_unit().max(PHYSICAL_BLOCK)),
            ReadFailure::Medium | ReadFailure::Map | ReadFailure::Device => self.unit_at(bad.offset.0),
        }
    }

    pub(super) fn unit_at(&self, offset: u64) -> Range<u64> {
        self.around(offset, self.read_unit())
    }

    fn around(&self, offset: u64, unit: u64) -> Range<u64> {
        let start = offset / unit * unit;
        start..(start + unit).min(self.len().0)
    }

    /// The lost range that begins at `start`, without a gap and up to `end`; at least a block.
    fn lost_from(&self, start: u64, end: u64) -> Range<u64> {
        let lost = self.layout.lost().into_iter().map(|(at, len)| at.0..at.0 + len.0);
        let lost_end = lost.filter(|lost| lost.contains(&start)).map(|lost| lost.end.min(end)).next();
        start..lost_end.unwrap_or_default().max(start + u64::from(self.block_bytes()))
    }

    /// Rewrites the block and other unreadable ones up to `end`, in the background.
    pub(in crate::copies) fn repair_soon(self: &Rc<Self>, bad: BadBlock, end: u64) {
        let under_way = &self.repairs.under_way;
        let has_turn = under_way.get() < REPAIRS_AT_ONCE_MAX && !makes(Canary::BadLeft);
        if !has_turn || !self.replica.borrow().has_others_in_sync() {
            return;
        }
        under_way.set(under_way.get() + 1);
        let copy = Rc::clone(self);
        rt::spawn(async move {
            copy.repair(bad, end, Waiter::Nobody).await;
            copy.repairs.under_way.set(copy.repairs.under_way.get() - 1);
        })
        .detach();
    }

    /// Rewrites the block and other unreadable ones up to `end`.
    ///
    /// Returns whether all of that can be read now.
    async fn repair(self: &Rc<Self>, bad: BadBlock, end: u64, waiter: Waiter) -> bool {
        let mut bad = bad;
        for _ in 0..REPAIRS_A_READ_MAX {
            let Some(next) = self.repair_one(bad, waiter).await else { return false };
            if next >= end {
                return true;
            }
            match self.layout.read(ByteOffset(next), ByteLen(end - next)).await {
                Ok(_) => return true,
                Err(SliceError::Unreadable(next)) => bad = next,
                Err(_) => return false,
            }
            self.note_bad(bad);
        }
        false
    }

    /// Rewrites a physical block as a whole, or less, if no other copy has all of it. If the map cannot be
    /// read there, rewrites all blocks that cannot be read for that, if possible.
    ///
    /// Returns the end of what was rewritten.
    pub(super) async fn repair_one(self: &Rc<Self>, bad: BadBlock, waiter: Waiter) -> Option<u64> {
        let unit = self.around(bad.offset.0, self.read_unit().max(PHYSICAL_BLOCK));
        let _rewriting = self.repairs.units.begin(unit.start)?;
        let part = (bad.cause == ReadFailure::Map).then(|| self.around(bad.offset.0, MAP_UNIT));
        // If that is under way already, this block need not wait for it.
        let part = part.and_then(|part| Some((self.repairs.parts.begin(part.start)?, part)));
        let mut range = part.as_ref().map_or_else(|| unit.clone(), |(_, part)| part.clone());
        let mut is_counted = false;
        // For a lost block every disk may have to try for seconds: the copies are asked again, but not at
        // once.
        let (attempts, within) = match bad.cause {
            ReadFailure::Lost => (LOST_ATTEMPTS_MAX, NOBODY_WAITS),
            ReadFailure::Medium | ReadFailure::Map | ReadFailure::Device => (ATTEMPTS_MAX, HOST_WAITS),
        };
        // For a lost block the other disks may take seconds, and hosts would wait for the lock.
        let may_lock = waiter == Waiter::Nobody && bad.cause != ReadFailure::Lost;
        let mut lock = None;
        for attempt in 0..attempts {
            // Hosts may write to the rest all the time.
            match bad.cause {
                ReadFailure::Lost if attempt > 0 => range = self.lost_from(bad.offset.0, range.end),
                ReadFailure::Map if attempt > 0 => {
                    let part = MAP_UNIT / LESS_OF_MAP.pow(attempt);
                    range = self.around(bad.offset.0, part.max(unit.end - unit.start));
                }
                _ => {}
            }
            let (offset, len) = (ByteOffset(range.start), ByteLen(range.end - range.start));
            let blocks = self.blocks(offset, len);
            if attempt > 0 {
                // A pause, of which there are few: most attempts fail because of another copy.
                rt::sleep(LOOK_AGAIN).await;
                // A host's write there has repaired it. The disk may try for seconds, and hosts would wait
                // for the lock.
                if lock.is_none() && self.layout.read(offset, len).await.is_ok() {
                    return Some(range.end);
                }
            }
            if may_lock && attempt + LOCKED_ATTEMPTS >= attempts && lock.is_none() {
                // Without it, the attempt may succeed all the same.
                lock = rt::timeout(LOCK_WAITS, self.lock(range.clone())).await.ok().and_then(Result::ok);
            }
            let within = if lock.is_some() { LOCKED_WAITS } else { within };
            let reading = match self.until_settled(blocks).await {
                Ok(reading) => reading,
                Err(Unreadable::Unsettled | Unreadable::NoLease(_)) => continue,
                Err(Unreadable::NotInSync | Unreadable::Failed) => return None,
            };
            let data = match self.fetch(range.clone(), within).await {
                Ok(data) => data,
                Err(NotFetched::Nowhere) => {
                    let less = match bad.cause {
                        ReadFailure::Lost => self.lost_from(bad.offset.0, range.end),
                        _ => self.unit_at(bad.offset.0),
                    };
                    // If nobody has it, that is so: each further read may take the disk seconds.
                    if range == less || !self.replica.borrow().has_others_in_sync() {
                        return None;
                    }
                    range = less;
                    continue;
                }
                Err(NotFetched::Later) => continue,
            };
            if !std::mem::replace(&mut is_counted, true) && self.leaves_for_bad(bad) {
                return None;
            }
            let payload = Payload::Data(data);
            let given = {
                let leases = super::Copies::current();
                self.replica.borrow_mut().repair(reading.mark, rt::now(), &leases.leases(), blocks, payload)
            };
            drop(reading);
            let Some(id) = given else { continue };
            // It has its place in the order: hosts' writes land on top, however long the disk takes.
            drop(lock);
            let (done, ended) = oneshot();
            self.repairs.waiting.borrow_mut().insert(id, (bad, done));
            self.carry_out();
            let repaired = ended.await.unwrap_or(false);
            if repaired {
                self.note_repaired(bad);
            }
            return repaired.then_some(range.end);
        }
        None
    }

    /// Waits a moment for the end of writes under way in these blocks, if there are any.
    async fn until_settled(&self, blocks: Blocks) -> Result<Reading<'_>, Unreadable> {
        let look = || self.ask(|replica, now, leases| replica.readable(now, leases, blocks));
        let settled = self.happened.until(|| !matches!(look(), Err(Unreadable::Unsettled)));
        let _ = rt::timeout(SETTLES_WITHIN, settled).await;
        look().map(|mark| self.reads.begin(mark))
    }

    /// Counts one more bad block that other copies in sync have.
    ///
    /// If there are too many, this copy leaves; returns whether it does.
    pub(super) fn leaves_for_bad(self: &Rc<Self>, bad: BadBlock) -> bool {
        if bad.cause == ReadFailure::Lost {
            return false;
        }
        let part = (bad.cause == ReadFailure::Map).then_some(bad.offset.0 / MAP_UNIT);
        let leaves = self.repairs.add_bad(rt::now(), part);
        if leaves {
            tracing::error!(copy = %self.address, "too many bad blocks: this copy leaves the in-sync set");
            self.note_unrepaired(bad);
            self.give_up_disk(DiskFault::Failing);
        }
        leaves
    }

    /// Reads from this disk for a comparison of copies, while hosts wait.
    ///
    /// Unreadable blocks are first rewritten.
    ///
    /// # Errors
    /// Errors of the layout. [`SliceError::Unavailable`]: the disk is late.
    pub async fn read_here(self: &Rc<Self>, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        let range = offset.0..offset.0 + len.0;
        match self.unless_late(range, pin!(self.layout.read(offset, len))).await {
            Some(Err(SliceError::Unreadable(bad))) => self.read_repaired(bad, offset, len).await,
            Some(read) => read,
            None => Err(SliceError::Unavailable),
        }
    }

    /// Rewrites the blocks on which a read of this disk failed, and reads them again.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`]: the rewrite did not help, or no other copy has the blocks.
    pub(super) async fn read_repaired(
        self: &Rc<Self>,
        bad: BadBlock,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<Chain, SliceError> {
        self.note_bad(bad);
        match self.repair(bad, offset.0 + len.0, Waiter::Read).await {
            true => self.layout.read(offset, len).await,
            false => {
                self.note_unrepaired(bad);
                Err(SliceError::Unreadable(bad))
            }
        }
    }

    /// Whether this copy has every acknowledged write.
    pub fn is_in_sync(&self) -> bool {
        matches!(self.replica.borrow().standing(), Standing::InSync(_))
    }

    /// Rewrites a bad block that a scrub has found, if another copy in sync has it.
    ///
    /// Returns whether it can be read now.
    pub async fn repair_found(self: &Rc<Self>, bad: BadBlock) -> bool {
        self.note_bad(bad);
        if self.repair(bad, bad.offset.0 + 1, Waiter::Nobody).await {
            return true;
        }
        // A host's read may have found it before, and is repairing it.
        let unit = self.around(bad.offset.0, self.read_unit().max(PHYSICAL_BLOCK));
        if !self.repairs.units.is_under_way(unit.start) {
            return false;
        }
        self.repairs.units.until_ended(unit.start).await;
        self.layout.read(ByteOffset(unit.start), ByteLen(unit.end - unit.start)).await.is_ok()
    }

    /// Notes what a scrub has found and repaired without another copy.
    pub fn note_found(&self, bad: BadBlock, is_repaired: bool) {
        self.note_bad(bad);
        if is_repaired {
            self.note_repaired(bad);
        }
    }

    /// Notes that a block cannot be read here.
    pub(in crate::copies) fn note_bad(&self, bad: BadBlock) {
        note_bad_block_of_copy(self.address.volume, self.place_in_volume(bad.offset), bad, None);
    }

    /// Notes that a block cannot be read here that only snapshots have.
    pub(super) fn note_bad_version(&self, version: &BadVersion) {
        let (bad, snapshot) = (version.block, Some(version.snapshot));
        note_bad_block_of_copy(self.address.volume, self.place_in_volume(bad.offset), bad, snapshot);
    }

    /// Notes that this joiner's disk cannot read a region that is to be compared.
    ///
    /// The joiner gets the region from its source; its disk needs attention all the same.
    pub(super) fn note_uncompared(&self, error: &SliceError) {
        tracing::warn!(copy = %self.address, %error, "repairing an unreadable region");
        if let SliceError::Unreadable(bad) = error {
            self.note_bad(*bad);
        }
    }

    /// Notes a block that cannot be read, before this copy leaves for that.
    pub(super) fn note_unrepaired(&self, bad: BadBlock) {
        let len = ByteLen(self.unit_of(bad).end - bad.offset.0);
        note_unrepaired_of_copy(self.address.volume, self.place_in_volume(bad.offset), len, bad);
    }

    pub(super) fn note_repaired(&self, bad: BadBlock) {
        note_repaired_block_of_copy(self.address.volume, bad);
    }

    /// Rewrites unreadable blocks, after earlier writes to them.
    pub(super) fn apply_again(self: &Rc<Self>, Apply { id, blocks, payload, .. }: Apply) {
        let (offset, len) = self.bytes(blocks);
        let turn = self.applies.queue(offset.0..offset.0 + len.0);
        let copy = Rc::clone(self);
        rt::spawn(async move {
            turn.come().await;
            let data = match payload {
                Payload::Data(data) => data,
                Payload::Zeros => Chain::from(base::Buf::zeroed(len.0 as usize)),
            };
            let written = copy.layout.rewrite(offset, data).await;
            drop(turn);
            let repaired = written.is_ok();
            let waiting = copy.repairs.waiting.borrow_mut().remove(&id);
            if let (Err(error), Some((bad, _))) = (&written, &waiting)
                && !matches!(error, SliceError::Full | SliceError::Unreadable(_))
            {
                copy.note_unrepaired(*bad);
            }
            copy.tell(|replica| match written {
                Ok(()) | Err(SliceError::Full | SliceError::Unreadable(_)) => replica.handle_applied(id, Ok(())),
                Err(error) => {
                    tracing::error!(copy = %copy.address, offset = offset.0, %error, "a bad block could not be rewritten: other copies continue without this copy");
                    replica.handle_unrepaired(id);
                }
            });
            if let Some((_, waiting)) = waiting {
                waiting.send(repaired);
            }
        })
        .detach();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Instant {
        Instant(n * 1_000_000_000)
    }

    #[test]
    fn too_many_bad_blocks_within_an_hour_are_a_failing_disk() {
        let repairs = Repairs::default();
        let add = |n| repairs.add_bad(second(n), None);
        let too_many = (0..=BAD_BLOCKS_MAX as u64).map(add).collect::<Vec<_>>();
        assert_eq!(too_many.iter().position(|it| *it), Some(BAD_BLOCKS_MAX));
        assert!(!add(FAILING_WITHIN.as_secs() + 30), "the first ones are long ago");
    }

    #[test]
    fn all_blocks_of_which_the_map_cannot_be_read_are_one_bad_block() {
        let repairs = Repairs::default();
        let parts = BAD_BLOCKS_MAX as u64;
        for n in 0..10 * parts {
            assert!(!repairs.add_bad(second(n), Some(n % parts)), "{n}");
        }
        assert!(repairs.add_bad(second(10 * parts), Some(parts)), "one part more");
    }
}
