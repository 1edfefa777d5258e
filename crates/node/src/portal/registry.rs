//! All sessions of the node, by name: which core has which.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::scsi::NexusId;
use rt::CoreId;
use rt::sync::Notify;

/// Sessions of a node at once. A TSIH has 16 bits and zero is none.
pub const SESSIONS_MAX: usize = 65_535;

/// Names of former sessions that are remembered: an initiator that draws a new ISID for each login must not fill the memory.
const SEEN_MAX: usize = SESSIONS_MAX;

/// The portal group of all portals: connections of one session may come through any of them.
pub const PORTAL_GROUP: u16 = 1;

/// What makes a session the same as an earlier one (RFC 7143 4.4.3.2): the names of both ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionName {
    /// The initiator's iSCSI name.
    pub initiator: Arc<str>,
    /// The initiator's session identifier.
    pub isid: [u8; 6],
    /// The target's name; `None` for discovery.
    pub target: Option<String>,
}

/// Where a session is.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its names.
    pub name: SessionName,
    /// The core that it lives on.
    pub core: CoreId,
}

/// The registry, on core 0.
pub struct Registry {
    places: RefCell<BTreeMap<u16, Place>>,
    by_name: RefCell<BTreeMap<SessionName, u16>>,
    /// Names that have had a session since the node started, at most [`SEEN_MAX`]: the next is told of the loss of the last.
    seen: RefCell<BTreeSet<SessionName>>,
    /// The last TSIH given out: they go round, so that one that has just ended is not taken for a new one.
    last: Cell<u16>,
    next_nexus: Cell<u64>,
    /// Rung when a session has ended.
    ended: Notify,
}

impl Registry {
    /// Without sessions.
    pub fn new() -> Registry {
        Registry {
            places: RefCell::default(),
            by_name: RefCell::default(),
            seen: RefCell::default(),
            last: Cell::new(0),
            next_nexus: Cell::new(1),
            ended: Notify::new(),
        }
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.places.borrow().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }

    /// Where the session with this TSIH is.
    pub fn place(&self, tsih: u16) -> Option<Place> {
        self.places.borrow().get(&tsih).cloned()
    }

    /// The session of these names.
    pub fn named(&self, name: &SessionName) -> Option<(u16, Place)> {
        let tsih = *self.by_name.borrow().get(name)?;
        Some((tsih, self.place(tsih)?))
    }

    /// Gives a new session its numbers and the least loaded core; whether its names were seen before. `None` if
    /// there are too many sessions.
    pub fn add(&self, name: SessionName) -> Option<(u16, NexusId, CoreId, bool)> {
        let core = self.least_loaded();
        let mut places = self.places.borrow_mut();
        if places.len() >= SESSIONS_MAX {
            return None;
        }
        let mut tsih = self.last.get();
        loop {
            tsih = tsih.checked_add(1).unwrap_or(1);
            if !places.contains_key(&tsih) {
                break;
            }
        }
        self.last.set(tsih);
        let nexus = self.next_nexus.get();
        self.next_nexus.set(nexus + 1);
        // Discovery sessions are many and have no units to tell anything about.
        let again = name.target.is_some() && self.seen_before(&name);
        self.by_name.borrow_mut().insert(name.clone(), tsih);
        places.insert(tsih, Place { name, core });
        Some((tsih, NexusId(nexus), core, again))
    }

    /// Whether these names had a session before; they have one now.
    fn seen_before(&self, name: &SessionName) -> bool {
        let mut seen = self.seen.borrow_mut();
        if seen.contains(name) {
            return true;
        }
        // Whoever is forgotten is told of a power on instead of a loss of the nexus: both make an initiator start anew.
        if seen.len() >= SEEN_MAX {
            seen.pop_first();
        }
        seen.insert(name.clone());
        false
    }

    /// Forgets a session that has ended.
    pub fn remove(&self, tsih: u16) {
        if let Some(place) = self.places.borrow_mut().remove(&tsih) {
            let mut by_name = self.by_name.borrow_mut();
            if by_name.get(&place.name) == Some(&tsih) {
                by_name.remove(&place.name);
            }
        }
        self.ended.notify();
    }

    /// Waits until this session has ended.
    pub async fn gone(&self, tsih: u16) {
        while self.places.borrow().contains_key(&tsih) {
            self.ended.notified().await;
        }
    }

    /// Waits until there is no session.
    pub async fn emptied(&self) {
        while !self.places.borrow().is_empty() {
            self.ended.notified().await;
        }
    }

    /// The core with the fewest sessions.
    fn least_loaded(&self) -> CoreId {
        let mut sessions = vec![0; rt::cores()];
        for place in self.places.borrow().values() {
            sessions[usize::from(place.core.0)] += 1;
        }
        let least = sessions.iter().enumerate().min_by_key(|(_, count)| **count).map_or(0, |(core, _)| core);
        CoreId(least as u16)
    }
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}
