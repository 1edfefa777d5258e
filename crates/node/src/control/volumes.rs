//! Volumes: make, grow, rename, delete, show; and their opening on all cores.

use base::{BlockCount, BlockSize, ByteLen};
use proto::scsi::limits::AtomicWrites;
use proto::scsi::{AccessState, LuConfig, LuState};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use store::{Pool, PoolId, SliceSpec, Stripe, VolumeInfo, VolumeKind, VolumeSpec};

use super::access::MapSpec;
use super::change::{Changing, WaitsFor, Work};
use super::copies::Worth;
use super::turns::Thing;
use super::{Control, ControlError, CopyOpening, Placement};
use crate::access::VolumeName;
use crate::copies::{CopiesStatus, Keeper, VolumeEntry, volume_name_key};
use crate::parts;
use crate::shard::{Shard, on_all_cores};
use crate::unit::{Paths, Unit, identity};
use crate::volume::{Slice, Volume, VolumeId};

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name, unique in the node.
    pub name: String,
    /// The pool; `None`: the only one, or the default one.
    pub pool: Option<String>,
    /// Where its blocks are.
    pub kind: VolumeKind,
    /// The size, rounded up to whole blocks.
    pub size: ByteLen,
    /// The logical block.
    pub block_size: BlockSize,
    /// Say that the physical block is the logical one; otherwise a 512-byte volume is 512e.
    pub native_512: bool,
    /// Over how many slices it is striped; `None`: one a core.
    pub slices: Option<u16>,
    /// When it is made, in seconds since 1970.
    pub created: u64,
    /// Where to map it at once; a target that is not there is made.
    pub map: Option<MapSpec>,
    /// Copies on several nodes; `None`: on this one alone, and nobody else knows of it.
    pub copies: Option<Placement>,
}

impl NewVolume {
    /// Over how many slices it is striped if it has copies: the same on all nodes, whatever their cores.
    pub fn slices_on_nodes(&self) -> u16 {
        self.slices.unwrap_or_else(|| rt::cores().next_power_of_two().min(64) as u16)
    }
}

/// A volume as administrators see it.
#[derive(Clone, Debug)]
pub struct VolumeStatus {
    /// What it is.
    pub info: VolumeInfo,
    /// Its pool.
    pub pool: String,
    /// Where it is mapped: target, LUN, host group.
    pub maps: Vec<(String, u16, String)>,
    /// Why it is not served, if it is not.
    pub problem: Option<String>,
    /// Its copies, if it has several.
    pub copies: Option<CopiesStatus>,
}

/// What cores need to open their parts of a volume.
pub(super) struct Opening {
    pool: PoolId,
    id: VolumeId,
    block_size: BlockSize,
    blocks: BlockCount,
    stripe: Stripe,
    /// By core.
    specs: Vec<Vec<SliceSpec>>,
    config: LuConfig,
    paths: Paths,
    state: LuState,
    /// If it is a copy: which, and what its content is worth.
    copy: Option<(CopyOpening, Worth)>,
}

impl Control {
    /// All volumes of open pools, in no order, a few in each turn of this core.
    pub async fn volumes(&self) -> Vec<VolumeStatus> {
        let mut all: Vec<VolumeStatus> = Vec::new();
        for (pool, ids) in self.volume_ids() {
            // It may be closed meanwhile, and is not kept.
            let info = |id| self.pool_named(&pool).ok()?.volume(id);
            let status = |id| Some(self.volume_status(info(id)?, &pool));
            all.extend(parts::filter_map(ids, status).await);
        }
        all
    }

    /// The volumes of each open pool, by its name.
    fn volume_ids(&self) -> Vec<(String, Vec<VolumeId>)> {
        self.open_pools().into_iter().map(|pool| (pool.name(), pool.volume_ids())).collect()
    }

    /// The first volumes behind `after`, by identity, that this node alone has: made without copies, and in no record. A few in each turn of this core.
    pub async fn volumes_alone(&self, after: Option<VolumeId>, at_most: usize) -> Vec<VolumeStatus> {
        // It may be closed meanwhile, and is not kept.
        let info = |id, pool: &str| self.pool_named(pool).ok()?.volume(id).filter(|info| info.copy.is_none());
        let (mut all, mut after) = (Vec::new(), after);
        loop {
            let (found, known_to) = self.look_for_alone(after);
            for (number, (id, pool)) in found.into_iter().enumerate() {
                if all.len() == at_most {
                    return all;
                }
                if number > 0 && number.is_multiple_of(parts::A_TURN) {
                    rt::next_turn().await;
                }
                all.extend(info(id, &pool).map(|info| self.volume_status(info, &pool)));
            }
            if known_to.is_none() {
                return all;
            }
            after = known_to;
            rt::next_turn().await;
        }
    }

    /// The next volumes behind `after`, by identity, that this node alone has, with their pools, and up to where these are all; `None`: there are no more.
    fn look_for_alone(&self, after: Option<VolumeId>) -> (Vec<(VolumeId, String)>, Option<VolumeId>) {
        let (mut found, mut known_to): (Vec<(VolumeId, String)>, Option<VolumeId>) = (Vec::new(), None);
        for pool in self.open_pools() {
            let (alone, last) = pool.look_for_alone(after, parts::A_QUICK_TURN);
            found.extend(alone.into_iter().map(|id| (id, pool.name())));
            known_to = known_to.into_iter().chain(last).min();
        }
        found.retain(|(id, _)| known_to.is_none_or(|last| *id <= last));
        found.sort_unstable();
        (found, known_to)
    }

    /// What volumes are called: those of open pools, and those of the cluster.
    pub async fn volume_names(&self) -> BTreeMap<VolumeId, String> {
        let mut all = BTreeMap::new();
        for (pool, ids) in self.volume_ids() {
            let name = |id| Some((id, self.pool_named(&pool).ok()?.volume(id)?.name));
            parts::for_each(ids, |id| all.extend(name(id))).await;
        }
        if let Some(keeper) = self.keeper() {
            let add = |entry: VolumeEntry| all.extend(VolumeId::parse(&entry.id).map(|id| (id, entry.name)));
            keeper.for_each_entry(add).await;
        }
        all
    }

    /// One volume, by name or identity.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn volume(&self, name: &str) -> Result<VolumeStatus, ControlError> {
        let (pool, info) = self.volume_named(name)?;
        Ok(self.volume_status(info, &pool.name()))
    }

    /// Makes a volume and maps it: all of that or nothing. A power cut in the middle may leave it without its map. Its copies may be on other nodes alone.
    ///
    /// # Errors
    /// A name or size that cannot be, a name that is taken, no pool, no space, no place to map it to.
    pub async fn create_volume(self: &Rc<Control>, new: NewVolume) -> Result<VolumeId, ControlError> {
        let control = Rc::clone(self);
        self.change(Work::new("making volume", &new.name), |changing| async move {
            control.make_volume(&changing, new).await
        })
        .await
    }

    /// Whether a volume could be made, as far as that can be seen without making it; on which nodes of a cluster, by number.
    ///
    /// # Errors
    /// As [`Control::create_volume`], but for what only its pool can say.
    pub async fn check_volume(&self, new: &NewVolume) -> Result<Vec<u16>, ControlError> {
        let name: VolumeName = new.name.parse()?;
        if self.volume_named(name.as_str()).is_ok() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        whole_blocks(new.size, new.block_size)?;
        if let Some(map) = &new.map {
            self.place_for_new(map)?;
        }
        if let Some(placement) = &new.copies {
            return self.check_placement(name, placement).await;
        }
        match &new.pool {
            Some(pool) => self.pool_named(pool)?,
            None => self.only_pool()?,
        };
        Ok(Vec::new())
    }

    async fn make_volume(&self, changing: &Changing, new: NewVolume) -> Result<VolumeId, ControlError> {
        let name: VolumeName = new.name.parse()?;
        if let Some(placement) = new.copies.clone() {
            let _name = changing.hold([Thing::VolumeName(name.to_string())]).await?;
            if self.volume_named(name.as_str()).is_ok() {
                return Err(ControlError::Exists { kind: "volume", name: name.into() });
            }
            return self.make_replicated(changing, new, &placement).await;
        }
        let pool = match &new.pool {
            Some(pool) => pool.clone(),
            None => self.only_pool()?.name(),
        };
        let _name =
            changing.hold([Thing::VolumeName(name.to_string()), Thing::VolumesOf(pool.clone())]).await?;
        if self.volume_named(name.as_str()).is_ok() {
            return Err(ControlError::Exists { kind: "volume", name: name.into() });
        }
        let pool = self.pool_named(&pool)?;
        let physical_exponent = match (new.block_size, new.native_512) {
            (BlockSize::B512, false) => 3,
            _ => 0,
        };
        let capacity = whole_blocks(new.size, new.block_size)?;
        if let Some(map) = &new.map {
            // What can be known to fail does so before anything is made.
            self.place_for_new(map)?;
        }
        let spec = VolumeSpec {
            name: name.into(),
            kind: new.kind,
            block_size: new.block_size,
            physical_exponent,
            capacity,
            slices: new.slices,
            created: new.created,
            id: None,
            copy: None,
        };
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        let info = pool.create_volume(spec).await?;
        let shown = self.show_new_volume(changing, &pool, &info, new.map).await;
        if let Err(error) = shown {
            self.take_back(changing, &pool, &info).await;
            return Err(error);
        }
        Ok(info.id)
    }

    async fn show_new_volume(
        &self,
        changing: &Changing,
        pool: &Pool,
        info: &VolumeInfo,
        map: Option<MapSpec>,
    ) -> Result<(), ControlError> {
        let _volume = changing.hold([Thing::Volume(info.id)]).await?;
        self.open_new_volume(pool, info).await?;
        let Some(map) = map else { return Ok(()) };
        let _record = changing.hold([Thing::Record]).await?;
        let place = self.place_for_new(&map)?;
        self.change_access(changing, vec![place.taken_by(info.id)]).await
    }

    /// Deletes a volume that was made in vain.
    async fn take_back(&self, changing: &Changing, pool: &Pool, info: &VolumeInfo) {
        self.close_volume(changing, pool, info.id).await;
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        if let Err(undo) = pool.delete_volume(info.id).await {
            let error = &undo as &dyn std::error::Error;
            tracing::error!(volume = info.name, error, "a volume that could not be shown was left");
        }
    }

    /// Makes a volume larger, while it is in use.
    ///
    /// # Errors
    /// [`ControlError::WouldShrink`], no space.
    pub async fn grow_volume(
        self: &Rc<Control>,
        name: &str,
        size: ByteLen,
    ) -> Result<VolumeStatus, ControlError> {
        let (control, (pool, before)) = (Rc::clone(self), self.volume_named(name)?);
        self.change(Work::new("growing volume", &before.name), |changing| async move {
            let _volume = changing.hold([Thing::Volume(before.id), Thing::VolumesOf(pool.name())]).await?;
            let (pool, before) = control.volume_still(&before)?;
            if before.copy.is_some() {
                // Each node holds it for itself.
                drop(_volume);
                changing.waits_for(WaitsFor::ClusterRecord);
                control.grow_replicated(&before, size).await?;
                return control.volume(&before.id.to_string());
            }
            let capacity = whole_blocks(size, before.block_size)?;
            if capacity < before.capacity {
                let (volume, from) = (before.name, before.capacity);
                return Err(ControlError::WouldShrink { volume, from, to: capacity });
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            let info = pool.grow_volume(before.id, capacity).await?;
            changing.waits_for(WaitsFor::Cores);
            control.show_growth(&pool, &info).await?;
            Ok(control.volume_status(info, &pool.name()))
        })
        .await
    }

    async fn show_growth(&self, pool: &Pool, info: &VolumeInfo) -> Result<(), ControlError> {
        self.grow_slices(pool, info.id).await?;
        show_capacity(info.id, info.capacity).await;
        Ok(())
    }

    /// Gives the slices of a volume what its pool has added to them.
    pub(super) async fn grow_slices(&self, pool: &Pool, id: VolumeId) -> Result<(), ControlError> {
        let pool_id = pool.id();
        let specs = self.specs_by_core(pool, id)?;
        on_all_cores(move || {
            let specs = specs.clone();
            async move {
                let shard = Shard::current();
                if let (Some(volume), Some(disks)) = (shard.volume(id), shard.disks(pool_id)) {
                    volume.grow(specs[usize::from(rt::core().0)].clone(), &disks);
                }
            }
        })
        .await;
        Ok(())
    }

    /// Gives a volume another name. Its identity stays.
    ///
    /// # Errors
    /// A name that cannot be or is taken.
    pub async fn rename_volume(
        self: &Rc<Control>,
        name: &str,
        new_name: &str,
    ) -> Result<VolumeStatus, ControlError> {
        let new_name: VolumeName = new_name.parse()?;
        let (control, (pool, before)) = (Rc::clone(self), self.volume_named(name)?);
        self.change(Work::new("renaming volume", &before.name), |changing| async move {
            let things = [
                Thing::Volume(before.id),
                Thing::VolumeName(new_name.to_string()),
                Thing::VolumesOf(pool.name()),
            ];
            let _volume = changing.hold(things).await?;
            if control.volume_named(new_name.as_str()).is_ok() {
                return Err(ControlError::Exists { kind: "volume", name: new_name.into() });
            }
            let (pool, before) = control.volume_still(&before)?;
            if before.copy.is_some() {
                changing.waits_for(WaitsFor::ClusterRecord);
                control.rename_replicated(&before, new_name.as_str()).await?;
                changing.waits_for(WaitsFor::Disks(pool.paths()));
                // So that the old name is free here at once. Should it fail, the pool follows as those of the other nodes do.
                let _followed = pool.rename_volume(before.id, new_name.as_str()).await;
                return control.volume(&before.id.to_string());
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            let info = pool.rename_volume(before.id, new_name.as_str()).await?;
            Ok(control.volume_status(info, &pool.name()))
        })
        .await
    }

    /// Whether a volume could be given another name and size, as far as that can be seen without doing it; gives its size then.
    ///
    /// # Errors
    /// As [`Control::rename_volume`] and [`Control::grow_volume`], but for what only pools can say.
    pub fn check_change(
        &self,
        name: &str,
        new_name: Option<&str>,
        size: Option<ByteLen>,
    ) -> Result<ByteLen, ControlError> {
        let VolumeStatus { info, copies, .. } = self.volume(name)?;
        if let Some(new_name) = new_name.filter(|new_name| *new_name != info.name) {
            let new_name: VolumeName = new_name.parse()?;
            let key = volume_name_key(new_name.as_str());
            let in_record = self.keeper().is_some_and(|keeper| keeper.revision_of(&key).is_some());
            if in_record || self.volume_named(new_name.as_str()).is_ok() {
                return Err(ControlError::Exists { kind: "volume", name: new_name.into() });
            }
        }
        let from = info.capacity;
        let Some(size) = size else { return Ok(from) };
        let to = whole_blocks(size, info.block_size)?;
        if to < from {
            return Err(ControlError::WouldShrink { volume: info.name, from, to });
        }
        match copies {
            Some(copies) if copies.fork.is_some() => Err(ControlError::Forked(info.name)),
            Some(_) if has_empty_slices(&info.stripe, from) => Err(ControlError::TooSmallToGrow(info.name)),
            _ => Ok(to),
        }
    }

    /// Deletes a volume with all its data. `force`: its LUN maps, too. `target`: also this target, which was made with the
    /// volume, if it is left without maps, alias and secret.
    ///
    /// # Errors
    /// [`ControlError::Mapped`].
    pub async fn delete_volume(
        self: &Rc<Control>,
        name: &str,
        force: bool,
        target: Option<&str>,
    ) -> Result<(), ControlError> {
        let (control, (pool, volume)) = (Rc::clone(self), self.volume_named(name)?);
        let target = target.map(str::to_owned);
        self.change(Work::new("deleting volume", &volume.name), |changing| async move {
            let _volume = changing.hold([Thing::Volume(volume.id), Thing::VolumesOf(pool.name())]).await?;
            let (pool, volume) = control.volume_still(&volume)?;
            control.unmap_volume(&changing, &volume, force, target.as_deref()).await?;
            if volume.copy.is_some() && control.is_recorded(volume.id).await? {
                drop(_volume);
                return control.delete_replicated(volume.id, &volume.name).await;
            }
            control.close_volume(&changing, &pool, volume.id).await;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.delete_volume(volume.id).await?)
        })
        .await
    }

    /// Takes a volume that is to be deleted out of all maps, if that is allowed. The caller holds it, so that there will be
    /// no more of them.
    async fn unmap_volume(
        &self,
        changing: &Changing,
        volume: &VolumeInfo,
        force: bool,
        target: Option<&str>,
    ) -> Result<(), ControlError> {
        if !force {
            self.check_unmapped(volume.id, &volume.name)?;
        }
        let volumes = BTreeSet::from([volume.id]);
        if self.unmapping(&volumes, target).is_empty() {
            return Ok(());
        }
        let _record = changing.hold([Thing::Record]).await?;
        // Others may have changed the targets until now.
        self.change_access(changing, self.unmapping(&volumes, target)).await
    }

    /// A volume that was there before others had their turn, as it is now.
    pub(super) fn volume_still(&self, before: &VolumeInfo) -> Result<(Pool, VolumeInfo), ControlError> {
        self.volume_named(&before.id.to_string()).map_err(|_| ControlError::not_found("volume", &before.name))
    }

    /// The volume of this name or identity, with its pool.
    pub(super) fn volume_named(&self, name: &str) -> Result<(Pool, VolumeInfo), ControlError> {
        let keeper = self.keeper();
        // The record's names come first: a pool may not know yet what its copy is called.
        let named = keeper.as_ref().and_then(|keeper| keeper.get::<String>(&volume_name_key(name)));
        let id = VolumeId::parse(named.as_ref().map_or(name, |(id, _)| id));
        let is_called_so = |info: &VolumeInfo| {
            let entry = info.copy.and_then(|_| Some(keeper.as_ref()?.volume(info.id)?.entry));
            entry.is_none_or(|entry| entry.name == name)
        };
        let find = |pool: Pool| {
            let found = id.and_then(|id| pool.volume(id));
            let found = found.or_else(|| pool.volume_named(name).filter(is_called_so));
            found.map(|info| (pool, info))
        };
        let found: Vec<(Pool, VolumeInfo)> = self.open_pools().into_iter().filter_map(find).collect();
        self.current_of(found).ok_or_else(|| ControlError::not_found("volume", name))
    }

    /// Of what several pools have of one volume that which the cluster's record means; the others came back with a pool that had been given up.
    pub(super) fn current_of(&self, mut found: Vec<(Pool, VolumeInfo)>) -> Option<(Pool, VolumeInfo)> {
        let keeper = self.keeper();
        let is_current = |(_, info): &(Pool, VolumeInfo)| {
            let named = |keeper: &Rc<Keeper>| {
                let volume = keeper.volume(info.id)?;
                Some(volume.entry.is_copy_on(keeper.me(), info.copy.as_ref()?))
            };
            keeper.as_ref().and_then(named).unwrap_or(false)
        };
        let current = if found.len() > 1 { found.iter().position(is_current) } else { None };
        if found.is_empty() { None } else { Some(found.swap_remove(current.unwrap_or(0))) }
    }

    pub(super) fn check_unmapped(&self, id: VolumeId, name: &str) -> Result<(), ControlError> {
        let access = self.access();
        let mut maps =
            access.targets_of(id).flat_map(|target| target.maps.iter().map(move |map| (target, map)));
        match maps.find(|(_, map)| map.volume == id) {
            None => Ok(()),
            Some((target, map)) => Err(ControlError::Mapped {
                volume: name.to_owned(),
                target: target.name.to_string(),
                lun: map.lun,
            }),
        }
    }

    /// Opens all volumes of a pool on all cores. One that cannot be opened does not keep the others from it.
    pub(super) async fn open_volumes(&self, pool: &Pool) {
        let mut openings = Vec::new();
        // A copy is opened when the cluster's record says what it is; without a cluster it is shown, and cannot be used.
        let in_cluster = self.place().is_some();
        for info in pool.volumes().into_iter().filter(|info| !(in_cluster && info.copy.is_some())) {
            match self.opening(pool, &info, None) {
                Ok(opening) => openings.push(opening),
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::error!(volume = info.name, error = cause, "a volume is not served");
                    self.unserved.borrow_mut().insert(info.id, error);
                }
            }
        }
        open_on_all_cores(openings).await;
        let mut volumes: BTreeSet<VolumeId> = pool.volumes().iter().map(|volume| volume.id).collect();
        if let Some(keeper) = self.keeper() {
            keeper.bring_back(&volumes).await;
            volumes.retain(|id| !keeper.is_aside(*id));
        }
        self.stop_expecting(volumes).await;
    }

    async fn open_new_volume(&self, pool: &Pool, info: &VolumeInfo) -> Result<(), ControlError> {
        let opening = self.opening(pool, info, None)?;
        open_on_all_cores(vec![opening]).await;
        Ok(())
    }

    pub(super) fn opening(
        &self,
        pool: &Pool,
        info: &VolumeInfo,
        copy: Option<(CopyOpening, Worth)>,
    ) -> Result<Opening, ControlError> {
        let durable = pool.lu_state(info.id)?;
        // Without its reservations it would let in again whoever was fenced off.
        let state = self
            .state_set_aside(info.id)
            .or_else(|| LuState::from_durable(&durable))
            .ok_or_else(|| ControlError::LuStateUnreadable(info.name.clone()))?;
        // What other nodes have, too, is served when the cluster says so.
        let paths = if info.copy.is_some() { Paths::not_known() } else { Paths::only() };
        let numbers = Shard::current().port_numbers();
        Ok(Opening {
            pool: pool.id(),
            id: info.id,
            block_size: info.block_size,
            blocks: BlockCount(info.capacity.0 >> info.block_size.shift()),
            stripe: info.stripe,
            specs: self.specs_by_core(pool, info.id)?,
            config: paths.in_config(info.id, &self.access(), numbers, &lu_config(info)),
            paths,
            state,
            copy,
        })
    }

    fn volume_status(&self, info: VolumeInfo, pool: &str) -> VolumeStatus {
        let maps = self.maps_of_volume(info.id);
        let failed = self.keeper().filter(|keeper| keeper.has_failed(info.id)).map(|_| {
            format!(
                "a write to this copy failed, and it takes no part since: look after its disk (`ursa pool show {pool}`), then `ursa pool reopen {pool}`"
            )
        });
        let problem = self.unserved.borrow().get(&info.id).map(ToString::to_string).or(failed);
        let problem = problem.or_else(|| self.why_not_recorded(&info));
        let copies = self.keeper().filter(|_| info.copy.is_some()).and_then(|keeper| keeper.volume(info.id));
        let info = match &copies {
            Some(CopiesStatus { entry, .. }) => {
                VolumeInfo { name: entry.name.clone(), capacity: ByteLen(entry.size), ..info }
            }
            None => info,
        };
        VolumeStatus { info, pool: pool.to_owned(), maps, problem, copies }
    }

    /// Where a volume is mapped, by its identity: target, LUN and host group.
    pub fn maps_of(&self, id: &str) -> Vec<(String, u16, String)> {
        VolumeId::parse(id).map(|id| self.maps_of_volume(id)).unwrap_or_default()
    }

    fn maps_of_volume(&self, id: VolumeId) -> Vec<(String, u16, String)> {
        let access = self.access();
        let maps = access.targets_of(id).flat_map(|target| target.maps.iter().map(move |map| (target, map)));
        maps.filter(|(_, map)| map.volume == id)
            .map(|(target, map)| (target.name.to_string(), map.lun, map.host.to_string()))
            .collect()
    }

    /// Volumes of open pools that are not served, by name, and why.
    pub(crate) fn unserved_volumes(&self) -> Vec<(String, String)> {
        let unserved = self.unserved.borrow();
        if unserved.is_empty() {
            return Vec::new();
        }
        let volumes = self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        volumes.filter_map(|info| Some((info.name, unserved.get(&info.id)?.to_string()))).collect()
    }

    fn specs_by_core(&self, pool: &Pool, id: VolumeId) -> Result<Vec<Vec<SliceSpec>>, ControlError> {
        let cores = rt::cores();
        (0..cores).map(|core| Ok(pool.volume_slices(id, rt::CoreId(core as u16), cores)?)).collect()
    }

    /// Takes the volumes of a pool off all cores.
    pub(super) async fn close_volumes(&self, changing: &Changing, pool: &Pool) {
        for volume in pool.volumes() {
            self.close_volume(changing, pool, volume.id).await;
        }
    }

    /// Takes a volume off all cores, when the commands that are at its disks have ended. Returns what its unit had agreed on
    /// in the end.
    pub(super) async fn close_volume(
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

/// Tells hosts a volume's new capacity.
pub(crate) async fn show_capacity(id: VolumeId, capacity: ByteLen) {
    on_all_cores(move || async move {
        let Some(unit) = Shard::current().unit(id) else { return };
        let mut brain = unit.brain().borrow_mut();
        let blocks = BlockCount(capacity.0 >> brain.config().block_size.shift());
        unit.volume().set_blocks(blocks);
        let config = LuConfig { blocks, ..brain.config().clone() };
        brain.reconfigure(config);
    })
    .await;
}

/// One message a core, however many volumes there are.
pub(super) async fn open_on_all_cores(openings: Vec<Opening>) {
    let openings: Arc<[Opening]> = openings.into();
    on_all_cores(move || {
        let openings = Arc::clone(&openings);
        async move {
            for opening in openings.iter() {
                open_here(opening).await;
            }
        }
    })
    .await;
}

async fn open_here(opening: &Opening) {
    let shard = Shard::current();
    let Some(disks) = shard.disks(opening.pool) else { return };
    let specs = opening.specs[usize::from(rt::core().0)].iter().cloned();
    let mut slices = Vec::new();
    for layout in specs.map(|spec| spec.open(&disks)) {
        let Some((copy, worth)) = &opening.copy else {
            slices.push(Slice::new(layout));
            continue;
        };
        let number = layout.index();
        match Slice::open_copy(layout, copy.of_slice(number, opening.block_size, opening.stripe, *worth))
            .await
        {
            Ok(slice) => {
                if let (Some(copies), Some(copy)) = (shard.copies(), slice.copy()) {
                    copies.add(Rc::clone(copy));
                }
                slices.push(slice);
            }
            // Its core answers for it as for a disk that is out of service.
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(volume = %opening.id, slice = number, error, "a slice's dirty map cannot be read");
            }
        }
    }
    let volume = Volume::new(opening.id, opening.block_size, opening.blocks, opening.stripe, slices);
    let (config, paths) = (opening.config.clone(), opening.paths.clone());
    let unit = Unit::new(Rc::new(volume), config, paths, opening.state.clone());
    shard.add_unit(Rc::new(unit));
}

pub(super) fn whole_blocks(size: ByteLen, block: BlockSize) -> Result<ByteLen, ControlError> {
    size.0.checked_next_multiple_of(u64::from(block.bytes())).filter(|size| *size > 0).map(ByteLen).ok_or(
        ControlError::Invalid {
            field: "size",
            reason: "a volume has at least one block and less than 2^64 bytes",
        },
    )
}

/// Whether a volume of this size has slices without blocks: with copies it cannot grow.
pub(super) fn has_empty_slices(stripe: &Stripe, size: ByteLen) -> bool {
    (0..stripe.slices()).any(|slice| stripe.slice_len(slice, size).0 == 0)
}

/// How a volume shows itself over SCSI, but for the ways that lead to it.
fn lu_config(info: &VolumeInfo) -> LuConfig {
    LuConfig {
        identity: identity(info.id),
        block_size: info.block_size,
        physical_exponent: info.physical_exponent,
        blocks: BlockCount(info.capacity.0 >> info.block_size.shift()),
        unmap: true,
        solid_state: true,
        read_only: false,
        // A power cut may tear a write in place at any sector: nothing to promise.
        atomic: AtomicWrites::default(),
        port_groups: Vec::new(),
        unlisted: AccessState::Unavailable,
        shared: info.copy.is_some(),
    }
}
