//! What is done to a cluster, and how it is undone.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;

use super::DrillError;
use super::fleet::{Fleet, Replaced, Said};
use super::patience::Patience;

/// What is done to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// One node's process is killed (kill -9), and started again
    CrashNode,
    /// One node's process stands still (SIGSTOP), and goes on (SIGCONT)
    Pause,
    /// One node is stopped in order (SIGTERM), and started again
    Reboot,
    /// One node is cut off from the other nodes, and hosts still reach it
    CutLink,
    /// What one node says reaches no other node, and hosts still reach it
    CutOneWay,
    /// One node's process is killed, its disks are lost, and it is given new ones
    ReplaceDisk,
    /// All nodes are killed at once, and started again
    BlackOut,
}

impl Scenario {
    /// Whether it is the end of all nodes at once.
    pub fn is_of_all(self) -> bool {
        self == Scenario::BlackOut
    }

    /// Whether the copy has to be made anew afterwards.
    pub fn takes_the_copy(self) -> bool {
        self == Scenario::ReplaceDisk
    }

    /// Does it to the node, or to all.
    ///
    /// # Errors
    /// [`DrillError`].
    pub fn strike(self, fleet: &mut Fleet, node: u16) -> Result<(), DrillError> {
        match self {
            Scenario::CrashNode => fleet.node(node).kill(),
            Scenario::ReplaceDisk => return fleet.node(node).lose_disks(),
            Scenario::Pause => fleet.node(node).pause(),
            Scenario::Reboot => fleet.node(node).tell_to_stop(),
            Scenario::CutLink => fleet.cut(node, &[Said::ByIt, Said::ToIt], true),
            Scenario::CutOneWay => fleet.cut(node, &[Said::ByIt], true),
            Scenario::BlackOut => fleet.kill_all(),
        }
        Ok(())
    }

    /// Undoes it. Says when the node's copy was made anew, if it was.
    ///
    /// # Errors
    /// [`DrillError`].
    pub fn undo(
        self,
        fleet: &mut Fleet,
        node: u16,
        patience: &Patience,
    ) -> Result<Option<Replaced>, DrillError> {
        match self {
            Scenario::CrashNode => fleet.node(node).start()?,
            Scenario::Reboot => {
                fleet.node(node).wait_until_it_is_gone(patience)?;
                fleet.node(node).start()?;
            }
            Scenario::CutLink | Scenario::CutOneWay => {
                fleet.cut(node, &[Said::ByIt, Said::ToIt], false);
            }
            Scenario::Pause => fleet.node(node).go_on(),
            Scenario::ReplaceDisk => return fleet.replace_disks(node, patience).map(Some),
            Scenario::BlackOut => fleet.start_all()?,
        }
        Ok(None)
    }

    /// What was done, and how it was undone.
    pub fn told(self, node: u16) -> (String, String) {
        let (done, undone) = match self {
            Scenario::CrashNode => (format!("n{node} is killed"), format!("n{node} is started again")),
            Scenario::Pause => (format!("n{node} stands still"), format!("n{node} goes on")),
            Scenario::CutLink => {
                (format!("n{node} is cut off from the other nodes"), "the cut is mended".into())
            }
            Scenario::CutOneWay => {
                (format!("what n{node} says reaches no other node"), "the cut is mended".into())
            }
            Scenario::Reboot => (format!("n{node} is told to stop"), format!("n{node} is started again")),
            Scenario::ReplaceDisk => (
                format!("n{node} is killed, and its pool is deleted"),
                format!("n{node} is started again, and gets a new pool and a new copy"),
            ),
            Scenario::BlackOut => ("all nodes are killed".into(), "all nodes are started again".into()),
        };
        (done, undone)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
