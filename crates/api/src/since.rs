//! Since when something is so.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Since when something is so, by the clock of the node that says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Since {
    /// In seconds since 1970.
    pub at: u64,
    /// The node was started then, and it was so already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_earlier: bool,
}

impl Since {
    /// Since that moment, in seconds since 1970.
    pub fn exactly(at: u64) -> Since {
        Since { at, or_earlier: false }
    }
}
