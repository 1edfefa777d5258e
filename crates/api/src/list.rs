//! Several of something.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Several of something. An object, so that it can grow fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// In the order of their names or numbers.
    pub items: Vec<T>,
}
