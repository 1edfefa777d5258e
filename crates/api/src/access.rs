//! Who may use the interface: users, their sessions, tokens for scripts, and what was done.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cookie of a session.
pub const SESSION_COOKIE: &str = "ursa_session";

/// The same by TLS: a browser takes a cookie of this name from this host alone, and sends it to no other (RFC 6265bis 4.1.3.2).
pub const SECURE_SESSION_COOKIE: &str = "__Host-ursa_session";

/// The header, with any value, that a request with a session's cookie needs to change something: pages of other sites cannot send it.
pub const REQUEST_HEADER: &str = "x-ursa-request";

/// The shortest and the longest password, in characters (Unicode scalar values, as JSON Schema counts them).
pub const PASSWORD_CHARACTERS_MIN: usize = 10;
/// See [`PASSWORD_CHARACTERS_MIN`].
pub const PASSWORD_CHARACTERS_MAX: usize = 256;

/// What somebody may do; each may what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at everything but users, tokens and the audit log.
    Viewer,
    /// Change what hosts use: volumes, copies, targets, host groups, sessions; and maintain nodes.
    Operator,
    /// Change machines and their disks, the cluster, users and tokens; read the audit log.
    Admin,
}

impl Role {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How somebody has proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProvedBy {
    /// A session's cookie, after a login with a password.
    Session,
    /// A token.
    Token,
    /// The credential that a node leaves for the user who runs it, on its own machine.
    Local,
}

impl fmt::Display for ProvedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProvedBy::Session => "session",
            ProvedBy::Token => "token",
            ProvedBy::Local => "local",
        })
    }
}

/// What a console must know before anybody has logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessState {
    /// There is no user yet: the first one is made with the link that the node has printed.
    pub setup_needed: bool,
    /// The name of the node that was asked.
    pub cluster: String,
}

/// Makes the first user, an administrator.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUp {
    /// What the link has behind `token=`.
    #[schema(write_only)]
    pub token: String,
    /// The user's name: 1 to 63 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// The user's password.
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub password: String,
}

/// Somebody logs in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The user's name.
    pub name: String,
    /// The user's password.
    #[schema(write_only, format = Password)]
    pub password: String,
}

/// Who has logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedIn {
    /// The user's name.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The user's or the token's name; `local` for the node's own credential.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// How that was proved.
    pub by: ProvedBy,
}

/// Another password for whoever asks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The password so far.
    #[schema(write_only, format = Password)]
    pub old: String,
    /// The password from now on.
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub new: String,
}

/// Somebody with a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    /// The name, unique in the cluster.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

/// A user to be made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    /// The name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The password.
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub password: String,
}

/// What is different of a user from now on; its sessions end.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// What it may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub password: Option<String>,
}

/// What a script proves itself with: `Authorization: Bearer SECRET`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiToken {
    /// What it is deleted by; no secret.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Until when it is good, in seconds since 1970; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// Who made it.
    pub made_by: String,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiTokenCreate {
    /// What it is for: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// For how long it is good, in seconds; absent: until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub valid_seconds: Option<u64>,
}

/// A new token, with what nobody is ever told again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiTokenMade {
    /// What is known of it from now on.
    #[serde(flatten)]
    pub token: ApiToken,
    /// What goes behind `Authorization: Bearer`. It is shown this once.
    pub secret: String,
}

/// Something that was done, or tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its number on its node: later ones have higher ones.
    pub id: u64,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Who: a user's or a token's name; of a login, the name that was given.
    pub who: String,
    /// How that was proved; absent: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ProvedBy>,
    /// Where from.
    pub address: String,
    /// What: a method and a path, or `login`, `logout`, `setup`.
    pub action: String,
    /// The HTTP status that it was answered with.
    pub status: u16,
    /// Why it was refused, as in the problem document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The number of the node whose log has it; absent: the node that was asked, of which alone was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// Which entries of the audit log are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Those before the one with this number.
    pub before: Option<u64>,
    /// Those that were written until then, in seconds since 1970.
    pub until: Option<u64>,
    /// Without so many of the newest of these, which were had already; goes with `until`.
    pub skip: Option<usize>,
    /// At most so many.
    pub limit: usize,
    /// The number of a node, or `all`; `None`: of the node that is asked.
    pub node: Option<String>,
}

/// Hides the secrets of a request where somebody prints it.
macro_rules! debug_without_secrets {
    ($($type:ty: $($field:ident),*;)*) => {
        $(impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($type))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        })*
    };
}

debug_without_secrets! {
    SetUp: name;
    Login: name;
    PasswordChange: ;
    UserCreate: name, role;
    UserChange: role;
    ApiTokenMade: token;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_secrets() {
        let login = Login { name: "alice".into(), password: "correct horse".into() };
        assert_eq!(format!("{login:?}"), r#"Login { name: "alice", .. }"#);
        let change = UserChange { role: Some(Role::Admin), password: Some("battery".into()) };
        assert_eq!(format!("{change:?}"), "UserChange { role: Some(Admin), .. }");
        let change = PasswordChange { old: "correct horse".into(), new: "battery staple".into() };
        assert_eq!(format!("{change:?}"), "PasswordChange { .. }");
    }

    #[test]
    fn roles_are_in_order_and_written_in_lower_case() {
        assert!(Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
        for role in [Role::Viewer, Role::Operator, Role::Admin] {
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
    }
}
