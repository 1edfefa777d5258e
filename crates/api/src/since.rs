//! Start times that may be inexact.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Since when something has been the case, by the clock of the reporting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Since {
    /// Seconds since 1970.
    pub at: u64,
    /// It was already the case when the node started, at that time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_earlier: bool,
}

impl Since {
    /// Exactly since that moment, in seconds since 1970.
    pub fn exactly(at: u64) -> Since {
        Since { at, or_earlier: false }
    }
}
