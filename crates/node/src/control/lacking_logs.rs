//! Logs that lack records which were acknowledged, because a disk does not read them: they were not opened.
//!
//! As soon as the volumes in such a log can do without the copies here, these are marked as set back, and
//! opened again: the log opens without the records then, and the copies are resynced in full. Why this loses
//! nothing: `docs/why/replication.md`, *A log that lacks a record*.

use std::collections::BTreeSet;
use std::rc::Rc;

use store::{CopyOf, CopyState, Pool, PoolId, VolumeInfo};

use super::doing::Doing;
use super::snapshots::check_snapshots_stay;
use super::turns::Thing;
use super::{Control, ControlError, Result};
use crate::data::VolumeId;
use crate::events::code::LOG_DAMAGED;
use crate::events::{Event, tell};
use crate::member::Reconciler;
use crate::shard::{Shard, on_all_cores};

impl Control {
    /// Notes which sole copies are not served because a log lacks records: they are open all the same, and
    /// their commands fail.
    pub(super) fn note_lacking_logs(&self) {
        for pool in self.open_pools() {
            let lacking = pool.volumes_lacking_records().into_iter().flatten();
            let sole = lacking.filter_map(|id| pool.volume(id)).filter(VolumeInfo::is_sole);
            for info in sole.filter(|info| !self.has_unopened_slice(info.id)) {
                let error = ControlError::LogDamaged { volume: info.name, pool: pool.name() };
                self.unserved.borrow_mut().insert(info.id, error.into());
            }
        }
    }

    /// Pools with logs that lack records which no volume needs, each with one of the volumes.
    pub(super) fn pools_with_lacking_logs(&self, reconciler: &Reconciler) -> Vec<(PoolId, VolumeId)> {
        let pools = self.open_pools().into_iter().filter(|pool| !self.is_closing(pool));
        let found = pools.filter_map(|pool| Some((pool.id(), *lacking(reconciler, &pool).first()?)));
        found.collect()
    }

    /// Resyncs the copies in a pool's logs that lack records, where the volumes can do without these copies.
    pub(super) async fn resync_lacking_logs(
        self: &Rc<Control>,
        reconciler: &Rc<Reconciler>,
        id: PoolId,
    ) -> Result<()> {
        let found = self.pool_with(id).map(|pool| (pool.name(), lacking(reconciler, &pool)));
        let Some((name, volumes)) = found.filter(|(_, volumes)| !volumes.is_empty()) else { return Ok(()) };
        let mut holds = vec![Thing::VolumesOf(name.clone())];
        holds.extend(volumes.iter().copied().map(Thing::Volume));
        let reconciler = Rc::clone(reconciler);
        self.change(Doing::ResyncCopies.of(&name), holds, move |control, changing| async move {
            let pool = control.pool_with(id).filter(|pool| !control.is_closing(pool));
            // Otherwise something has changed meanwhile.
            let Some(pool) = pool.filter(|pool| lacking(&reconciler, pool) == volumes) else { return Ok(()) };
            let all: Vec<VolumeInfo> = volumes.iter().filter_map(|id| pool.volume(*id)).collect();
            let mut marked = Vec::new();
            for info in &all {
                if let Some(CopyOf { slot, state: CopyState::Trusted { epoch }, .. }) = info.copy {
                    control.lacking.borrow_mut().insert(info.id);
                    pool.set_copy(info.id, slot, CopyState::SetBack { epoch }).await?;
                    marked.push(info.name.clone());
                }
            }
            // After a restart in between, it has been told.
            if !marked.is_empty() {
                tell_damaged(&reconciler, &pool, &marked.join(", "));
            }
            {
                let _record = changing.hold([Thing::Record]).await?;
                let expected = volumes.clone();
                on_all_cores(move || async move { Shard::current().expect_back(&expected) }).await;
                control.announce_volumes().await;
            }
            control.set_these_aside(&changing, &pool, all).await;
            reconciler.bring_back(&volumes).await;
            Ok(())
        })
        .await
    }
}

/// The volumes in those of the pool's logs that lack records which no volume needs.
///
/// The log has no snapshots when it opens without these records. So another copy must have each of them, too.
fn lacking(reconciler: &Reconciler, pool: &Pool) -> BTreeSet<VolumeId> {
    let can_lose_snapshots = |id: &VolumeId| {
        let entry = reconciler.volume(*id).map(|volume| volume.entry);
        entry.is_some_and(|entry| check_snapshots_stay(reconciler, &entry, reconciler.me().0).is_ok())
    };
    let may_resync = |id: &VolumeId| {
        let copy = pool.volume(*id).and_then(|info| info.copy);
        let has_map =
            |copy: CopyOf| matches!(copy.state, CopyState::Trusted { .. }) || copy.state.is_untrusted();
        copy.is_some_and(has_map)
            && reconciler.is_partly_open(*id)
            && reconciler.is_dispensable(*id)
            && can_lose_snapshots(id)
    };
    let logs = pool.volumes_lacking_records().into_iter();
    logs.filter(|volumes| volumes.iter().all(may_resync)).flatten().collect()
}

fn tell_damaged(reconciler: &Reconciler, pool: &Pool, volumes: &str) {
    let (name, node) = (pool.name(), reconciler.me().0);
    let text = format!(
        "a log of pool {name} lacks acknowledged writes, because a disk could not read a part of it: the copies of {volumes} on this node are fully resynced from other nodes; snapshots in the log are lost on this node"
    );
    tracing::error!("{text}");
    tell(Event::new(LOG_DAMAGED, name, text).because("medium_error").of_node(node));
}
