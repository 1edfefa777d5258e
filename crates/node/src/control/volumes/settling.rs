//! Checksums of thick volumes: what they say of parts that nobody writes to counts after a crash, too.
//!
//! A slice opens a page of checksums before it writes to what the page covers, and a page that is open when
//! the node stops says nothing (`docs/why/checksums.md`). So pages are closed soon after the last write, when
//! the node stops, and before a pool is exported.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use store::Pool;

use super::super::Control;
use crate::attach::unit::Unit;
use crate::data::VolumeId;
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
            // On its own: a disk that hangs holds up only its own volumes.
            let control = Rc::clone(&self);
            rt::spawn(async move { control.settle_checksums(IDLE).await }).detach();
        }
    }

    /// Closes the pages of checksums that were not written to for this long.
    pub(crate) async fn settle_checksums(&self, idle: Duration) {
        let volumes = self.open_pools().iter().flat_map(Pool::volumes_with_checksums).collect();
        settle(volumes, idle).await;
    }

    /// Closes all pages of checksums of a pool's volumes.
    pub(in crate::control) async fn settle_pool(&self, pool: &Pool) {
        settle(pool.volumes_with_checksums(), Duration::ZERO).await;
    }
}

async fn settle(volumes: Vec<VolumeId>, idle: Duration) {
    if volumes.is_empty() {
        return;
    }
    let volumes: Arc<[VolumeId]> = volumes.into();
    on_all_cores(move || async move {
        let shard = Shard::current();
        let units = volumes.iter().filter_map(|id| shard.unit(*id));
        // Together: they share the flushes of their disks, and none waits for the disk of another one.
        let settle = |unit: Rc<Unit>| async move { unit.volume().settle(idle).await };
        rt::join_all(units.map(settle)).await;
    })
    .await;
}
