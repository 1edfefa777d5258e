//! Access to the interface: users, their sessions, tokens for scripts, and the audit log.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Name of the session cookie.
pub const SESSION_COOKIE: &str = "ursa_session";

/// Name of the session cookie over TLS: a browser accepts a cookie of this name only from this host itself,
/// and sends it to no other (RFC 6265bis 4.1.3.2).
pub const SECURE_SESSION_COOKIE: &str = "__Host-ursa_session";

/// The header, with any value, that a request with a session cookie must have to change something: pages of
/// other sites cannot send it.
pub const REQUEST_HEADER: &str = "x-ursa-request";

/// The shortest password, in characters (Unicode scalar values, as JSON Schema counts them).
pub const PASSWORD_CHARACTERS_MIN: usize = 10;
/// The longest password, in the same characters as [`PASSWORD_CHARACTERS_MIN`].
pub const PASSWORD_CHARACTERS_MAX: usize = 256;

/// What a user or token may do. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// View everything except users, tokens and the audit log.
    Viewer,
    /// Change what hosts use: volumes, copies, targets, host groups, sessions; and maintain nodes.
    Operator,
    /// Change machines and their disks, the cluster, users and tokens; read the audit log.
    Admin,
}

impl Role {
    /// The role's name, as in JSON.
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

/// How a caller was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProvedBy {
    /// Session cookie, after a login with a password.
    Session,
    /// A token.
    Token,
    /// The local token, which a node creates for the user that runs it, on its own machine.
    Local,
}

/// What a console needs to know before login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessState {
    /// No user exists yet: create the first one with the link that the node has printed.
    pub setup_needed: bool,
    /// Name of the queried node.
    pub cluster: String,
}

/// Creates the first user, an administrator.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetUp {
    /// The `token=` parameter of the link.
    #[schema(write_only)]
    pub token: String,
    /// User name: 1 to 63 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Password of the user.
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub password: String,
}

/// A login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// User name.
    pub name: String,
    /// Password of the user.
    #[schema(write_only, format = Password)]
    pub password: String,
}

/// The user who logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoggedIn {
    /// User name.
    pub name: String,
    /// Role of the user.
    pub role: Role,
}

/// The authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// User or token name; `local` for the node's local token.
    pub name: String,
    /// Role of the caller.
    pub role: Role,
    /// How the caller was authenticated.
    pub by: ProvedBy,
}

/// A password change of the authenticated user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// Current password.
    #[schema(write_only, format = Password)]
    pub old: String,
    /// New password.
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub new: String,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    /// User name, unique in the cluster.
    pub name: String,
    /// Role of the user.
    pub role: Role,
    /// Creation time, in seconds since 1970.
    pub created: u64,
}

/// A user to create.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    /// User name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// Role of the user.
    pub role: Role,
    /// The password.
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub password: String,
}

/// Changes to a user, who is logged out on all nodes.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// New name: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    /// New role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// New password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(write_only, min_length = 10, max_length = 256, format = Password)]
    pub password: Option<String>,
}

/// A token, by which a program authenticates: `Authorization: Bearer SECRET`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiToken {
    /// Token ID, used to delete it; not a secret.
    pub id: String,
    /// Name of the token.
    pub name: String,
    /// Role of the token.
    pub role: Role,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// Expiry time, in seconds since 1970; absent: valid until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// User that created it.
    pub created_by: String,
}

/// A token to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiTokenCreate {
    /// Name of the token: 1 to 63 letters, digits, `-`, `_` and `.`.
    #[schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    pub name: String,
    /// Role of the token.
    pub role: Role,
    /// Validity in seconds; absent: valid until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub valid_seconds: Option<u64>,
}

/// A new token with its secret, which is never shown again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiTokenMade {
    /// The token.
    #[serde(flatten)]
    pub token: ApiToken,
    /// The secret, for `Authorization: Bearer`. It is shown only this once.
    pub secret: String,
}

/// An entry of the audit log: an action that was carried out or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Entry number on its node; grows with time.
    pub id: u64,
    /// Time in seconds since 1970.
    pub at: u64,
    /// User or token name; for a login, the name that was entered.
    pub who: String,
    /// How the caller was authenticated; absent: not authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ProvedBy>,
    /// Address that the request came from.
    pub address: String,
    /// Method and path, or `login`, `logout`, `setup`.
    pub action: String,
    /// HTTP status of the response.
    pub status: u16,
    /// Why it was refused: the code of the problem document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Number of the node that has the entry in its log; absent: the queried node, if no other was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Name of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A query for the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only entries before the one with this number.
    pub before: Option<u64>,
    /// Only entries until then, in seconds since 1970.
    pub until: Option<u64>,
    /// Skip the newest N of these (paging); requires `until`.
    pub skip: Option<usize>,
    /// Maximum number of entries.
    pub limit: usize,
    /// A node number, or `all`; `None` means the queried node.
    pub node: Option<String>,
}

/// Hides the secrets of requests in their debug output.
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
    UserChange: name, role;
    ApiTokenMade: token;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_secrets() {
        let login = Login { name: "alice".into(), password: "correct horse".into() };
        assert_eq!(format!("{login:?}"), r#"Login { name: "alice", .. }"#);
        let change = UserChange { name: None, role: Some(Role::Admin), password: Some("battery".into()) };
        assert_eq!(format!("{change:?}"), "UserChange { name: None, role: Some(Admin), .. }");
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
