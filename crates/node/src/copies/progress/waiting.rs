//! What a sync waits for, in words: those of [`Progress`] on the node that gives, and why a copy is not let in.

use std::fmt;
use std::time::Duration;

use base::Instant;
use replica::{NodeId, Slot, SyncFrom, SyncNext};

use super::super::budget::Restraint;
use super::super::entry::VolumeEntry;
use super::{Progress, STILL_MIN};

impl Progress {
    /// What it waits for if nothing has happened for [`STILL_MIN`]; to be read after "waits for".
    pub(super) fn waits_for(&self, now: Instant, who: Who<'_>) -> Option<String> {
        let (me, copy) = (who.me, who.node_of(who.copy));
        if self.has_failed() {
            return Some(KeptOut::Failed(me).to_string());
        }
        if self.has_no_room() {
            return Some(KeptOut::NoRoom(me).to_string());
        }
        if let Some(SyncFrom { source, silent_ticks, .. }) = self.seen.own {
            let silent = replica::TICK * silent_ticks;
            return (silent >= STILL_MIN).then(|| match source {
                Some(source) => {
                    format!(
                        "{}, its source, which does not answer since {}",
                        who.node_of(source),
                        seconds(silent)
                    )
                }
                None => "a link to a node whose copy is in sync".into(),
            });
        }
        let still = now.since(self.moved_at);
        let (slice, next) = self.seen.next?;
        if still < STILL_MIN {
            return None;
        }
        let what = match next {
            SyncNext::Read(region) => {
                format!("the disks of {me}, its source, to read region {region} of slice {slice}")
            }
            SyncNext::Confirmed(region) => {
                format!("{copy} to have region {region} of slice {slice} on its disks")
            }
            SyncNext::WritesEnd(region) => {
                format!("hosts' writes to region {region} of slice {slice} to end")
            }
            SyncNext::Budget => self.budget_of(me),
            SyncNext::Pass => "the next pass to begin".into(),
            SyncNext::Admission => {
                who.kept_out.map_or("the cluster's record to let it join".into(), KeptOut::to_string)
            }
            SyncNext::Promotion => "the cluster's record to say that it is in sync".into(),
        };
        Some(format!("{what}, since {}", seconds(still)))
    }

    fn budget_of(&self, me: NodeId) -> String {
        match self.seen.held_back_by {
            Some(Restraint::Turn) => {
                format!("its turn: {me}, its source, brings other volumes up to date first")
            }
            Some(Restraint::Paused) => "somebody to resume it".into(),
            Some(Restraint::NodeLimit) => format!("{me}, its source, to be allowed to give more"),
            Some(Restraint::ClusterLimit) => {
                format!("{me}, its source, to have its share of the cluster's sync limit")
            }
            Some(Restraint::Hosts) | None => {
                format!("{me}, its source, to have time for it beside hosts' writes")
            }
        }
    }
}

/// Who is who in a sync.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The volume.
    pub volume: &'a VolumeEntry,
    /// This node.
    pub me: NodeId,
    /// The copy that is not in sync.
    pub copy: Slot,
    /// What keeps it from being let in when it has nearly all.
    pub kept_out: Option<&'a KeptOut>,
}

/// Why a copy that has nearly all that it missed is not let in as a joiner; its text is to be read after "waits for".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptOut {
    /// Its node and that of a copy in sync do not reach each other.
    Apart(NodeId, NodeId),
    /// Its node was started a moment ago, and takes part in nothing for so much longer.
    Quiet(NodeId, Duration),
    /// It did not finish writes when it was in sync last, and is given so much more time.
    Penalty(Duration),
    /// A disk of it failed, and its node has not said since that it is open again.
    Failed(NodeId),
    /// The file system under its pool is full, and its node has not said since that there is room.
    NoRoom(NodeId),
}

impl fmt::Display for KeptOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeptOut::Apart(a, b) => write!(f, "{a} and {b} to reach each other over all their links"),
            KeptOut::Quiet(node, left) => write!(
                f,
                "{} ms to pass, as what {node} promised before it was started a moment ago may still stand",
                left.as_millis()
            ),
            KeptOut::Penalty(left) => {
                let left = left.as_secs() + 1;
                write!(f, "{left} s to pass, as it did not finish writes when it was in sync last")
            }
            KeptOut::Failed(node) => {
                write!(
                    f,
                    "its pool on {node} to be reopened there (ursa pool reopen), as a disk of it failed"
                )
            }
            KeptOut::NoRoom(node) => {
                write!(
                    f,
                    "free space in the file system of its pool on {node}: the resync then resumes by itself"
                )
            }
        }
    }
}

impl Who<'_> {
    fn node_of(&self, slot: Slot) -> NodeId {
        NodeId(self.volume.copy_in(slot).map_or(0, |copy| copy.node))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}
