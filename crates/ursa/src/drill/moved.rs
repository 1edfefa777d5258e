//! What a copy missed when its node came back, and what syncs have brought it: from what the other nodes say.

use api::CopyState;
use serde::Serialize;

use super::fleet::{Member, VOLUME};
use super::scenario::Harmed;

/// What may be on its way when a copy joins, and is given again then: 16 regions of the only slice that nodes
/// of one core make.
const IN_FLIGHT_BYTES: u64 = 1 << 20;

/// What was to be brought, and what was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Bytes of the regions that the copy missed when its node came back; absent if nobody was there to say,
    /// or if the others never went on without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty_bytes: Option<u64>,
    /// Bytes of the regions that hosts' writes have added to what is to be given, from then on until all was
    /// in sync: regions that were equal, that were given already, or that were on their way. Counted by the
    /// nodes.
    pub dirtied_bytes: u64,
    /// Bytes of the regions that syncs have brought up to date: also of those that were found to be equal, or
    /// zeros, of which nothing is sent.
    pub synced_bytes: u64,
    /// Bytes of data that syncs have sent.
    pub sent_bytes: u64,
}

impl Moved {
    /// The most that syncs may send: what was missed and what hosts have added to it, a twentieth more, and
    /// what was on its way when the copy joined.
    pub fn sent_max(&self) -> Option<u64> {
        let dirty = self.dirty_bytes? + self.dirtied_bytes;
        Some(dirty + dirty / 20 + IN_FLIGHT_BYTES)
    }
}

/// What was so when the node came back.
pub struct Before {
    /// The copy that misses something, and how many bytes.
    dirty: Option<(u16, u64)>,
    /// Of the nodes that were there.
    counted: Vec<(u16, Counted)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    synced_bytes: u64,
    sent_bytes: u64,
    dirtied_bytes: u64,
}

impl Before {
    /// After all were lost they count from zero.
    pub fn look(nodes: &[Member], harmed: Harmed) -> Before {
        if harmed == Harmed::All {
            return Before { dirty: None, counted: Vec::new() };
        }
        // One that stands still would not answer.
        let asked = || nodes.iter().filter(|node| harmed != Harmed::One(node.number));
        // In this order: what is written in between is in both rather than in none.
        let counted = asked().map(|node| (node.number, counted_by(node))).collect();
        let missed = |of: u16| asked().filter_map(move |node| Some((of, missed_by(node, of)?)));
        let dirty = harmed.nodes().into_iter().flat_map(missed).max_by_key(|(_, bytes)| *bytes);
        Before { dirty, counted }
    }

    /// The node's copy is made anew: it misses all.
    pub fn is_new(&mut self, node: u16, bytes: u64) {
        self.dirty = Some((node, bytes));
    }

    /// The node whose copy misses something, and the bytes of these regions, if anybody knows.
    pub fn dirty(&self) -> Option<(u16, u64)> {
        self.dirty
    }

    /// What has come since.
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
            // Each in sync sees every write; the source also what it has to give again.
            let dirtied = now.dirtied_bytes.saturating_sub(before.dirtied_bytes);
            moved.dirtied_bytes = moved.dirtied_bytes.max(dirtied);
        }
        moved
    }
}

/// What a node knows that the other one's copy misses; `None`: that copy is in sync.
fn missed_by(node: &Member, lost: u16) -> Option<u64> {
    let volume = node.client.volume(VOLUME).ok()?;
    let copy = volume.copies.into_iter().find(|copy| copy.node == lost)?;
    copy.sync.filter(|_| copy.state != CopyState::InSync).map(|sync| sync.left_bytes)
}

fn counted_by(node: &Member) -> Counted {
    node.client.metrics().map(|text| Counted::of(&text)).unwrap_or_default()
}

impl Counted {
    /// Of a node's metrics: the drill's volume is all that there is.
    fn of(metrics: &str) -> Counted {
        let sum = |family: &str, labels: &[&str]| -> u64 {
            let samples = metrics.lines().filter_map(|line| line.strip_prefix(family)?.rsplit_once(' '));
            let samples = samples.filter(|(have, _)| labels.iter().all(|label| have.contains(label)));
            samples.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
        };
        Counted {
            synced_bytes: sum("ursa_copy_resynced_bytes_total{", &[]),
            sent_bytes: sum("ursa_replication_bytes_total{", &["direction=\"sent\"", "kind=\"sync\""]),
            dirtied_bytes: sum("ursa_copy_dirtied_bytes_total{", &[]),
        }
    }
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
