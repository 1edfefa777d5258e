//! Calls for users, tokens and the audit log.

use super::path::{segment, with_query};
use super::{Client, Result};
use crate::{
    ApiToken, ApiTokenCreate, ApiTokenMade, AuditEntry, AuditQuery, List, User, UserChange, UserCreate,
    WhoAmI,
};

/// Users, tokens and the audit log.
impl Client {
    /// The authenticated caller.
    pub fn who_am_i(&self) -> Result<WhoAmI> {
        self.get("/v1/whoami")
    }

    /// All users, by name.
    pub fn users(&self) -> Result<Vec<User>> {
        self.list("/v1/users")
    }

    /// Creates a user.
    pub fn create_user(&self, user: &UserCreate) -> Result<User> {
        self.post("/v1/users", user)
    }

    /// Changes a user's name, role or password.
    pub fn change_user(&self, name: &str, change: &UserChange) -> Result<User> {
        self.patch(&format!("/v1/users/{}", segment(name)), change)
    }

    /// Deletes a user.
    pub fn delete_user(&self, name: &str) -> Result<()> {
        self.delete(&format!("/v1/users/{}", segment(name)))
    }

    /// All tokens.
    pub fn api_tokens(&self) -> Result<Vec<ApiToken>> {
        self.list("/v1/tokens")
    }

    /// Creates a token.
    pub fn create_api_token(&self, token: &ApiTokenCreate) -> Result<ApiTokenMade> {
        self.post("/v1/tokens", token)
    }

    /// Deletes a token.
    pub fn delete_api_token(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/tokens/{}", segment(id)))
    }

    /// The audit log of the queried node, or of others, the newest entry first.
    pub fn audit(&self, query: &AuditQuery) -> Result<List<AuditEntry>> {
        let parameters = [
            ("limit", Some(query.limit.to_string())),
            ("before", query.before.map(|before| before.to_string())),
            ("until", query.until.map(|until| until.to_string())),
            ("skip", query.skip.map(|skip| skip.to_string())),
            ("node", query.node.clone()),
        ];
        self.get(&with_query("/v1/audit", parameters))
    }
}
