//! The users and API tokens of a joining node become the cluster's.
//!
//! A user is known by its name: two users of one name are one only if everything is equal, the hash of the
//! password included. A token is known by its ID, which is drawn at random; names of tokens may repeat.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::collision::{Collision, Counted};
use crate::control::{API_TOKENS_MAX, ApiToken, SET_UP, TOKENS, USERS, USERS_MAX, User, token_key, user_key};
use crate::member::Reconciler;
use crate::record::{Change, set};

/// Users and API tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::control) struct People {
    /// By name.
    pub users: Vec<User>,
    /// By ID.
    pub tokens: Vec<ApiToken>,
}

impl People {
    /// Those of the cluster.
    pub(super) fn of_record(reconciler: &Reconciler) -> People {
        People { users: reconciler.list(USERS), tokens: reconciler.list(TOKENS) }
    }

    /// Their keys in a record.
    pub(super) fn keys(&self) -> impl Iterator<Item = String> {
        let users = self.users.iter().map(|user| user_key(&user.name));
        users.chain(self.tokens.iter().map(|token| token_key(&token.id)))
    }

    /// Their entries in a record, with the mark that it has users. It comes first, so that it changes in each
    /// transaction with users, as with any change of them; and nobody becomes the first user afterwards.
    pub(super) fn in_record(&self) -> Vec<Change> {
        let mark = (!self.users.is_empty()).then(|| set(SET_UP.into(), &true));
        let users = self.users.iter().map(|user| set(user_key(&user.name), user));
        let tokens = self.tokens.iter().map(|token| set(token_key(&token.id), token));
        mark.into_iter().chain(users).chain(tokens).collect()
    }
}

/// What the cluster (`ours`) lacks of a joining node's users and tokens, and what collides.
pub(super) fn merged(ours: &People, theirs: &People) -> (People, Vec<Collision>) {
    let (mut new, mut collisions) = (People::default(), Vec::new());
    let users: BTreeMap<&str, &User> = ours.users.iter().map(|user| (user.name.as_str(), user)).collect();
    for user in &theirs.users {
        match users.get(user.name.as_str()) {
            None => new.users.push(user.clone()),
            Some(known) if *known == user => {}
            Some(_) => collisions.push(Collision::User { name: user.name.clone() }),
        }
    }
    // If the first transaction is the last one, somebody can still administer a cluster that had no users.
    new.users.sort_by_key(|user| Reverse(user.role));
    let tokens: BTreeSet<&str> = ours.tokens.iter().map(|token| token.id.as_str()).collect();
    new.tokens = theirs.tokens.iter().filter(|token| !tokens.contains(token.id.as_str())).cloned().collect();
    for (what, ours, new, most) in [
        (Counted::Users, ours.users.len(), new.users.len(), USERS_MAX),
        (Counted::ApiTokens, ours.tokens.len(), new.tokens.len(), API_TOKENS_MAX),
    ] {
        if new > 0 && ours + new > most {
            collisions.push(Collision::TooMany { what, most });
        }
    }
    (new, collisions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Role;

    fn user(name: &str, role: Role) -> User {
        User { name: name.into(), role, password: format!("hash of {name}"), stamp: 1, created: 1 }
    }

    fn token(id: &str) -> ApiToken {
        ApiToken {
            id: id.into(),
            name: "backup".into(),
            role: Role::Operator,
            digest: format!("digest of {id}"),
            created: 1,
            expires: None,
            created_by: "alice".into(),
        }
    }

    #[test]
    fn users_and_tokens_of_both_sides_stay_valid() {
        let ours = People { users: vec![user("alice", Role::Admin)], tokens: vec![token("1")] };
        let theirs = People {
            users: vec![user("alice", Role::Admin), user("bob", Role::Viewer), user("eva", Role::Admin)],
            tokens: vec![token("1"), token("2")],
        };
        let (new, collisions) = merged(&ours, &theirs);
        assert!(collisions.is_empty(), "{collisions:?}");
        let names: Vec<&str> = new.users.iter().map(|user| user.name.as_str()).collect();
        assert_eq!(names, ["eva", "bob"], "administrators come first");
        assert_eq!(new.tokens, [token("2")], "its name is taken, its ID is not");
        let keys: Vec<String> = new.in_record().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["users-set-up", "user/eva", "user/bob", "api-token/2"]);
        assert_eq!(merged(&theirs, &theirs), (People::default(), Vec::new()), "when it tries again");
        assert!(People { tokens: vec![token("2")], ..People::default() }.in_record().len() == 1);
    }

    /// One of the two people would lose access, or get the role of the other one.
    #[test]
    fn two_users_of_one_name_collide() {
        let with = |change: fn(&mut User)| {
            let mut changed = user("alice", Role::Admin);
            change(&mut changed);
            People { users: vec![changed], tokens: Vec::new() }
        };
        let ours = with(|_| {});
        for theirs in [
            with(|user| user.role = Role::Viewer),
            with(|user| user.password = "another one".into()),
            with(|user| user.stamp = 2),
        ] {
            let (new, collisions) = merged(&ours, &theirs);
            assert_eq!(new, People::default());
            assert_eq!(collisions, [Collision::User { name: "alice".into() }]);
        }
    }

    #[test]
    fn both_sides_together_keep_to_the_limits() {
        let users = |from: usize, count: usize| {
            (from..from + count).map(|number| user(&number.to_string(), Role::Viewer)).collect()
        };
        let tokens = |from: usize, count: usize| {
            (from..from + count).map(|number| token(&number.to_string())).collect()
        };
        let ours = People { users: users(0, 200), tokens: tokens(0, 200) };
        let theirs = |users, tokens| merged(&ours, &People { users, tokens }).1;
        assert!(theirs(users(100, 156), tokens(100, 156)).is_empty(), "those of both count once");
        let expected = [(Counted::Users, USERS_MAX), (Counted::ApiTokens, API_TOKENS_MAX)];
        let expected = expected.map(|(what, most)| Collision::TooMany { what, most });
        assert_eq!(theirs(users(200, 57), tokens(200, 57)), expected);
    }
}
