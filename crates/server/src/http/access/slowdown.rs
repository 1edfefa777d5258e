//! Slows down password guessing: for each account, from whatever address, and for each address, whatever the
//! account.
//!
//! An attempt counts when it begins, so a thousand concurrent ones count as a thousand. The first few are
//! free; each further one doubles the wait before the next. A success clears the account's count. An attacker
//! who keeps trying can keep the account's owner from logging in with a password; tokens, existing sessions
//! and the command line on a node still work.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Attempts on an account without a wait: for an owner who has to try several passwords.
const FREE_OF_ACCOUNT: u32 = 5;
/// Attempts from an address without a wait: several people may share one.
const FREE_OF_ADDRESS: u32 = 20;
/// The first wait, and the longest, which allows some 1,440 guesses a day.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// After this time without an attempt, the count is cleared.
const FORGIVEN_AFTER: Duration = Duration::from_secs(15 * 60);
/// The number of accounts, and of addresses, that are remembered. At some 100 bytes each, both together take
/// less than 1 MiB.
const REMEMBERED_MAX: usize = 4096;

/// How often each account and each address was tried.
#[derive(Default)]
pub(in crate::http) struct Slowdown {
    accounts: Table<String>,
    addresses: Table<IpAddr>,
}

struct Table<K>(BTreeMap<K, Tries>);

impl<K> Default for Table<K> {
    fn default() -> Table<K> {
        Table(BTreeMap::new())
    }
}

struct Tries {
    /// Attempts since the last success, or since the count was cleared.
    count: u32,
    last: Instant,
    /// Until then, attempts are refused without a check.
    wait_until: Instant,
}

impl Slowdown {
    /// Counts an attempt on an account from an address.
    ///
    /// # Errors
    /// How long to wait before the next attempt: this one must not be checked.
    pub(in crate::http) fn begin(
        &mut self,
        now: Instant,
        account: &str,
        address: IpAddr,
    ) -> Result<(), Duration> {
        let (account, address) = (account.to_owned(), network_of(address));
        let wait = self.accounts.wait(now, &account).max(self.addresses.wait(now, &address));
        if !wait.is_zero() {
            return Err(wait);
        }
        self.accounts.count(now, account, FREE_OF_ACCOUNT);
        self.addresses.count(now, address, FREE_OF_ADDRESS);
        Ok(())
    }

    /// Uncounts an attempt that was right, or that was not checked after all. `right`: earlier attempts on
    /// the account are cleared, too.
    pub(in crate::http) fn forgive(&mut self, account: &str, address: IpAddr, right: bool) {
        if right {
            self.accounts.0.remove(account);
        } else {
            self.accounts.uncount(&account.to_owned());
        }
        // Only this attempt: otherwise the owner of one account would get free attempts on others.
        self.addresses.uncount(&network_of(address));
    }
}

impl<K: Ord + Clone> Table<K> {
    fn wait(&self, now: Instant, key: &K) -> Duration {
        self.0.get(key).map_or(Duration::ZERO, |tries| tries.wait_until.saturating_duration_since(now))
    }

    fn count(&mut self, now: Instant, key: K, free: u32) {
        if !self.0.contains_key(&key) && self.0.len() >= REMEMBERED_MAX {
            // Forget the one with the fewest attempts, so that an attacker cannot flush out its own entry
            // with many others.
            let least = self.0.iter().min_by_key(|(_, tries)| (tries.count, tries.last));
            if let Some(key) = least.map(|(key, _)| key.clone()) {
                self.0.remove(&key);
            }
        }
        let tries = self.0.entry(key).or_insert(Tries { count: 0, last: now, wait_until: now });
        if now.saturating_duration_since(tries.last) >= FORGIVEN_AFTER {
            tries.count = 0;
        }
        tries.count = tries.count.saturating_add(1);
        tries.last = now;
        tries.wait_until = now + wait_after(tries.count.saturating_sub(free));
    }

    fn uncount(&mut self, key: &K) {
        if let Some(tries) = self.0.get_mut(key) {
            tries.count = tries.count.saturating_sub(1);
            tries.wait_until = tries.last;
        }
    }
}

/// The wait before the next attempt, after this many that were not free.
fn wait_after(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        _ => WAIT_MIN.saturating_mul(1 << (tries - 1).min(16)).min(WAIT_MAX),
    }
}

/// The network that counts as one address: an owner of an IPv6 address has 2^64 of them, and all of loopback
/// is this machine.
pub(in crate::http) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn other(n: u32) -> IpAddr {
        IpAddr::from((0x0b00_0000 + n).to_be_bytes())
    }

    #[test]
    fn an_account_is_slowed_wherever_it_is_tried_from() {
        let (mut slowdown, now) = (Slowdown::default(), Instant::now());
        for n in 0..5 {
            assert_eq!(slowdown.begin(now, "alice", other(n)), Ok(()));
        }
        assert_eq!(slowdown.begin(now, "alice", other(6)), Ok(()));
        assert_eq!(slowdown.begin(now, "alice", other(7)), Err(Duration::from_secs(1)));
        assert_eq!(slowdown.begin(now, "bob", other(7)), Ok(()), "another account");
        let later = now + Duration::from_secs(1);
        assert_eq!(slowdown.begin(later, "alice", other(8)), Ok(()));
        assert_eq!(slowdown.begin(later, "alice", other(9)), Err(Duration::from_secs(2)));
    }

    #[test]
    fn waits_double_up_to_a_minute_and_are_forgiven() {
        let (mut slowdown, mut now) = (Slowdown::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..14 {
            if let Err(wait) = slowdown.begin(now, "alice", HOME) {
                waits.push(wait.as_secs());
                now += wait;
                slowdown.begin(now, "alice", HOME).unwrap();
            }
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += FORGIVEN_AFTER;
        for _ in 0..6 {
            assert_eq!(slowdown.begin(now, "alice", HOME), Ok(()));
        }
    }

    #[test]
    fn an_address_is_slowed_whichever_account_it_tries() {
        let (mut slowdown, now) = (Slowdown::default(), Instant::now());
        let refused = (0..1000).filter(|n| slowdown.begin(now, &format!("user{n}"), HOME).is_err()).count();
        assert_eq!(refused, 1000 - 21);
        let near = "fd00::1".parse().unwrap();
        (0..21).for_each(|n| slowdown.begin(now, &format!("user{n}"), near).unwrap_or_default());
        assert!(slowdown.begin(now, "x", "fd00::ffff:1".parse().unwrap()).is_err(), "the same network");
        assert!(slowdown.begin(now, "x", "fd00:0:0:1::1".parse().unwrap()).is_ok(), "another one");
    }

    #[test]
    fn all_of_loopback_is_one_address() {
        let (mut slowdown, now) = (Slowdown::default(), Instant::now());
        for n in 0..21_u8 {
            assert_eq!(slowdown.begin(now, &format!("user{n}"), [127, 0, n, 1].into()), Ok(()));
        }
        for address in ["127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(slowdown.begin(now, "x", address.parse().unwrap()).is_err(), "{address}");
        }
        assert!(slowdown.begin(now, "x", HOME).is_ok(), "another machine");
    }

    #[test]
    fn a_success_forgives_the_account_and_one_try_of_the_address() {
        let (mut slowdown, now) = (Slowdown::default(), Instant::now());
        for _ in 0..100 {
            slowdown.begin(now, "alice", HOME).unwrap();
            slowdown.forgive("alice", HOME, true);
        }
        // One's own account gives no free attempts on another.
        let tried = (0..100).filter(|_| {
            let _ = slowdown.begin(now, "mallory", HOME).map(|()| slowdown.forgive("mallory", HOME, true));
            slowdown.begin(now, "alice", HOME).is_ok()
        });
        assert_eq!(tried.count(), 6);
    }

    #[test]
    fn memory_is_bounded_and_the_busiest_guesser_is_not_forgotten() {
        let (mut slowdown, now) = (Slowdown::default(), Instant::now());
        (0..6).for_each(|n| slowdown.begin(now, "alice", other(n)).unwrap());
        for n in 0..3 * REMEMBERED_MAX as u32 {
            let _ = slowdown.begin(now, &format!("user{n}"), other(n));
        }
        assert!(slowdown.accounts.0.len() <= REMEMBERED_MAX && slowdown.addresses.0.len() <= REMEMBERED_MAX);
        assert!(slowdown.begin(now, "alice", HOME).is_err());
    }
}
