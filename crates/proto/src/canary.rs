//! Faults that the simulation of whole nodes can inject into a target, to prove that its checks notice them.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A reservation *exclusive access, all registrants* lets every initiator read, as *write exclusive*
    /// would.
    AllRegistrantsLetRead,
}

base::canary_switch!(Canary);
