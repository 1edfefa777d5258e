//! Breaks the code on purpose, so that the tests can show that they would notice.

#[cfg(test)]
use std::cell::Cell;

/// A way of being wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Canary {
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

#[cfg(test)]
thread_local! {
    /// What is wrong now.
    pub(super) static MADE: Cell<Option<Canary>> = const { Cell::new(None) };
}

/// Whether the code is to be wrong in this way.
pub(super) fn makes(canary: Canary) -> bool {
    #[cfg(test)]
    return MADE.get() == Some(canary);
    #[cfg(not(test))]
    {
        let _ = canary;
        false
    }
}
