//! All sessions of the node, by name: which core has which.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proto::scsi::NexusId;
use rt::CoreId;
use rt::sync::Notify;

use crate::access::Claim;

/// Sessions of a node at once. A TSIH has 16 bits and zero is none.
pub const SESSIONS_MAX: usize = 65_535;

/// Names of former sessions that are remembered: an initiator that draws a new ISID for each login must not
/// fill the memory.
const SEEN_MAX: usize = SESSIONS_MAX;

/// TSIHs of ended sessions that are not drawn again yet: whoever still knows one must not mean a new session
/// by it.
const ENDED_MAX: usize = 1024;

/// Draws before the next free TSIH is taken: with 60,000 sessions one in twelve draws hits.
const DRAWS_MAX: usize = 64;

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
    /// Its number for units, which no other session ever had.
    pub nexus: NexusId,
    /// What its first login has shown. From its beginning on, its core knows which host groups it has
    /// entered.
    pub claim: Claim,
    /// The login that makes it is over, so that it is on its core.
    begun: bool,
}

impl Place {
    /// Whether the login that makes the session is over, so that its core knows it.
    pub fn has_begun(&self) -> bool {
        self.begun
    }
}

/// The registry, on core 0.
pub struct Registry {
    /// Where sessions may live.
    cores: usize,
    places: RefCell<BTreeMap<u16, Place>>,
    by_name: RefCell<BTreeMap<SessionName, u16>>,
    /// Names that have had a session since the node started, at most [`SEEN_MAX`]: the next is told of the
    /// loss of the last.
    seen: RefCell<BTreeSet<SessionName>>,
    /// The TSIHs of sessions that have ended, at most [`ENDED_MAX`], the oldest first.
    ended: RefCell<VecDeque<u16>>,
    next_nexus: Cell<u64>,
    /// Rung when a session has begun or ended.
    changed: Notify,
}

impl Registry {
    /// Without sessions, for so many cores.
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

    /// Gives a new session its numbers and the least loaded core; whether its names were seen before. `None`
    /// if there are too many sessions. `draw` gives random numbers: a TSIH that can be guessed invites
    /// guessing.
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
        // Discovery sessions are many and have no units to tell anything about.
        let again = name.target.is_some() && self.seen_before(&name);
        self.by_name.borrow_mut().insert(name.clone(), tsih);
        let nexus = NexusId(nexus);
        places.insert(tsih, Place { name, core, nexus, claim, begun: false });
        Some((tsih, nexus, core, again))
    }

    /// The login that makes this session is over. Says whether the place is still its own: another login of
    /// the same names may have taken it.
    pub fn begin(&self, tsih: u16, nexus: NexusId) -> bool {
        let mut places = self.places.borrow_mut();
        let Some(place) = places.get_mut(&tsih).filter(|place| place.nexus == nexus) else { return false };
        place.begun = true;
        self.changed.notify();
        true
    }

    /// The login that was to make this session came to nothing.
    pub fn give_up(&self, tsih: u16, nexus: NexusId) {
        if self.place(tsih).is_some_and(|place| place.nexus == nexus && !place.begun) {
            self.remove(tsih);
        }
    }

    /// Takes the place of the session of these names from a login that is not over yet. Says whether there
    /// was one: a session that has begun must be ended by its core.
    pub fn supersede(&self, name: &SessionName) -> bool {
        let Some((tsih, _)) = self.named(name).filter(|(_, place)| !place.begun) else { return false };
        self.remove(tsih);
        true
    }

    /// Waits until this session has begun, or is gone: the initiator may know its number a moment before we
    /// know that it does.
    pub async fn begun(&self, tsih: u16) -> Option<Place> {
        self.changed.until(|| self.place(tsih).is_none_or(|place| place.begun)).await;
        self.place(tsih)
    }

    /// Whether these names had a session before; they have one now.
    fn seen_before(&self, name: &SessionName) -> bool {
        let mut seen = self.seen.borrow_mut();
        if seen.contains(name) {
            return true;
        }
        // Whoever is forgotten is told of a power on instead of a loss of the nexus: both make an initiator
        // start anew.
        if seen.len() >= SEEN_MAX {
            seen.pop_first();
        }
        seen.insert(name.clone());
        false
    }

    /// Forgets a session that has ended, and gives what it was.
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

    /// Waits until there is no session.
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

/// A TSIH that no session has, and if possible none had until just now. There must be a free one.
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

    /// Draws these.
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
        // From now on it must be ended by its core.
        assert!(!registry.supersede(&name()));
        registry.give_up(second, second_nexus);
        assert_eq!(registry.named(&name()).unwrap().0, second);
        registry.remove(second);
        assert!(registry.is_empty() && registry.named(&name()).is_none());
    }

    #[test]
    fn a_number_that_was_used_again_is_not_given_up() {
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
        // Draws that never hit do not hold a login up.
        assert_eq!(registry.add(another(6), claim(), || 9).unwrap().0, 11, "9 and 10 are taken");
    }
}
