//! How much resyncs may take of a node and of the cluster, and which come first.
//!
//! The cluster's limit is divided evenly among the nodes that give something now. No node hands it out: each
//! node counts the others by what they report of their resyncs, and a node that may give something and
//! reports nothing counts as giving. So the total may be below the limit, if a node cannot use its share. It
//! exceeds the limit only for about a tenth of a second when one more node begins, until the others have
//! heard of that; the node itself counts the others from its first byte on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::Instant;
use serde::{Deserialize, Serialize};

/// The least limit that a cluster can have, in bytes a second.
///
/// With less, a volume of a terabyte would take two weeks until it survives the next fault.
pub const SYNC_LIMIT_MIN: u64 = 1 << 20;

/// How many volumes one node resyncs at the same time; the others wait for their turn.
///
/// If all were resynced at once, each would be in sync as late as the last of them. One is not enough,
/// because a small volume, or one that waits for a slow disk, does not use the available capacity.
pub const SYNCS_AT_ONCE_MAX: usize = 4;

/// A volume that has made no progress for this long in its turn no longer keeps others from theirs.
const STUCK_MIN: Duration = Duration::from_secs(2);

/// What keeps a resync from going faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restraint {
    /// Hosts' writes, which would take too long otherwise.
    Hosts,
    /// The limit of its source.
    NodeLimit,
    /// The limit of all nodes of the cluster together.
    ClusterLimit,
    /// Its source resyncs other volumes first.
    Turn,
    /// An administrator paused it.
    Paused,
}

/// How much a core, or a node, may give to resyncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub bytes_per_second: u64,
    /// What sets this limit.
    pub by: Restraint,
}

impl Budget {
    /// The budget of a node; `None`: no limit.
    ///
    /// `node` is the limit of its settings (0: none), `cluster` the cluster's, and `givers` the number of
    /// nodes that give something.
    pub fn of_node(node: u64, cluster: Option<u64>, givers: usize) -> Option<Budget> {
        let own = (node > 0).then_some(Budget { bytes_per_second: node, by: Restraint::NodeLimit });
        let share = cluster.map(|limit| Budget {
            bytes_per_second: limit / givers.max(1) as u64,
            by: Restraint::ClusterLimit,
        });
        own.into_iter().chain(share).min_by_key(|budget| budget.bytes_per_second)
    }

    /// The budget of each core, if `giving` cores give something.
    pub fn of_core(self, giving: usize) -> Budget {
        Budget { bytes_per_second: self.bytes_per_second / giving.max(1) as u64, ..self }
    }
}

/// Which volumes may be resynced in bulk; joiners always are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Turns {
    /// All.
    #[default]
    All,
    /// The volumes with these numbers.
    Of(BTreeSet<u32>),
}

impl Turns {
    /// Whether it is this volume's turn.
    pub fn has(&self, volume: u32) -> bool {
        match self {
            Turns::All => true,
            Turns::Of(volumes) => volumes.contains(&volume),
        }
    }
}

/// A volume with copies that this node has to resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The volume's number.
    pub volume: u32,
    /// How many of its copies are in sync: the fewer, the more urgent.
    pub in_sync: usize,
    /// When its resync last made progress.
    pub moved_at: Instant,
}

/// The order of volumes: those with fewer copies in sync come first, then those that are older in the
/// cluster.
///
/// It is the same on all nodes.
#[derive(Debug, Default)]
pub struct Queue {
    /// The volumes whose turn it is, and since when.
    since: BTreeMap<u32, Instant>,
}

impl Queue {
    /// Decides whose turn it is now.
    pub fn look(&mut self, now: Instant, mut waiting: Vec<Waiting>) -> Turns {
        self.since.retain(|volume, _| waiting.iter().any(|waiting| waiting.volume == *volume));
        waiting.sort_unstable_by_key(|waiting| (waiting.in_sync, waiting.volume));
        let mut left = SYNCS_AT_ONCE_MAX;
        let mut turns = BTreeMap::new();
        for Waiting { volume, moved_at, .. } in &waiting {
            if left == 0 {
                break;
            }
            let since = self.since.get(volume).copied().unwrap_or(now);
            turns.insert(*volume, since);
            if now.since(since.max(*moved_at)) < STUCK_MIN {
                left -= 1;
            }
        }
        self.since = turns;
        if left > 0 { Turns::All } else { Turns::Of(self.since.keys().copied().collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant(1_000_000_000_000) + Duration::from_millis(millis)
    }

    fn waiting(volume: u32, in_sync: usize, moved_millis: u64) -> Waiting {
        Waiting { volume, in_sync, moved_at: at(moved_millis) }
    }

    fn of(volumes: &[u32]) -> Turns {
        Turns::Of(volumes.iter().copied().collect())
    }

    #[test]
    fn the_smaller_limit_counts() {
        let budget = |node, cluster, givers| {
            Budget::of_node(node, cluster, givers).map(|budget| (budget.bytes_per_second, budget.by))
        };
        assert_eq!(budget(0, None, 3), None);
        assert_eq!(budget(500, None, 3), Some((500, Restraint::NodeLimit)));
        assert_eq!(budget(500, Some(900), 1), Some((500, Restraint::NodeLimit)));
        assert_eq!(budget(500, Some(900), 3), Some((300, Restraint::ClusterLimit)));
        assert_eq!(budget(0, Some(900), 0), Some((900, Restraint::ClusterLimit)));
        assert_eq!(Budget::of_node(0, Some(900), 2).unwrap().of_core(3).bytes_per_second, 150);
    }

    #[test]
    fn a_volume_with_one_copy_left_comes_first_and_a_stalled_one_blocks_no_other() {
        let mut queue = Queue::default();
        assert_eq!(queue.look(at(0), vec![waiting(7, 2, 0), waiting(8, 1, 0)]), Turns::All);
        let mut six: Vec<Waiting> = (1..=6).map(|volume| waiting(volume, 2, 0)).collect();
        assert_eq!(queue.look(at(100), six.clone()), of(&[1, 2, 3, 4]));
        six[5].in_sync = 1;
        assert_eq!(queue.look(at(200), six.clone()), of(&[1, 2, 3, 6]));
        // Two make progress; two do not, and after two seconds two others have a turn, too.
        (six[0].moved_at, six[5].moved_at) = (at(2000), at(2000));
        assert_eq!(queue.look(at(2050), six.clone()), of(&[1, 2, 3, 6]));
        assert_eq!(queue.look(at(2150), six.clone()), of(&[1, 2, 3, 4, 5, 6]));
        (2..=5).for_each(|index| six[index].moved_at = at(3000));
        six[0].moved_at = at(3000);
        assert_eq!(queue.look(at(3100), six.clone()), of(&[1, 2, 3, 4, 6]));
        six.truncate(2);
        assert_eq!(queue.look(at(3200), six), Turns::All);
    }
}
