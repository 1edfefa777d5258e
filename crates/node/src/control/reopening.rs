//! Reopening a pool while the node runs.
//!
//! After a failed write or flush a disk is out of service until it has been opened and recovered again.
//! Initiators stay logged in. Meanwhile the LUNs of the pool's volumes are busy. Afterwards a unit attention
//! (POWER ON OCCURRED) tells each initiator that what it wrote and did not flush may be lost, as after a
//! power cut. Reservations stay as they were: all of a volume's state is kept, even what a power cut would
//! end.

use std::collections::BTreeSet;
use std::rc::Rc;

use proto::scsi::LuState;
use store::{CopyOf, CopyState, MetadataState, Pool, VolumeInfo};

use super::change::{Changing, WaitsFor};
use super::doing::Doing;
use super::pools::{PoolRecord, key};
use super::turns::Thing;
use super::volumes::is_current;
use super::{Control, ControlError, KnownPool, Opened, PoolStatus, Result};
use crate::data::VolumeId;
use crate::shard::{Shard, on_all_cores};

/// A volume whose pool is being reopened.
pub(super) struct SetAside {
    /// The pool's name.
    pool: String,
    /// The state of its unit; `None` if it was not served.
    state: Option<LuState>,
}

impl Control {
    /// Closes a pool that does not work and opens it again, or opens one that could not be opened before.
    ///
    /// If that fails, the pool is unavailable and its LUNs stay busy; the caller can try again.
    ///
    /// # Errors
    /// [`ControlError::PoolWorks`]; [`ControlError::PoolClosed`] if it could not be opened.
    pub async fn reopen_pool(self: &Rc<Control>, name: &str) -> Result<PoolStatus> {
        let name = name.to_owned();
        let work = Doing::ReopenPool.of(&name);
        self.change(work, [Thing::Pool(name.clone())], |control, changing| async move {
            let open = control.pool_that_fails(&name)?;
            let record: Option<PoolRecord> = control.record.borrow().get(&key(&name));
            let record = record.ok_or_else(|| ControlError::not_found("pool", &name))?;
            if let Some(pool) = open {
                control.check_nothing_forgotten(&pool)?;
                control.set_pool_aside(&changing, pool).await?;
            }
            control.know_pool(&name, &record.paths, Opened::NotYet(rt::now()));
            control.open_awaited(&changing, record).await?;
            control.pool_named(&name)?;
            control.pool(&name)
        })
        .await
    }

    /// Checks whether a pool could be reopened; returns the names of its volumes if it is open and so must be
    /// closed first.
    ///
    /// # Errors
    /// As [`Control::reopen_pool`], except those that only its disks can report.
    pub fn check_reopening(&self, name: &str) -> Result<Option<Vec<String>>> {
        let open = self.pool_that_fails(name)?;
        if let Some(pool) = &open {
            self.check_nothing_forgotten(pool)?;
        }
        Ok(open.map(|pool| self.current_volumes(&pool).into_iter().map(|volume| volume.name).collect()))
    }

    /// Checks that a pool must be reopened; returns it if it is open and so must be closed first.
    fn pool_that_fails(&self, name: &str) -> Result<Option<Pool>> {
        if self.is_awaited(name) {
            return self.pool_named(name).map(Some);
        }
        let pools = self.pools.borrow();
        let known = pools.get(name).ok_or_else(|| ControlError::not_found("pool", name))?;
        let fails = |pool: &Pool| {
            let reconciler = self.reconciler().ok();
            let has_failed = |id| reconciler.as_ref().is_some_and(|reconciler| reconciler.has_failed(id));
            pool.metadata_state() == MetadataState::Failed
                // A full file system fails a copy but not the disk.
                || pool.volumes().iter().any(|info| has_failed(info.id) || self.has_unopened_slice(info.id))
                || pool.usage().disks.iter().any(|disk| disk.failure.is_some())
        };
        match known.open() {
            Some(pool) if !fails(pool) => Err(ControlError::PoolWorks(name.to_owned())),
            open => Ok(open.cloned()),
        }
    }

    /// Checks that closing the pool does not destroy the last copy in sync of a RAM volume.
    fn check_nothing_forgotten(&self, pool: &Pool) -> Result<()> {
        let Ok(reconciler) = self.reconciler() else { return Ok(()) };
        let forgotten =
            |info: &VolumeInfo| !info.kind.is_durable() && !info.is_sole() && reconciler.is_last(info.id);
        match self.current_volumes(pool).into_iter().find(forgotten) {
            Some(info) => Err(ControlError::OnlyInMemory { pool: pool.name(), volume: info.name }),
            None => Ok(()),
        }
    }

    /// Closes a pool whose volumes will be back soon.
    async fn set_pool_aside(&self, changing: &Rc<Changing>, pool: Pool) -> Result<()> {
        let expected: BTreeSet<VolumeId> =
            self.current_volumes(&pool).iter().map(|volume| volume.id).collect();
        {
            // From here on nothing fails: the volumes of a pool that stays open are not busy.
            let _record = changing.hold([Thing::Record]).await?;
            // Otherwise the end of an opening under way would end this wait.
            self.set_closing(&pool, true);
            on_all_cores(move || async move { Shard::current().expect_back(&expected) }).await;
            self.announce_volumes().await;
        }
        self.set_volumes_aside(changing, &pool).await;
        self.close_pool(changing, &pool).await;
        Ok(())
    }

    /// Closes a pool's volumes on all cores, and keeps the state of their units until they are opened again.
    pub(super) async fn set_volumes_aside(&self, changing: &Changing, pool: &Pool) {
        // Before the openings under way are waited for, so that no other one begins.
        self.set_closing(pool, true);
        self.set_these_aside(changing, pool, self.current_volumes(pool)).await;
    }

    /// As [`Control::set_volumes_aside`], for some volumes of a pool that stays open.
    pub(super) async fn set_these_aside(&self, changing: &Changing, pool: &Pool, all: Vec<VolumeInfo>) {
        if let Ok(reconciler) = self.reconciler() {
            let memory = |info: &&VolumeInfo| !info.kind.is_durable();
            let ids = all.iter().map(|info| info.id).collect();
            // Some of its copies may be being opened.
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            reconciler.set_aside(&ids, &all.iter().filter(memory).map(|info| info.id).collect()).await;
        }
        for volume in all {
            let state = self.close_volume(changing, pool, volume.id).await;
            let mut all = self.set_aside.borrow_mut();
            // A volume that was set aside and is not open again yet has no unit: the former state counts.
            let former = all.remove(&volume.id).and_then(|former| former.state);
            all.insert(volume.id, SetAside { pool: pool.name(), state: state.or(former) });
        }
    }

    /// Has those volumes of a pool that the node no longer has served that another pool holds, too, with data
    /// that may be current. No host sees them now, but the state of their units stays: it may fence hosts
    /// off.
    pub(super) async fn serve_elsewhere(&self, pool: &Pool) {
        let Ok(reconciler) = self.reconciler() else { return };
        let is_sound = |info: &VolumeInfo| {
            let is_trusted = |copy: CopyOf| matches!(copy.state, CopyState::Trusted { .. });
            info.is_sole() || info.copy.is_some_and(is_trusted)
        };
        let holds = |(other, info): &(Pool, VolumeInfo)| {
            is_current(&reconciler, info) && is_sound(info) && !self.is_closing(other)
        };
        let mut volumes: BTreeSet<VolumeId> =
            self.current_volumes(pool).iter().map(|volume| volume.id).collect();
        volumes.retain(|id| self.copies_of(*id).iter().any(holds));
        reconciler.bring_back(&volumes).await;
    }

    /// Notes that a pool is about to be closed, or that it stays open after all.
    pub(super) fn set_closing(&self, pool: &Pool, closing: bool) {
        let mut pools = self.pools.borrow_mut();
        let is_it = |known: &&mut KnownPool| known.open().is_some_and(|open| open.id() == pool.id());
        if let Some(known) = pools.values_mut().find(is_it) {
            known.closing = closing;
        }
    }

    /// Whether an open pool is about to be closed.
    pub(super) fn is_closing(&self, pool: &Pool) -> bool {
        let is_it = |known: &KnownPool| known.open().is_some_and(|open| open.id() == pool.id());
        self.pools.borrow().values().any(|known| known.closing && is_it(known))
    }

    /// Whether the volume is to be opened again.
    pub(super) fn is_set_aside(&self, id: VolumeId) -> bool {
        self.set_aside.borrow().contains_key(&id)
    }

    /// The state of the unit of a volume that was set aside.
    pub(super) fn state_set_aside(&self, id: VolumeId) -> Option<LuState> {
        self.set_aside.borrow().get(&id)?.state.clone()
    }

    /// Drops the states that were kept for a pool's volumes. The pool may have been elsewhere since, so what
    /// is on its disks counts.
    pub(super) fn drop_states_set_aside(&self, pool: &Pool) {
        let mut set_aside = self.set_aside.borrow_mut();
        for volume in pool.volumes() {
            if let Some(volume) = set_aside.get_mut(&volume.id) {
                volume.state = None;
            }
        }
    }

    /// Ends the wait for these volumes: they are back, or will not come back.
    pub(super) async fn stop_expecting(&self, volumes: BTreeSet<VolumeId>) {
        self.set_aside.borrow_mut().retain(|id, _| !volumes.contains(id));
        self.tell_back(volumes).await;
    }

    /// Ends the wait of hosts for a volume whose opening has ended: it is served, or its pool is open and it
    /// could not be opened there. Then its LUN is missing instead of busy, so that hosts use other paths.
    ///
    /// What is set aside of it stays for a later attempt.
    pub(crate) async fn end_wait(&self, id: VolumeId) {
        // Not if its pool is about to be closed, or is not open: then it is yet to be opened there.
        let is_there = self.reconciler().is_ok_and(|reconciler| {
            let found = self.copies_of(id);
            found.iter().any(|(pool, info)| is_current(&reconciler, info) && !self.is_closing(pool))
        });
        if is_there && Shard::current().is_expected(id) {
            self.tell_back(BTreeSet::from([id])).await;
            self.announce_volumes().await;
        }
    }

    /// Tells all cores that these volumes are back, or will not come back soon.
    async fn tell_back(&self, volumes: BTreeSet<VolumeId>) {
        on_all_cores(move || async move { Shard::current().stop_expecting(&volumes) }).await;
    }

    /// The volumes of this pool that were set aside.
    pub(super) fn set_aside_of(&self, pool: &str) -> BTreeSet<VolumeId> {
        let set_aside = self.set_aside.borrow();
        set_aside.iter().filter(|(_, volume)| volume.pool == pool).map(|(id, _)| *id).collect()
    }
}
