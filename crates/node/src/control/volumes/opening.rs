//! Volumes on all cores: opened and closed with their pools.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use base::{BlockCount, BlockSize};
use proto::scsi::limits::AtomicWrites;
use proto::scsi::{AccessState, LuConfig, LuState};
use store::{CoreDisks, Pool, PoolId, SliceError, SliceSpec, Stripe, VolumeInfo, WhenFull};

use super::super::change::{Changing, WaitsFor};
use super::super::copies::Worth;
use super::super::filling::THRESHOLDS;
use super::super::read_errors::with_control;
use super::super::{Control, ControlError, CopyOpening, Result};
use crate::attach::unit::{Paths, Unit, identity};
use crate::data::{Slice, Volume, VolumeId};
use crate::shard::{Shard, on_all_cores};

/// What cores need to open their parts of a volume.
pub(in crate::control) struct Opening {
    pool: PoolId,
    id: VolumeId,
    block_size: BlockSize,
    blocks: BlockCount,
    stripe: Stripe,
    when_full: WhenFull,
    /// By core.
    specs: Vec<Vec<SliceSpec>>,
    config: LuConfig,
    paths: Paths,
    state: LuState,
    /// Other nodes have copies, or may have had some.
    replicated: bool,
    /// Which copy this is and what its content is worth, if the cluster's record says so.
    copy: Option<(CopyOpening, Worth)>,
}

impl Opening {
    /// How to open a slice of the volume, if the volume is a copy.
    fn of_slice(&self, slice: u16) -> Option<crate::copies::Opening> {
        let (copy, worth) = self.copy.as_ref()?;
        Some(copy.of_slice(slice, self.block_size, self.stripe, *worth))
    }
}

impl Control {
    /// Opens all volumes of a pool on all cores. One that cannot be opened does not affect the others.
    pub(in crate::control) async fn open_volumes(&self, pool: &Pool) {
        // An export may have failed.
        self.set_closing(pool, false);
        let (mut openings, mut layouts) = (Vec::new(), Vec::new());
        // One of several copies is opened only when the cluster's record says what it is.
        for info in pool.volumes().into_iter().filter(|info| !self.is_served_by_record(info)) {
            layouts.push(self.hold_layout(info.id).await);
            match self.opening(pool, &info, None) {
                Ok(opening) => openings.push(opening),
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::error!(volume = info.name, error = cause, "a volume is not served");
                    self.unserved.borrow_mut().insert(info.id, error.into());
                }
            }
        }
        let served: BTreeSet<VolumeId> = openings.iter().map(|opening| opening.id).collect();
        open_on_all_cores(openings).await;
        drop(layouts);
        let mut volumes: BTreeSet<VolumeId> = pool.volumes().iter().map(|volume| volume.id).collect();
        if let Ok(reconciler) = self.reconciler() {
            reconciler.bring_back(&volumes).await;
            // The reconciler ends the wait for the others. A sole copy is served while it waits for the
            // record.
            let is_to_come = |id: VolumeId| reconciler.is_aside(id) || reconciler.is_being_opened(id);
            volumes.retain(|id| served.contains(id) || !is_to_come(*id));
        }
        self.stop_expecting(volumes).await;
    }

    pub(in crate::control) async fn open_new_volume(&self, pool: &Pool, info: &VolumeInfo) -> Result<()> {
        let opening = self.opening(pool, info, None)?;
        open_on_all_cores(vec![opening]).await;
        Ok(())
    }

    pub(in crate::control) fn opening(
        &self,
        pool: &Pool,
        info: &VolumeInfo,
        copy: Option<(CopyOpening, Worth)>,
    ) -> Result<Opening> {
        let durable = pool.lu_state(info.id)?;
        // Without its reservations, the volume would let hosts write that were fenced off.
        let state = self
            .state_set_aside(info.id)
            .or_else(|| LuState::from_durable(&durable))
            .ok_or_else(|| ControlError::LuStateUnreadable(info.name.clone()))?;
        self.set_unsettled_state(info.id, state.to_durable() != durable);
        // The cluster's record decides when a volume with copies on other nodes is served.
        let paths = if info.is_sole() { Paths::only() } else { Paths::not_known() };
        let shard = Shard::current();
        Ok(Opening {
            pool: pool.id(),
            id: info.id,
            block_size: info.block_size,
            blocks: BlockCount(info.capacity.0 >> info.block_size.shift()),
            stripe: info.stripe,
            when_full: info.space.when_full,
            specs: self.specs_by_core(pool, info.id)?,
            config: paths.in_config(info.id, &self.access(), &shard, &lu_config(info)),
            paths,
            state,
            replicated: !info.is_sole(),
            copy,
        })
    }

    pub(super) fn specs_by_core(&self, pool: &Pool, id: VolumeId) -> Result<Vec<Vec<SliceSpec>>> {
        let cores = rt::cores();
        (0..cores).map(|core| Ok(pool.volume_slices(id, rt::CoreId(core as u16), cores)?)).collect()
    }

    /// Closes the volumes of a pool on all cores.
    pub(in crate::control) async fn close_volumes(&self, changing: &Changing, pool: &Pool) {
        for volume in self.current_volumes(pool) {
            self.close_volume(changing, pool, volume.id).await;
        }
    }

    /// Closes a volume on all cores once the commands at its disks have ended. Returns the final state of its
    /// unit.
    pub(in crate::control) async fn close_volume(
        &self,
        changing: &Changing,
        pool: &Pool,
        id: VolumeId,
    ) -> Option<LuState> {
        self.unserved.borrow_mut().remove(&id);
        changing.waits_for(WaitsFor::Commands(pool.paths()));
        let states = on_all_cores(move || async move { Shard::current().remove_unit(id).await }).await;
        states.into_iter().next().flatten()
    }
}

/// Opens volumes on all cores; returns whether all slices were opened. Sends one message per core, however
/// many volumes there are.
pub(in crate::control) async fn open_on_all_cores(openings: Vec<Opening>) -> bool {
    let openings: Arc<[Opening]> = openings.into();
    let whole = on_all_cores(move || async move {
        let mut whole = true;
        for opening in openings.iter() {
            whole &= open_here(opening).await;
        }
        whole
    });
    whole.await.into_iter().all(|whole| whole)
}

async fn open_here(opening: &Opening) -> bool {
    let shard = Shard::current();
    let Some(disks) = shard.disks(opening.pool) else { return false };
    if let Some(unit) = shard.unit(opening.id) {
        return become_copy_here(opening, &unit, &disks).await;
    }
    let mut whole = true;
    let specs = opening.specs[usize::from(rt::core().0)].iter().cloned();
    let mut slices = Vec::new();
    for layout in specs.map(|spec| spec.open(&disks)) {
        let number = layout.index();
        let Some(copy) = opening.of_slice(number) else {
            slices.push(Slice::new(layout));
            continue;
        };
        match Slice::open_copy(layout, copy).await {
            Ok(slice) => {
                add_copy_of(&shard, &slice);
                slices.push(slice);
            }
            // Its core answers for this slice as for a disk that is out of service.
            Err(error) => {
                whole = false;
                tell_unopened(opening, number, error);
            }
        }
    }
    let volume = Volume::new(opening.id, opening.block_size, opening.blocks, opening.stripe, slices);
    volume.set_when_full(opening.when_full);
    let (config, paths) = (opening.config.clone(), opening.paths.clone());
    let unit = Unit::new(Rc::new(volume), config, paths, opening.state.clone());
    unit.set_replicated(opening.replicated);
    // The node may have had another number when the state was stored, or when the opening began.
    unit.renumber();
    shard.add_unit(Rc::new(unit));
    whole
}

/// Turns a volume that is in use, and was not a copy so far, into a copy.
async fn become_copy_here(opening: &Opening, unit: &Unit, disks: &CoreDisks) -> bool {
    let shard = Shard::current();
    let mut whole = true;
    for spec in opening.specs[usize::from(rt::core().0)].iter().cloned() {
        let number = spec.index();
        let (Some(slice), Some(copy)) = (unit.volume().slice(number), opening.of_slice(number)) else {
            continue;
        };
        match slice.become_copy(spec, disks, copy).await {
            Ok(()) => add_copy_of(&shard, &slice),
            // The slice remains in this state, as with a disk that is out of service, until its pool is
            // reopened.
            Err(error) => {
                whole = false;
                tell_unopened(opening, number, error);
            }
        }
    }
    unit.set_replicated(opening.replicated);
    whole
}

fn add_copy_of(shard: &Shard, slice: &Slice) {
    if let (Some(copies), Some(copy)) = (shard.copies(), slice.copy()) {
        copies.add(Rc::clone(copy));
    }
}

/// Reports a slice of a copy that cannot be opened. The copy takes no part in replication.
fn tell_unopened(opening: &Opening, slice: u16, source: SliceError) {
    let (pool, id) = (opening.pool, opening.id);
    let error = &source as &dyn std::error::Error;
    tracing::error!(volume = %id, slice, error, "a slice cannot be opened");
    with_control(move |control| {
        let open = control.pool_with(pool);
        if let Some((pool, info)) = open.and_then(|pool| pool.volume(id).map(|info| (pool, info))) {
            let is_of_log = pool.volumes_lacking_records().into_iter().flatten().any(|lacking| lacking == id);
            let (volume, pool) = (info.name, pool.name());
            let error = match is_of_log {
                true => ControlError::LogDamaged { volume, pool },
                false => ControlError::SliceUnopened { volume, pool, source },
            };
            control.unserved.borrow_mut().insert(id, error.into());
        }
    });
}

/// What a volume reports over SCSI, without its paths.
fn lu_config(info: &VolumeInfo) -> LuConfig {
    LuConfig {
        identity: identity(info.id),
        block_size: info.block_size,
        physical_exponent: info.physical_exponent,
        blocks: BlockCount(info.capacity.0 >> info.block_size.shift()),
        unmap: true,
        solid_state: true,
        read_only: false,
        // A power cut may tear a write in place at any sector, so no atomicity is promised.
        atomic: AtomicWrites::default(),
        thresholds: info.kind.is_thin().then_some(THRESHOLDS),
        port_groups: Vec::new(),
        unlisted: AccessState::Unavailable,
    }
}
