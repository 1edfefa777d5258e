//! A copy's disk: the writes in the order in which they were requested, and what a crash leaves of them.

use std::collections::{BTreeMap, BTreeSet};

use base::{Chain, Instant, Rng};

use crate::dirty_map::{PAGE_BYTES, PageWrite};
use crate::{Apply, ApplyId, ApplyKind, Blocks, DirtyMap, Geometry, Payload, Slot, Slots};

/// What every block holds before it is written.
pub const EMPTY: u64 = 0;

/// What a read returns for a lost block.
pub const LOST: u64 = u64::MAX;

/// One value per block, and the pages of the dirty map.
pub struct Disk {
    geometry: Geometry,
    blocks: Vec<u64>,
    pages: Vec<[u8; PAGE_BYTES]>,
    writes: Vec<Write>,
    /// Blocks that cannot be read, and whether a write makes them readable again.
    bad: BTreeMap<u64, bool>,
    /// Blocks that are noted as lost, with the copies that hold them.
    lost: BTreeMap<u64, Slots>,
    /// Blocks that others have noted as lost because this disk did not read them.
    held: BTreeSet<u64>,
    me: Slot,
}

struct Write {
    due: Instant,
    what: What,
}

enum What {
    Data { id: ApplyId, blocks: Blocks, values: Vec<u64>, kind: ApplyKind },
    Page(PageWrite),
}

/// An ended write.
pub enum Ended {
    Data(ApplyId),
    /// The blocks cannot be read, though they were rewritten.
    Unrepaired(ApplyId),
    Page(usize),
}

impl Disk {
    pub fn new(geometry: Geometry, me: Slot) -> Disk {
        let pages = DirtyMap::new(geometry.regions()).pages();
        Disk {
            geometry,
            blocks: vec![EMPTY; geometry.blocks as usize],
            pages: vec![[0; PAGE_BYTES]; pages],
            writes: Vec::new(),
            bad: BTreeMap::new(),
            lost: BTreeMap::new(),
            held: BTreeSet::new(),
            me,
        }
    }

    /// The disk of a copy that was just added: its map says "everything" for all other copies.
    pub fn blank(geometry: Geometry, me: Slot) -> Disk {
        let mut disk = Disk::new(geometry, me);
        let mut map = DirtyMap::new(geometry.regions());
        map.mark(0..geometry.regions(), Slots::ALL);
        while let Some(PageWrite { page, image }) = map.poll_write(true) {
            disk.pages[page].copy_from_slice(&image);
        }
        disk
    }

    pub fn apply(&mut self, due: Instant, apply: Apply) {
        let Apply { id, blocks, payload, kind } = apply;
        let what = What::Data { id, blocks, values: values(&payload, blocks), kind };
        self.writes.push(Write { due, what });
    }

    pub fn write_page(&mut self, due: Instant, page: PageWrite) {
        self.writes.push(Write { due, what: What::Page(page) });
    }

    /// The next write that ends by now, but never before an older one that overlaps it.
    pub fn end(&mut self, now: Instant) -> Option<Ended> {
        let index = (0..self.writes.len()).find(|index| {
            self.writes[*index].due <= now
                && self.writes[..*index].iter().all(|older| !older.what.overlaps(&self.writes[*index].what))
        })?;
        Some(match self.writes.remove(index).what {
            What::Data { id, blocks, kind: ApplyKind::Lose { holders }, .. } => {
                self.lose(blocks, holders);
                Ended::Data(id)
            }
            What::Data { id, blocks, values, kind } => {
                for (block, value) in (blocks.start..blocks.end).zip(values) {
                    if !self.stays_lost(block, kind) {
                        self.put(block, value);
                    }
                }
                let is_repair = kind == ApplyKind::Repair;
                if is_repair && self.is_bad(blocks) { Ended::Unrepaired(id) } else { Ended::Data(id) }
            }
            What::Page(PageWrite { page, image }) => {
                self.pages[page].copy_from_slice(&image);
                Ended::Page(page)
            }
        })
    }

    /// Each block of a write under way was written or not, independently.
    pub fn crash(&mut self, rng: &mut Rng) {
        let mut unnoted = Vec::new();
        for write in std::mem::take(&mut self.writes) {
            match write.what {
                What::Data { blocks, kind: ApplyKind::Lose { holders }, .. } => {
                    if rng.one_in(2) {
                        self.lose(blocks, holders);
                    } else {
                        unnoted.push(blocks);
                    }
                }
                // It overlaps the note, and so had not begun.
                What::Data { blocks, kind: ApplyKind::WriteAroundLost, .. }
                    if unnoted.iter().any(|lost| lost.overlaps(blocks)) => {}
                What::Data { blocks, values, kind, .. } => {
                    for (block, value) in (blocks.start..).zip(values) {
                        if rng.one_in(2) && !self.stays_lost(block, kind) {
                            self.put(block, value);
                        }
                    }
                }
                What::Page(PageWrite { page, image }) if rng.one_in(2) => {
                    self.pages[page].copy_from_slice(&image)
                }
                What::Page(_) => {}
            }
        }
    }

    /// None of the writes under way ends before then.
    pub fn hang_until(&mut self, then: Instant) {
        self.writes.iter_mut().for_each(|write| write.due = write.due.max(then));
    }

    /// The writes under way answer at once.
    pub fn answer(&mut self) {
        self.writes.iter_mut().for_each(|write| write.due = Instant(0));
    }

    /// How many blocks the writes under way change, each as often as it is written.
    pub fn blocks_under_way(&self) -> u64 {
        let blocks = |write: &Write| match &write.what {
            What::Data { blocks, .. } => blocks.count(),
            What::Page(_) => 0,
        };
        self.writes.iter().map(blocks).sum()
    }

    fn stays_lost(&self, block: u64, kind: ApplyKind) -> bool {
        kind == ApplyKind::WriteAroundLost && self.lost.contains_key(&block)
    }

    fn put(&mut self, block: u64, value: u64) {
        self.blocks[block as usize] = value;
        self.bad.retain(|bad, heals| !(*heals && *bad == block));
        self.lost.remove(&block);
        self.held.remove(&block);
    }

    fn lose(&mut self, blocks: Blocks, holders: Slots) {
        let keeps = |block: &u64| holders.contains(self.me) && self.held.contains(block);
        let lost: Vec<u64> = (blocks.start..blocks.end).filter(|block| !keeps(block)).collect();
        self.held.retain(|block| !lost.contains(block));
        self.lost.extend(lost.into_iter().map(|block| (block, holders)));
    }

    /// The blocks that are noted as lost, with the copies that hold them.
    pub fn lost(&self) -> &BTreeMap<u64, Slots> {
        &self.lost
    }

    /// Others are about to note the block, which this disk does not read, as lost.
    pub fn hold(&mut self, block: u64) {
        self.held.insert(block);
    }

    /// The block cannot be read from now on.
    pub fn spoil(&mut self, block: u64, heals: bool) {
        self.bad.insert(block, heals);
    }

    /// Everything except lost blocks can be read again.
    pub fn mend(&mut self) {
        self.bad.clear();
    }

    /// Whether some of the blocks cannot be read.
    pub fn is_bad(&self, blocks: Blocks) -> bool {
        self.bad.range(blocks.start..blocks.end).next().is_some()
            || self.lost.range(blocks.start..blocks.end).next().is_some()
    }

    /// What the blocks hold, readable or not; [`LOST`] for lost blocks.
    pub fn read(&self, blocks: Blocks) -> Vec<u64> {
        let value = |block| if self.lost.contains_key(&block) { LOST } else { self.blocks[block as usize] };
        (blocks.start..blocks.end).map(value).collect()
    }

    /// The dirty map as a restarted process finds it.
    pub fn map(&self) -> DirtyMap {
        let mut map = DirtyMap::new(self.geometry.regions());
        for (number, page) in self.pages.iter().enumerate() {
            map.load(number, page).expect("pages are written whole here");
        }
        map
    }

    /// The bits of a region on the disk.
    pub fn bits(&self, region: u64) -> Slots {
        let byte = self.pages[0][32 + region as usize / 2];
        Slots::from_bits(byte >> (region % 2 * 4))
    }
}

impl What {
    fn overlaps(&self, other: &What) -> bool {
        match (self, other) {
            (What::Data { blocks, .. }, What::Data { blocks: others, .. }) => blocks.overlaps(*others),
            (What::Page(page), What::Page(other)) => page.page == other.page,
            _ => false,
        }
    }
}

/// A payload with this value in each block.
pub fn payload(value: u64, blocks: Blocks) -> Payload {
    from_values(&vec![value; blocks.count() as usize])
}

/// A payload with these values.
pub fn from_values(values: &[u64]) -> Payload {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Payload::Data(Chain::copy_of(&bytes))
}

fn values(payload: &Payload, blocks: Blocks) -> Vec<u64> {
    match payload {
        Payload::Zeros => vec![EMPTY; blocks.count() as usize],
        Payload::Data(data) => {
            let values: Vec<u64> = data
                .to_vec()
                .chunks_exact(8)
                .map(|value| u64::from_le_bytes(value.try_into().unwrap()))
                .collect();
            assert_eq!(values.len() as u64, blocks.count());
            values
        }
    }
}
