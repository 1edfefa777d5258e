//! Makes this node's resyncs keep to its budget, to its share of the cluster's budget, and to their order.

use std::collections::{BTreeMap, BTreeSet};

use base::Instant;
use replica::{Slots, SyncNext};

use super::{ClusterError, Reconciler, json};
use crate::copies::budget::{Budget, Queue, Restraint, Turns, Waiting};
use crate::copies::core::Copies;
use crate::copies::entry::{StandingEntry, VolumeEntry};
use crate::copies::progress::{Part, SliceSync};
use crate::shard::{Shard, on_all_cores};

/// The key of the limit for the resyncs of all nodes together, in bytes per second.
pub(super) const SYNC_LIMIT: &str = "resync-limit";

/// What the cores have to keep to, as they last heard.
#[derive(Default)]
pub(super) struct Dealt {
    budget: Option<Budget>,
    turns: Turns,
    queue: Queue,
}

/// What the slices of a core have to copy to other nodes.
#[derive(Default)]
pub(super) struct Giving {
    cores: BTreeSet<u16>,
    /// Volumes with a slice that does more than wait until it is let in or promoted.
    volumes: BTreeSet<u32>,
}

impl Giving {
    /// Takes in what the slices of a core know.
    pub(super) fn add(&mut self, core: u16, syncs: &[SliceSync]) {
        for sync in syncs {
            // A paused resync takes no share of the budget, and no turn.
            if let Part::Source(next) = sync.part
                && sync.limited_by != Some(Restraint::Paused)
            {
                self.cores.insert(core);
                if !matches!(next, SyncNext::Admission | SyncNext::Promotion) {
                    self.volumes.insert(sync.address.volume);
                }
            }
        }
    }
}

impl Reconciler {
    /// The limit for the resyncs of all nodes together, in bytes per second; `None`: no limit.
    pub fn sync_limit(&self) -> Option<u64> {
        self.get::<u64>(SYNC_LIMIT).map(|(limit, _)| limit)
    }

    /// Sets the limit for the resyncs of all nodes together, in bytes per second.
    ///
    /// # Errors
    /// [`ClusterError::Record`], [`ClusterError::Conflict`], [`ClusterError::Unreadable`].
    pub async fn set_sync_limit(&self, limit: Option<u64>) -> Result<(), ClusterError> {
        let revision = self.revision_of(SYNC_LIMIT);
        let transaction = Reconciler::transaction().expect(SYNC_LIMIT, revision);
        match (limit, revision) {
            (Some(limit), _) => self.commit(transaction.put(SYNC_LIMIT, json(&limit))).await,
            (None, Some(_)) => self.commit(transaction.delete(SYNC_LIMIT)).await,
            (None, None) => Ok(()),
        }
    }

    /// What this node may resync to others now, in bytes per second; `None`: no limit.
    pub fn sync_budget(&self, now: Instant) -> Option<u64> {
        self.budget(now).map(|budget| budget.bytes_per_second)
    }

    fn budget(&self, now: Instant) -> Option<Budget> {
        let limit = self.sync_limit();
        let givers = limit.map_or(1, |_| 1 + self.others_that_give(now));
        Budget::of_node(Shard::current().config().resync_bytes_per_second_max, limit, givers)
    }

    /// The number of other nodes that are sources of resyncs, or may be and have not reported otherwise.
    fn others_that_give(&self, now: Instant) -> usize {
        let able = self.possible_givers();
        able.into_iter().filter(|node| *node != self.me() && self.may_give(now, *node)).count()
    }

    /// Gives each core that resyncs copies the same share of the budget, and makes volumes wait for their
    /// turns.
    pub(super) async fn deal(&self, now: Instant, giving: Giving) {
        let waiting = self.waiting(&giving.volumes);
        let (budget, turns) = {
            let mut dealt = self.dealt.borrow_mut();
            let turns = dealt.queue.look(now, waiting);
            let budget = self.budget(now).map(|budget| budget.of_core(giving.cores.len()));
            if (dealt.budget, &dealt.turns) == (budget, &turns) {
                return;
            }
            (dealt.budget, dealt.turns) = (budget, turns.clone());
            (budget, turns)
        };
        on_all_cores(move || async move { Copies::current().keep_to(budget, turns) }).await;
    }

    /// The copies whose resyncs are paused, by the volume's number.
    pub(super) fn paused(&self) -> BTreeMap<u32, Slots> {
        let volumes = self.volumes.borrow();
        let of = |entry: &VolumeEntry| (entry.number, entry.paused_slots());
        let paused = volumes.values().map(|kept| of(&kept.entry));
        paused.filter(|(_, slots)| !slots.is_empty()).collect()
    }

    fn waiting(&self, volumes: &BTreeSet<u32>) -> Vec<Waiting> {
        if volumes.is_empty() {
            return Vec::new();
        }
        let moved = self.last_moves();
        let kept = self.volumes.borrow();
        let in_sync: BTreeMap<u32, usize> = kept
            .values()
            .map(|kept| {
                let in_sync = kept.entry.copies.iter().filter(|copy| copy.standing == StandingEntry::InSync);
                (kept.entry.number, in_sync.count())
            })
            .collect();
        let waiting = |volume: &u32| {
            Some(Waiting { volume: *volume, in_sync: *in_sync.get(volume)?, moved_at: *moved.get(volume)? })
        };
        volumes.iter().filter_map(waiting).collect()
    }
}
