//! Detects that another start of this node has already used its life number: the machine was set back to an
//! earlier state, or the node runs twice.
//!
//! The node counts its own lives, and the cluster's record knows the latest. A start whose life is not later
//! has lost its promises, its votes, and what its disks held. It takes no part in the cluster, and the next
//! start uses a number above the one that the record knows.

use std::rc::Rc;

use replica::Incarnation;

use super::cluster::CLUSTER;
use super::doing::Doing;
use super::turns::Thing;
use super::{Control, Fault, FaultKind, Result};
use crate::copies::NodeEntry;
use crate::events::code::NODE_SET_BACK;
use crate::events::{Event, tell};
use crate::member::Reconciler;
use crate::record::set;

/// The message about a node that has lost what it had confirmed.
const FORGOTTEN: &str = "this node was set back to an earlier state: it has lost changes of the cluster's record that it had confirmed, so it no longer votes and does not take part in the cluster; remove it from the cluster on another node (`ursa node remove`) and let it join again";

impl Control {
    /// Whether, by the record's entry of the node, this start may use its life number.
    pub(super) fn is_own_life(reconciler: &Reconciler, node: &NodeEntry) -> bool {
        let Incarnation(mine) = reconciler.incarnation();
        let is_mine = node.start == 0 || node.start == reconciler.start_number();
        node.incarnation < mine || node.incarnation == mine && is_mine
    }

    /// Ends this life, which another start has already used, or a later one. The next life comes after
    /// `used`.
    pub(super) async fn give_life_up(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        used: u64,
    ) -> Result<()> {
        if self.used_life.replace(Some(used)).is_some() {
            return Ok(());
        }
        reconciler.withdraw().await;
        let text = format!(
            "this node was set back to an earlier state, or runs twice: this is its start {}, and the cluster has already seen start {used}; it does not take part in the cluster until it is restarted",
            reconciler.incarnation().0
        );
        tracing::error!("{text}");
        let me = reconciler.me().0;
        tell(Event::about_node(NODE_SET_BACK, (self.name(), me), text).because("set-back"));
        self.change(Doing::EndLife.of(&self.host.name), [Thing::Record], |control, changing| async move {
            let place = control.own_place()?;
            let incarnation = place.incarnation.max(used);
            control.commit(&changing, vec![set(CLUSTER.into(), &super::Place { incarnation, ..place })]).await
        })
        .await
    }

    /// Handles that this node's part of the cluster's record was set back: the node no longer votes, and its
    /// knowledge of the record is useless.
    pub(super) async fn note_forgotten_record(&self, reconciler: &Reconciler) {
        if self.forgotten_record.replace(true) {
            return;
        }
        reconciler.withdraw().await;
        tracing::error!("{FORGOTTEN}");
        let me = reconciler.me().0;
        tell(Event::about_node(NODE_SET_BACK, (self.name(), me), FORGOTTEN).because("record-set-back"));
    }

    /// The fault of a node that must be restarted, because its life was already used, or must join again,
    /// because it has lost what it had confirmed.
    pub(super) fn life_used(&self) -> Option<Fault> {
        if self.forgotten_record.get() {
            return Some(FaultKind::RecordSetBack.into());
        }
        self.used_life.get().map(|seen_start| FaultKind::NodeSetBack { seen_start }.into())
    }
}
