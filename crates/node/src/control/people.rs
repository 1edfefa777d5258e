//! Users and tokens, stored beside targets and host groups ([`shared`](super::shared)), so that every node of
//! a cluster knows them.
//!
//! Every change of a user also writes the marker [`SET_UP`], so that of two such changes on two nodes the
//! second one is refused. Otherwise each could remove the other's last administrator. If the marker does not
//! exist, anybody may create the first user, once.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::doing::Doing;
use super::turns::Thing;
use super::{Control, ControlError, Result};
use crate::attach::access::HostName;
use crate::record::{Change, delete, set};

pub(crate) const USERS: &str = "user/";
pub(crate) const TOKENS: &str = "api-token/";
/// The key that exists as soon as a user has existed.
pub(crate) const SET_UP: &str = "users-set-up";

/// How many users a cluster may have: some 300 bytes each, and every request looks one up.
pub const USERS_MAX: usize = 256;
/// See [`USERS_MAX`].
pub const API_TOKENS_MAX: usize = 256;

/// The key of a user in a record.
pub(crate) fn user_key(name: &str) -> String {
    format!("{USERS}{name}")
}

/// The key of an API token in a record.
pub(crate) fn token_key(id: &str) -> String {
    format!("{TOKENS}{id}")
}

/// What a user may do. Each role includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See everything.
    Viewer,
    /// Change what hosts use.
    Operator,
    /// Change what is on the machines, and who may do what.
    Admin,
}

/// A user with a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name, unique in the cluster.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The hash of the password, as a PHC string; never the password.
    pub password: String,
    /// Drawn again with each change of the password or the role, which ends all earlier sessions.
    pub stamp: u64,
    /// When it was created, in seconds since 1970.
    pub created: u64,
}

/// A token with which a program authenticates.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    /// Its public identity; not a secret.
    pub id: String,
    /// What it is for, in an administrator's words.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// SHA-256 of the secret, in hexadecimal.
    pub digest: String,
    /// When it was created, in seconds since 1970.
    pub created: u64,
    /// When it expires, in seconds since 1970; `None` if it does not.
    pub expires: Option<u64>,
    /// The user who created it.
    pub created_by: String,
}

base::shows!(Debug for User, |it| "User({:?}, {:?}, password not shown)", it.name, it.role);

base::shows!(Debug for ApiToken, |it| "ApiToken({}, {:?}, {:?}, digest not shown)", it.id, it.name, it.role);

/// A change of the users.
#[derive(Clone, Debug)]
pub enum UserChange {
    /// Create the first user, an administrator.
    First(User),
    /// Create another user.
    Add(User),
    /// Change a user's name, role or password; `None` leaves it as it is.
    Set {
        /// The user.
        name: String,
        /// The new name.
        new_name: Option<String>,
        /// What it may do.
        role: Option<Role>,
        /// The new password's PHC string.
        password: Option<String>,
    },
    /// Delete a user.
    Delete(String),
}

impl Control {
    /// All users, by name.
    pub fn users(&self) -> Vec<User> {
        self.shared_entries(USERS)
    }

    /// One user.
    pub fn user(&self, name: &str) -> Option<User> {
        is_name(name).then(|| self.shared_entry(&user_key(name))).flatten()
    }

    /// All tokens, by identity.
    pub fn api_tokens(&self) -> Vec<ApiToken> {
        self.shared_entries(TOKENS)
    }

    /// One token.
    pub fn api_token(&self, id: &str) -> Option<ApiToken> {
        is_name(id).then(|| self.shared_entry(&token_key(id))).flatten()
    }

    /// Whether a user has ever existed; `None` if the cluster's record has not been read yet.
    pub fn is_set_up(&self) -> Option<bool> {
        // Whatever its value: a later version may write another one.
        let there = self.has_shared_entry(SET_UP);
        let read = match self.reconciler() {
            Ok(reconciler) => !reconciler.nodes().is_empty(),
            // While the node does not take part in its cluster, it does not know the cluster's users. Nobody
            // may become the first user then.
            Err(_) => false,
        };
        (there || read).then_some(there)
    }

    /// Changes users; returns the changed one, or the deleted one as it was.
    ///
    /// # Errors
    /// A name is invalid, taken or not found; [`ControlError::SetUpAlready`], [`ControlError::LastAdmin`],
    /// [`ControlError::TooMany`].
    pub async fn change_user(self: &Rc<Control>, change: UserChange) -> Result<User> {
        change.check_names()?;
        let name = change.name().to_owned();
        self.change(Doing::ChangeUser.of(&name), [Thing::Record], |control, changing| async move {
            let (user, mut entries) = control.changed_user(change)?;
            entries.push(set(SET_UP.into(), &true));
            control.commit_shared(&changing, entries, Vec::new()).await?;
            Ok(user)
        })
        .await
    }

    /// Checks whether users could be changed; returns the user that would be.
    ///
    /// # Errors
    /// As [`Control::change_user`].
    pub fn check_user_change(&self, change: UserChange) -> Result<User> {
        change.check_names()?;
        self.changed_user(change).map(|(user, _)| user)
    }

    /// Stores a new token.
    ///
    /// # Errors
    /// [`ControlError::TooMany`].
    pub async fn add_api_token(self: &Rc<Control>, token: ApiToken) -> Result<()> {
        self.change(Doing::MakeToken.of(&token.name), [Thing::Record], |control, changing| async move {
            if control.api_tokens().len() >= API_TOKENS_MAX {
                return Err(ControlError::TooMany { kind: "token", most: API_TOKENS_MAX });
            }
            let entry = set(token_key(&token.id), &token);
            control.commit_shared(&changing, vec![entry], Vec::new()).await
        })
        .await
    }

    /// Deletes a token, which is then no longer valid.
    pub async fn delete_api_token(self: &Rc<Control>, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.change(Doing::DeleteToken.of(&id), [Thing::Record], |control, changing| async move {
            let known = control.api_token(&id).ok_or_else(|| ControlError::not_found("token", &id))?;
            let gone = delete(token_key(&known.id));
            control.commit_shared(&changing, vec![gone], Vec::new()).await
        })
        .await
    }

    fn changed_user(&self, change: UserChange) -> Result<(User, Vec<Change>)> {
        let kept = |user: User| (user.clone(), vec![set(user_key(&user.name), &user)]);
        match change {
            UserChange::First(_) if self.has_shared_entry(SET_UP) => Err(ControlError::SetUpAlready),
            UserChange::First(user) => Ok(kept(user)),
            UserChange::Add(user) => match self.user(&user.name) {
                Some(_) => Err(ControlError::Exists { kind: "user", name: user.name }),
                None if self.users().len() >= USERS_MAX => {
                    Err(ControlError::TooMany { kind: "user", most: USERS_MAX })
                }
                None => Ok(kept(user)),
            },
            UserChange::Set { name, new_name, role, password } => {
                let user = self.known_user(&name)?;
                let role = role.unwrap_or(user.role);
                if role != Role::Admin {
                    self.check_other_admin(&name)?;
                }
                let password = password.unwrap_or(user.password);
                let (before, name) = (name.clone(), new_name.unwrap_or(name));
                let is_renamed = name != before;
                if is_renamed && self.user(&name).is_some() {
                    return Err(ControlError::Exists { kind: "user", name });
                }
                let (user, mut entries) = kept(User { name, role, password, stamp: rt::random(), ..user });
                entries.extend(is_renamed.then(|| delete(user_key(&before))));
                Ok((user, entries))
            }
            UserChange::Delete(name) => {
                let user = self.known_user(&name)?;
                self.check_other_admin(&name)?;
                Ok((user, vec![delete(user_key(&name))]))
            }
        }
    }

    fn known_user(&self, name: &str) -> Result<User> {
        self.user(name).ok_or_else(|| ControlError::not_found("user", name))
    }

    /// Fails if this user is the only administrator.
    fn check_other_admin(&self, name: &str) -> Result<()> {
        let mut admins = self.users().into_iter().filter(|user| user.role == Role::Admin).peekable();
        let only = admins.next().is_some_and(|user| user.name == name) && admins.peek().is_none();
        if only { Err(ControlError::LastAdmin(name.to_owned())) } else { Ok(()) }
    }
}

impl UserChange {
    fn name(&self) -> &str {
        match self {
            UserChange::First(user) | UserChange::Add(user) => &user.name,
            UserChange::Set { name, .. } | UserChange::Delete(name) => name,
        }
    }

    fn check_names(&self) -> Result<()> {
        let _: HostName = self.name().parse()?;
        if let UserChange::Set { new_name: Some(name), .. } = self {
            let _: HostName = name.parse()?;
        }
        Ok(())
    }
}

/// Whether this can be the name of an entry. Other names are not looked up.
fn is_name(name: &str) -> bool {
    name.parse::<HostName>().is_ok()
}

#[cfg(test)]
mod tests {
    use rt::CoreId;

    use super::*;
    use crate::single_node::single_node;

    /// Otherwise anybody could become the first user of a node that has users.
    #[test]
    fn a_marker_that_a_later_version_has_written_counts() {
        let (world, server) = single_node(1);
        world.block_on(server, CoreId(0), || async {
            let control = Control::current();
            assert_eq!(control.is_set_up(), Some(false));
            let writer = Rc::clone(&control);
            let work = Doing::ChangeUser.of("a");
            let written = control.change(work, [Thing::Record], |_, changing| async move {
                let marker = set(SET_UP.into(), &["since", "a later version"]);
                writer.commit_shared(&changing, vec![marker], Vec::new()).await
            });
            written.await.unwrap();
            assert_eq!(control.is_set_up(), Some(true));
        });
    }
}
