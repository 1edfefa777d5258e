//! The faults that are injected into a cluster, and how each is removed.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use initiator::Policy;
use serde::Serialize;

use super::DrillError;
use super::fleet::{CutDirection, Fleet, Replaced};
use super::full::{Filled, Full};
use super::rot::{Rot, Rotted};
use super::verdict::NO_STALL;
use super::waiter::Waiter;

/// The longest time that a request may wait while pools are full: shorter than what any host gives it.
const FULL_STALL: Duration = Duration::from_secs(5);

/// The smallest volume whose half is a pool with room for logs.
const FULL_SIZE_MIN: u64 = 128 << 20;

/// What is done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Kill one node's process (kill -9), then restart it
    CrashNode,
    /// Suspend one node's process (SIGSTOP), then resume it (SIGCONT)
    Pause,
    /// Shut down one node cleanly (SIGTERM), then restart it
    Reboot,
    /// Cut one node off from the other nodes; hosts still reach it
    CutLink,
    /// Block all traffic from one node to the other nodes, but not the other direction; hosts still reach it
    CutOneWay,
    /// Cut the link between one node and the next; the others still reach both, and hosts reach all
    CutPair,
    /// Take down a network that carries only heartbeats; data uses another one, which stays up
    CutHeartbeats,
    /// Kill one node and delete its pool, then give it a new pool and a new copy
    ReplaceDisk,
    /// Kill all nodes at once, then restart them
    BlackOut,
    /// Kill the three of five nodes that have no copy, and so the quorum, then restart them
    LoseQuorum,
    /// Kill the witness, then restart it
    LoseWitness,
    /// Flip bits of a log volume's data on one node's disk, which reports no error
    Rot,
    /// Fill the pools, which have space for half of a log volume, then unmap half of what was written
    Full,
}

/// What a fault does other than to nodes and links.
pub enum Damage {
    None,
    /// Data on a disk changes.
    Rot(Rot),
    /// The pools are full.
    Full(Full),
}

impl Damage {
    /// What became of it. `refused` is how often writes of the load found no space.
    pub fn found(
        self,
        refused: u64,
        waiter: &Waiter,
    ) -> Result<(Option<Rotted>, Option<Filled>), DrillError> {
        match self {
            Damage::None => Ok((None, None)),
            Damage::Rot(rot) => Ok((Some(rot.found()), None)),
            Damage::Full(full) => Ok((None, Some(full.found(refused, waiter)?))),
        }
    }
}

/// The nodes whose copies miss data after the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harmed {
    /// This node.
    One(u16),
    /// One of these two.
    Either(u16, u16),
    /// No node continues, so none knows.
    All,
    Nobody,
}

impl Harmed {
    /// The nodes whose copies may miss data that others know of.
    pub fn nodes(self) -> Vec<u16> {
        match self {
            Harmed::One(node) => vec![node],
            Harmed::Either(one, other) => vec![one, other],
            Harmed::All | Harmed::Nobody => Vec::new(),
        }
    }
}

impl Scenario {
    /// Whether all nodes fail at once.
    pub fn is_of_all(self) -> bool {
        self == Scenario::BlackOut
    }

    /// Whether no copy may go out of sync.
    pub fn spares_copies(self) -> bool {
        matches!(self, Scenario::LoseQuorum | Scenario::LoseWitness | Scenario::CutHeartbeats | Scenario::Rot)
    }

    /// The longest time that a request may wait, if it is not the usual one.
    pub fn stall_max(self) -> Option<Duration> {
        match self {
            // No node with a copy is affected, so hosts must notice nothing.
            Scenario::LoseQuorum | Scenario::LoseWitness | Scenario::CutHeartbeats => Some(NO_STALL),
            Scenario::Full => Some(FULL_STALL),
            _ => None,
        }
    }

    /// Whether the volume is a log volume.
    pub fn needs_log(self) -> bool {
        matches!(self, Scenario::Rot | Scenario::Full)
    }

    /// Whether pools are smaller than the volume, and fill up.
    pub fn fills_pools(self) -> bool {
        self == Scenario::Full
    }

    /// The smallest volume that will do.
    pub fn size_min(self) -> u64 {
        if self.fills_pools() { FULL_SIZE_MIN } else { 0 }
    }

    /// Whether there is only one cycle: with twice as many bad blocks, the disk would count as failing.
    pub fn is_once(self) -> bool {
        self == Scenario::Rot
    }

    /// Whether heartbeats have a network of their own.
    pub fn has_beats_apart(self) -> bool {
        self == Scenario::CutHeartbeats
    }

    /// The cluster that the scenario requires: nodes with a copy, nodes without one, and whether there is a
    /// witness.
    ///
    /// `None`: any cluster will do.
    pub fn cluster(self) -> Option<(u8, u8, bool)> {
        match self {
            Scenario::LoseQuorum => Some((2, 3, false)),
            Scenario::LoseWitness => Some((2, 0, true)),
            _ => None,
        }
    }

    /// Whose copies miss data if the fault affects this node of `copies` nodes that have one.
    pub fn harmed(self, node: u16, copies: u8) -> Harmed {
        match self {
            Scenario::BlackOut => Harmed::All,
            Scenario::LoseQuorum | Scenario::LoseWitness | Scenario::CutHeartbeats => Harmed::Nobody,
            // Which copy goes out of sync is not known before, and all may.
            Scenario::Full => Harmed::Nobody,
            Scenario::CutPair => Harmed::Either(node, next(node, copies)),
            _ => Harmed::One(node),
        }
    }

    /// Whether the copy must be rebuilt afterwards.
    pub fn takes_the_copy(self) -> bool {
        self == Scenario::ReplaceDisk
    }

    /// Injects the fault into the node, or into all.
    pub fn strike(
        self,
        fleet: &mut Fleet,
        node: u16,
        policy: Policy,
        waiter: &Waiter,
    ) -> Result<Damage, DrillError> {
        match self {
            Scenario::CrashNode => fleet.node(node).kill(),
            Scenario::ReplaceDisk => fleet.node(node).lose_disks()?,
            Scenario::Pause => fleet.node(node).pause(),
            Scenario::Reboot => fleet.node(node).tell_to_stop(),
            Scenario::CutLink => fleet.cut(node, None, &[CutDirection::ByIt, CutDirection::ToIt], true),
            Scenario::CutOneWay => fleet.cut(node, None, &[CutDirection::ByIt], true),
            Scenario::CutPair => {
                let other = next(node, fleet.copies());
                fleet.cut(node, Some(other), &[CutDirection::ByIt, CutDirection::ToIt], true);
            }
            Scenario::CutHeartbeats => fleet.cut_all(true),
            Scenario::BlackOut => fleet.kill_all(),
            Scenario::LoseQuorum | Scenario::LoseWitness => fleet.kill_without_copies(),
            Scenario::Rot => return Rot::begin(fleet.node(node)).map(Damage::Rot),
            Scenario::Full => return Full::begin(fleet, policy, waiter).map(Damage::Full),
        }
        Ok(Damage::None)
    }

    /// Removes the fault; returns when the node's copy was rebuilt, if it was.
    ///
    /// Rot cannot be removed: there is more of it, to be found when the load ends.
    pub fn undo(
        self,
        fleet: &mut Fleet,
        node: u16,
        damage: &mut Damage,
        waiter: &Waiter,
    ) -> Result<Option<Replaced>, DrillError> {
        match damage {
            Damage::None => {}
            Damage::Rot(rot) => rot.damage()?,
            Damage::Full(full) => full.make_room(waiter)?,
        }
        match self {
            Scenario::CrashNode => fleet.node(node).start()?,
            Scenario::Reboot => {
                fleet.node(node).wait_until_it_is_gone(waiter)?;
                fleet.node(node).start()?;
            }
            Scenario::CutLink | Scenario::CutOneWay | Scenario::CutPair => {
                fleet.cut(node, None, &[CutDirection::ByIt, CutDirection::ToIt], false);
            }
            Scenario::CutHeartbeats => fleet.cut_all(false),
            Scenario::Pause => fleet.node(node).go_on(),
            Scenario::ReplaceDisk => return fleet.replace_disks(node, waiter).map(Some),
            Scenario::BlackOut => fleet.start_all()?,
            Scenario::LoseQuorum | Scenario::LoseWitness => fleet.start_without_copies(waiter)?,
            Scenario::Rot | Scenario::Full => {}
        }
        Ok(None)
    }

    /// Describes the fault and its removal.
    pub fn told(self, node: u16, copies: u8) -> (String, String) {
        let (done, undone) = match self {
            Scenario::CrashNode => (format!("n{node} killed"), format!("n{node} restarted")),
            Scenario::Pause => (format!("n{node} suspended"), format!("n{node} resumed")),
            Scenario::CutLink => (format!("n{node} cut off from the other nodes"), "link restored".into()),
            Scenario::CutOneWay => {
                (format!("traffic from n{node} to the other nodes blocked"), "link restored".into())
            }
            Scenario::CutPair => {
                (format!("link between n{node} and n{} cut", next(node, copies)), "link restored".into())
            }
            Scenario::CutHeartbeats => ("heartbeat network down".into(), "heartbeat network up".into()),
            Scenario::Reboot => (format!("n{node} asked to stop"), format!("n{node} restarted")),
            Scenario::ReplaceDisk => (
                format!("n{node} killed, its pool deleted"),
                format!("n{node} restarted; it gets a new pool and a new copy"),
            ),
            Scenario::BlackOut => ("all nodes killed".into(), "all nodes restarted".into()),
            Scenario::LoseQuorum => {
                ("nodes without a copy killed".into(), "nodes without a copy restarted".into())
            }
            Scenario::LoseWitness => ("witness killed".into(), "witness restarted".into()),
            Scenario::Rot => (
                format!("bits of the volume's data flipped on n{node}'s disk"),
                format!("more bits flipped on n{node}'s disk"),
            ),
            Scenario::Full => {
                ("a host fills the pools".into(), "the host unmaps half, and writes again".into())
            }
        };
        (done, undone)
    }
}

fn next(node: u16, copies: u8) -> u16 {
    node % u16::from(copies) + 1
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
