//! Users and tokens, and logging in.

pub(super) mod login;
pub(super) mod tokens;
pub(super) mod users;
