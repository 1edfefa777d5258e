//! Sessions of users who have logged in, in the memory of the node they logged in to.
//!
//! A session ends when it was not used for a while, when it reaches its greatest age, at logout, when the
//! node stops, and with any change of the user's role or password on any node: it contains the user's stamp,
//! which each lookup compares with the current one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::secret::{Digested, draw};

/// A session ends when it was not used for this long.
pub(in crate::http) const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// The greatest age of a session.
pub(in crate::http) const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// The number of sessions of one user. One more ends the least recently used one.
const OF_USER_MAX: usize = 16;
/// The number of sessions of a node; see [`OF_USER_MAX`].
const SESSIONS_MAX: usize = 512;

/// All sessions, by the digests of their secrets.
#[derive(Default)]
pub(in crate::http) struct Sessions(BTreeMap<Digested, Session>);

struct Session {
    user: String,
    stamp: u64,
    began: Instant,
    used: Instant,
}

impl Sessions {
    /// Begins a session and returns its secret.
    pub(in crate::http) fn begin(&mut self, now: Instant, user: &str, stamp: u64) -> String {
        self.0.retain(|_, session| session.is_alive(now));
        let of_user = |session: &Session| session.user == user;
        if self.0.values().filter(|session| of_user(session)).count() >= OF_USER_MAX {
            self.end_oldest(of_user);
        }
        if self.0.len() >= SESSIONS_MAX {
            self.end_oldest(|_| true);
        }
        let secret = draw();
        let session = Session { user: user.to_owned(), stamp, began: now, used: now };
        self.0.insert(Digested::of(&secret), session);
        secret
    }

    /// The user of a session, and the user's stamp when it began. Counts as use of the session.
    pub(in crate::http) fn find(&mut self, now: Instant, secret: &str) -> Option<(String, u64)> {
        let key = Digested::of(secret);
        let session = self.0.get_mut(&key)?;
        if !session.is_alive(now) {
            self.0.remove(&key);
            return None;
        }
        session.used = now;
        Some((session.user.clone(), session.stamp))
    }

    /// As [`Sessions::find`], but does not count as use.
    pub(in crate::http) fn look_at(&self, now: Instant, secret: &str) -> Option<(String, u64)> {
        let session = self.0.get(&Digested::of(secret)).filter(|session| session.is_alive(now))?;
        Some((session.user.clone(), session.stamp))
    }

    pub(in crate::http) fn end(&mut self, secret: &str) {
        self.0.remove(&Digested::of(secret));
    }

    fn end_oldest(&mut self, of: impl Fn(&Session) -> bool) {
        let oldest = self.0.iter().filter(|(_, session)| of(session)).min_by_key(|(_, session)| session.used);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.0.remove(&key);
        }
    }
}

impl Session {
    fn is_alive(&self, now: Instant) -> bool {
        let since = |then| now.saturating_duration_since(then);
        since(self.used) < IDLE_MAX && since(self.began) < AGE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_idle_when_old_and_at_logout() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let secret = sessions.begin(now, "alice", 7);
        let almost = IDLE_MAX - Duration::from_secs(1);
        assert_eq!(sessions.find(now + almost, &secret), Some(("alice".into(), 7)));
        assert_eq!(sessions.find(now + almost + almost, &secret), Some(("alice".into(), 7)));
        assert_eq!(sessions.find(now + almost + almost + IDLE_MAX, &secret), None);
        assert_eq!(sessions.find(now, &secret), None, "it does not come back");

        let secret = sessions.begin(now, "alice", 7);
        let mut later = now;
        while later < now + AGE_MAX {
            assert!(sessions.find(later, &secret).is_some());
            later += almost;
        }
        assert_eq!(sessions.find(later, &secret), None);

        let secret = sessions.begin(now, "alice", 7);
        assert_eq!(sessions.look_at(now + almost, &secret), Some(("alice".into(), 7)));
        assert_eq!(sessions.look_at(now + IDLE_MAX, &secret), None, "looking is no use");
        assert_eq!(sessions.find(now, "guessed"), None);
        sessions.end(&secret);
        assert_eq!(sessions.find(now, &secret), None);
    }

    #[test]
    fn there_are_not_too_many() {
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(now, "alice", 0);
        for n in 1..=OF_USER_MAX as u64 {
            sessions.begin(now + Duration::from_secs(n), "alice", 0);
        }
        assert_eq!(sessions.find(now, &first), None);
        for n in 0..2 * SESSIONS_MAX {
            sessions.begin(now, &format!("user{n}"), 0);
        }
        assert!(sessions.0.len() <= SESSIONS_MAX);
    }
}
