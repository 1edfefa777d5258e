//! Where a block lies in a log. Byte table: `docs/formats/log.md`.

/// Bytes of a slot, which is also the size of a block and of a head.
pub(crate) const SLOT_BYTES: usize = 4096;

/// Quarters of a slot. All room for data is counted in them: a block takes a whole slot, a half or a quarter.
pub(crate) const SLOT_QUARTERS: u32 = 4;

/// Bytes of a quarter.
pub(crate) const QUARTER_BYTES: usize = SLOT_BYTES / SLOT_QUARTERS as usize;

/// Bits of a segment number.
const SEGMENT_BITS: u32 = 23;

/// Bits of a slot number.
const SLOT_BITS: u32 = 14;

/// Slots of the largest segment.
pub(crate) const SEGMENT_SLOTS_MAX: u32 = 1 << SLOT_BITS;

/// Slots of the smallest segment: a record of fifteen blocks.
pub(crate) const SEGMENT_SLOTS_MIN: u32 = 16;

/// Number of segments of a log: the next number means that a block is lost.
pub(crate) const SEGMENTS_MAX: u32 = (1 << SEGMENT_BITS) - 1;

/// How much room a block takes.
///
/// Only these sizes, because any blocks of them fill slots without gaps: what is live can always be moved
/// into as few slots as its quarters need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    /// A quarter of a slot: the block is compressed.
    Quarter,
    /// Half of a slot: the block is compressed.
    Half,
    /// A slot: the block is stored as it is.
    #[default]
    Whole,
}

impl Size {
    /// How many quarters.
    pub(crate) fn quarters(self) -> u32 {
        match self {
            Size::Quarter => 1,
            Size::Half => 2,
            Size::Whole => SLOT_QUARTERS,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        self.quarters() as usize * QUARTER_BYTES
    }

    /// Whether blocks of this size are compressed.
    pub(crate) fn is_packed(self) -> bool {
        self != Size::Whole
    }
}

/// A part of a slot: 0 the whole slot, 1 and 2 its halves, 3 to 6 its quarters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part(u8);

impl Part {
    const WHOLE: Part = Part(0);
    const FIRST_HALF: u8 = 1;
    const FIRST_QUARTER: u8 = 3;
    const LAST: u8 = 6;
}

/// A slot of a segment, or a part of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub segment: u32,
    pub slot: u16,
    pub part: Part,
}

impl Place {
    /// The place of a block that was lost with its leaf.
    pub(crate) const LOST: Place =
        Place { segment: SEGMENTS_MAX, slot: (SEGMENT_SLOTS_MAX - 1) as u16, part: Part::WHOLE };

    /// Not a place: a block that read as zeros when a snapshot was taken.
    pub(crate) const ZEROS: Place = Place { segment: SEGMENTS_MAX, slot: 0, part: Part::WHOLE };

    /// Not a place: a block of a line that read as in the snapshot which the line went back to.
    pub(crate) const PARENT: Place = Place { segment: SEGMENTS_MAX, slot: 1, part: Part::WHOLE };

    /// A whole slot.
    pub(crate) fn new(segment: u32, slot: u16) -> Place {
        Place { segment, slot, part: Part::WHOLE }
    }

    /// The part of this size that begins `quarter` quarters after the beginning of a segment.
    pub(crate) fn at(segment: u32, quarter: u32, size: Size) -> Place {
        let (slot, within) = ((quarter / SLOT_QUARTERS) as u16, (quarter % SLOT_QUARTERS) as u8);
        let part = match size {
            Size::Whole => Part::WHOLE,
            Size::Half => Part(Part::FIRST_HALF + within / 2),
            Size::Quarter => Part(Part::FIRST_QUARTER + within),
        };
        Place { segment, slot, part }
    }

    pub(crate) fn to_bytes(self) -> [u8; 5] {
        let slot = u64::from(self.slot) << SEGMENT_BITS;
        let bits = u64::from(self.segment) | slot | u64::from(self.part.0) << (SEGMENT_BITS + SLOT_BITS);
        let [a, b, c, d, e, ..] = bits.to_le_bytes();
        [a, b, c, d, e]
    }

    /// `None` if there is no such part of a slot.
    pub(crate) fn from_bytes([a, b, c, d, e]: [u8; 5]) -> Option<Place> {
        let bits = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let segment = (bits & u64::from(SEGMENTS_MAX)) as u32;
        let slot = (bits >> SEGMENT_BITS & u64::from(SEGMENT_SLOTS_MAX - 1)) as u16;
        let part = (bits >> (SEGMENT_BITS + SLOT_BITS)) as u8;
        (part <= Part::LAST).then_some(Place { segment, slot, part: Part(part) })
    }

    /// How much room it is.
    pub(crate) fn size(self) -> Size {
        match self.part.0 {
            0 => Size::Whole,
            1 | 2 => Size::Half,
            _ => Size::Quarter,
        }
    }

    /// Where it begins in its slot, in quarters.
    pub(crate) fn first_quarter(self) -> u32 {
        match self.part.0 {
            0 => 0,
            half @ (1 | 2) => u32::from(half - Part::FIRST_HALF) * 2,
            quarter => u32::from(quarter - Part::FIRST_QUARTER),
        }
    }

    /// Where it begins in its segment, in quarters.
    pub(crate) fn quarter(self) -> u32 {
        u32::from(self.slot) * SLOT_QUARTERS + self.first_quarter()
    }

    /// The next place of this size.
    pub(crate) fn next(self) -> Place {
        self.plus(1)
    }

    /// The place that is this many places of this size further on.
    pub(crate) fn plus(self, count: u16) -> Place {
        let size = self.size();
        Place::at(self.segment, self.quarter() + u32::from(count) * size.quarters(), size)
    }

    /// The place of this size that begins this many quarters behind the beginning of this slot.
    pub(crate) fn behind(self, quarters: u32, size: Size) -> Place {
        Place::at(self.segment, u32::from(self.slot) * SLOT_QUARTERS + quarters, size)
    }

    /// This many places of this size, of which this one is the first.
    pub(crate) fn run(self, count: u16) -> Slots {
        Slots { first: self, count }
    }
}

/// Consecutive slots of a segment, or parts of slots that have the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub first: Place,
    pub count: u16,
}

impl Slots {
    /// Adds a place to a list of runs. If it directly follows the last run, it becomes part of that.
    pub(crate) fn add(list: &mut Vec<Slots>, place: Place) {
        match list.last_mut() {
            Some(last) if last.first.plus(last.count) == place => last.count += 1,
            _ => list.push(place.run(1)),
        }
    }

    /// How many quarters of slots these are.
    pub(crate) fn quarters(self) -> u32 {
        u32::from(self.count) * self.first.size().quarters()
    }

    #[cfg(any(test, debug_assertions))]
    pub(crate) fn places(self) -> impl Iterator<Item = Place> {
        (0..self.count).map(move |number| self.first.plus(number))
    }
}

/// What a block of a branch reads as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Zeros: the block was never written, or was unmapped. In a leaf of a snapshot: what a later leaf says.
    /// If the volume was restored: what the snapshot says.
    #[default]
    Nothing,
    /// Zeros, in a leaf of a snapshot (the block was written since), or of a volume that was restored.
    Zeros,
    /// In a leaf of a snapshot: what the snapshot says that the volume was restored to before.
    Parent,
    /// The content of a place.
    At(Stored),
}

/// A block on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub place: Place,
    /// The checksum of the block as the host wrote it; of a lost one, see [`Stored::lost`].
    pub crc: u32,
}

impl Stored {
    /// A block that was lost with the leaf that named its place. The leaf lay on this disk of the pool.
    pub(crate) fn lost(disk: u16) -> Stored {
        Stored { place: Place::LOST, crc: u32::from(disk) }
    }

    /// The disk of the leaf, if the block is lost.
    pub(crate) fn lost_on(self) -> Option<u16> {
        (self.place == Place::LOST).then(|| u16::try_from(self.crc).ok()).flatten()
    }
}

impl Spot {
    pub(crate) fn stored(self) -> Option<Stored> {
        match self {
            Spot::Nothing | Spot::Zeros | Spot::Parent => None,
            Spot::At(stored) => Some(stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another() {
        let halves: Vec<(u16, u32)> = Place::at(7, 6, Size::Half)
            .run(3)
            .places()
            .map(|half| (half.slot, half.first_quarter()))
            .collect();
        assert_eq!(halves, [(1, 2), (2, 0), (2, 2)]);
        let quarters: Vec<(u16, u32)> = Place::at(7, 3, Size::Quarter)
            .run(3)
            .places()
            .map(|quarter| (quarter.slot, quarter.first_quarter()))
            .collect();
        assert_eq!(quarters, [(0, 3), (1, 0), (1, 1)]);
        for (size, step) in [(Size::Quarter, 1), (Size::Half, 2), (Size::Whole, 4)] {
            for quarter in (0..SEGMENT_SLOTS_MAX * SLOT_QUARTERS).step_by(step) {
                let place = Place::at(0x12_3456, quarter, size);
                assert_eq!((place.quarter(), place.size()), (quarter, size));
                assert_eq!(Place::from_bytes(place.to_bytes()), Some(place));
            }
        }
    }

    #[test]
    fn a_run_is_of_one_size() {
        let mut runs = Vec::new();
        let quarters = [0, 1, 2, 3, 4].map(|quarter| Place::at(1, quarter, Size::Quarter));
        let half = Place::at(1, 6, Size::Half);
        for place in quarters.into_iter().chain([half, half.next(), Place::new(1, 2)]) {
            Slots::add(&mut runs, place);
        }
        assert_eq!(runs, [quarters[0].run(5), half.run(2), Place::new(1, 2).run(1)]);
        assert_eq!(runs.iter().map(|run| run.quarters()).sum::<u32>(), 13);
    }
}
