//! Why a request was refused.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A problem document as RFC 9457 has it, with a `code` for programs and a `hint` for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `about:blank`: the problem says no more than its status and its code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, with names and numbers.
    pub detail: String,
    /// What is wrong, for programs: it stays the same when the words change.
    #[schema(example = "volume_mapped")]
    pub code: String,
    /// What to do about it, where that does not go without saying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of the request that is concerned, as a path (`disks[0].path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was looked at and does not do, and by which rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
}

/// A node, with the pool of it that would be taken, for a copy of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// Its number; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Its name.
    pub node_name: String,
    /// The pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// By which rule it does not do, for programs; absent: it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "no_space")]
    pub rule: Option<String>,
    /// The same in words.
    pub text: String,
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// Step by step, in sentences.
    pub would: Vec<String>,
    /// What was looked at.
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
