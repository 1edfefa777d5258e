//! Volumes: what they are, how they are found and shown. How they are made ([`creation`]), grown and renamed
//! ([`change`]), deleted ([`deletion`]), and opened on all cores ([`opening`]).

mod change;
mod creation;
mod deletion;
mod opening;

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{BlockSize, ByteLen};
use store::{Pool, Stripe, VolumeInfo, VolumeKind};

pub(crate) use self::change::show_capacity;
pub(super) use self::opening::open_on_all_cores;
use super::access::MapSpec;
use super::{Control, ControlError, Placement};
use crate::copies::{CopiesStatus, Keeper, VolumeEntry, volume_name_key};
use crate::parts;
use crate::volume::VolumeId;

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name, unique in the cluster.
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
    /// Where its copies are to be; `None`: one on this node.
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
    /// Why this node does not serve it, if it does not.
    pub problem: Option<String>,
    /// Its copies, if it has several.
    pub copies: Option<CopiesStatus>,
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
            let by_name = || pool.volume_named(name).filter(|info| named.is_none() && is_called_so(info));
            let found = found.or_else(by_name);
            found.map(|info| (pool, info))
        };
        let found: Vec<(Pool, VolumeInfo)> = self.open_pools().into_iter().filter_map(find).collect();
        self.current_of(found).ok_or_else(|| ControlError::not_found("volume", name))
    }

    /// Of what several pools have of one volume that which the cluster's record means; the others came back
    /// with a pool that had been given up.
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

    pub(super) fn volume_status(&self, info: VolumeInfo, pool: &str) -> VolumeStatus {
        let maps = self.maps_of_volume(info.id);
        let failed = self.keeper().filter(|keeper| keeper.has_failed(info.id)).map(|_| {
            format!(
                "a write to this copy failed, and the copy is out of service: check its disk (`ursa pool show {pool}`), then run `ursa pool reopen {pool}`"
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

    /// Whether a slice of some volume could not be opened: its pool is to be opened again.
    pub fn has_unopened_slices(&self) -> bool {
        self.unserved.borrow().values().any(|error| matches!(error, ControlError::SliceUnopened { .. }))
    }

    /// Volumes of open pools that this node does not serve: identity, name, and why.
    pub(crate) fn unserved_volumes(&self) -> Vec<(VolumeId, String, String)> {
        let unserved = self.unserved.borrow();
        if unserved.is_empty() {
            return Vec::new();
        }
        let keeper = self.keeper();
        // The record's name comes first: a pool may not know yet what its copy is called.
        let in_record = |info: &VolumeInfo| {
            let copies = keeper.as_ref().filter(|_| info.copy.is_some())?.volume(info.id)?;
            Some(copies.entry.name)
        };
        let volumes = self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let found = volumes.filter_map(|info| {
            let why = unserved.get(&info.id)?.to_string();
            Some((info.id, in_record(&info).unwrap_or(info.name), why))
        });
        found.collect()
    }
}

pub(super) fn whole_blocks(size: ByteLen, block: BlockSize) -> Result<ByteLen, ControlError> {
    size.0.checked_next_multiple_of(u64::from(block.bytes())).filter(|size| *size > 0).map(ByteLen).ok_or(
        ControlError::Invalid {
            field: "size",
            reason: "a volume has at least one block and fewer than 2^64 bytes",
        },
    )
}

/// Whether a volume of this size has slices without blocks: with copies it cannot grow.
pub(super) fn has_empty_slices(stripe: &Stripe, size: ByteLen) -> bool {
    (0..stripe.slices()).any(|slice| stripe.slice_len(slice, size).0 == 0)
}
