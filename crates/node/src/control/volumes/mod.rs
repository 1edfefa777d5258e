//! Volumes: what they are, how they are found and shown.
//!
//! [`creation`] creates them, [`change`] grows, renames and changes them, [`conversion`] converts them to
//! another kind, [`deletion`] deletes them, [`opening`] opens them on all cores, and [`settling`] makes their
//! checksums count after a crash.

mod change;
mod conversion;
mod creation;
mod deletion;
mod opening;
mod settling;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{BlockSize, ByteLen};
use store::{Compression, CopyState, Pool, SpacePolicy, Stripe, VolumeInfo, VolumeKind, WhenFull};

pub use self::change::SpaceChange;
pub(crate) use self::change::show_capacity;
pub(super) use self::change::{check_compressible, show_when_full};
pub(crate) use self::conversion::to_be_converted;
pub use self::conversion::{Conversion, ConversionWait};
pub(super) use self::conversion::{Conversions, compression_in_logs};
pub(super) use self::opening::open_on_all_cores;
use super::access::MapSpec;
use super::{Control, ControlError, NotServed, Placement, Result, ScrubStatus};
use crate::copies::{VolumeEntry, volume_key, volume_name_key};
use crate::data::VolumeId;
use crate::member::{CopiesStatus, Reconciler};
use crate::yielding;

/// A volume to be created.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its name, unique in the cluster.
    pub name: String,
    /// The pool; `None` for the only one, or the default one.
    pub pool: Option<String>,
    /// Where its blocks are.
    pub kind: VolumeKind,
    /// The size in bytes; rounded up to whole blocks.
    pub size: ByteLen,
    /// The logical block size.
    pub block_size: BlockSize,
    /// Report a physical block as large as the logical one; otherwise a 512-byte volume is 512e.
    pub native_512: bool,
    /// The number of slices that it is striped over; `None` for one per core.
    pub slices: Option<u16>,
    /// When it is created, in seconds since 1970.
    pub created: u64,
    /// Where to map it at once. The target is created if it does not exist.
    pub map: Option<MapSpec>,
    /// Where its copies go; `None` for a single one on this node.
    pub copies: Option<Placement>,
    /// How a log volume shares the space of its pool.
    pub space: SpacePolicy,
    /// Whether its blocks are compressed; only of importance for a log-structured volume.
    pub compression: Compression,
    /// Whether its blocks have checksums; only of importance for a thick volume.
    pub checksums: bool,
}

impl NewVolume {
    /// The number of slices if it has copies: the same on all nodes, however many cores they have.
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
    pub problem: Option<NotServed>,
    /// Its copies, if it has several.
    pub copies: Option<CopiesStatus>,
    /// The scrubs of it on this node; `None`: nothing of it is on a disk.
    pub scrub: Option<ScrubStatus>,
}

impl Control {
    /// All volumes of open pools, unordered. The core handles a few of them per turn.
    pub async fn volumes(&self) -> Vec<VolumeStatus> {
        let mut all: Vec<VolumeStatus> = Vec::new();
        for (pool, ids) in self.volume_ids() {
            // The pool may be closed meanwhile, so no reference to it is kept.
            let info = |id| self.pool_named(&pool).ok()?.volume(id);
            let status = |id| Some(self.volume_status(info(id)?, &pool));
            all.extend(yielding::filter_map(ids, status).await);
        }
        all
    }

    /// The volumes of each open pool, by the pool's name.
    fn volume_ids(&self) -> Vec<(String, Vec<VolumeId>)> {
        self.open_pools().into_iter().map(|pool| (pool.name(), pool.volume_ids())).collect()
    }

    /// The names of all volumes: those of open pools and those of the cluster.
    pub async fn volume_names(&self) -> BTreeMap<VolumeId, String> {
        let mut all = BTreeMap::new();
        for (pool, ids) in self.volume_ids() {
            let name = |id| Some((id, self.pool_named(&pool).ok()?.volume(id)?.name));
            yielding::for_each(ids, |id| all.extend(name(id))).await;
        }
        if let Ok(reconciler) = self.reconciler() {
            let add = |entry: VolumeEntry| all.extend(VolumeId::parse(&entry.id).map(|id| (id, entry.name)));
            reconciler.for_each_entry(add).await;
        }
        all
    }

    /// One volume, by name or identity.
    pub fn volume(&self, name: &str) -> Result<VolumeStatus> {
        let (pool, info) = self.volume_named(name)?;
        Ok(self.volume_status(info, &pool.name()))
    }

    /// The present state of a volume that was looked up before this change waited for its turn.
    pub(super) fn volume_still(&self, before: &VolumeInfo) -> Result<(Pool, VolumeInfo)> {
        self.volume_named(&before.id.to_string()).map_err(|_| ControlError::not_found("volume", &before.name))
    }

    /// The same for what is about to be changed: it must be clear which pool has it.
    pub(super) fn volume_to_change(&self, before: &VolumeInfo) -> Result<(Pool, VolumeInfo)> {
        let (pool, info) = self.volume_still(before)?;
        self.check_in_one_pool(&info)?;
        Ok((pool, info))
    }

    /// The volume of this name or identity, with its pool's name: for a change that then waits for its turn.
    ///
    /// Meanwhile it must not hold the pool, which the change before it may close and open again.
    pub(super) fn volume_and_pool_name(&self, name: &str) -> Result<(VolumeInfo, String)> {
        self.volume_named(name).map(|(pool, info)| (info, pool.name()))
    }

    /// The volume of this name or identity, with its pool.
    pub(super) fn volume_named(&self, name: &str) -> Result<(Pool, VolumeInfo)> {
        let reconciler = self.reconciler().ok();
        // The record's names come first: a pool may not know the current name of its copy yet.
        let named =
            reconciler.as_ref().and_then(|reconciler| reconciler.get::<String>(&volume_name_key(name)));
        let id = VolumeId::parse(named.as_ref().map_or(name, |(id, _)| id));
        let is_called_so = |info: &VolumeInfo| {
            let recorded = reconciler.as_ref().and_then(|reconciler| reconciler.volume(info.id));
            recorded.is_none_or(|volume| volume.entry.name == name)
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

    /// If several pools hold one volume: the entry that the cluster's record means. Of several, the one whose
    /// content is worth most: a blank one may be beside an older copy.
    ///
    /// The other ones came back with a pool that had been forgotten.
    pub(super) fn current_of(&self, found: Vec<(Pool, VolumeInfo)>) -> Option<(Pool, VolumeInfo)> {
        if found.len() < 2 {
            return found.into_iter().next();
        }
        let reconciler = self.reconciler().ok();
        found.into_iter().min_by_key(|(_, info)| rank(reconciler.as_deref(), info))
    }

    /// Checks that it is clear which pool has the volume.
    ///
    /// If several do, and none of them is worth more, any of them may be the one that is served. A change of
    /// another one would give the open slices places in the wrong pool, or delete the wrong data. If the
    /// record has copies on other nodes only, none of these is served, and they do not matter.
    ///
    /// # Errors
    /// [`ControlError::InSeveralPools`]; [`ControlError::ClusterFailed`]: which one counts is not known now.
    pub(super) fn check_in_one_pool(&self, volume: &VolumeInfo) -> Result<()> {
        let found = self.copies_of(volume.id);
        if found.len() < 2 {
            return Ok(());
        }
        let reconciler = self.reconciler()?;
        let entry = reconciler.get::<VolumeEntry>(&volume_key(volume.id));
        if entry.is_some_and(|(entry, _)| entry.copy_on(reconciler.me()).is_none()) {
            return Ok(());
        }
        let ranked = found.iter().map(|(pool, info)| (rank(Some(&reconciler), info), pool.name()));
        let mut ranked: Vec<(u8, String)> = ranked.collect();
        let best = ranked.iter().map(|(rank, _)| *rank).min();
        ranked.retain(|(rank, _)| Some(*rank) == best);
        if ranked.len() < 2 {
            return Ok(());
        }
        let pools: Vec<String> = ranked.into_iter().map(|(_, pool)| pool).collect();
        Err(ControlError::InSeveralPools { volume: volume.name.clone(), pools: pools.join(", ") })
    }

    /// The volumes of a pool, except those whose copy on this node is in another pool.
    ///
    /// This pool has an older copy of these, which is not served: it had been forgotten, and came back.
    pub(super) fn current_volumes(&self, pool: &Pool) -> Vec<VolumeInfo> {
        self.only_current(pool.volumes())
    }

    /// Like [`Control::current_volumes`], for some of the volumes of an open pool.
    pub(super) fn only_current(&self, mut all: Vec<VolumeInfo>) -> Vec<VolumeInfo> {
        if let Ok(reconciler) = self.reconciler() {
            all.retain(|info| is_current(&reconciler, info) || !self.has_current(&reconciler, info.id));
        }
        all
    }

    /// The volumes of a pool that is not open, except those whose copy on this node is in an open one.
    pub(super) fn not_in_open_pools(&self, mut all: Vec<VolumeInfo>) -> Vec<VolumeInfo> {
        if let Ok(reconciler) = self.reconciler() {
            all.retain(|info| !self.has_current(&reconciler, info.id));
        }
        all
    }

    /// Whether an open pool has this node's copy of a volume.
    fn has_current(&self, reconciler: &Reconciler, id: VolumeId) -> bool {
        self.copies_of(id).iter().any(|(_, info)| is_current(reconciler, info))
    }

    pub(super) fn volume_status(&self, info: VolumeInfo, pool: &str) -> VolumeStatus {
        let maps = self.maps_of_volume(info.id);
        let has_failed = self.reconciler().is_ok_and(|reconciler| reconciler.has_failed(info.id));
        let problem = match self.unserved.borrow().get(&info.id) {
            Some(error) => Some(NotServed::Unopened(Arc::clone(error))),
            None if has_failed => Some(NotServed::WriteFailed { pool: pool.to_owned() }),
            None => self.why_not_recorded(&info),
        };
        let scrub = self.pool_named(pool).ok().and_then(|pool| self.scrub_status(pool.id(), &info));
        let copies = self.reconciler().ok().and_then(|reconciler| reconciler.volume(info.id));
        let info = match &copies {
            Some(CopiesStatus { entry, .. }) => VolumeInfo {
                name: entry.name.clone(),
                kind: entry.shape.kind,
                compression: match entry.shape.kind.is_compressible() {
                    true => entry.compression.known().unwrap_or(info.compression),
                    false => Compression::Off,
                },
                capacity: ByteLen(entry.size),
                space: entry.space.into(),
                ..info
            },
            None => info,
        };
        VolumeStatus { info, pool: pool.to_owned(), maps, problem, copies, scrub }
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

    /// Whether a slice of some volume could not be opened, so that its pool must be reopened.
    pub fn has_unopened_slices(&self) -> bool {
        self.unserved.borrow().values().any(|error| error.is_of_slice())
    }

    /// Whether a slice of this volume could not be opened.
    pub(super) fn has_unopened_slice(&self, id: VolumeId) -> bool {
        self.unserved.borrow().get(&id).is_some_and(|error| error.is_of_slice())
    }

    /// Volumes of open pools that this node does not serve: identity, name and reason.
    pub(crate) fn unserved_volumes(&self) -> Vec<(VolumeId, String, String)> {
        let unserved = self.unserved.borrow();
        if unserved.is_empty() {
            return Vec::new();
        }
        let reconciler = self.reconciler().ok();
        // The record's name comes first: a pool may not know the current name of its copy yet.
        let in_record = |info: &VolumeInfo| Some(reconciler.as_ref()?.volume(info.id)?.entry.name);
        let volumes = self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let found = volumes.filter_map(|info| {
            let why = unserved.get(&info.id)?.to_string();
            Some((info.id, in_record(&info).unwrap_or(info.name), why))
        });
        found.collect()
    }
}

/// What an entry of a pool is worth among several of one volume: the lowest number is worth most.
fn rank(reconciler: Option<&Reconciler>, info: &VolumeInfo) -> u8 {
    match info.copy.map(|copy| copy.state) {
        _ if !reconciler.is_some_and(|reconciler| is_current(reconciler, info)) => 4,
        Some(CopyState::Blank) => 3,
        Some(CopyState::SetBack { .. }) => 2,
        // No host has used it yet.
        Some(CopyState::New) => 1,
        _ => 0,
    }
}

/// Whether the cluster's record means this entry of a pool by this node's copy of the volume.
pub(super) fn is_current(reconciler: &Reconciler, info: &VolumeInfo) -> bool {
    let Some(kept) = info.copy else { return false };
    // Not its status, which takes longer: this is asked for each volume of a pool.
    let entry = reconciler.get::<VolumeEntry>(&volume_key(info.id));
    entry.is_some_and(|(entry, _)| entry.is_copy_on(reconciler.me(), &kept))
}

pub(super) fn whole_blocks(size: ByteLen, block: BlockSize) -> Result<ByteLen> {
    size.0.checked_next_multiple_of(u64::from(block.bytes())).filter(|size| *size > 0).map(ByteLen).ok_or(
        ControlError::Invalid {
            field: "size",
            reason: "a volume has at least one block and fewer than 2^64 bytes",
        },
    )
}

/// Checks whether a volume of this kind and size can have this policy.
pub(super) fn check_space(space: SpacePolicy, kind: VolumeKind, size: ByteLen) -> Result<()> {
    let (field, reason) = match kind.is_thin() {
        true if space.reserve <= size => return Ok(()),
        true => ("reserve", "the reserve cannot exceed the size of the volume"),
        false if space.when_full != WhenFull::default() => {
            ("when_full", "only log volumes allocate space in their pool as they are written")
        }
        false if space.reserve.0 > 0 => {
            ("reserve", "only log volumes can have one: other volumes have all of their space from the start")
        }
        false => return Ok(()),
    };
    Err(ControlError::Invalid { field, reason })
}

/// Whether a volume of this size has slices without blocks. If so, it cannot grow while it has copies.
pub(super) fn has_empty_slices(stripe: &Stripe, size: ByteLen) -> bool {
    (0..stripe.slices()).any(|slice| stripe.slice_len(slice, size).0 == 0)
}
