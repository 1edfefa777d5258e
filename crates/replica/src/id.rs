//! What identifies a copy: nodes, their lives, and the four slots for copies that a volume has.

use std::fmt;

/// The number of a node in its cluster. It is never reused, not even after the node was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// One life of a node's process.
///
/// A restarted node has a greater number, which it makes durable before it does anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of a volume's configuration; each change increments it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a new volume.
    pub const FIRST: Epoch = Epoch(1);
}

/// The revision of the cluster's record that a change was committed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The place of a copy among the copies of its volume: 0, 1, 2 or 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// The maximum number of copies of a volume. The dirty map has one bit for each.
    pub const MAX: usize = 4;

    /// The slot with this number, or `None` if there is no such slot.
    pub const fn new(number: usize) -> Option<Slot> {
        if number < Slot::MAX { Some(Slot(number as u8)) } else { None }
    }

    /// All slots, in order.
    pub fn all() -> impl Iterator<Item = Slot> {
        (0..Slot::MAX as u8).map(Slot)
    }

    /// The number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of slots.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Slots(u8);

impl Slots {
    /// No slot.
    pub const NONE: Slots = Slots(0);
    /// All slots, whether they have copies or not.
    pub const ALL: Slots = Slots((1 << Slot::MAX) - 1);

    /// The set with these bits; bits that belong to no slot are ignored.
    pub const fn from_bits(bits: u8) -> Slots {
        Slots(bits & Slots::ALL.0)
    }

    /// One bit per slot; slot 0 has the lowest.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether the slot is in the set.
    pub const fn contains(self, slot: Slot) -> bool {
        self.0 & (1 << slot.0) != 0
    }

    /// Whether every slot of `other` is in the set.
    pub const fn covers(self, other: Slots) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many slots are in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// This set and the slot.
    #[must_use]
    pub const fn with(self, slot: Slot) -> Slots {
        Slots(self.0 | 1 << slot.0)
    }

    /// This set without the slot.
    #[must_use]
    pub const fn without(self, slot: Slot) -> Slots {
        Slots(self.0 & !(1 << slot.0))
    }

    /// The slots that are in either set.
    #[must_use]
    pub const fn or(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }

    /// The slots that are in both sets.
    #[must_use]
    pub const fn and(self, other: Slots) -> Slots {
        Slots(self.0 & other.0)
    }

    /// The slots that are in this set and not in `other`.
    #[must_use]
    pub const fn minus(self, other: Slots) -> Slots {
        Slots(self.0 & !other.0)
    }

    /// The slots in order.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        Slot::all().filter(move |slot| self.contains(*slot))
    }
}

impl FromIterator<Slot> for Slots {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Slots {
        slots.into_iter().fold(Slots::NONE, Slots::with)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::index)).finish()
    }
}

base::shows!(Display for NodeId, |it| "node {}", it.0);

base::shows!(Display for Epoch, |it| "epoch {}", it.0);

base::shows!(Display for Slot, |it| "copy {}", it.0);
