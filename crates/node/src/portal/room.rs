//! Room for connections in their login.
//!
//! Anybody can open connections and leave them silent. They must not keep hosts from logging in, so nobody
//! ever waits for room: a connection that finds none takes the place of another one. One user, an address or
//! a /64 of IPv6, has half of the room at most. Beyond that the user with most connections gives one up, and
//! of these the one that has shown least: first those that have said nothing, then those that no host group
//! on their target admits, each the oldest first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// Connections that may be in their login at once, of all portals: 2,000 hosts that come back after an outage
/// and some more. Each holds a few KiB.
pub(super) const LOGINS_MAX: usize = 4096;

/// A connection in its login, by the order of their coming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// What a connection has shown. The least is given up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    /// It has sent no login request that can be read.
    Nothing,
    /// It has sent one.
    Request,
    /// A host group on its target admits it, by name and address.
    Host,
}

/// An IPv4 address, or the /64 of an IPv6 address: whoever has one address there has them all.
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

/// What one user has.
#[derive(Debug, Default)]
struct Places {
    all: BTreeSet<(Shown, Place)>,
    /// How many of them no host group has admitted.
    strangers: usize,
}

/// How many of a user's connections no host group has admitted, how many it has, and which of them it would
/// give up.
type Weight = (usize, usize, Reverse<Option<(Shown, Place)>>, User);

/// The places, and who has them.
#[derive(Debug)]
pub(super) struct Room {
    max: usize,
    next: u64,
    places: BTreeMap<Place, (User, Shown)>,
    users: BTreeMap<User, Places>,
    /// Who gives one up first is the last.
    by_weight: BTreeSet<Weight>,
}

impl Room {
    /// For so many connections.
    pub(super) fn new(max: usize) -> Room {
        Room {
            max: max.max(2),
            next: 0,
            places: BTreeMap::new(),
            users: BTreeMap::new(),
            by_weight: BTreeSet::new(),
        }
    }

    /// A connection has come. Its place, and the connection that must go for it.
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
        self.places.insert(place, (user, Shown::Nothing));
        self.change(user, |places| places.add(Shown::Nothing, place));
        (place, gone)
    }

    /// A connection has shown more.
    pub(super) fn note(&mut self, place: Place, shown: Shown) {
        let Some((user, before)) = self.places.get_mut(&place) else { return };
        let (user, before) = (*user, std::mem::replace(before, shown));
        self.change(user, |places| {
            places.remove(before, place);
            places.add(shown, place);
        });
    }

    /// A connection's login is over. Nothing happens if it had gone already.
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
        (self.strangers, self.all.len(), Reverse(self.all.first().copied()), user)
    }

    fn add(&mut self, shown: Shown, place: Place) {
        self.all.insert((shown, place));
        self.strangers += usize::from(shown < Shown::Host);
    }

    fn remove(&mut self, shown: Shown, place: Place) {
        self.all.remove(&(shown, place));
        self.strangers -= usize::from(shown < Shown::Host);
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
    fn who_has_most_makes_room_and_hosts_stay() {
        let mut room = Room::new(8);
        let host: Vec<Place> = (0..3).map(|_| room.enter(address(1)).0).collect();
        host.iter().for_each(|place| room.note(*place, Shown::Host));
        let single = room.enter(address(2)).0;
        let many: Vec<Place> = (0..4).map(|_| room.enter(address(3)).0).collect();
        room.note(many[0], Shown::Request);
        // The silent ones first, the oldest of them first; of users with as many, too.
        let gone: Vec<_> = (10..14).map(|last| room.enter(address(last)).1).collect();
        assert_eq!(gone, [Some(many[1]), Some(many[2]), Some(many[3]), Some(single)]);
        assert!(host.iter().all(|place| room.places.contains_key(place)));
        // Hosts that have logged in leave room.
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

    /// Whatever comes, the indices say the same, and nobody with a single connection goes for one who has
    /// many.
    #[test]
    fn any_order_of_coming_and_going() {
        let mut rng = Rng::new(1);
        for max in [2, 3, 8, 40] {
            let mut room = Room::new(max);
            for _ in 0..5_000 {
                let place = Place(room.next.saturating_sub(1 + rng.below(2 * max as u64)));
                match rng.below(4) {
                    0 => room.leave(place),
                    1 => {
                        room.note(place, [Shown::Nothing, Shown::Request, Shown::Host][rng.below(3) as usize])
                    }
                    _ => {
                        let most = room.users.values().map(|places| places.strangers).max().unwrap_or(0);
                        let came = address(rng.below(12) as u8);
                        let before = room.places.clone();
                        let (_, gone) = room.enter(came);
                        if let Some((user, shown)) = gone.and_then(|gone| before.get(&gone)) {
                            let of_user = before.values().filter(|(of, _)| of == user);
                            let strangers = of_user.filter(|(_, shown)| *shown < Shown::Host).count();
                            assert!(*user == User::of(came) || strangers == most);
                            assert!(*shown < Shown::Host || strangers == 0);
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
