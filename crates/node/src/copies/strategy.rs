//! What is to become of a volume of two nodes when one of them cannot be heard of, and what is written down
//! when a node has gone on alone.

use replica::{Config, CopyState, Epoch, Incarnation, Revision, Slot, Standing};
use serde::{Deserialize, Serialize};
use store::VolumeId;

use super::entry::VolumeEntry;

/// How far the epochs of a node that goes on alone are from those of the record: nobody else counts that far.
pub const FORK_EPOCHS: u64 = 1 << 32;

/// Where the cluster's record has strategies.
pub const STRATEGIES: &str = "strategy/";

/// Where the cluster's record has the volumes that are split, or were.
pub const SPLITS: &str = "split/";

/// Where it has a volume's. Whoever has never been asked has none there.
pub fn strategy_key(id: VolumeId) -> String {
    format!("{STRATEGIES}{id}")
}

/// Where the cluster's record says that a volume is split, and what was decided about it.
pub fn split_key(id: VolumeId) -> String {
    format!("{SPLITS}{id}")
}

/// Where the cluster's record says that a node did not go on alone with a volume, though it may have written
/// down that it does.
pub fn void_key(id: VolumeId) -> String {
    format!("void-fork/{id}")
}

/// What a node does about a volume when it hears of nobody and cannot reach the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// It waits: only who has the record goes on.
    Prefer,
    /// It goes on alone, though the other one may, too.
    Heartbeat,
}

/// What somebody has chosen for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyEntry {
    /// What.
    pub strategy: Strategy,
    /// Who, as they call themselves.
    pub by: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// For which nodes; none: it was chosen before that was written down, for those that have copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<u16>,
}

impl StrategyEntry {
    /// Whether the volume's copies are on the nodes for which this was chosen.
    pub fn is_about(&self, entry: &VolumeEntry) -> bool {
        self.nodes.is_empty()
            || entry.copies.len() == self.nodes.len()
                && entry.copies.iter().all(|copy| self.nodes.contains(&copy.node))
    }
}

/// That this node goes on alone with a volume, in its own record: durable before it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkRecord {
    /// The volume's identity.
    pub volume: String,
    /// Which copy: [`super::CopyEntry::made`].
    pub made: u64,
    /// The configuration of the record from which it went on.
    pub parent: u64,
    /// The epoch in which it acts.
    pub epoch: u64,
    /// The node that was not heard of.
    pub without: u16,
    /// The life of it that was a member then.
    pub life: u64,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Both nodes have gone on: it does not any more until somebody has decided.
    pub split: bool,
}

/// That two nodes have gone on alone with a volume, in the cluster's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitEntry {
    /// The node that went on without the record.
    pub node: u16,
    /// From which epoch.
    pub parent: u64,
    /// In which epoch: tells this fork from others.
    pub epoch: u64,
    /// When, in seconds since 1970, by its clock.
    pub at: u64,
    /// The node whose data is kept, once somebody has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u16>,
}

/// That a fork was never acted in, in the cluster's record: should it be found in the node's own, it is
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoidEntry {
    /// The node.
    pub node: u16,
    /// [`ForkRecord::epoch`].
    pub epoch: u64,
    /// [`ForkRecord::at`].
    pub at: u64,
}

/// What a node says of a fork to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkSaid {
    /// The volume's identity.
    pub volume: String,
    /// The epoch of the record from which it went on.
    pub parent: u64,
    /// The epoch in which it acts.
    pub epoch: u64,
    /// Since when, in seconds since 1970.
    pub at: u64,
}

/// `config` with this copy alone in sync in this life, in that epoch. `revision`: of the record, or beyond
/// all of it.
pub fn alone(config: &Config, me: Slot, life: Incarnation, epoch: Epoch, revision: Revision) -> Config {
    let mut copies = [None; Slot::MAX];
    for (slot, copy) in config.copies() {
        let standing = if slot == me { Standing::InSync(life) } else { Standing::Outside };
        copies[slot.index()] = Some(CopyState { standing, ..copy });
    }
    Config::recorded(epoch, revision, copies)
}
