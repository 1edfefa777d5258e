//! Mistakes that a simulation of whole nodes can have a target make, to prove that it notices.
//!
//! In the product (a release build) there is none: the check is a constant. Other builds can switch one on,
//! on the thread that simulates.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Behind a reservation for exclusive access that all registrants hold, everybody reads as behind one for
    /// exclusive writing.
    AllRegistrantsLetRead,
}

#[cfg(debug_assertions)]
thread_local! {
    static MADE: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// Has targets on this thread make the mistake from now on; `None`: none.
#[cfg(debug_assertions)]
pub fn make(canary: Option<Canary>) {
    MADE.set(canary);
}

/// Whether the mistake is to be made.
#[cfg(debug_assertions)]
pub(crate) fn makes(canary: Canary) -> bool {
    MADE.get() == Some(canary)
}

/// Whether the mistake is to be made: never.
#[cfg(not(debug_assertions))]
pub(crate) const fn makes(_: Canary) -> bool {
    false
}
