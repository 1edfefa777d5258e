//! Events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Missing, Severity};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Event number: grows with time, also across restarts of the node. Each node numbers its own events:
    /// this is the number on the first node of `seen_by`.
    pub id: u64,
    /// Time in seconds since 1970, by the clock of that node.
    pub at: u64,
    /// Severity.
    pub severity: Severity,
    /// Event code, for programs: `docs/use/events.md` lists all of them.
    #[schema(example = "copy_out_of_sync")]
    pub code: String,
    /// Cause code, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "silent")]
    pub cause: Option<String>,
    /// What it concerns, by the name that it had at the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// ID of the volume that it concerns: it stays the same when the volume is renamed. Absent: it does not
    /// concern a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "3f0a9c5e7d2b41868e6f1a2b3c4d5e6f")]
    pub subject_id: Option<String>,
    /// Number of the node that `subject` names: two nodes may know it by different names. Absent: the subject
    /// is not a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_node: Option<u16>,
    /// The LUN map that was added or removed. Absent: it is not about a LUN map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<Box<MapChange>>,
    /// What happened, as text. The texts of several nodes for the same event may differ.
    pub text: String,
    /// Recommended action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Number of the node that it concerns; absent: it concerns none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// Revision of the cluster's record that it reports, which is the same on all nodes; absent: it is an
    /// observation of the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The disk range that could not be read, if this is the cause. Absent: it is not, or is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Box<DiskRange>>,
    /// Numbers of the nodes that report it, first one first. Events of the whole cluster list several if
    /// several nodes were queried.
    pub seen_by: Vec<u16>,
}

/// Bytes that a disk could not read, and the blocks of a volume that they hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskRange {
    /// Number of the node that has the disk.
    pub node: u16,
    /// Pool of the disk.
    pub pool: String,
    /// Path of the disk.
    pub disk: String,
    /// Offset on the disk, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// First affected block of the volume.
    pub lba: u64,
    /// Number of affected blocks of the volume.
    pub blocks: u64,
}

/// A LUN map that was added or removed. `subject_id` of the event is the volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct MapChange {
    /// iSCSI name of the target.
    pub target: String,
    /// Logical unit number.
    pub lun: u16,
    /// Host group.
    pub host: String,
    /// Whether the map was added; `false`: it was removed.
    pub added: bool,
}

/// What the reports of an event by several nodes have in common: codes and facts. Texts are not part of it,
/// nor are names of volumes and nodes, of which some nodes know an older one or none. Nor is the cause: it is
/// what the reporting node concluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventIdentity<'a> {
    code: &'a str,
    revision: Option<u64>,
    node: Option<u16>,
    volume: Option<&'a str>,
    subject_node: Option<u16>,
    map: Option<&'a MapChange>,
    /// The subject, if only its name identifies it.
    name: Option<&'a str>,
}

impl Event {
    /// The most seconds between two nodes' observations of a third node that count as the same event: nodes
    /// detect a heartbeat timeout within a few seconds, and clocks differ a little.
    pub const SIGHT_MAX: u64 = 10;

    /// Whether both report the same occurrence, from different nodes or twice from the same node.
    ///
    /// Events of one node are the same if they have the same number. Events of different nodes are the same
    /// only if their identity ([`Event::identity`]) is. All nodes report a change of the cluster's record
    /// with the same revision, however far their clocks are apart and however late one of them learns of it.
    /// What each node observes of another one, such as a heartbeat timeout or a resync that the other one
    /// receives, counts as the same within [`Event::SIGHT_MAX`]. Events that concern no node are never the
    /// same on different nodes.
    pub fn is_same_as(&self, other: &Event) -> bool {
        if self.identity() != other.identity() {
            return false;
        }
        if self.seen_by.first() == other.seen_by.first() {
            return self.id == other.id;
        }
        self.revision.is_some() || (self.node.is_some() && self.at.abs_diff(other.at) <= Event::SIGHT_MAX)
    }

    /// What the reports of this event by other nodes have in common with this one.
    pub fn identity(&self) -> EventIdentity<'_> {
        let Event { code, revision, node, subject, subject_id, subject_node, map, .. } = self;
        let is_only_named = subject_id.is_none() && subject_node.is_none();
        EventIdentity {
            code,
            revision: *revision,
            node: *node,
            volume: subject_id.as_deref(),
            subject_node: *subject_node,
            map: map.as_deref(),
            name: subject.as_deref().filter(|_| is_only_named),
        }
    }
}

/// Events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// Ordered by number; those of several nodes by time.
    pub items: Vec<Event>,
    /// Events between the one given and the first of these are no longer stored, or the one given is not an
    /// event of this node.
    pub gap: bool,
    /// The value for `after` in the next request: the number of the last event here, or of the last event of
    /// the node. Absent if all nodes were queried, since each has its own numbers, or if the queried node did
    /// not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Nodes that did not answer, and why: their part is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
}

/// A query for events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Only events after the one with this number.
    pub after: Option<u64>,
    /// Only events until then, in seconds since 1970.
    pub until: Option<u64>,
    /// Skip the newest N of these (paging); requires `until`.
    pub skip: Option<usize>,
    /// Maximum number of events.
    pub limit: usize,
    /// A node number, or `all`; `None` means the queried node.
    pub node: Option<String>,
    /// Only events of this subject: the name that it had at the time, or a volume ID.
    pub subject: Option<String>,
    /// Minimum severity.
    pub severity: Option<Severity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The event that node 3 is unreachable.
    fn lost(seen_by: u16, id: u64, at: u64) -> Event {
        Event {
            id,
            at,
            severity: Severity::Critical,
            code: "node_lost".into(),
            cause: None,
            subject: Some("san3".into()),
            subject_id: None,
            subject_node: Some(3),
            map: None,
            text: "node san3 is down: heartbeat timeout".into(),
            action: None,
            node: Some(3),
            revision: None,
            range: None,
            seen_by: vec![seen_by],
        }
    }

    #[test]
    fn an_event_is_recognized_whichever_node_reports_it() {
        let first = lost(1, 7, 100);
        assert!(first.is_same_as(&Event { seen_by: vec![1, 2], ..first.clone() }));
        assert!(!first.is_same_as(&lost(1, 8, 100)), "again");
        assert!(first.is_same_as(&lost(2, 90, 100 + Event::SIGHT_MAX)));
        assert!(first.is_same_as(&lost(2, 90, 100 - Event::SIGHT_MAX)), "clocks differ");
        assert!(!first.is_same_as(&lost(2, 90, 101 + Event::SIGHT_MAX)), "later");
        assert!(!first.is_same_as(&Event { node: Some(4), subject_node: Some(4), ..lost(2, 90, 100) }));
        let own = |node| Event { node: None, ..lost(node, 7, 100) };
        assert!(!own(1).is_same_as(&own(2)));
        let of_record = |node, at, revision| Event { revision: Some(revision), ..lost(node, at, at) };
        assert!(of_record(1, 100, 5).is_same_as(&of_record(2, 900, 5)), "it was cut off");
        assert!(!of_record(1, 100, 5).is_same_as(&of_record(2, 100, 6)));
    }

    #[test]
    fn texts_names_and_causes_do_not_distinguish_events() {
        // Node 2 does not know the name of node 3, and was told that its process died.
        let unnamed = Event {
            subject: Some("node 3".into()),
            text: "node 3 is down: its process died".into(),
            cause: Some("died".into()),
            ..lost(2, 90, 101)
        };
        assert!(lost(1, 7, 100).is_same_as(&unnamed));

        let out = |seen_by, name: &str| Event {
            code: "copy_out_of_sync".into(),
            subject: Some(name.into()),
            subject_id: Some("11".repeat(16)),
            subject_node: None,
            text: format!("copy of volume {name} on san3 is out of sync"),
            revision: Some(5),
            ..lost(seen_by, 7, 100)
        };
        assert!(out(1, "db").is_same_as(&out(2, "mail")), "node 2 has not seen that it was renamed");
    }

    #[test]
    fn what_a_name_an_id_or_a_map_distinguishes_is_not_one_event() {
        let event =
            |seen_by| Event { revision: Some(5), node: None, subject_node: None, ..lost(seen_by, 7, 9) };
        assert!(event(1).is_same_as(&event(2)));
        let named = |seen_by, name: &str| Event { subject: Some(name.into()), ..event(seen_by) };
        assert!(!named(1, "a").is_same_as(&named(2, "b")), "nothing but the name identifies its subject");
        let of_volume = |seen_by, id: &str| Event { subject_id: Some(id.into()), ..event(seen_by) };
        assert!(!of_volume(1, "11").is_same_as(&of_volume(2, "22")), "two volumes of one name");
        assert!(!event(1).is_same_as(&Event { code: "node_returned".into(), ..event(2) }));

        let map = MapChange { target: "iqn.a".into(), lun: 3, host: "esx".into(), added: true };
        let of_map = |seen_by, map: &MapChange| Event {
            code: "maps_changed".into(),
            map: Some(Box::new(map.clone())),
            ..of_volume(seen_by, "11")
        };
        assert!(of_map(1, &map).is_same_as(&of_map(2, &map)));
        let others = [
            MapChange { target: "iqn.b".into(), ..map.clone() },
            MapChange { lun: 4, ..map.clone() },
            MapChange { host: "kvm".into(), ..map.clone() },
            MapChange { added: false, ..map.clone() },
        ];
        for other in others {
            assert!(!of_map(1, &map).is_same_as(&of_map(2, &other)), "{other:?}");
        }
    }
}
