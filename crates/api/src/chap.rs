//! CHAP credentials of initiators and targets.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A CHAP name and secret. The secret is write-only: responses contain the name alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Chap {
    /// CHAP_N, 1 to 255 bytes.
    #[schema(min_length = 1, max_length = 255)]
    pub user: String,
    /// The secret: at least 12 characters, at most 255 bytes. Windows accepts at most 16.
    #[schema(write_only, min_length = 12, max_length = 255, format = Password)]
    pub secret: String,
}

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chap({:?}, secret not shown)", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::Chap;

    #[test]
    fn debug_hides_the_secret() {
        let chap = Chap { user: "alice".into(), secret: "correct horse".into() };
        assert_eq!(format!("{chap:?}"), r#"Chap("alice", secret not shown)"#);
    }
}
