//! Mistakes that a simulation of whole nodes can have a target make, to prove that it notices.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Behind a reservation for exclusive access that all registrants hold, everybody reads as behind one for
    /// exclusive writing.
    AllRegistrantsLetRead,
}

base::canary_switch!(Canary);
