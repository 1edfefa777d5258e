//! Problem documents: why a request was refused.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A problem document (RFC 9457), with a `code` for programs and a `hint` for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: status and code identify the problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status as text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, with names and numbers.
    pub detail: String,
    /// Error code for programs. It stays the same when the wording changes.
    #[schema(example = "volume_mapped")]
    pub code: String,
    /// What to do about it, unless that is obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The request field at fault, as a path (`disks[0].path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Candidates that were considered and rejected, and the rule that each of them fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
}

/// A node, and the pool on it, considered for a copy of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// Node number.
    pub node: u16,
    /// Node name.
    pub node_name: String,
    /// Pool name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The rule that excludes it, for programs; absent: it is eligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "no_space")]
    pub rule: Option<String>,
    /// The same as text.
    pub text: String,
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// Step by step, as text.
    pub would: Vec<String>,
    /// The candidates that were considered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
}

impl Problem {
    /// Its media type.
    pub const MEDIA_TYPE: &str = "application/problem+json";
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "{}: {hint}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}
