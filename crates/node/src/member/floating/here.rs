//! The state of floating addresses on this node, for other modules. Lives on core 0.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use base::Instant;
use rt::sync::Notify;

use super::DeviceTrouble;

/// The state of floating addresses on this node.
pub(crate) struct Floating {
    here: RefCell<BTreeMap<IpAddr, Here>>,
    /// The node is about to stop.
    leaving: Cell<bool>,
    /// Notified when something has changed.
    changed: Notify,
}

/// The state of one address on this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Here {
    /// The address may be on a device here.
    pub(crate) is_on: bool,
    /// The address is on a device here: the machine has confirmed it, and hosts can reach it.
    pub(crate) is_reached: bool,
    /// Sessions through the address have not ended yet.
    ends: bool,
    /// Since when no node has the address, as far as this node knows, if that was reported.
    pub(crate) lost_since: Option<Instant>,
    /// Why the last attempt to set, remove or give up the address failed.
    pub(crate) trouble: Option<DeviceTrouble>,
}

impl Floating {
    /// No addresses yet.
    pub(crate) fn new() -> Floating {
        Floating { here: RefCell::default(), leaving: Cell::new(false), changed: Notify::new() }
    }

    /// The state of one address here.
    pub(crate) fn here(&self, address: IpAddr) -> Here {
        self.here.borrow().get(&address).cloned().unwrap_or_default()
    }

    /// The state of all addresses here.
    pub(crate) fn all_here(&self) -> BTreeMap<IpAddr, Here> {
        self.here.borrow().clone()
    }

    /// Addresses that may be on a device here.
    pub(crate) fn all_on(&self) -> BTreeSet<IpAddr> {
        let here = self.here.borrow();
        here.iter().filter(|(_, here)| here.is_on).map(|(address, _)| *address).collect()
    }

    /// Whether an address is on a device here, or commands that came through it are still running.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.here.borrow().get(&address).is_some_and(|here| here.is_on || here.ends)
    }

    /// Notes that the node is about to stop: it no longer holds any address.
    pub(super) fn leave(&self) {
        self.leaving.set(true);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.get()
    }

    /// Waits until something has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn notify(&self) {
        self.changed.notify();
    }

    /// Whether a task attends to an address.
    pub(super) fn looks_after(&self, address: IpAddr) -> bool {
        self.here.borrow().contains_key(&address)
    }

    /// Notes that a task attends to the address from now on.
    pub(super) fn begin(&self, address: IpAddr) {
        self.here.borrow_mut().entry(address).or_default();
    }

    /// Notes whether sessions through the address have not ended yet.
    pub(super) fn note_end(&self, address: IpAddr, ends: bool) {
        self.here.borrow_mut().entry(address).or_default().ends = ends;
    }

    /// Notes since when no node has the address, if that was reported.
    pub(super) fn note_lost(&self, address: IpAddr, since: Option<Instant>) {
        self.here.borrow_mut().entry(address).or_default().lost_since = since;
    }

    /// Notes that no task attends to the address any more.
    pub(super) fn end(&self, address: IpAddr) {
        self.here.borrow_mut().remove(&address);
        self.changed.notify();
    }

    /// Changes the state of an address.
    pub(super) fn change(&self, address: IpAddr, change: impl FnOnce(&mut Here)) {
        change(self.here.borrow_mut().entry(address).or_default());
        self.changed.notify();
    }
}
