//! What hosts saw, sector by sector, in one order of calls and replies.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use base::{BlockSize, Buf, Chain};
use rt::sim::linear::{self, Kind, Moments, NEVER, Op, Time, Violation};

use crate::exchanges::{self, Unexchangeable};
use crate::layout::SECTOR;
use crate::replaced::{AllReplaced, Sectors, shown};

/// The value of a sector before the first write.
const EMPTY: u64 = 0;

/// Fewer than `2^40` values are written to a volume.
const VALUE_BITS: u32 = 40;

/// The history of a volume, shared by all its hosts: see the module.
#[derive(Clone)]
pub struct History(Rc<Inner>);

struct Inner {
    size: BlockSize,
    /// Shared by all volumes.
    time: Rc<Cell<Time>>,
    values: Cell<u64>,
    sectors: RefCell<BTreeMap<u64, Vec<Op>>>,
    /// For each new value of a COMPARE AND WRITE, the old value that it replaces.
    exchanged: RefCell<BTreeMap<u64, u64>>,
    /// The restores of the volume.
    replaced: RefCell<AllReplaced>,
}

fn line(Op { kind, value, call, reply }: &Op) -> String {
    let reply = if *reply == NEVER { "never".to_owned() } else { reply.to_string() };
    format!("{kind:?} {}: {call}..{reply}\n", shown(*value))
}

/// A write that has begun: its entries in the history, by sector.
pub struct Begun(Vec<(u64, usize)>);

impl History {
    /// The histories of so many volumes with blocks of this size. Values of different volumes differ, and
    /// their moments are in one order.
    pub fn of_volumes(size: BlockSize, count: usize) -> Vec<History> {
        let time = Rc::default();
        (0..count).map(|volume| History::new(size, volume, Rc::clone(&time))).collect()
    }

    fn new(size: BlockSize, volume: usize, time: Rc<Cell<Time>>) -> History {
        let values = Cell::new((volume as u64) << VALUE_BITS);
        let (sectors, exchanged, replaced) = (RefCell::default(), RefCell::default(), RefCell::default());
        History(Rc::new(Inner { size, time, values, sectors, exchanged, replaced }))
    }

    /// A moment after all earlier moments.
    pub fn tick(&self) -> Time {
        self.0.time.set(self.0.time.get() + 1);
        self.0.time.get()
    }

    /// A value that was not written before.
    pub fn value(&self) -> u64 {
        self.0.values.set(self.0.values.get() + 1);
        self.0.values.get()
    }

    /// Notes that a write of `value` to all of these blocks begins.
    pub fn begin_write(&self, blocks: Range<u64>, value: u64) -> Begun {
        let call = self.tick();
        let mut sectors = self.0.sectors.borrow_mut();
        let entries = self.watched(blocks).map(|sector| {
            let ops = sectors.entry(sector).or_default();
            ops.push(Op { kind: Kind::Write, value, call, reply: NEVER });
            (sector, ops.len() - 1)
        });
        Begun(entries.collect())
    }

    /// Notes that an exchange begins: the block, full of `old`, shall hold `new`. If it happens, it is
    /// atomic.
    pub fn begin_exchange(&self, block: u64, old: u64, new: u64) -> Begun {
        self.0.exchanged.borrow_mut().insert(new, old);
        self.begin_write(block..block + 1, new)
    }

    /// As [`History::begin_write`], with a value for each sector.
    pub fn begin_marks(&self, values: &[(u64, u64)]) -> Begun {
        let call = self.tick();
        let mut sectors = self.0.sectors.borrow_mut();
        let entries = values.iter().filter(|(sector, _)| self.is_watched(*sector)).map(|(sector, value)| {
            let ops = sectors.entry(*sector).or_default();
            ops.push(Op { kind: Kind::Write, value: *value, call, reply: NEVER });
            (*sector, ops.len() - 1)
        });
        Begun(entries.collect())
    }

    /// Notes that the write succeeded.
    pub fn end_write(&self, begun: &Begun) {
        let reply = self.tick();
        let mut sectors = self.0.sectors.borrow_mut();
        for (sector, at) in &begun.0 {
            let op = sectors.get_mut(sector).and_then(|ops| ops.get_mut(*at));
            op.expect("nothing is taken out").reply = reply;
        }
    }

    /// Notes what a read that began at `call` has found, from block `first` on.
    ///
    /// # Panics
    /// If a sector holds parts of two writes.
    pub fn read(&self, first: u64, data: &[u8], call: Time) {
        let reply = self.tick();
        let block = self.0.size.bytes() as usize;
        let count = (data.len() / block) as u64;
        let mut sectors = self.0.sectors.borrow_mut();
        for (number, bytes) in (self.sector(first)..).zip(data.chunks_exact(SECTOR)) {
            let value =
                value_of(bytes).unwrap_or_else(|| panic!("sector {number} holds parts of two writes"));
            if self.is_watched(number) && number < self.sector(first + count) {
                sectors.entry(number).or_default().push(Op { kind: Kind::Read, value, call, reply });
            }
        }
    }

    /// Notes that the volume may be restored to what a snapshot has from now on: each sector of the history
    /// gets the value that `to` has for it, and is empty otherwise. `number` is higher than that of the last
    /// restore.
    pub fn begin_restore(&self, number: u64, call: Time, to: Sectors) {
        self.0.replaced.borrow_mut().begin(number, call, to);
    }

    /// Notes that a restore had happened by then; `None`: it never will.
    pub fn end_restore(&self, number: u64, reply: Option<Time>) {
        let mut replaced = self.0.replaced.borrow_mut();
        match reply {
            Some(reply) => replaced.end(number, reply),
            None => replaced.cancel(number),
        }
    }

    /// Notes what the volume was directly before a restore, as far as that is known.
    pub fn keep(&self, number: u64, kept: Sectors) {
        self.0.replaced.borrow_mut().keep(number, kept);
    }

    /// Whether the volume may have been restored since then.
    pub fn is_restored_since(&self, time: Time) -> bool {
        self.0.replaced.borrow().is_restored_since(time)
    }

    /// Whether the volume was restored after the first of these times, and before the second one.
    pub fn is_restored_between(&self, after: Time, before: Time) -> bool {
        self.0.replaced.borrow().is_restored_between(after, before)
    }

    /// What restores since then may have brought back to a sector.
    pub fn brought_back(&self, sector: u64, since: Time) -> Vec<u64> {
        self.0.replaced.borrow().brought_back(sector, since, EMPTY)
    }

    /// The operations on a sector, with restores among them ([`crate::replaced`]).
    fn ops(&self, sector: u64) -> Vec<Op> {
        let (sectors, replaced) = (self.0.sectors.borrow(), self.0.replaced.borrow());
        let ops = sectors.get(&sector).map_or(&[][..], Vec::as_slice);
        match replaced.is_empty() {
            true => ops.to_vec(),
            false => replaced.named(sector, ops, EMPTY),
        }
    }

    /// When a read of the sector that takes no time could have found this value: at one of the moments of any
    /// of these. There are several if restores have brought the value back.
    ///
    /// # Errors
    /// It was never written, or what was seen of the sector is impossible.
    pub fn moments(&self, sector: u64, value: u64) -> Result<Vec<Moments>, Violation> {
        let (ops, names) = (self.ops(sector), self.0.replaced.borrow().names(sector, value, EMPTY));
        names.into_iter().map(|name| linear::moments(EMPTY, &ops, name)).collect()
    }

    /// Notes that the sector held this value at one of these moments.
    pub fn held(&self, sector: u64, value: u64, at: &RangeInclusive<Time>) {
        let read = Op { kind: Kind::Read, value, call: *at.start(), reply: *at.end() };
        self.0.sectors.borrow_mut().entry(sector).or_default().push(read);
    }

    /// The sectors that are in the history.
    pub fn sectors(&self) -> Vec<u64> {
        self.0.sectors.borrow().keys().copied().collect()
    }

    /// Number of operations on all sectors.
    pub fn len(&self) -> usize {
        self.0.sectors.borrow().values().map(Vec::len).sum()
    }

    /// Whether there were no operations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that what was seen of each sector is possible (A1), and that each exchange was atomic (A11).
    pub fn check(&self) -> Result<(), (u64, Unexchangeable)> {
        let (sectors, exchanged) = (self.0.sectors.borrow(), self.0.exchanged.borrow());
        let replaced = self.0.replaced.borrow();
        let mut each = sectors.iter();
        each.try_for_each(|(sector, ops)| {
            let checked = match replaced.is_empty() {
                true => exchanges::check(EMPTY, ops, &exchanged),
                false => {
                    let exchanged = replaced.exchanged(*sector, ops, &exchanged, EMPTY);
                    exchanges::check(EMPTY, &replaced.named(*sector, ops, EMPTY), &exchanged)
                }
            };
            checked.map_err(|violation| (*sector, violation))
        })
    }

    /// Checks that a read that finds `value` in a sector now would be possible.
    pub fn check_found(&self, sector: u64, value: u64) -> Result<(), Violation> {
        let now = self.tick();
        let (ops, names) = (self.ops(sector), self.0.replaced.borrow().names(sector, value, EMPTY));
        let mut result = Ok(());
        for value in names {
            let read = Op { kind: Kind::Read, value, call: now, reply: now };
            result = linear::check(EMPTY, &[&ops[..], &[read]].concat());
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Whether a write to one of the sectors may have taken effect since then.
    pub fn is_written_since(&self, sectors: Range<u64>, time: Time) -> bool {
        let all = self.0.sectors.borrow();
        let mut ops = all.range(sectors).flat_map(|(_, ops)| ops);
        ops.any(|op| op.kind == Kind::Write && op.reply >= time) || self.is_restored_since(time)
    }

    /// The latest operations on a sector, one per line, as text.
    pub fn tail(&self, sector: u64) -> String {
        const SHOWN: usize = 40;
        let ops = self.ops(sector);
        let shown = ops.iter().rev().take(SHOWN).rev();
        shown.map(line).collect()
    }

    /// The operations on a sector while any of these values was written or read, as [`History::tail`].
    pub fn around(&self, sector: u64, values: &[u64]) -> String {
        let ops = self.ops(sector);
        let of_values = |op: &&Op| values.contains(&op.value);
        let from = ops.iter().filter(of_values).map(|op| op.call).min().unwrap_or(0);
        let ended = |op: &Op| if op.reply == NEVER { op.call } else { op.reply };
        let to = ops.iter().filter(of_values).map(ended).max().unwrap_or(0);
        let shown = ops.iter().filter(|op| op.call <= to && op.reply >= from);
        shown.map(line).collect()
    }

    fn sector(&self, block: u64) -> u64 {
        block * u64::from(self.0.size.bytes()) / SECTOR as u64
    }

    /// The volume's block size.
    pub fn block_size(&self) -> BlockSize {
        self.0.size
    }

    /// All sectors of a block.
    pub fn sectors_of(&self, block: u64) -> Range<u64> {
        self.sector(block)..self.sector(block + 1)
    }

    /// The first and the last sector of each block: a torn write differs in these, too.
    fn watched(&self, blocks: Range<u64>) -> impl Iterator<Item = u64> {
        (self.sector(blocks.start)..self.sector(blocks.end)).filter(|sector| self.is_watched(*sector))
    }

    /// Whether the history covers this sector.
    pub fn is_watched(&self, sector: u64) -> bool {
        let of_block = u64::from(self.0.size.bytes()) / SECTOR as u64;
        sector.is_multiple_of(of_block) || (sector + 1).is_multiple_of(of_block)
    }
}

/// Blocks full of a value.
pub fn filled(value: u64, blocks: u64, size: BlockSize) -> Chain {
    let mut data = Buf::uncleared((blocks * u64::from(size.bytes())) as usize);
    data.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    data.into()
}

/// The value that sectors are full of; `None`: they hold several values.
pub fn value_of(bytes: &[u8]) -> Option<u64> {
    let first = bytes.first_chunk::<8>()?;
    let same = bytes.chunks_exact(8).all(|word| word == first);
    same.then(|| u64::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lost_on_a_disk_is_noticed() {
        let history = History::new(BlockSize::B4096, 0, Rc::default());
        let old = history.begin_write(2..4, 1);
        history.end_write(&old);
        let new = history.begin_write(3..5, 2);
        assert_eq!(history.sectors(), [16, 23, 24, 31, 32, 39]);
        assert!(history.check_found(24, 1).is_ok(), "the new one is under way");
        history.end_write(&new);
        assert!(history.check_found(24, 1).is_err());
        assert!(history.check_found(24, 2).is_ok());
        assert!(history.check_found(16, 2).is_err(), "it was not written there");
        assert!(history.check().is_ok());
        history.read(3, &filled(1, 1, BlockSize::B4096).to_vec(), history.tick());
        assert!(history.check().is_err(), "an old value was read");
    }

    #[test]
    fn a_write_takes_effect_until_it_is_answered() {
        let history = History::new(BlockSize::B4096, 0, Rc::default());
        let begun = history.begin_write(2..3, 1);
        let before = history.tick();
        assert!(history.is_written_since(16..24, before), "it is under way");
        history.end_write(&begun);
        let after = history.tick();
        assert!(history.is_written_since(16..24, before) && !history.is_written_since(16..24, after));
        assert!(!history.is_written_since(24..32, before), "that is another block");
        history.read(2, &filled(1, 1, BlockSize::B4096).to_vec(), after);
        assert!(!history.is_written_since(16..24, after), "a read changes nothing");
    }

    #[test]
    #[should_panic(expected = "parts of two writes")]
    fn a_mixed_sector_is_noticed() {
        let history = History::new(BlockSize::B512, 0, Rc::default());
        let mut data = filled(1, 1, BlockSize::B512).to_vec();
        data[300] = 7;
        history.read(0, &data, 0);
    }
}
