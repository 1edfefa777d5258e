//! What happens.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Missing;

/// Something has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number: later ones have larger ones, also after a restart of the node. Each node numbers for itself: it is that of the first of `seen_by`.
    pub id: u64,
    /// When, in seconds since 1970, by the clock of that node.
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
    /// The number of the node that it is about; absent: it is about none, or there is no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The revision of the cluster's record that it tells of, which is the same whichever node tells it; absent: it is what a node knows or sees by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The numbers of the nodes that tell it, the first one first: several of what is the cluster's, if several were asked. Absent without a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<u16>,
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
    /// In the order of their numbers; those of all nodes by time.
    pub items: Vec<Event>,
    /// Events after the one that was named are not there any more, or it is none of this node's.
    pub gap: bool,
    /// What to name as `after` next: the number of the last event here, or of the last one of all. Absent if all nodes were asked, since each numbers for itself, or if the one that was asked has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Nodes whose part is missing, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Those after the one with this number.
    pub after: Option<u64>,
    /// Those that happened until then, in seconds since 1970.
    pub until: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// The number of a node, or `all`; `None`: of the node that is asked.
    pub node: Option<String>,
}
