//! Mistakes that tests and a simulation can have a store make, to prove that they notice.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A write of a part of a disk's block keeps nobody else from changing the rest of it meanwhile.
    PartUnlocked,
    /// A root is written before what it names is durable.
    RootWithoutFlush,
    /// Segments are used again before the root that says that they are free.
    FreeBeforeRoot,
    /// A record is taken although its data is not whole.
    TakeWithoutChecksum,
    /// A block that was written since the cleaner copied it goes back to what it was.
    MoveWithoutLooking,
    /// The cleaner writes blocks that it has gathered though their segment may have been freed and used
    /// again.
    MoveLate,
}

base::canary_switch!(Canary);
