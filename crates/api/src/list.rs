//! Lists of items.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A list. It is an object so that fields can be added later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// Sorted by name or number.
    pub items: Vec<T>,
    /// Nodes that did not answer, and why: their part is missing.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

impl<T> List<T> {
    /// A complete list.
    pub fn of(items: Vec<T>) -> List<T> {
        List { items, missing: Vec::new() }
    }
}

/// A node whose part of a list is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Missing {
    /// Node number.
    pub node: u16,
    /// Node name.
    pub node_name: String,
    /// Why it is missing.
    pub reason: String,
}
