//! How a node leaves when it is to stop: the others continue, and it needs no resync when it is back.

use std::rc::Weak;
use std::time::Duration;

use super::Reconciler;
use crate::copies::SliceCopy;
use crate::copies::core::Copies;
use crate::copies::message;
use crate::shard::on_all_cores;

/// How long a stopping node waits for the last messages about writes, even if the others continue to write.
const SETTLE_MAX: Duration = Duration::from_millis(500);
/// How long it waits until its maps are on the disk. If they are not, a little more is resynced later.
const SETTLE_DEADLINE: Duration = Duration::from_secs(2);
/// How often it settles its slices and checks them, while writes through other nodes may dirty them again.
/// This happens only while a node stops.
const SETTLED_EVERY: Duration = Duration::from_millis(10);

/// How long a stopping node waits until the others have removed its copies from the members.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);

impl Reconciler {
    /// Notes what all copies have, so that it need not be resynced when nodes are back.
    ///
    /// No host writes through this node any more.
    async fn note_what_all_have(&self) {
        if self.volumes.borrow().is_empty() {
            return;
        }
        on_all_cores(|| async {
            let slices = Copies::current().slices();
            let until = rt::now() + SETTLE_MAX;
            let settled = async {
                loop {
                    slices.iter().for_each(SliceCopy::settle);
                    let settled = slices.iter().all(|slice| slice.dirty_regions() == 0) || rt::now() >= until;
                    if settled && slices.iter().all(|slice| slice.map_is_clean()) {
                        return;
                    }
                    rt::sleep(SETTLED_EVERY).await;
                }
            };
            let _ = rt::timeout(SETTLE_DEADLINE, settled).await;
        })
        .await;
    }

    /// Withdraws this node from everything: it sends nothing, grants no leases, and does not vote.
    pub async fn withdraw(&self) {
        self.stopping.set(true);
        self.work.notify();
        // What waits for the record looks whether the node is about to stop.
        self.applied.notify();
        self.links.stop().await;
    }

    /// Ends this node's part in the cluster while the process continues: links, tasks, and the engine of the
    /// record.
    ///
    /// What still holds this reconciler afterwards finds that the record has stopped. It must be gone before
    /// cores get copies of another cluster: the reconciler's questions to other cores would reach those.
    pub async fn end(&self) {
        // In one step: nobody is promised anything any more by a record that the node has left.
        self.stopping.set(true);
        self.copies.set_reconciler(Weak::new());
        drop(self.tasks.take());
        drop(self.engine.take());
        self.withdraw().await;
    }

    /// Asks the others to continue without this node, which is about to stop, and waits a moment until they
    /// do.
    pub async fn leave(&self) {
        self.note_what_all_have().await;
        for link in self.control_links() {
            link.send(message::frame(message::LEAVING, 0, Vec::new()));
        }
        let alone = || {
            self.volumes.borrow().values().all(|kept| {
                kept.membership.newest().is_none_or(|config| {
                    !self.is_member(kept, config) || config.members().without(kept.slot).is_empty()
                })
            })
        };
        self.until(LEAVE_DEADLINE, alone).await;
        // Another node may have announced meanwhile that it leaves, too.
        self.note_what_all_have().await;
        self.stopping.set(true);
        self.work.notify();
        self.links.stop().await;
        self.copies.set_reconciler(Weak::new());
    }
}
