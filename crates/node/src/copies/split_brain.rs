//! What a node does with a volume of two nodes when the other node is unreachable, and what is recorded when
//! a node continues alone (`docs/why/forks.md`).

use replica::{Config, CopyState, Epoch, Incarnation, Revision, Slot, Standing};
use serde::{Deserialize, Serialize};
use store::VolumeId;

use super::entry::VolumeEntry;

/// How far the epochs of a node that continues alone are ahead of the record's, which never get that far.
pub const FORK_EPOCHS: u64 = 1 << 32;

/// The prefix of the keys of split-brain policies in the cluster's record.
pub const POLICIES: &str = "split-brain-policy/";

/// The prefix of the keys of volumes that have a split brain, or had one, in the cluster's record.
pub const SPLITS: &str = "split/";

/// The prefix of the keys of forks that never took effect, in the cluster's record.
pub const VOID_FORKS: &str = "void-fork/";

/// The key of a volume's split-brain policy in the cluster's record.
///
/// It is absent if nobody has ever chosen one.
pub fn policy_key(id: VolumeId) -> String {
    format!("{POLICIES}{id}")
}

/// The key under which the cluster's record has a volume's split brain, and the decision about it.
pub fn split_key(id: VolumeId) -> String {
    format!("{SPLITS}{id}")
}

/// The key under which the cluster's record says that a node did not continue alone with a volume, though the
/// node's own record may say that it does.
pub fn void_key(id: VolumeId) -> String {
    format!("{VOID_FORKS}{id}")
}

/// What a node does with a volume when it can reach neither the other node nor the record: the split-brain
/// policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBrainPolicy {
    /// It waits: only a node that reaches the record continues.
    Prefer,
    /// It continues alone, though the other node may do so, too.
    Heartbeat,
}

/// The split-brain policy that an administrator chose for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyEntry {
    /// The split-brain policy.
    pub policy: SplitBrainPolicy,
    /// Who chose it, by the name that they gave.
    pub by: String,
    /// When, in seconds since 1970.
    pub at: u64,
    /// The nodes that it was chosen for.
    pub nodes: Vec<u16>,
}

impl PolicyEntry {
    /// Whether the volume's copies are on the nodes for which this was chosen.
    pub fn is_about(&self, entry: &VolumeEntry) -> bool {
        entry.copies.len() == self.nodes.len()
            && entry.copies.iter().all(|copy| self.nodes.contains(&copy.node))
    }
}

/// This node continues alone with a volume: an entry of the node's own record, durable before the node does
/// so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkRecord {
    /// The volume's identity.
    pub volume: String,
    /// The copy: [`super::CopyEntry::made`].
    pub made: u64,
    /// The epoch of the record's configuration from which the node continued.
    pub parent: u64,
    /// The epoch in which it acts.
    pub epoch: u64,
    /// The node that was unreachable.
    pub without: u16,
    /// The life of that node that was a member then.
    pub life: u64,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Whether both nodes have continued alone: then this node stops until an administrator has decided.
    pub split: bool,
}

/// A split brain in the cluster's record: two nodes have continued with a volume, each alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitEntry {
    /// The node that continued without the record.
    pub node: u16,
    /// The epoch from which it continued.
    pub parent: u64,
    /// The epoch in which it acts; identifies this fork.
    pub epoch: u64,
    /// When, in seconds since 1970, by its clock.
    pub at: u64,
    /// The node whose data is kept, once an administrator has decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u16>,
}

/// A fork that never took effect, in the cluster's record: if a node's own record has it, it means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoidEntry {
    /// The node.
    pub node: u16,
    /// [`ForkRecord::epoch`].
    pub epoch: u64,
    /// [`ForkRecord::at`].
    pub at: u64,
}

/// What a node reports about a fork to other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkSaid {
    /// The volume's identity.
    pub volume: String,
    /// The epoch of the record from which the node continued.
    pub parent: u64,
    /// The epoch in which it acts.
    pub epoch: u64,
    /// When the node continued alone, in seconds since 1970.
    pub at: u64,
}

/// `config` with this copy as the only one in sync, in this life of the node and in epoch `epoch`.
///
/// `revision` is a revision of the record, or one beyond all of the record's.
pub fn alone(config: &Config, me: Slot, life: Incarnation, epoch: Epoch, revision: Revision) -> Config {
    let mut copies = [None; Slot::MAX];
    for (slot, copy) in config.copies() {
        let standing = if slot == me { Standing::InSync(life) } else { Standing::Outside };
        copies[slot.index()] = Some(CopyState { standing, ..copy });
    }
    Config::recorded(epoch, revision, copies)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version_1::check;

    /// What version 1 has in the node's record. Later versions must read it.
    #[test]
    fn an_entry_of_version_1_is_read_and_keeps_what_it_says() {
        check::<ForkRecord>(&json!({
            "volume": "00000000000000000000000000000001", "made": 1, "parent": 7, "epoch": 4294967303_u64,
            "without": 2, "life": 3, "at": 1790000400, "split": true
        }));
    }
}
