//! All sessions of the node, by name, and the core of each.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proto::scsi::NexusId;
use rt::CoreId;
use rt::sync::Notify;

use crate::attach::access::Claim;

/// The most sessions of a node. A TSIH has 16 bits, and zero is not a TSIH.
pub const SESSIONS_MAX: usize = 65_535;

/// How many names of former sessions are remembered. Without a limit, an initiator that draws a new ISID for
/// each login would fill the memory.
const SEEN_MAX: usize = SESSIONS_MAX;

/// How many TSIHs of ended sessions are not used again yet: a login with an old TSIH must not reach a new
/// session.
const ENDED_MAX: usize = 1024;

/// How many draws are tried before the next free TSIH is taken. With 60,000 sessions, one in twelve draws
/// hits.
const DRAWS_MAX: usize = 64;

/// The identity of a session (RFC 7143 4.4.3.2): the names of both ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionName {
    /// The initiator's iSCSI name.
    pub initiator: Arc<str>,
    /// The initiator's session identifier.
    pub isid: [u8; 6],
    /// The target's name; `None` for discovery.
    pub target: Option<String>,
}

/// The core of a session, and what the registry knows of it.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its names.
    pub name: SessionName,
    /// The core that it lives on.
    pub core: CoreId,
    /// Its number for units, which no other session ever has.
    pub nexus: NexusId,
    /// What its first login has shown. From its beginning on, its core knows which host groups it has
    /// entered.
    pub claim: Claim,
    /// The login that creates it is complete, so it is on its core.
    begun: bool,
}

impl Place {
    /// Whether the login that creates the session is complete, so its core knows it.
    pub fn has_begun(&self) -> bool {
        self.begun
    }
}

/// The registry, on core 0.
pub struct Registry {
    /// The number of cores that sessions are distributed over.
    cores: usize,
    places: RefCell<BTreeMap<u16, Place>>,
    by_name: RefCell<BTreeMap<SessionName, u16>>,
    /// Names that have had a session since the node started, at most [`SEEN_MAX`]. The next session of such a
    /// name is informed of the loss of the previous one.
    seen: RefCell<BTreeSet<SessionName>>,
    /// The TSIHs of sessions that have ended, at most [`ENDED_MAX`], the oldest first.
    ended: RefCell<VecDeque<u16>>,
    next_nexus: Cell<u64>,
    /// Notified when a session has begun or ended.
    changed: Notify,
}

impl Registry {
    /// A registry without sessions, for this number of cores.
    pub fn new(cores: usize) -> Registry {
        Registry {
            cores,
            places: RefCell::default(),
            by_name: RefCell::default(),
            seen: RefCell::default(),
            ended: RefCell::default(),
            next_nexus: Cell::new(1),
            changed: Notify::new(),
        }
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.places.borrow().len()
    }

    /// Whether there are no sessions.
    pub fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }

    /// The place of the session with this TSIH.
    pub fn place(&self, tsih: u16) -> Option<Place> {
        self.places.borrow().get(&tsih).cloned()
    }

    /// The session of these names.
    pub fn named(&self, name: &SessionName) -> Option<(u16, Place)> {
        let tsih = *self.by_name.borrow().get(name)?;
        Some((tsih, self.place(tsih)?))
    }

    /// Registers a new session.
    ///
    /// Returns its TSIH, its nexus, the least loaded core, and whether its names were seen before; `None` if
    /// there are too many sessions.
    ///
    /// `draw` returns random numbers: a TSIH must not be guessable.
    pub fn add(
        &self,
        name: SessionName,
        claim: Claim,
        draw: impl FnMut() -> u16,
    ) -> Option<(u16, NexusId, CoreId, bool)> {
        let core = self.least_loaded();
        let mut places = self.places.borrow_mut();
        if places.len() >= SESSIONS_MAX {
            return None;
        }
        let tsih = free_tsih(&places, &self.ended.borrow(), draw);
        let nexus = self.next_nexus.get();
        self.next_nexus.set(nexus + 1);
        // Discovery sessions are many, and have no units that could report anything to them.
        let again = name.target.is_some() && self.seen_before(&name);
        self.by_name.borrow_mut().insert(name.clone(), tsih);
        let nexus = NexusId(nexus);
        places.insert(tsih, Place { name, core, nexus, claim, begun: false });
        Some((tsih, nexus, core, again))
    }

    /// Notes that the login that creates this session is complete.
    ///
    /// Returns whether its place still exists: another login of the same names may have taken it.
    pub fn begin(&self, tsih: u16, nexus: NexusId) -> bool {
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get_mut(&tsih).filter(|place| place.nexus == nexus) else { return false };
        place.begun = true;
        self.changed.notify();
        true
    }

    /// Releases the place of a session whose login has failed.
    pub fn give_up(&self, tsih: u16, nexus: NexusId) {
        if self.place(tsih).is_some_and(|place| place.nexus == nexus && !place.begun) {
            self.remove(tsih);
        }
    }

    /// Removes the session of these names if its login is not complete yet.
    ///
    /// Returns whether it did: a session that has begun must be ended by its core.
    pub fn supersede(&self, name: &SessionName) -> bool {
        let Some((tsih, _)) = self.named(name).filter(|(_, place)| !place.begun) else { return false };
        self.remove(tsih);
        true
    }

    /// Waits until this session has begun, or is gone.
    ///
    /// The initiator may know its TSIH a moment before this node notes its beginning.
    pub async fn begun(&self, tsih: u16) -> Option<Place> {
        self.changed.until(|| self.place(tsih).is_none_or(|place| place.begun)).await;
        self.place(tsih)
    }

    /// Whether these names had a session before; from now on they have.
    fn seen_before(&self, name: &SessionName) -> bool {
        let mut seen = self.seen.borrow_mut();
        if seen.contains(name) {
            return true;
        }
        // A forgotten initiator gets a power-on unit attention instead of a loss of the nexus. Both make it
        // start over.
        if seen.len() >= SEEN_MAX {
            seen.pop_first();
        }
        seen.insert(name.clone());
        false
    }

    /// Removes a session that has ended, and returns its place.
    pub fn remove(&self, tsih: u16) -> Option<Place> {
        let removed = self.places.borrow_mut().remove(&tsih);
        if let Some(place) = &removed {
            let mut by_name = self.by_name.borrow_mut();
            if by_name.get(&place.name) == Some(&tsih) {
                by_name.remove(&place.name);
            }
            let mut ended = self.ended.borrow_mut();
            ended.push_back(tsih);
            if ended.len() > ENDED_MAX {
                ended.pop_front();
            }
        }
        self.changed.notify();
        removed
    }

    /// Waits until this session has ended.
    pub async fn gone(&self, tsih: u16) {
        self.changed.until(|| !self.places.borrow().contains_key(&tsih)).await;
    }

    /// Waits until there are no sessions.
    pub async fn emptied(&self) {
        self.changed.until(|| self.places.borrow().is_empty()).await;
    }

    /// The core with the fewest sessions.
    fn least_loaded(&self) -> CoreId {
        let mut sessions = vec![0; self.cores];
        for place in self.places.borrow().values() {
            sessions[usize::from(place.core.0)] += 1;
        }
        let least = sessions.iter().enumerate().min_by_key(|(_, count)| **count).map_or(0, |(core, _)| core);
        CoreId(least as u16)
    }
}

/// A TSIH that no session has and, if possible, that none had recently. There must be a free one.
fn free_tsih(places: &BTreeMap<u16, Place>, ended: &VecDeque<u16>, mut draw: impl FnMut() -> u16) -> u16 {
    let is_free = |tsih: u16| tsih != 0 && !places.contains_key(&tsih);
    let mut tsih = draw();
    for _ in 0..DRAWS_MAX {
        if is_free(tsih) && !ended.contains(&tsih) {
            return tsih;
        }
        tsih = draw();
    }
    while !is_free(tsih) {
        tsih = tsih.wrapping_add(1);
    }
    tsih
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> SessionName {
        let initiator = "iqn.2026-01.org.ursa:one".into();
        SessionName { initiator, isid: [0x80, 0, 0, 0, 0, 1], target: Some("target".into()) }
    }

    fn claim() -> Claim {
        Claim { address: [10, 0, 0, 1].into(), proven: None }
    }

    /// Returns these numbers, in order.
    fn draws(numbers: &[u16]) -> impl FnMut() -> u16 {
        let mut left = numbers.iter();
        move || *left.next().expect("fewer are drawn")
    }

    #[test]
    fn a_login_takes_the_place_of_one_that_is_not_over() {
        let registry = Registry::new(2);
        let (first, first_nexus, first_core, again) = registry.add(name(), claim(), draws(&[77])).unwrap();
        assert!(!again && first == 77);
        assert!(registry.supersede(&name()));
        let (second, second_nexus, second_core, again) = registry.add(name(), claim(), draws(&[78])).unwrap();
        assert!(again && first != second && first_core == second_core);
        assert!(!registry.begin(first, first_nexus), "its place was taken");
        registry.give_up(first, first_nexus);
        assert!(registry.begin(second, second_nexus));
        // From now on its core must end it.
        assert!(!registry.supersede(&name()));
        registry.give_up(second, second_nexus);
        assert_eq!(registry.named(&name()).unwrap().0, second);
        registry.remove(second);
        assert!(registry.is_empty() && registry.named(&name()).is_none());
    }

    #[test]
    fn a_reused_number_is_not_released() {
        let registry = Registry::new(1);
        let (tsih, old, ..) = registry.add(name(), claim(), || 77).unwrap();
        registry.give_up(tsih, old);
        registry.ended.borrow_mut().clear();
        let (again, new, ..) = registry.add(name(), claim(), || 77).unwrap();
        assert_eq!(again, tsih);
        assert!(!registry.begin(tsih, old));
        registry.give_up(tsih, old);
        assert!(registry.begin(tsih, new));
    }

    #[test]
    fn a_tsih_is_drawn_and_that_of_a_session_that_has_just_ended_is_not_drawn_again() {
        let registry = Registry::new(1);
        let another = |last: u8| SessionName { isid: [0x80, 0, 0, 0, 0, last], ..name() };
        let add = |last, draws: &[u16]| registry.add(another(last), claim(), self::draws(draws)).unwrap().0;
        assert_eq!(add(1, &[0, 500]), 500, "zero is no TSIH");
        assert_eq!(add(2, &[500, 9]), 9);
        registry.remove(9);
        assert_eq!(add(3, &[9, 10]), 10);
        for n in 0..ENDED_MAX as u16 {
            let tsih = registry.add(another(4), claim(), || 1000 + n).unwrap().0;
            registry.remove(tsih);
        }
        assert_eq!(registry.ended.borrow().len(), ENDED_MAX);
        assert_eq!(add(5, &[9]), 9);
        // Draws that never succeed do not block a login.
        assert_eq!(registry.add(another(6), claim(), || 9).unwrap().0, 11, "9 and 10 are taken");
    }
}
