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
    /// What it has happened to: the name that it had then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The identity of the volume that it has happened to, which stays when that gets another name: its `id`. Absent: it has happened to something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "3f0a9c5e7d2b41868e6f1a2b3c4d5e6f")]
    pub subject_id: Option<String>,
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
    /// What a disk did not read, where that is why. Absent: it is not, or is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Box<DiskRange>>,
    /// The numbers of the nodes that tell it, the first one first: several of what is the cluster's, if several were asked. Absent without a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_by: Vec<u16>,
}

/// Bytes that a disk did not read, and the blocks of a volume that are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskRange {
    /// The number of the node that has the disk; absent without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The name of the disk's pool.
    pub pool: String,
    /// The disk's path.
    pub disk: String,
    /// Where it begins on the disk, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
    /// The first block of the volume.
    pub lba: u64,
    /// How many blocks of the volume it touches.
    pub blocks: u64,
}

impl Event {
    /// Seconds between what two nodes see of a third one, if it is one thing: a node that is silent is missed within a few, and clocks differ a little.
    pub const SIGHT_MAX: u64 = 10;

    /// Whether both are one thing that has happened, told by different nodes, or again by one.
    ///
    /// A node numbers what it tells: by that it is known again. What happens in the cluster's record all nodes tell, of the same revision and in the same words, however far their clocks are apart and however late one has
    /// heard of it. What each sees by itself of another one, that it is missed or that it is given what a copy lacks, is one thing if they say it within [`Event::SIGHT_MAX`]; what is about no node is each one's own.
    pub fn is_same_as(&self, other: &Event) -> bool {
        let Event { revision, node, code, subject, text, .. } = self;
        if (revision, node, code, subject, text)
            != (&other.revision, &other.node, &other.code, &other.subject, &other.text)
        {
            return false;
        }
        if self.seen_by.first() == other.seen_by.first() {
            return self.id == other.id;
        }
        revision.is_some() || (node.is_some() && self.at.abs_diff(other.at) <= Event::SIGHT_MAX)
    }
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
    /// Without so many of the newest of these, which were had already; goes with `until`.
    pub skip: Option<usize>,
    /// At most so many.
    pub limit: usize,
    /// The number of a node, or `all`; `None`: of the node that is asked.
    pub node: Option<String>,
    /// Only what has happened to this, by the name that it had then, or to the volume of this identity.
    pub subject: Option<String>,
    /// Only what is as grave as this, or graver.
    pub severity: Option<Severity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of node 3, that nothing is heard of it.
    fn lost(seen_by: u16, id: u64, at: u64) -> Event {
        Event {
            id,
            at,
            severity: Severity::Critical,
            code: "node_lost".into(),
            cause: None,
            subject: Some("san3".into()),
            subject_id: None,
            text: "nothing is heard of san3 any more".into(),
            action: None,
            node: Some(3),
            revision: None,
            range: None,
            seen_by: vec![seen_by],
        }
    }

    #[test]
    fn one_thing_is_known_again_whoever_tells_it() {
        let first = lost(1, 7, 100);
        assert!(first.is_same_as(&Event { seen_by: vec![1, 2], ..first.clone() }));
        assert!(!first.is_same_as(&lost(1, 8, 100)), "again");
        assert!(first.is_same_as(&lost(2, 90, 100 + Event::SIGHT_MAX)));
        assert!(first.is_same_as(&lost(2, 90, 100 - Event::SIGHT_MAX)), "clocks differ");
        assert!(!first.is_same_as(&lost(2, 90, 101 + Event::SIGHT_MAX)), "later");
        assert!(!first.is_same_as(&Event { subject: Some("san4".into()), ..lost(2, 90, 100) }));
        let own = |node| Event { node: None, ..lost(node, 7, 100) };
        assert!(!own(1).is_same_as(&own(2)));
        let of_record = |node, at, revision| Event { revision: Some(revision), ..lost(node, at, at) };
        assert!(of_record(1, 100, 5).is_same_as(&of_record(2, 900, 5)), "it was cut off");
        assert!(!of_record(1, 100, 5).is_same_as(&of_record(2, 100, 6)));
    }
}
