//! Where a block lies in a log. Byte table: `docs/formats/log.md`.

/// Bytes of a slot, which is also the size of a block and of a head.
pub(crate) const SLOT_BYTES: usize = 4096;

/// Bits of a segment number.
const SEGMENT_BITS: u32 = 24;

/// Slots of the largest segment: 14 bits of a place.
pub(crate) const SEGMENT_SLOTS_MAX: u32 = 1 << 14;

/// Slots of the smallest segment: a record of fifteen blocks.
pub(crate) const SEGMENT_SLOTS_MIN: u32 = 16;

/// Number of segments of a log: the next number means that a block is lost.
pub(crate) const SEGMENTS_MAX: u32 = (1 << SEGMENT_BITS) - 1;

/// A slot of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub segment: u32,
    pub slot: u16,
}

impl Place {
    /// The place of a block that was lost with its leaf.
    pub(crate) const LOST: Place = Place { segment: SEGMENTS_MAX, slot: (SEGMENT_SLOTS_MAX - 1) as u16 };

    pub(crate) fn to_bytes(self) -> [u8; 5] {
        let bits = u64::from(self.segment) | u64::from(self.slot) << SEGMENT_BITS;
        let [a, b, c, d, e, ..] = bits.to_le_bytes();
        [a, b, c, d, e]
    }

    /// `None` if the place is in a packed slot, which this version does not support.
    pub(crate) fn from_bytes([a, b, c, d, e]: [u8; 5]) -> Option<Place> {
        let bits = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        let slot = bits >> SEGMENT_BITS;
        let segment = (bits & u64::from(SEGMENTS_MAX)) as u32;
        (slot < u64::from(SEGMENT_SLOTS_MAX)).then_some(Place { segment, slot: slot as u16 })
    }

    /// The next slot.
    pub(crate) fn next(self) -> Place {
        self.plus(1)
    }

    /// The slot that is this many slots further on.
    pub(crate) fn plus(self, slots: u16) -> Place {
        Place { slot: self.slot + slots, ..self }
    }

    /// This many slots, of which this one is the first.
    pub(crate) fn run(self, count: u16) -> Slots {
        Slots { first: self, count }
    }
}

/// Consecutive slots of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub first: Place,
    pub count: u16,
}

impl Slots {
    /// Adds a slot to a list of runs. If it directly follows the last run, it becomes part of that.
    pub(crate) fn add(list: &mut Vec<Slots>, place: Place) {
        match list.last_mut() {
            Some(last) if last.first.plus(last.count) == place => last.count += 1,
            _ => list.push(place.run(1)),
        }
    }

    #[cfg(test)]
    pub(crate) fn places(self) -> impl Iterator<Item = Place> {
        (0..self.count).map(move |number| self.first.plus(number))
    }
}

/// What a block of a branch reads as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Zeros: the block was never written, or was unmapped.
    #[default]
    Nothing,
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
            Spot::Nothing => None,
            Spot::At(stored) => Some(stored),
        }
    }
}
