//! What a copy missed when its node returned, and what the resync copied to it, according to the other nodes.

use api::CopyState;
use serde::Serialize;

use super::fleet::{Member, VOLUME};
use super::scenario::Harmed;

/// Data that may be in flight when a copy joins, and is sent again.
///
/// These are 16 regions of a slice; nodes with one core have a single slice.
const IN_FLIGHT_BYTES: u64 = 1 << 20;

/// What a resync had to copy, and what it copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Bytes of the regions that the copy missed when its node returned.
    ///
    /// Absent if no node could report it, or if the others never continued without the copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_bytes: Option<u64>,
    /// Bytes of the regions that hosts' writes made dirty from then until all copies were in sync, as nodes
    /// count them.
    ///
    /// These regions were equal, already copied, or in flight.
    pub dirtied_bytes: u64,
    /// Bytes of the regions that resyncs brought up to date, including those that were equal or zeros, of
    /// which no data is sent.
    pub synced_bytes: u64,
    pub sent_bytes: u64,
}

impl Moved {
    /// The most that resyncs may send: what was missed, what hosts added, a twentieth more, and what was in
    /// flight when the copy joined.
    pub fn sent_max(&self) -> Option<u64> {
        let dirty = self.dirty_bytes? + self.dirtied_bytes;
        Some(dirty + dirty / 20 + IN_FLIGHT_BYTES)
    }
}

/// The state when the node returned.
pub struct Before {
    /// The node whose copy misses data, and how many bytes.
    dirty: Option<(u16, u64)>,
    /// The counters of the nodes that were up.
    counted: Vec<(u16, Counted)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    synced_bytes: u64,
    sent_bytes: u64,
    dirtied_bytes: u64,
}

impl Before {
    /// Reads the state from the nodes. After the loss of all nodes, their counters start at zero.
    pub fn look(nodes: &[Member], harmed: Harmed) -> Before {
        if harmed == Harmed::All {
            return Before { dirty: None, counted: Vec::new() };
        }
        // A paused node would not respond.
        let asked = || nodes.iter().filter(|node| harmed != Harmed::One(node.number));
        // Counters first: writes between the two steps are then in both rather than in neither.
        let counted = asked().map(|node| (node.number, counted_by(node))).collect();
        let missed = |of: u16| asked().filter_map(move |node| Some((of, missed_by(node, of)?)));
        let dirty = harmed.nodes().into_iter().flat_map(missed).max_by_key(|(_, bytes)| *bytes);
        Before { dirty, counted }
    }

    /// The node's copy is rebuilt, so it misses everything.
    pub fn is_new(&mut self, node: u16, bytes: u64) {
        self.dirty = Some((node, bytes));
    }

    /// The node whose copy misses data, and the bytes of its dirty regions, if a node reported them.
    pub fn dirty(&self) -> Option<(u16, u64)> {
        self.dirty
    }

    /// What resyncs have copied since.
    pub fn until_now(&self, nodes: &[Member]) -> Moved {
        let mut moved = Moved { dirty_bytes: self.dirty.map(|(_, bytes)| bytes), ..Moved::default() };
        for node in nodes {
            let before = self.counted.iter().find(|(number, _)| *number == node.number);
            if before.is_none() && !self.counted.is_empty() {
                continue;
            }
            let (before, now) = (before.map_or(Counted::default(), |(_, before)| *before), counted_by(node));
            moved.synced_bytes += now.synced_bytes.saturating_sub(before.synced_bytes);
            moved.sent_bytes += now.sent_bytes.saturating_sub(before.sent_bytes);
            // Each copy in sync counts every write; the source also counts what it has to send again.
            let dirtied = now.dirtied_bytes.saturating_sub(before.dirtied_bytes);
            moved.dirtied_bytes = moved.dirtied_bytes.max(dirtied);
        }
        moved
    }
}

/// The bytes that the other node's copy misses, according to `node`; `None`: that copy is in sync.
fn missed_by(node: &Member, lost: u16) -> Option<u64> {
    let volume = node.client.volume(VOLUME).ok()?;
    let copy = volume.copies.into_iter().find(|copy| copy.node == lost)?;
    copy.sync.filter(|_| copy.state != CopyState::InSync).map(|sync| sync.left_bytes)
}

fn counted_by(node: &Member) -> Counted {
    node.client.metrics().map(|text| Counted::of(&text)).unwrap_or_default()
}

impl Counted {
    /// From a node's metrics: the drill's volume is the only one.
    fn of(metrics: &str) -> Counted {
        let sent = ["direction=\"sent\"", "kind=\"sync\""];
        Counted {
            synced_bytes: sum(metrics, "ursa_copy_resynced_bytes_total{", &[]),
            sent_bytes: sum(metrics, "ursa_replication_bytes_total{", &sent),
            dirtied_bytes: sum(metrics, "ursa_copy_dirtied_bytes_total{", &[]),
        }
    }
}

/// The sum of all samples of a family that have these labels.
pub fn sum(metrics: &str, family: &str, labels: &[&str]) -> u64 {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(family)?.rsplit_once(' '));
    let samples = samples.filter(|(have, _)| labels.iter().all(|label| have.contains(label)));
    samples.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_among_the_metrics() {
        let metrics = "\
# HELP ursa_copy_resynced_bytes_total What this node has brought.
ursa_copy_resynced_bytes_total{volume=\"drill\",node=\"2\"} 67108864
ursa_copy_resynced_bytes_total{volume=\"drill\",node=\"3\"} 65536
ursa_copy_dirtied_bytes_total{volume=\"drill\",node=\"3\"} 131072
ursa_replication_bytes_total{node=\"2\",direction=\"sent\",kind=\"write\"} 1
ursa_replication_bytes_total{node=\"2\",direction=\"sent\",kind=\"sync\"} 70
ursa_replication_bytes_total{node=\"2\",direction=\"received\",kind=\"sync\"} 5
ursa_replication_bytes_total{node=\"3\",direction=\"sent\",kind=\"sync\"} 7
";
        let expected = Counted { synced_bytes: 67_174_400, sent_bytes: 77, dirtied_bytes: 131_072 };
        assert_eq!(Counted::of(metrics), expected);
    }

    #[test]
    fn a_twentieth_and_what_hosts_write_may_come_on_top() {
        let moved = Moved { dirty_bytes: Some(100 << 20), dirtied_bytes: 20 << 20, ..Moved::default() };
        assert_eq!(moved.sent_max(), Some(127 << 20));
        assert_eq!(Moved { dirty_bytes: None, ..moved }.sent_max(), None);
    }
}
