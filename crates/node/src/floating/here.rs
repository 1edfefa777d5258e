//! What this node has of floating addresses, for whoever asks. Lives on core 0.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use base::Instant;
use rt::sync::Notify;

/// What this node has of addresses.
pub(crate) struct Floating {
    here: RefCell<BTreeMap<IpAddr, Here>>,
    /// The node is about to stop.
    leaving: Cell<bool>,
    /// Rung when something of it has changed.
    changed: Notify,
}

/// What it has of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Here {
    /// It may be on a device here.
    pub(crate) is_on: bool,
    /// It is: the machine has said so, and hosts can come by it.
    pub(crate) is_reached: bool,
    /// Sessions through it are not over yet.
    ends: bool,
    /// Since when no node has it, as far as this one knows, if that was told.
    pub(crate) lost_since: Option<Instant>,
    /// Why it could not be put on, taken off or given up, when that was last tried.
    pub(crate) trouble: Option<String>,
}

impl Floating {
    /// Nothing yet.
    pub(crate) fn new() -> Floating {
        Floating { here: RefCell::default(), leaving: Cell::new(false), changed: Notify::new() }
    }

    /// What this node has of an address.
    pub(crate) fn here(&self, address: IpAddr) -> Here {
        self.here.borrow().get(&address).cloned().unwrap_or_default()
    }

    /// What this node has of each.
    pub(crate) fn all_here(&self) -> BTreeMap<IpAddr, Here> {
        self.here.borrow().clone()
    }

    /// Addresses that may be on a device here.
    pub(crate) fn all_on(&self) -> BTreeSet<IpAddr> {
        let here = self.here.borrow();
        here.iter().filter(|(_, here)| here.is_on).map(|(address, _)| *address).collect()
    }

    /// Whether an address is on a device here, or commands are under way that came through it.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.here.borrow().get(&address).is_some_and(|here| here.is_on || here.ends)
    }

    /// The node is about to stop: it holds none any more.
    pub(super) fn leave(&self) {
        self.leaving.set(true);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Waits until something of it has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn notify(&self) {
        self.changed.notify();
    }

    /// Whether a task looks after an address.
    pub(super) fn looks_after(&self, address: IpAddr) -> bool {
        self.here.borrow().contains_key(&address)
    }

    /// One does from now on.
    pub(super) fn begin(&self, address: IpAddr) {
        self.here.borrow_mut().entry(address).or_default();
    }

    /// Whether sessions that came through it are not over yet.
    pub(super) fn note_end(&self, address: IpAddr, ends: bool) {
        self.here.borrow_mut().entry(address).or_default().ends = ends;
    }

    /// Since when no node has it, if that was told.
    pub(super) fn note_lost(&self, address: IpAddr, since: Option<Instant>) {
        self.here.borrow_mut().entry(address).or_default().lost_since = since;
    }

    /// None does any more.
    pub(super) fn end(&self, address: IpAddr) {
        self.here.borrow_mut().remove(&address);
        self.changed.notify();
    }

    /// Changes what is known of it.
    pub(super) fn change(&self, address: IpAddr, change: impl FnOnce(&mut Here)) {
        change(self.here.borrow_mut().entry(address).or_default());
        self.changed.notify();
    }
}
