//! The end of a node that is told to stop: others go on without it, and need copy nothing when it is back.

use std::rc::Weak;
use std::time::Duration;

use super::super::SliceCopy;
use super::super::core::Copies;
use super::super::message;
use super::Keeper;
use crate::shard::on_all_cores;

/// For how long a node that stops waits for the last words about writes to arrive, be it that others go on
/// writing.
const SETTLE_MAX: Duration = Duration::from_millis(500);
/// How long it waits for its maps to be on the disk: without that a little more is copied when it is back.
const SETTLE_DEADLINE: Duration = Duration::from_secs(2);
const SETTLED_EVERY: Duration = Duration::from_millis(10);

/// How long a node that stops waits for the others to take its copies out.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);

impl Keeper {
    /// Nobody writes through this node any more: what all copies have is noted as such, so that it need not
    /// be copied when nodes are back.
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

    /// This node takes no part in anything any more: it says nothing, gives no leases, and votes on nothing.
    pub async fn withdraw(&self) {
        self.stopping.set(true);
        self.work.notify();
        self.links.stop().await;
    }

    /// The node is about to stop: asks the others to go on without it, and waits a moment until they do.
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
        // Another one may have said meanwhile that it leaves, too.
        self.note_what_all_have().await;
        self.stopping.set(true);
        self.work.notify();
        self.links.stop().await;
        self.copies.set_keeper(Weak::new());
    }
}
