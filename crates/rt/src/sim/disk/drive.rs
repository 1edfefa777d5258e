//! One drive: its platter, its cache, and the operations under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Weak;
use std::time::Duration;

use base::{Buf, Rng, SharedBuf};

use super::SECTOR;
use super::face::OpenFile;
use crate::sim::fault::{Fault, FaultCounts};
use crate::sim::image::DiskImage;
use crate::sim::recording::{Recording, Tap};
use crate::sync::Sender;
use crate::{DiskError, Durability};

/// The bytes that the cache holds at most before it writes back the oldest, as every cache does at some
/// point.
const UNFLUSHED_BYTES_MAX: u64 = 64 << 20;

/// How long a disk takes. Each operation draws from its range.
#[derive(Clone, Debug)]
pub struct DiskLatency {
    /// A read.
    pub read: Range<Duration>,
    /// A write or a discard.
    pub write: Range<Duration>,
    /// A flush, and the additional time of a durable write.
    pub flush: Range<Duration>,
    /// Reserving space in a file. This is not an operation of the disk, and takes no time by default.
    pub allocate: Range<Duration>,
    /// One operation in this many takes an additional `spike`; 0: none.
    pub spike_one_in: u64,
    /// The additional time.
    pub spike: Range<Duration>,
}

impl Default for DiskLatency {
    /// A flash disk.
    fn default() -> DiskLatency {
        let us = Duration::from_micros;
        DiskLatency {
            read: us(60)..us(150),
            write: us(15)..us(60),
            flush: us(100)..us(2_000),
            allocate: us(0)..us(0),
            spike_one_in: 1_000,
            spike: us(5_000)..us(80_000),
        }
    }
}

/// The faults that a disk has on its own. The default is none.
#[derive(Clone, Debug, Default)]
pub struct DiskFaults {
    /// One read in this many fails with EIO; 0: none.
    pub read_error_one_in: u64,
    /// One write or discard in this many fails with EIO; 0: none.
    pub write_error_one_in: u64,
    /// One flush in this many fails with EIO; 0: none.
    pub flush_error_one_in: u64,
    /// Reads that touch one of these ranges of bytes fail with EIO.
    pub unreadable: Vec<Range<u64>>,
    /// The additional time of a read that fails for this reason: a disk retries what it cannot read.
    pub unreadable_after: Duration,
    /// The size of a physical block in bytes. A write of a part of such a block fails if something in it is
    /// unreadable, because the disk must read the rest. 0: as large as its logical blocks.
    pub physical: u64,
    /// A write to an unreadable range makes it readable again, as on a disk that remaps bad blocks.
    pub remaps: bool,
    /// Writes and discards that touch one of these ranges of bytes fail with EIO.
    pub unwritable: Vec<Range<u64>>,
    /// Flushes and durable writes are acknowledged and guarantee nothing. No system survives such a disk: it
    /// proves that tests notice.
    pub lies: bool,
}

impl DiskFaults {
    /// Makes reads of this range fail, too.
    pub fn with_unreadable(mut self, range: Range<u64>) -> DiskFaults {
        self.unreadable.push(range);
        self
    }

    /// Lets reads of unreadable ranges take this long until they fail.
    pub fn failing_after(mut self, time: Duration) -> DiskFaults {
        self.unreadable_after = time;
        self
    }

    /// Sets the size of physical blocks.
    pub fn with_physical(mut self, bytes: u64) -> DiskFaults {
        self.physical = bytes;
        self
    }

    /// Whether a write of this range leaves a part of a physical block which cannot be read.
    fn needs_unreadable(&self, range: &Range<u64>) -> bool {
        if self.physical == 0 {
            return false;
        }
        let (first, last) =
            (range.start / self.physical * self.physical, range.end.next_multiple_of(self.physical));
        let edges = [first..range.start, range.end..last];
        edges.into_iter().any(|edge| {
            let block = edge.start / self.physical * self.physical;
            !edge.is_empty() && touches(&self.unreadable, block, self.physical)
        })
    }

    /// Makes a write repair bad blocks.
    pub fn remapping(mut self) -> DiskFaults {
        self.remaps = true;
        self
    }

    /// A write to the range was executed.
    fn heal(&mut self, healed: Range<u64>) {
        if self.remaps && touches(&self.unreadable, healed.start, healed.end - healed.start) {
            let rest =
                |bad: Range<u64>| [bad.start..bad.end.min(healed.start), bad.start.max(healed.end)..bad.end];
            let bad = std::mem::take(&mut self.unreadable).into_iter().flat_map(rest);
            self.unreadable = bad.filter(|range| !range.is_empty()).collect();
        }
    }

    /// Makes writes and discards of this range fail, too.
    pub fn with_unwritable(mut self, range: Range<u64>) -> DiskFaults {
        self.unwritable.push(range);
        self
    }
}

/// What happens to a write that a disk acknowledges but does not execute where it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Astray {
    /// It is not executed at all.
    Lost,
    /// It is executed this many bytes further on (negative: before).
    Misdirected(i64),
}

/// The kind of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file in the node's file system: it knows what is allocated, and shares the space of the file system.
    File {
        /// Its space was reserved when it was created.
        reserved: bool,
    },
    /// A block device: it reports that all of it is allocated.
    Device,
}

/// What a write puts into a range.
#[derive(Clone)]
pub(in crate::sim) enum Content {
    Data(SharedBuf),
    Zeros(u64),
}

impl Content {
    pub(in crate::sim) fn len(&self) -> u64 {
        match self {
            Content::Data(data) => data.len() as u64,
            Content::Zeros(len) => *len,
        }
    }

    /// Its size in the cache.
    fn weight(&self) -> u64 {
        match self {
            Content::Data(data) => data.len() as u64,
            Content::Zeros(_) => SECTOR,
        }
    }

    /// Writes the part `within` of the content into `image`, where the whole content would begin at `offset`.
    pub(in crate::sim) fn apply(&self, image: &mut DiskImage, offset: u64, within: Range<u64>) {
        match self {
            Content::Data(data) => {
                image.write(offset + within.start, &data[within.start as usize..within.end as usize]);
            }
            Content::Zeros(_) => image.zero(offset + within.start, within.end - within.start),
        }
    }

    /// The parts that may survive a power cut independently: sectors, or a 64th of a very long discard.
    pub(in crate::sim) fn parts(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let len = self.len();
        let unit = match self {
            Content::Data(_) => SECTOR,
            Content::Zeros(len) => (len / 64).next_multiple_of(SECTOR).max(SECTOR),
        };
        (0..len.div_ceil(unit)).map(move |part| part * unit..((part + 1) * unit).min(len))
    }
}

/// A write in the cache.
struct Unflushed {
    offset: u64,
    content: Content,
    /// It is already bound to the platter, and only in the queue because older, unbound writes may be below
    /// it.
    durable: bool,
}

/// An operation under way.
pub(in crate::sim) enum Operation {
    Read {
        offset: u64,
        buf: Buf,
        /// The data was already read; only the answer takes time.
        early: bool,
        reply: Sender<Result<Buf, DiskError>>,
    },
    Write {
        offset: u64,
        content: Content,
        durability: Durability,
        /// A failure puts the disk out of service.
        latches: bool,
        /// Parts that a concurrent read has already seen.
        seen: BTreeSet<u64>,
        reply: Sender<Result<(), DiskError>>,
    },
    Flush {
        /// It covers the changes that were done before it began: those with lower numbers.
        below: u64,
        reply: Sender<Result<(), DiskError>>,
    },
}

/// The reply of a completed operation, to be sent when the drive is no longer borrowed.
pub(super) enum Reply {
    Read(Sender<Result<Buf, DiskError>>, Result<Buf, DiskError>),
    Done(Sender<Result<(), DiskError>>, Result<(), DiskError>),
}

pub(in crate::sim) struct Drive {
    pub(super) kind: Kind,
    /// What a read returns.
    content: DiskImage,
    /// The content at the last power cut, and what was bound since.
    platter: DiskImage,
    /// Changes that are done but not bound, oldest first; the first is change number `unflushed_first`.
    unflushed: VecDeque<Unflushed>,
    unflushed_first: u64,
    unflushed_bytes: u64,
    under_way: BTreeMap<u64, Operation>,
    pub(in crate::sim) latency: DiskLatency,
    pub(in crate::sim) faults: DiskFaults,
    /// The next write that touches the range goes astray.
    pub(in crate::sim) astray: Option<(Range<u64>, Astray)>,
    /// Every operation fails, and so does opening.
    pub(in crate::sim) dead: bool,
    /// A write or a flush failed: the content of the cache is unknown until the disk is opened again.
    unsettled: bool,
    pub(super) open: Weak<OpenFile>,
    tap: Option<Tap>,
}

fn eio() -> DiskError {
    DiskError::Media(io::Error::from_raw_os_error(libc::EIO))
}

fn touches(ranges: &[Range<u64>], offset: u64, len: u64) -> bool {
    ranges.iter().any(|range| range.start < offset + len && offset < range.end)
}

fn strikes(rng: &mut Rng, one_in: u64) -> bool {
    one_in > 0 && rng.one_in(one_in)
}

pub(in crate::sim) fn draw(rng: &mut Rng, range: &Range<Duration>) -> u64 {
    let (from, to) = (range.start.as_nanos() as u64, range.end.as_nanos() as u64);
    if from < to { from + rng.below(to - from) } else { from }
}

impl Drive {
    pub(super) fn new(kind: Kind, image: DiskImage) -> Drive {
        Drive {
            kind,
            content: image.clone(),
            platter: image,
            unflushed: VecDeque::new(),
            unflushed_first: 0,
            unflushed_bytes: 0,
            under_way: BTreeMap::new(),
            latency: DiskLatency::default(),
            faults: DiskFaults::default(),
            astray: None,
            dead: false,
            unsettled: false,
            open: Weak::new(),
            tap: None,
        }
    }

    /// What a read would return now.
    pub(in crate::sim) fn content(&self) -> &DiskImage {
        &self.content
    }

    /// Makes the drive larger; the new part reads as zeros.
    pub(in crate::sim) fn grow(&mut self, size: u64) {
        self.content.grow(size);
        self.platter.grow(size);
    }

    /// Records operations from now on. The content of the cache and the operations under way are recorded as
    /// if they had just begun.
    pub(in crate::sim) fn record(&mut self, recording: &Recording, tap: Tap) {
        recording.0.borrow_mut().disks.push(self.platter.clone());
        for (index, change) in self.unflushed.iter().enumerate() {
            // No operation has such a number.
            let number = u64::MAX - index as u64;
            tap.write(number, change.offset, change.content.clone());
            tap.done(number, if change.durable { Durability::Durable } else { Durability::Cached });
        }
        for (number, operation) in &self.under_way {
            match operation {
                Operation::Write { offset, content, .. } => tap.write(*number, *offset, content.clone()),
                Operation::Flush { .. } => tap.flush(*number),
                Operation::Read { .. } => {}
            }
        }
        self.tap = Some(tap);
    }

    /// The space that the file system has reserved for it.
    pub(super) fn space(&self) -> u64 {
        match self.kind {
            Kind::File { reserved: true } => self.content.size(),
            Kind::File { reserved: false } => self.content.allocated_bytes(),
            Kind::Device => 0,
        }
    }

    /// Reserves space, if there is enough.
    pub(super) fn allocate(&mut self, offset: u64, len: u64, free: Option<u64>) -> bool {
        let fits = free.is_none_or(|free| self.content.missing_bytes(offset, len) <= free);
        if fits {
            self.content.allocate(offset, len);
            self.platter.allocate(offset, len);
        }
        fits
    }

    /// Whether it is a file that takes as much space as it is long.
    pub(super) fn has_all_its_space(&self) -> bool {
        self.kind != Kind::Device && self.space() >= self.content.size()
    }

    /// Flips a bit in every sector of the range, on the platter and in the cache: silent corruption.
    pub(in crate::sim) fn corrupt(&mut self, range: Range<u64>, rng: &mut Rng) {
        self.bind_below(u64::MAX);
        for sector in (range.start / SECTOR)..range.end.div_ceil(SECTOR) {
            let mut bytes = [0; SECTOR as usize];
            self.content.read(sector * SECTOR, &mut bytes);
            bytes[rng.below(SECTOR) as usize] ^= 1 << rng.below(8);
            self.content.write(sector * SECTOR, &bytes);
            self.platter.write(sector * SECTOR, &bytes);
        }
    }

    /// Flips a bit of a byte, on the platter and in the cache.
    pub(in crate::sim) fn flip(&mut self, at: u64) {
        self.bind_below(u64::MAX);
        let mut byte = [0];
        self.content.read(at, &mut byte);
        byte[0] ^= 1;
        self.content.write(at, &byte);
        self.platter.write(at, &byte);
    }

    /// Whether an operation is under way, including those of an earlier opener.
    pub(super) fn is_busy(&self) -> bool {
        !self.under_way.is_empty()
    }

    pub(super) fn next_change(&self) -> u64 {
        self.unflushed_first + self.unflushed.len() as u64
    }

    /// Starts an operation; returns how long it will take.
    pub(super) fn begin(
        &mut self,
        number: u64,
        mut operation: Operation,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) -> u64 {
        // A disk may read at once and report late, or the other way round.
        if let Operation::Read { offset, buf, early, .. } = &mut operation
            && rng.one_in(2)
        {
            self.look(*offset, buf, rng);
            *early = true;
        }
        let mut time = match &operation {
            Operation::Read { offset, buf, .. }
                if touches(&self.faults.unreadable, *offset, buf.len() as u64) =>
            {
                draw(rng, &self.latency.read) + self.faults.unreadable_after.as_nanos() as u64
            }
            Operation::Read { .. } => draw(rng, &self.latency.read),
            Operation::Write { durability: Durability::Cached, .. } => draw(rng, &self.latency.write),
            Operation::Write { durability: Durability::Durable, .. } => {
                draw(rng, &self.latency.write) + draw(rng, &self.latency.flush)
            }
            Operation::Flush { .. } => draw(rng, &self.latency.flush),
        };
        if strikes(rng, self.latency.spike_one_in) {
            counts.add(Fault::DiskSpike);
            time += draw(rng, &self.latency.spike);
        }
        if let Some(tap) = &self.tap {
            match &operation {
                Operation::Write { offset, content, .. } => tap.write(number, *offset, content.clone()),
                Operation::Flush { .. } => tap.flush(number),
                Operation::Read { .. } => {}
            }
        }
        self.under_way.insert(number, operation);
        time
    }

    /// Completes an operation whose time has come.
    ///
    /// `free` is the free space of its file system, if that is limited. `None`: power was cut in the
    /// meantime.
    pub(super) fn complete(
        &mut self,
        number: u64,
        free: Option<u64>,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) -> Option<Reply> {
        Some(match self.under_way.remove(&number)? {
            Operation::Read { offset, buf, early, reply } => {
                Reply::Read(reply, self.complete_read(offset, buf, early, rng, counts))
            }
            Operation::Write { offset, content, durability, latches, seen, reply } => {
                let result = match self.write_error(offset, content.len(), rng, counts) {
                    Some(error) => {
                        self.keep_some(offset, &content, &seen, rng);
                        if latches {
                            self.latch();
                        }
                        Err(error)
                    }
                    None => self.complete_write(offset, &content, durability, &seen, free, counts),
                };
                match (&result, &self.tap) {
                    (Ok(()), Some(tap)) => tap.done(number, durability),
                    (Err(DiskError::Full), Some(tap)) => tap.refused(number),
                    _ => {}
                }
                Reply::Done(reply, result)
            }
            Operation::Flush { below, reply } => {
                let result = self.complete_flush(below, rng, counts);
                if let (Ok(()), Some(tap)) = (&result, &self.tap) {
                    tap.done(number, Durability::Cached);
                }
                Reply::Done(reply, result)
            }
        })
    }

    fn complete_read(
        &mut self,
        offset: u64,
        mut buf: Buf,
        early: bool,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) -> Result<Buf, DiskError> {
        let len = buf.len() as u64;
        if self.dead {
            counts.add(Fault::DeadDisk);
            return Err(eio());
        }
        if touches(&self.faults.unreadable, offset, len) || strikes(rng, self.faults.read_error_one_in) {
            counts.add(Fault::ReadError);
            return Err(eio());
        }
        if !early {
            self.look(offset, &mut buf, rng);
        }
        Ok(buf)
    }

    fn look(&mut self, offset: u64, buf: &mut Buf, rng: &mut Rng) {
        self.meet_writes(offset..offset + buf.len() as u64, rng);
        self.content.read(offset, buf);
    }

    /// A read sees any sectors of the writes that are under way in its range; later reads see them, too.
    fn meet_writes(&mut self, range: Range<u64>, rng: &mut Rng) {
        let mut met = Vec::new();
        for operation in self.under_way.values_mut() {
            let Operation::Write { offset, content, seen, .. } = operation else { continue };
            if *offset >= range.end || range.start >= *offset + content.len() {
                continue;
            }
            for part in content.parts() {
                let inside = range.start <= *offset + part.start && *offset + part.end <= range.end;
                if inside && rng.one_in(2) && seen.insert(part.start) {
                    met.push((*offset, content.clone(), part));
                }
            }
        }
        for (offset, content, part) in met {
            self.change(offset, &content, part, false);
        }
    }

    fn write_error(
        &mut self,
        offset: u64,
        len: u64,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) -> Option<DiskError> {
        if self.dead {
            counts.add(Fault::DeadDisk);
            return Some(eio());
        }
        let is_unwritable = touches(&self.faults.unwritable, offset, len)
            || self.faults.needs_unreadable(&(offset..offset + len));
        if is_unwritable || strikes(rng, self.faults.write_error_one_in) {
            counts.add(Fault::WriteError);
            return Some(eio());
        }
        None
    }

    fn complete_write(
        &mut self,
        offset: u64,
        content: &Content,
        durability: Durability,
        seen: &BTreeSet<u64>,
        free: Option<u64>,
        counts: &mut FaultCounts,
    ) -> Result<(), DiskError> {
        let grows = matches!((self.kind, content), (Kind::File { reserved: false }, Content::Data(_)));
        if grows && free.is_some_and(|free| self.content.missing_bytes(offset, content.len()) > free) {
            counts.add(Fault::DiskFull);
            return Err(DiskError::Full);
        }
        let Some(offset) = self.where_to(offset, content.len(), counts) else { return Ok(()) };
        self.faults.heal(offset..offset + content.len());
        let durable = durability == Durability::Durable && !self.faults.lies;
        if seen.is_empty() {
            self.change(offset, content, 0..content.len(), durable);
        } else {
            for part in content.parts() {
                if !seen.contains(&part.start) {
                    self.change(offset, content, part, durable);
                } else if durable {
                    // The part was applied when a read saw it. Whatever overwrote it since is newer and
                    // stays.
                    self.bind_part(offset + part.start..offset + part.end);
                }
            }
        }
        Ok(())
    }

    /// The offset to which a write at `offset` really goes; `None`: nowhere.
    fn where_to(&mut self, offset: u64, len: u64, counts: &mut FaultCounts) -> Option<u64> {
        let strikes =
            |(range, _): &mut (Range<u64>, Astray)| range.start < offset + len && offset < range.end;
        match self.astray.take_if(strikes) {
            None => Some(offset),
            Some((_, Astray::Lost)) => {
                counts.add(Fault::LostWrite);
                None
            }
            Some((_, Astray::Misdirected(by))) => {
                counts.add(Fault::MisdirectedWrite);
                Some(offset.checked_add_signed(by).expect("it goes to another place of the disk"))
            }
        }
    }

    /// Makes the part `within` of `content`, at `offset`, the newest change.
    fn change(&mut self, offset: u64, content: &Content, within: Range<u64>, durable: bool) {
        content.apply(&mut self.content, offset, within.clone());
        if durable && self.unflushed.is_empty() {
            content.apply(&mut self.platter, offset, within);
            return;
        }
        let len = within.end - within.start;
        let content = match content {
            Content::Data(data) => Content::Data(data.slice(within.start as usize..within.end as usize)),
            Content::Zeros(_) => Content::Zeros(len),
        };
        self.unflushed_bytes += content.weight();
        self.unflushed.push_back(Unflushed { offset: offset + within.start, content, durable });
        while self.unflushed_bytes > UNFLUSHED_BYTES_MAX {
            self.bind_below(self.unflushed_first + 1);
        }
    }

    /// Binds the present content of the range, whichever write it comes from.
    fn bind_part(&mut self, range: Range<u64>) {
        let mut bytes = Buf::uncleared((range.end - range.start) as usize);
        self.content.read(range.start, &mut bytes);
        self.platter.write(range.start, &bytes);
        let content = Content::Data(bytes.share());
        self.unflushed_bytes += content.weight();
        self.unflushed.push_back(Unflushed { offset: range.start, content, durable: true });
    }

    /// Binds the changes with numbers below `number` to the platter.
    fn bind_below(&mut self, number: u64) {
        while self.unflushed_first < number {
            let Some(change) = self.unflushed.pop_front() else { return };
            self.unflushed_first += 1;
            self.unflushed_bytes -= change.content.weight();
            change.content.apply(&mut self.platter, change.offset, 0..change.content.len());
        }
    }

    fn complete_flush(
        &mut self,
        below: u64,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) -> Result<(), DiskError> {
        if self.dead {
            counts.add(Fault::DeadDisk);
        } else if strikes(rng, self.faults.flush_error_one_in) {
            counts.add(Fault::FlushError);
        } else {
            if !self.faults.lies {
                self.bind_below(below);
            }
            return Ok(());
        }
        self.latch();
        Err(eio())
    }

    /// A failed write may have changed any of its sectors.
    fn keep_some(&mut self, offset: u64, content: &Content, seen: &BTreeSet<u64>, rng: &mut Rng) {
        if self.dead {
            return;
        }
        for part in content.parts() {
            if !seen.contains(&part.start) && rng.one_in(2) {
                self.change(offset, content, part, false);
            }
        }
    }

    fn latch(&mut self) {
        self.unsettled = true;
        if let Some(open) = self.open.upgrade() {
            open.latch();
        }
    }

    /// Called when the drive is opened: after a failure, any unflushed data may be gone.
    pub(super) fn settle_after_failure(&mut self, rng: &mut Rng, counts: &mut FaultCounts) {
        if std::mem::take(&mut self.unsettled) {
            self.settle(rng, counts);
        }
    }

    /// Cuts the power. No operation is answered.
    pub(super) fn power_cut(&mut self, rng: &mut Rng, counts: &mut FaultCounts) {
        for operation in std::mem::take(&mut self.under_way).into_values() {
            if let Operation::Write { offset, content, seen, .. } = operation {
                if seen.is_empty() {
                    self.change(offset, &content, 0..content.len(), false);
                    continue;
                }
                for part in content.parts().filter(|part| !seen.contains(&part.start)) {
                    self.change(offset, &content, part, false);
                }
            }
        }
        self.open = Weak::new();
        self.unsettled = false;
        self.settle(rng, counts);
    }

    /// Lets an arbitrary part of the cache reach the platter and drops the rest.
    fn settle(&mut self, rng: &mut Rng, counts: &mut FaultCounts) {
        // A recording does not know the outcome.
        self.tap = None;
        // Half, nearly everything, nearly nothing: each finds other bugs.
        let kept_of_16 = [0, 1, 8, 15, 16][rng.below(5) as usize];
        for change in std::mem::take(&mut self.unflushed) {
            self.unflushed_first += 1;
            let (mut kept, mut lost) = (0, 0);
            for part in change.content.parts() {
                if change.durable || rng.below(16) < kept_of_16 {
                    kept += 1;
                    change.content.apply(&mut self.platter, change.offset, part);
                } else {
                    lost += 1;
                    counts.add(Fault::LostSector);
                }
            }
            if kept > 0 && lost > 0 {
                counts.add(Fault::TornWrite);
            }
        }
        self.unflushed_bytes = 0;
        self.content = self.platter.clone();
    }
}
