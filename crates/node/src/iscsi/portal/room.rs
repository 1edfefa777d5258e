//! Room for connections in login.
//!
//! Anyone can open connections and leave them silent. They must not keep hosts from logging in, so no
//! connection ever waits for room: if there is none, it replaces another connection. One user (an address, or
//! a /64 of IPv6) may have at most half of the room, and replaces its own connections beyond that. Otherwise
//! the user with the most connections that no host group on their target admits loses one (of several such
//! users, the one with the most connections). It loses the connection that has shown least: first those that
//! have sent nothing, then those that no host group admits, the oldest first in each case.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// The most connections in login at once, at all portals: enough for 2,000 hosts that return after an outage.
///
/// Each connection holds a few KiB.
pub(super) const LOGINS_MAX: usize = 4096;

/// A connection in login. Places are ordered by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// What a connection has shown. Those that have shown least are closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoginProgress {
    /// It has sent no readable login request.
    Nothing,
    /// It has sent a login request.
    Request,
    /// A host group on its target admits its name and address.
    Host,
}

/// An IPv4 address, or the /64 of an IPv6 address: a machine with one address of a /64 can use all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User(IpAddr);

impl User {
    pub(super) fn of(address: IpAddr) -> User {
        User(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

/// The connections of one user.
#[derive(Debug, Default)]
struct Places {
    all: BTreeSet<(LoginProgress, Place)>,
    /// How many of them no host group has admitted.
    unadmitted: usize,
}

/// The order in which users lose connections: by the number of connections that no host group has admitted,
/// by the number of all, then by the connection that the user would lose.
type Weight = (usize, usize, Reverse<Option<(LoginProgress, Place)>>, User);

/// The places of all connections in login.
#[derive(Debug)]
pub(super) struct Room {
    max: usize,
    next: u64,
    places: BTreeMap<Place, (User, LoginProgress)>,
    users: BTreeMap<User, Places>,
    /// The last entry is the user that loses a connection first.
    by_weight: BTreeSet<Weight>,
}

impl Room {
    /// Room for `max` connections.
    pub(super) fn new(max: usize) -> Room {
        Room {
            max: max.max(2),
            next: 0,
            places: BTreeMap::new(),
            users: BTreeMap::new(),
            by_weight: BTreeSet::new(),
        }
    }

    /// Adds a connection. Returns its place, and the connection that must be closed for it.
    pub(super) fn enter(&mut self, address: IpAddr) -> (Place, Option<Place>) {
        let user = User::of(address);
        let has = self.users.get(&user).map_or(0, |places| places.all.len());
        let gives = if has >= self.max / 2 {
            Some(user)
        } else if self.places.len() >= self.max {
            self.by_weight.last().map(|(.., user)| *user)
        } else {
            None
        };
        let gone = gives.and_then(|user| self.users.get(&user)?.all.first().map(|(_, place)| *place));
        if let Some(gone) = gone {
            self.leave(gone);
        }
        let place = Place(self.next);
        self.next += 1;
        self.places.insert(place, (user, LoginProgress::Nothing));
        self.change(user, |places| places.add(LoginProgress::Nothing, place));
        (place, gone)
    }

    /// Notes that a connection has shown more.
    pub(super) fn note(&mut self, place: Place, shown: LoginProgress) {
        let Some((user, before)) = self.places.get_mut(&place) else { return };
        let (user, before) = (*user, std::mem::replace(before, shown));
        self.change(user, |places| {
            places.remove(before, place);
            places.add(shown, place);
        });
    }

    /// Removes a connection whose login is over. Does nothing if it was removed before.
    pub(super) fn leave(&mut self, place: Place) {
        if let Some((user, shown)) = self.places.remove(&place) {
            self.change(user, |places| places.remove(shown, place));
        }
    }

    fn change(&mut self, user: User, change: impl FnOnce(&mut Places)) {
        let places = self.users.entry(user).or_default();
        self.by_weight.remove(&places.weight(user));
        change(places);
        if places.all.is_empty() {
            self.users.remove(&user);
        } else {
            self.by_weight.insert(places.weight(user));
        }
    }
}

impl Places {
    fn weight(&self, user: User) -> Weight {
        (self.unadmitted, self.all.len(), Reverse(self.all.first().copied()), user)
    }

    fn add(&mut self, shown: LoginProgress, place: Place) {
        self.all.insert((shown, place));
        self.unadmitted += usize::from(shown < LoginProgress::Host);
    }

    fn remove(&mut self, shown: LoginProgress, place: Place) {
        self.all.remove(&(shown, place));
        self.unadmitted -= usize::from(shown < LoginProgress::Host);
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_address_has_half_and_gives_up_its_own_oldest() {
        let mut room = Room::new(8);
        let stranger: Vec<Place> = (0..4).map(|_| room.enter(address(1)).0).collect();
        assert_eq!(room.enter(address(2)).1, None);
        assert_eq!(room.enter(address(1)).1, Some(stranger[0]));
        assert_eq!(room.enter(address(1)).1, Some(stranger[1]));
        assert_eq!((room.places.len(), room.users.len()), (5, 2));
    }

    #[test]
    fn the_client_with_most_connections_makes_room_and_hosts_stay() {
        let mut room = Room::new(8);
        let host: Vec<Place> = (0..3).map(|_| room.enter(address(1)).0).collect();
        host.iter().for_each(|place| room.note(*place, LoginProgress::Host));
        let single = room.enter(address(2)).0;
        let many: Vec<Place> = (0..4).map(|_| room.enter(address(3)).0).collect();
        room.note(many[0], LoginProgress::Request);
        // First the silent ones, the oldest first; among users with equally many, too.
        let gone: Vec<_> = (10..14).map(|last| room.enter(address(last)).1).collect();
        assert_eq!(gone, [Some(many[1]), Some(many[2]), Some(many[3]), Some(single)]);
        assert!(host.iter().all(|place| room.places.contains_key(place)));
        // A host whose login is complete frees its place.
        room.leave(host[0]);
        assert_eq!(room.enter(address(20)).1, None);
    }

    #[test]
    fn a_network_of_ipv6_is_one_user_and_mapped_addresses_are_ipv4() {
        let of = |text: &str| User::of(text.parse().unwrap());
        assert_eq!(of("fd00::1:0:0:0:1"), of("fd00::1:ffff:0:0:2"));
        assert_ne!(of("fd00:0:0:1::1"), of("fd00:0:0:2::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    /// In any order of events the indices agree, and a user with a single connection never loses it to one
    /// with many.
    #[test]
    fn any_order_of_coming_and_going() {
        let mut rng = Rng::new(1);
        for max in [2, 3, 8, 40] {
            let mut room = Room::new(max);
            for _ in 0..5_000 {
                let place = Place(room.next.saturating_sub(1 + rng.below(2 * max as u64)));
                match rng.below(4) {
                    0 => room.leave(place),
                    1 => room.note(
                        place,
                        [LoginProgress::Nothing, LoginProgress::Request, LoginProgress::Host]
                            [rng.below(3) as usize],
                    ),
                    _ => {
                        let most = room.users.values().map(|places| places.unadmitted).max().unwrap_or(0);
                        let came = address(rng.below(12) as u8);
                        let before = room.places.clone();
                        let (_, gone) = room.enter(came);
                        if let Some((user, shown)) = gone.and_then(|gone| before.get(&gone)) {
                            let of_user = before.values().filter(|(of, _)| of == user);
                            let unadmitted =
                                of_user.filter(|(_, shown)| *shown < LoginProgress::Host).count();
                            assert!(*user == User::of(came) || unadmitted == most);
                            assert!(*shown < LoginProgress::Host || unadmitted == 0);
                        }
                    }
                }
                assert!(room.places.len() <= max);
                let count = |user: &User| room.places.values().filter(|(of, _)| of == user).count();
                assert!(room.users.iter().all(|(user, places)| places.all.len() == count(user)));
                assert!(room.users.keys().all(|user| count(user) <= (max / 2).max(1)));
                assert_eq!(room.by_weight.len(), room.users.len());
            }
        }
    }
}
