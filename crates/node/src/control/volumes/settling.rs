//! Checksums of thick volumes: what they say of parts that nobody writes to counts after a crash, too.
//!
//! A slice opens a page of checksums before it writes to what the page covers, and a page that is open when
//! the node stops says nothing (`docs/why/checksums.md`). So pages are closed soon after the last write, and
//! when the node stops.

use std::rc::Rc;
use std::time::Duration;

use store::Pool;

use super::super::Control;
use crate::shard::{Shard, on_all_cores};

/// How often a node looks for pages to close.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// How long nothing was written to what such a page covers: a host that writes there from time to time should
/// not have to open it each time.
const IDLE: Duration = Duration::from_secs(20);

impl Control {
    /// Closes pages of checksums as long as the node runs.
    pub(in crate::control) async fn settle_by_schedule(self: Rc<Control>) {
        loop {
            rt::sleep_until(rt::now().beat_after(LOOK_EVERY)).await;
            self.settle_checksums(IDLE).await;
        }
    }

    /// Closes the pages of checksums that were not written to for this long.
    pub(crate) async fn settle_checksums(&self, idle: Duration) {
        if !self.open_pools().iter().any(Pool::has_checksums) {
            return;
        }
        on_all_cores(move || async move {
            let shard = Shard::current();
            // One at a time: whoever closes a volume waits for its unit.
            for id in shard.unit_ids() {
                if let Some(unit) = shard.unit(id) {
                    unit.volume().settle(idle).await;
                }
            }
        })
        .await;
    }
}
