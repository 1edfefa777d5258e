//! Who holds a copy: nodes, their lives, and the four places a volume has for copies.

use std::fmt;

/// The number of a node in its cluster. Never given to another node, not even after this one was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// One life of a node's process: a restarted node has a greater one, made durable before it does anything
/// else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of a volume's configuration; each change makes it one greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// That of a new volume.
    pub const FIRST: Epoch = Epoch(1);
}

/// The revision of the cluster's record that a change was committed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The place of a copy among the copies of its volume: 0, 1, 2 or 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// How many copies a volume has at most. The dirty map has one bit for each.
    pub const MAX: usize = 4;

    /// The slot of this number, or `None` where there is no such slot.
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
    /// All slots, be there copies in them or not.
    pub const ALL: Slots = Slots((1 << Slot::MAX) - 1);

    /// The set with these bits; bits that stand for no slot are left out.
    pub const fn from_bits(bits: u8) -> Slots {
        Slots(bits & Slots::ALL.0)
    }

    /// One bit a slot, that of slot 0 lowest.
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

    /// Whether there is no slot in the set.
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

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Slots) -> Slots {
        Slots(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Slots) -> Slots {
        Slots(self.0 & other.0)
    }

    /// What is in this set and not in `other`.
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

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "copy {}", self.0)
    }
}
