//! Users, tokens, and login.

pub(super) mod login;
pub(super) mod tokens;
pub(super) mod users;
