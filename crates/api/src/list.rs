//! Several of something.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Several of something. An object, so that it can grow fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// In the order of their names or numbers.
    pub items: Vec<T>,
    /// Nodes whose part is missing, and why.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

impl<T> List<T> {
    /// All that there is.
    pub fn of(items: Vec<T>) -> List<T> {
        List { items, missing: Vec::new() }
    }
}

/// A node whose part of a list is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Missing {
    /// Its number.
    pub node: u16,
    /// Its name.
    pub node_name: String,
    /// Why.
    pub reason: String,
}
