//! What happens.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number: later ones have larger ones, also after a restart of the node. Each node numbers for itself.
    pub id: u64,
    /// When, in seconds since 1970, by the clock of the node that was asked.
    pub at: u64,
    /// How much it is.
    pub severity: Severity,
    /// What kind of thing, for programs: `docs/use/events.md` has all of them.
    #[schema(example = "copy_lost")]
    pub code: String,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "silent")]
    pub cause: Option<String>,
    /// What it has happened to: a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What has happened, in a sentence.
    pub text: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The number of the node that it is about; absent: the node that was asked, which is in no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
}

/// How much an event is to somebody who looks after the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For the record.
    Info,
    /// Somebody should look at it.
    Warning,
    /// Something is lost, or one fault away from it.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        })
    }
}

/// Events, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// In the order of their numbers.
    pub items: Vec<Event>,
    /// Events after the one that was named are not there any more, or it is none of this node's.
    pub gap: bool,
    /// What to name as `after` next: the number of the last event here, or of the last one of all.
    pub next: u64,
}
