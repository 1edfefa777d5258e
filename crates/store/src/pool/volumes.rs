//! Creating, growing, changing and deleting volumes.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{BlockSize, ByteLen};
use rt::CoreId;

use super::clones::{CloneOf, origin_in};
use super::{Inner, Live, Pool, Superblocks, ZeroingWatch, to_the_end};
use crate::catalog::{
    CAPACITY_MAX, Catalog, Compression, LU_STATE_BYTES_MAX, OtherLayout, SLICES_MAX, SpacePolicy,
    VOLUMES_MAX, VolumeEntry, VolumeKind, is_name,
};
use crate::copy::{self, COPIES_MAX, CopyOf, CopyState, MapPlaces};
use crate::error::StoreError;
use crate::extent::{ExtentRun, append};
use crate::geometry::SLOT_LU_STATE_BYTES;
use crate::id::VolumeId;
use crate::slice::{SliceSpec, SpecKind};
use crate::stripe::{STRIPE_UNIT, Stripe};
use crate::thick::ChecksumArea;

/// The specification of a new volume.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// The name: 1 to 63 letters, digits, `.`, `_` or `-`, unique in the pool.
    pub name: String,
    /// Where the volume's blocks are stored.
    pub kind: VolumeKind,
    /// The logical block size.
    pub block_size: BlockSize,
    /// log2 of the logical blocks per physical block: 3 for 512e, 0 if they are the same. The store only
    /// keeps it for the node.
    pub physical_exponent: u8,
    /// The size, a multiple of the block size.
    pub capacity: ByteLen,
    /// The number of slices, a power of two; it never changes. `None`: one per core, or fewer if the volume
    /// is small.
    pub slices: Option<u16>,
    /// The stripe unit in bytes, a power of two; it never changes. `None`: [`Pool::stripe_unit`]. All copies
    /// of a volume have the same one, or a block would not be in the same slice in all of them.
    pub stripe_unit: Option<ByteLen>,
    /// The time of creation, in seconds since 1970.
    pub created: u64,
    /// The identity; `None`: a new one. All copies of a volume have the same identity on all nodes, by which
    /// hosts recognize the volume.
    pub id: Option<VolumeId>,
    /// Which copy of a volume it is, if a cluster's record contains the volume, or is about to. Unless it is
    /// a sole copy, each of its slices keeps a dirty map.
    pub copy: Option<CopyOf>,
    /// How a log volume shares the space of the pool.
    pub space: SpacePolicy,
    /// Whether the blocks are compressed; only of importance for a log-structured volume.
    pub compression: Compression,
    /// Whether the blocks have checksums, which every read compares; only of importance for a thick volume,
    /// since those in logs always have.
    pub checksums: bool,
}

/// The description of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The identity, which never changes.
    pub id: VolumeId,
    /// The name.
    pub name: String,
    /// Where the volume's blocks are stored.
    pub kind: VolumeKind,
    /// The logical block size.
    pub block_size: BlockSize,
    /// log2 of the logical blocks per physical block.
    pub physical_exponent: u8,
    /// The size.
    pub capacity: ByteLen,
    /// How the volume maps to slices.
    pub stripe: Stripe,
    /// The time of creation, in seconds since 1970.
    pub created: u64,
    /// The space that the volume takes: of the pool (thick), of those of the pool's logs that have been
    /// opened (log-structured), or of memory at most (RAM).
    pub reserved: ByteLen,
    /// Which copy it is, if a cluster's record contains the volume.
    pub copy: Option<CopyOf>,
    /// How a log volume shares the space of the pool.
    pub space: SpacePolicy,
    /// Whether blocks that are written from now on are compressed; off unless the volume is log-structured,
    /// or is being converted to that.
    pub compression: Compression,
    /// The blocks of a log-structured volume that are not zeros, before compression and as they are stored,
    /// as far as its logs have been opened.
    pub in_logs: InLogs,
    /// The kind that it is being converted to.
    pub converting: Option<VolumeKind>,
    /// Whether it is a thick volume whose blocks have checksums.
    pub checksums: bool,
}

/// What a log-structured volume takes in the pool's logs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InLogs {
    /// The volume's blocks that are not zeros.
    pub mapped: ByteLen,
    /// The space that these take.
    pub stored: ByteLen,
}

impl InLogs {
    /// How many times as large the blocks are as the space that they take; `None` if there are none.
    pub fn ratio(&self) -> Option<f64> {
        (self.stored.0 > 0).then(|| self.mapped.0 as f64 / self.stored.0 as f64)
    }
}

impl VolumeInfo {
    /// Whether no other node has, or ever had, a copy.
    pub fn is_sole(&self) -> bool {
        self.copy.is_none_or(|copy| copy.state == CopyState::Sole)
    }
}

impl Pool {
    /// All volumes, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let infos = infos(&self.0.state.borrow().catalog, self.0.extent_bytes);
        infos.into_iter().map(|info| self.0.with_used(info)).collect()
    }

    /// The stripe unit of a new volume of this kind, unless one is specified: 1 MiB, or an extent of a thick
    /// volume, if the pool's are smaller.
    pub fn stripe_unit(&self, kind: VolumeKind) -> ByteLen {
        self.0.stripe_unit(kind)
    }

    /// The identities of all volumes.
    pub fn volume_ids(&self) -> Vec<VolumeId> {
        self.0.state.borrow().catalog.volumes.keys().copied().collect()
    }

    /// The thick volumes that have checksums.
    pub fn volumes_with_checksums(&self) -> Vec<VolumeId> {
        self.0.ids_of(|volume| volume.checksums.is_some())
    }

    /// The volumes of which no other node has, or ever had, a copy.
    pub fn sole_volumes(&self) -> Vec<VolumeId> {
        self.0.ids_of(|volume| volume.copy.is_none_or(|copy| copy.state == CopyState::Sole))
    }

    /// The volumes that were created as sole copies and have never been used.
    pub fn new_copies(&self) -> Vec<VolumeId> {
        self.0.ids_of(|volume| volume.copy.is_some_and(|copy| copy.state == CopyState::New))
    }

    /// The volumes that are blank copies.
    pub fn blank_copies(&self) -> Vec<VolumeId> {
        self.0.ids_of(|volume| volume.copy.is_some_and(|copy| copy.state == CopyState::Blank))
    }

    /// The volumes that are copies which were set back with the pool.
    pub fn set_back_copies(&self) -> Vec<VolumeId> {
        let is_set_back = |copy: CopyOf| matches!(copy.state, CopyState::SetBack { .. });
        self.0.ids_of(|volume| volume.copy.is_some_and(is_set_back))
    }

    /// The volume with this identity.
    pub fn volume(&self, id: VolumeId) -> Option<VolumeInfo> {
        let volume = self.0.entry(id).ok()?;
        Some(self.0.with_used(info(id, &volume, self.0.extent_bytes)))
    }

    /// The volume with this name.
    pub fn volume_named(&self, name: &str) -> Option<VolumeInfo> {
        let id = {
            let state = self.0.state.borrow();
            let mut volumes = state.catalog.volumes.iter();
            *volumes.find(|(_, volume)| volume.name == name)?.0
        };
        self.volume(id)
    }

    /// Creates a volume that reads as zeros.
    ///
    /// # Errors
    /// The specification is not valid, the name is taken, there is not enough space, or writing the metadata
    /// failed.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<VolumeInfo, StoreError> {
        self.create_volume_watched(spec, ZeroingWatch::default()).await
    }

    /// Like [`Pool::create_volume`]; reports its progress to `watch`.
    pub async fn create_volume_watched(
        &self,
        spec: VolumeSpec,
        watch: ZeroingWatch,
    ) -> Result<VolumeInfo, StoreError> {
        to_the_end(Rc::clone(&self.0).create_volume(spec, None, watch)).await
    }

    /// Grows a volume; the added space reads as zeros.
    ///
    /// Afterwards the caller gives the open slices their new specifications
    /// ([`Slice::grow`](crate::Slice::grow)), and only then tells hosts the new size.
    ///
    /// # Errors
    /// [`StoreError::Shrink`], not enough space, or any failure to write the metadata.
    pub async fn grow_volume(&self, id: VolumeId, capacity: ByteLen) -> Result<VolumeInfo, StoreError> {
        self.grow_volume_watched(id, capacity, ZeroingWatch::default()).await
    }

    /// Like [`Pool::grow_volume`]; reports its progress to `watch`.
    pub async fn grow_volume_watched(
        &self,
        id: VolumeId,
        capacity: ByteLen,
        watch: ZeroingWatch,
    ) -> Result<VolumeInfo, StoreError> {
        let grow = move |volume: &mut VolumeEntry| {
            check_capacity(capacity, volume.block_size)?;
            if capacity < volume.capacity {
                return Err(StoreError::Shrink { from: volume.capacity, to: capacity });
            }
            if volume.next.is_some() && capacity > volume.capacity {
                return Err(StoreError::BeingConverted(id));
            }
            volume.capacity = capacity;
            Ok(())
        };
        to_the_end(Rc::clone(&self.0).enlarge(id, grow, watch)).await
    }

    /// Makes a volume a copy.
    ///
    /// Unless the copy is a sole one (which may become another kind later), each slice has a dirty map from
    /// now on, in which no bit is set. Afterwards the caller gives the open slices their new specifications
    /// ([`Slice::grow`](crate::Slice::grow)).
    ///
    /// # Errors
    /// [`StoreError::AlreadyACopy`] if the volume has a dirty map, not enough space for the map, or any
    /// failure to write the metadata.
    pub async fn make_copy(&self, id: VolumeId, copy: CopyOf) -> Result<VolumeInfo, StoreError> {
        let become_copy = move |volume: &mut VolumeEntry| become_copy(id, volume, copy);
        to_the_end(Rc::clone(&self.0).enlarge(id, become_copy, ZeroingWatch::default())).await
    }

    /// Checks whether [`Pool::make_copy`] would find space now.
    ///
    /// # Errors
    /// As for [`Pool::make_copy`], except failures to write the metadata.
    pub fn check_make_copy(&self, id: VolumeId, copy: CopyOf) -> Result<(), StoreError> {
        let before = self.0.entry(id)?;
        let mut after = VolumeEntry::clone(&before);
        become_copy(id, &mut after, copy)?;
        let space = self.0.take_space(&before, &after)?;
        self.0.put_back(&space.runs());
        Ok(())
    }

    /// Deletes a volume and frees its space. Its slices must have been closed on all cores.
    ///
    /// # Errors
    /// [`StoreError::VolumeOpen`]; [`StoreError::HasClones`]; or any failure to write the metadata.
    pub async fn delete_volume(&self, id: VolumeId) -> Result<(), StoreError> {
        self.delete_volume_watched(id, ZeroingWatch::default()).await
    }

    /// Like [`Pool::delete_volume`]; reports its progress to `watch`.
    pub async fn delete_volume_watched(&self, id: VolumeId, watch: ZeroingWatch) -> Result<(), StoreError> {
        to_the_end(Rc::clone(&self.0).delete_volume(id, watch)).await
    }

    /// Renames a volume.
    ///
    /// # Errors
    /// The name is not valid or taken, or writing the metadata failed.
    pub async fn rename_volume(&self, id: VolumeId, name: &str) -> Result<VolumeInfo, StoreError> {
        let inner = Rc::clone(&self.0);
        let name = name.to_owned();
        to_the_end(async move {
            let rename = |catalog: &Catalog, volume: &mut VolumeEntry| {
                check_name(catalog, &name, Some(id))?;
                volume.name = name;
                Ok(())
            };
            inner.change_volume(id, rename).await
        })
        .await
    }

    /// Sets whether blocks of a log-structured volume are compressed that are written from now on, also of
    /// one that is only being converted to such a volume. Of any other, nothing changes. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVolume`], or any failure to write the metadata.
    pub async fn set_compression(
        &self,
        id: VolumeId,
        compression: Compression,
    ) -> Result<VolumeInfo, StoreError> {
        let inner = Rc::clone(&self.0);
        to_the_end(async move {
            let set = |_: &Catalog, volume: &mut VolumeEntry| {
                if volume.kind == VolumeKind::Log {
                    volume.compression = compression;
                }
                if let Some(next) = volume.next.as_mut().filter(|next| next.kind == VolumeKind::Log) {
                    next.compression = compression;
                }
                Ok(())
            };
            let info = Rc::clone(&inner).change_volume(id, set).await?;
            // Another change may have come meanwhile: what the catalog says counts.
            let entry = inner.entry(id)?;
            inner.tell_logs(&entry);
            Ok(info)
        })
        .await
    }

    /// Sets the slot of a copy with a dirty map, and how far its content can be trusted. Durable when it
    /// returns.
    ///
    /// # Errors
    /// [`StoreError::NotACopy`] if it has no dirty map; [`StoreError::SlotInvalid`]; or any failure to write
    /// the metadata.
    pub async fn set_copy(&self, id: VolumeId, slot: u8, state: CopyState) -> Result<VolumeInfo, StoreError> {
        let inner = Rc::clone(&self.0);
        to_the_end(async move {
            let keep = |_: &Catalog, volume: &mut VolumeEntry| {
                let has_map = volume.has_map() && !matches!(state, CopyState::Sole | CopyState::New);
                let copy = volume.copy.as_mut().filter(|_| has_map).ok_or(StoreError::NotACopy(id))?;
                (copy.slot, copy.state) = (slot, state);
                check_slot(*copy)
            };
            inner.change_volume(id, keep).await
        })
        .await
    }

    /// Sets how a log volume shares the space of the pool. Durable when it returns.
    ///
    /// What a larger reserve lacks is lent to the logs first, so that it is really there.
    ///
    /// # Errors
    /// [`StoreError::SpaceInvalid`]; [`StoreError::NoSpace`]: nothing has changed; or any failure to write
    /// the metadata.
    pub async fn set_space(&self, id: VolumeId, space: SpacePolicy) -> Result<VolumeInfo, StoreError> {
        to_the_end(Rc::clone(&self.0).set_space(id, space)).await
    }

    /// Stores the state of a volume's logical unit (reservations, mode pages). Durable when it returns.
    ///
    /// The store does not interpret these bytes.
    ///
    /// # Errors
    /// [`StoreError::LuStateTooLarge`], [`StoreError::MetadataFull`], or any failure to write the metadata.
    pub async fn set_lu_state(&self, id: VolumeId, state: Vec<u8>) -> Result<(), StoreError> {
        if state.len() > LU_STATE_BYTES_MAX {
            return Err(StoreError::LuStateTooLarge(state.len()));
        }
        let inner = Rc::clone(&self.0);
        to_the_end(async move {
            let keep = |_: &Catalog, volume: &mut VolumeEntry| {
                volume.lu_state = state;
                Ok(())
            };
            inner.change_volume(id, keep).await.map(drop)
        })
        .await
    }

    /// What [`Pool::set_lu_state`] stored last; empty if it was never called.
    pub fn lu_state(&self, id: VolumeId) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.entry(id)?.lu_state.clone())
    }

    /// The slices of a volume that `core` of `cores` serves, to be opened there once.
    ///
    /// Slice `i` belongs to core `i % cores`.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVolume`]; [`StoreError::Exported`]; [`StoreError::NoMemory`] if the memory for a
    /// RAM volume of a reopened pool is not available.
    pub fn volume_slices(
        &self,
        id: VolumeId,
        core: CoreId,
        cores: usize,
    ) -> Result<Vec<SliceSpec>, StoreError> {
        if self.0.closing.get() {
            return Err(StoreError::Exported(self.0.id));
        }
        let entry = self.0.entry(id)?;
        let kind = self.0.slice_kind(id, &entry)?;
        let next = match &entry.next {
            Some(next) => Some(self.0.slice_kind(id, &Rc::new(as_if_in(&entry, next)))?),
            None => None,
        };
        // Missing while the volume is being deleted.
        let in_use = {
            let state = self.0.state.borrow();
            Arc::clone(&state.volumes.get(&id).ok_or(StoreError::NoSuchVolume(id))?.in_use)
        };
        let slices =
            (0..entry.stripe.slices()).filter(|slice| usize::from(*slice) % cores == usize::from(core.0));
        let map_pages = |len| if entry.has_map() { copy::map_pages(len) } else { 0 };
        let spec = |index: u16| SliceSpec {
            index,
            len: entry.stripe.slice_len(index, entry.capacity),
            map_pages: map_pages(entry.stripe.slice_len(index, entry.capacity)),
            kind: kind(index),
            moves: in_use.load(Ordering::Acquire),
            next: next.as_ref().map(|next| next(index)),
            in_use: Arc::clone(&in_use),
        };
        Ok(slices.map(spec).collect())
    }
}

/// Describes all volumes of `catalog`, by name.
pub(super) fn infos(catalog: &Catalog, extent_bytes: u64) -> Vec<VolumeInfo> {
    let mut infos: Vec<VolumeInfo> =
        catalog.volumes.iter().map(|(id, volume)| info(*id, volume, extent_bytes)).collect();
    infos.sort_by(|one, other| one.name.cmp(&other.name));
    infos
}

pub(super) fn info(id: VolumeId, volume: &VolumeEntry, extent_bytes: u64) -> VolumeInfo {
    VolumeInfo {
        id,
        name: volume.name.clone(),
        kind: volume.kind,
        block_size: volume.block_size,
        physical_exponent: volume.physical_exponent,
        capacity: volume.capacity,
        stripe: volume.stripe,
        created: volume.created,
        reserved: match volume.kind {
            VolumeKind::Thick | VolumeKind::Log => ByteLen(volume.extents() * extent_bytes),
            VolumeKind::Ram => volume.memory_wanted(volume.capacity),
        },
        copy: volume.copy,
        space: volume.space,
        compression: match &volume.next {
            Some(next) if next.kind == VolumeKind::Log => next.compression,
            _ => volume.compression,
        },
        in_logs: InLogs::default(),
        converting: volume.next.as_ref().map(|next| next.kind),
        checksums: volume.checksums.is_some(),
    }
}

/// The entry that a volume has when it has been converted.
fn as_if_in(volume: &VolumeEntry, next: &OtherLayout) -> VolumeEntry {
    let OtherLayout { kind, slices, checksums, branch, origin, compression } = next.clone();
    let space = SpacePolicy::default();
    VolumeEntry { kind, slices, checksums, branch, origin, compression, space, next: None, ..volume.clone() }
}

/// The metadata space that the logical unit states of thick volumes, and of those that become thick, may
/// still take.
///
/// A slot has room for them together with all extents that the pool had when it was created. Of the extents
/// of disks that were added later, only as many are handed out as leave this room.
pub(super) fn room_for_lu_states(catalog: &Catalog) -> u64 {
    let becomes_thick = |next: &OtherLayout| next.kind == VolumeKind::Thick;
    let is_thick = |volume: &&Rc<VolumeEntry>| {
        volume.kind == VolumeKind::Thick || volume.next.as_ref().is_some_and(becomes_thick)
    };
    let thick = catalog.volumes.values().filter(is_thick);
    thick.map(|volume| SLOT_LU_STATE_BYTES.saturating_sub(volume.lu_state.len() as u64)).sum()
}

/// Checks whether a volume (`None`: a new one) may have this name.
fn check_name(catalog: &Catalog, name: &str, of: Option<VolumeId>) -> Result<(), StoreError> {
    if !is_name(name) {
        return Err(StoreError::NameInvalid(name.to_owned()));
    }
    match catalog.volumes.iter().any(|(id, volume)| volume.name == name && Some(*id) != of) {
        true => Err(StoreError::NameTaken(name.to_owned())),
        false => Ok(()),
    }
}

/// Checks whether a new volume may have this identity.
fn check_id(catalog: &Catalog, id: VolumeId) -> Result<(), StoreError> {
    if catalog.volumes.contains_key(&id) { Err(StoreError::VolumeExists(id)) } else { Ok(()) }
}

fn become_copy(id: VolumeId, volume: &mut VolumeEntry, copy: CopyOf) -> Result<(), StoreError> {
    check_slot(copy)?;
    if volume.has_map() {
        return Err(StoreError::AlreadyACopy(id));
    }
    volume.copy = Some(copy);
    Ok(())
}

fn check_slot(copy: CopyOf) -> Result<(), StoreError> {
    if copy.slot < COPIES_MAX { Ok(()) } else { Err(StoreError::SlotInvalid(copy.slot)) }
}

fn check_capacity(capacity: ByteLen, block_size: BlockSize) -> Result<(), StoreError> {
    let fits = capacity.0 > 0
        && capacity <= CAPACITY_MAX
        && capacity.0.is_multiple_of(u64::from(block_size.bytes()));
    if fits { Ok(()) } else { Err(StoreError::CapacityInvalid(capacity)) }
}

/// The number of slices of a volume if none is specified.
///
/// One per core, but no more than the volume has pieces of `piece` bytes, so that no slice takes space that
/// it cannot use.
fn slices_for(cores: usize, capacity: ByteLen, piece: u64) -> u16 {
    let mut slices = u16::try_from(cores.next_power_of_two()).unwrap_or(SLICES_MAX).min(SLICES_MAX);
    while slices > 1 && u64::from(slices) * piece > capacity.0 {
        slices /= 2;
    }
    slices
}

/// Memory or extents that are taken for a volume.
pub(super) struct Space {
    /// The extents of each slice.
    pub(super) slices: Vec<Vec<ExtentRun>>,
    map: Vec<ExtentRun>,
    pub(super) checksums: Vec<ExtentRun>,
    grant: Option<crate::budget::RamGrant>,
}

impl Space {
    pub(super) fn runs(&self) -> Vec<ExtentRun> {
        self.slices.iter().flatten().chain(&self.map).chain(&self.checksums).copied().collect()
    }
}

impl Inner {
    pub(super) fn entry(&self, id: VolumeId) -> Result<Rc<VolumeEntry>, StoreError> {
        self.state.borrow().catalog.volumes.get(&id).cloned().ok_or(StoreError::NoSuchVolume(id))
    }

    /// The entry in `catalog` of a volume that is not being deleted.
    pub(super) fn entry_in(&self, catalog: &Catalog, id: VolumeId) -> Result<Rc<VolumeEntry>, StoreError> {
        let is_there = self.state.borrow().volumes.contains_key(&id);
        let entry = catalog.volumes.get(&id).filter(|_| is_there);
        entry.cloned().ok_or(StoreError::NoSuchVolume(id))
    }

    pub(super) fn ids_of(&self, is_wanted: impl Fn(&VolumeEntry) -> bool) -> Vec<VolumeId> {
        let state = self.state.borrow();
        let wanted = state.catalog.volumes.iter().filter(|(_, volume)| is_wanted(volume));
        wanted.map(|(id, _)| *id).collect()
    }

    /// The least space that a slice of a new volume takes.
    fn piece(&self, kind: VolumeKind) -> u64 {
        match kind {
            VolumeKind::Thick => self.extent_bytes,
            VolumeKind::Ram | VolumeKind::Log => STRIPE_UNIT.0,
        }
    }

    fn stripe_unit(&self, kind: VolumeKind) -> ByteLen {
        ByteLen(STRIPE_UNIT.0.min(self.piece(kind)))
    }

    /// Builds the entry of a new volume, without space.
    fn new_entry(&self, spec: VolumeSpec) -> Result<VolumeEntry, StoreError> {
        check_capacity(spec.capacity, spec.block_size)?;
        let state = self.state.borrow();
        check_name(&state.catalog, &spec.name, None)?;
        spec.id.map_or(Ok(()), |id| check_id(&state.catalog, id))?;
        spec.copy.map_or(Ok(()), check_slot)?;
        if !spec.space.suits(spec.kind, spec.capacity) {
            return Err(StoreError::SpaceInvalid);
        }
        let piece = self.piece(spec.kind);
        let slices = spec.slices.unwrap_or_else(|| slices_for(rt::cores(), spec.capacity, piece));
        let unit = spec.stripe_unit.unwrap_or_else(|| self.stripe_unit(spec.kind));
        if !slices.is_power_of_two() || slices > SLICES_MAX {
            return Err(StoreError::SlicesInvalid(slices));
        }
        Ok(VolumeEntry {
            name: spec.name,
            kind: spec.kind,
            block_size: spec.block_size,
            physical_exponent: spec.physical_exponent,
            stripe: Stripe::new(slices, unit),
            capacity: spec.capacity,
            created: spec.created,
            copy: spec.copy,
            lu_state: Vec::new(),
            slices: vec![Vec::new(); slices.into()],
            map: Vec::new(),
            checksums: (spec.checksums && spec.kind == VolumeKind::Thick).then(Vec::new),
            branch: 0,
            origin: None,
            space: spec.space,
            compression: if spec.kind == VolumeKind::Log { spec.compression } else { Compression::Off },
            next: None,
        })
    }

    async fn prepare(&self, space: &Space, watch: &ZeroingWatch) -> Result<(), StoreError> {
        self.zero(&space.runs(), watch).await?;
        self.allocate(&space.map).await?;
        self.allocate(&space.checksums).await
    }

    /// Creates a volume. If it is to be a clone of something, its shape must be that of the other volume.
    pub(super) async fn create_volume(
        self: Rc<Inner>,
        spec: VolumeSpec,
        of: Option<CloneOf>,
        watch: ZeroingWatch,
    ) -> Result<VolumeInfo, StoreError> {
        let _change = self.begin_change()?;
        let id = spec.id.unwrap_or_else(VolumeId::random);
        let mut volume = self.new_entry(spec)?;
        let nothing = VolumeEntry { capacity: ByteLen(0), ..volume.clone() };
        let space = self.take_space(&nothing, &volume)?;
        let runs = space.runs();
        self.prepare(&space, &watch).await.inspect_err(|_| self.put_back(&runs))?;
        let _turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let allowed = check_name(&catalog, &volume.name, None).and(check_id(&catalog, id)).and(match catalog
            .volumes
            .len()
        {
            count if count >= VOLUMES_MAX => Err(StoreError::TooManyVolumes(count)),
            _ => Ok(()),
        });
        allowed.inspect_err(|_| self.put_back(&runs))?;
        let origin = of.map(|of| origin_in(&catalog, of)).transpose();
        volume.origin = origin.inspect_err(|_| self.put_back(&runs))?;
        volume.slices = space.slices;
        volume.map = space.map;
        volume.checksums = volume.checksums.map(|_| space.checksums);
        let (mut runs, mut lent) = (runs, Vec::new());
        if volume.kind == VolumeKind::Log {
            let logs = self.add_logs(&mut catalog, volume.stripe.slices()).await;
            let logs = logs.inspect_err(|_| self.put_back(&runs))?;
            runs.extend(logs);
            volume.branch = catalog.logs.next_branch;
            catalog.logs.next_branch += 1;
            let reserved = self.lend_for_reserve(&mut catalog, &volume, SpacePolicy::default()).await;
            lent = reserved.inspect_err(|_| self.put_back(&runs))?;
            runs.extend(lent.iter().map(|zone| zone.run));
        }
        let (branch, slices) = (volume.branch, volume.stripe.slices());
        let reserve = volume.space.reserved_quarters(slices);
        let (is_log, origin) = (volume.kind == VolumeKind::Log, volume.origin);
        let info = info(id, &volume, self.extent_bytes);
        catalog.volumes.insert(id, Rc::new(volume));
        let committed = self.commit_or_put_back(catalog, &runs).await;
        if let Some(origin) = origin.filter(|_| committed.is_err() && self.writable().is_err()) {
            // The next opening may find the clone.
            self.state.borrow().logs.range(..slices).for_each(|(_, log)| log.set_origin(branch, origin));
        }
        committed?;
        let live = Live { grants: space.grant.into_iter().map(Arc::new).collect(), ..Live::default() };
        self.state.borrow_mut().volumes.insert(id, live);
        if is_log {
            let entry = self.entry(id)?;
            self.tell_logs(&entry);
            self.state.borrow().logs.range(..slices).for_each(|(_, log)| log.set_reserve(branch, reserve));
        }
        self.tell_lent(lent);
        Ok(info)
    }

    async fn set_space(self: Rc<Inner>, id: VolumeId, space: SpacePolicy) -> Result<VolumeInfo, StoreError> {
        let _change = self.begin_change()?;
        let _turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let mut entry = catalog.volumes.get(&id).cloned().ok_or(StoreError::NoSuchVolume(id))?;
        let volume = Rc::make_mut(&mut entry);
        let before = std::mem::replace(&mut volume.space, space);
        let mut kinds = [volume.kind].into_iter().chain(volume.next.as_ref().map(|next| next.kind));
        if !kinds.all(|kind| space.suits(kind, volume.capacity)) {
            return Err(StoreError::SpaceInvalid);
        }
        let (branch, slices) = (volume.branch, volume.stripe.slices());
        let lent = self.lend_for_reserve(&mut catalog, volume, before).await?;
        let runs: Vec<ExtentRun> = lent.iter().map(|zone| zone.run).collect();
        let info = info(id, volume, self.extent_bytes);
        let is_log = volume.kind == VolumeKind::Log;
        catalog.volumes.insert(id, entry);
        self.commit_or_put_back(catalog, &runs).await?;
        if is_log {
            let reserve = space.reserved_quarters(slices);
            self.state.borrow().logs.range(..slices).for_each(|(_, log)| log.set_reserve(branch, reserve));
        }
        // Only now: a log returns zones that nobody has reserved.
        self.tell_lent(lent);
        Ok(self.with_used(info))
    }

    /// Adds to a volume's description what it takes in the logs.
    pub(super) fn with_used(&self, info: VolumeInfo) -> VolumeInfo {
        let in_logs = self.in_logs(info.id);
        VolumeInfo { reserved: ByteLen(info.reserved.0 + in_logs.stored.0), in_logs, ..info }
    }

    /// Applies a change after which a volume takes more space, and gives it that space.
    async fn enlarge(
        self: Rc<Inner>,
        id: VolumeId,
        change: impl Fn(&mut VolumeEntry) -> Result<(), StoreError>,
        watch: ZeroingWatch,
    ) -> Result<VolumeInfo, StoreError> {
        let _change = self.begin_change()?;
        loop {
            let before = self.entry(id)?;
            let mut after = VolumeEntry::clone(&before);
            change(&mut after)?;
            if before.kind == VolumeKind::Ram {
                // The pool may have been opened since the volume was created: reserve the present memory
                // before the additional one.
                self.grants(id, &before)?;
            }
            let space = self.take_space(&before, &after)?;
            let runs = space.runs();
            self.prepare(&space, &watch).await.inspect_err(|_| self.put_back(&runs))?;
            let _turn = self.turn().await;
            let mut catalog = self.state.borrow().catalog.clone();
            let mut now = self.entry_in(&catalog, id).inspect_err(|_| self.put_back(&runs))?;
            let needs = |volume: &VolumeEntry| {
                (volume.kind, volume.capacity, volume.has_map(), volume.checksums.is_some())
            };
            if needs(&now) != needs(&before) {
                // Another change was faster, and the extents taken here no longer fit.
                self.put_back(&runs);
                continue;
            }
            let volume = Rc::make_mut(&mut now);
            change(volume).inspect_err(|_| self.put_back(&runs))?;
            for (runs, added) in volume.slices.iter_mut().zip(&space.slices) {
                added.iter().for_each(|run| append(runs, *run));
            }
            space.map.iter().for_each(|run| append(&mut volume.map, *run));
            if let Some(checksums) = &mut volume.checksums {
                space.checksums.iter().for_each(|run| append(checksums, *run));
            }
            let info = info(id, volume, self.extent_bytes);
            catalog.volumes.insert(id, now);
            self.commit_or_put_back(catalog, &runs).await?;
            if let Some(live) = self.state.borrow_mut().volumes.get_mut(&id) {
                live.grants.extend(space.grant.map(Arc::new));
            }
            let entry = self.entry(id)?;
            self.tell_logs(&entry);
            return Ok(info);
        }
    }

    async fn delete_volume(self: Rc<Inner>, id: VolumeId, watch: ZeroingWatch) -> Result<(), StoreError> {
        let _change = self.begin_change()?;
        let turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let volume = catalog.volumes.remove(&id).ok_or(StoreError::NoSuchVolume(id))?;
        self.check_no_clones(&catalog, id, &volume)?;
        // Removed first, so that no slice can be opened from here on.
        let live = {
            let mut state = self.state.borrow_mut();
            match state.volumes.get(&id) {
                Some(live) if live.is_open() => return Err(StoreError::VolumeOpen(id)),
                _ => state.volumes.remove(&id),
            }
        };
        let of_logs = self.drop_logs(&mut catalog).await;
        let left = catalog.logs.logs.len() as u16;
        if let Err(error) = self.commit(catalog, Superblocks::OfMetadataDisks).await {
            self.state.borrow_mut().volumes.extend(live.map(|live| (id, live)));
            return Err(error);
        }
        let layouts: Vec<OtherLayout> = live.iter().flat_map(|live| live.former().cloned()).collect();
        if volume.needs_logs() || layouts.iter().any(|layout| layout.kind == VolumeKind::Log) {
            let mut state = self.state.borrow_mut();
            state.logs.retain(|number, _| *number < left);
            let of_layouts = layouts.iter().filter(|layout| layout.kind == VolumeKind::Log);
            let of_volume = volume.branches().map(|(branch, _)| branch);
            for branch in of_volume.chain(of_layouts.map(|layout| layout.branch)) {
                state.logs.values().for_each(|log| log.remove_branch(branch));
            }
        }
        drop(turn);
        // The extents become free only after they have been zeroed: a late zero would hit the next owner's
        // data.
        let of_layouts = layouts.iter().flat_map(OtherLayout::runs);
        let runs: Vec<ExtentRun> = volume.runs().chain(of_layouts).chain(of_logs).collect();
        if let Err(error) = self.zero(&runs, &watch).await {
            tracing::warn!(volume = %id, %error, "the space of a deleted volume could not be released on the disk");
        }
        self.put_back(&runs);
        Ok(())
    }

    /// Changes the entry of one volume.
    async fn change_volume(
        self: Rc<Inner>,
        id: VolumeId,
        change: impl FnOnce(&Catalog, &mut VolumeEntry) -> Result<(), StoreError>,
    ) -> Result<VolumeInfo, StoreError> {
        let _change = self.begin_change()?;
        let _turn = self.turn().await;
        let mut catalog = self.state.borrow().catalog.clone();
        let mut volume = catalog.volumes.get(&id).cloned().ok_or(StoreError::NoSuchVolume(id))?;
        change(&catalog, Rc::make_mut(&mut volume))?;
        let info = info(id, &volume, self.extent_bytes);
        catalog.volumes.insert(id, volume);
        self.commit(catalog, Superblocks::OfMetadataDisks).await?;
        Ok(info)
    }

    /// Takes the space that a volume needs to go from `before` to `after`.
    pub(super) fn take_space(&self, before: &VolumeEntry, after: &VolumeEntry) -> Result<Space, StoreError> {
        let extent_bytes = self.extent_bytes;
        let of_slice =
            |volume: &VolumeEntry, slice| volume.extents_wanted(slice, volume.capacity, extent_bytes);
        let of_map = |volume: &VolumeEntry| volume.map_extents_wanted(volume.capacity, extent_bytes);
        let of_checksums =
            |volume: &VolumeEntry| volume.checksum_extents_wanted(volume.capacity, extent_bytes);
        let slices = after.stripe.slices();
        let mut wanted: Vec<u64> =
            (0..slices).map(|slice| of_slice(after, slice) - of_slice(before, slice)).collect();
        let map = of_map(after) - of_map(before);
        let checksums = of_checksums(after) - of_checksums(before);
        wanted.extend([map, checksums].into_iter().filter(|extents| *extents > 0));
        let mut state = self.state.borrow_mut();
        let mut given = state.allocator.allocate(&wanted).ok_or_else(|| StoreError::NoSpace {
            wanted: ByteLen(wanted.iter().sum::<u64>().saturating_mul(extent_bytes)),
            free: ByteLen(state.allocator.free() * extent_bytes),
        })?;
        let grant = match after.kind {
            VolumeKind::Thick | VolumeKind::Log => None,
            VolumeKind::Ram => {
                let memory = |volume: &VolumeEntry| volume.memory_wanted(volume.capacity).0;
                let more = memory(after) - memory(before);
                Some(self.ram.reserve(ByteLen(more))?)
            }
        };
        let mut others = given.split_off(slices.into()).into_iter();
        let mut next =
            |extents: u64| if extents > 0 { others.next().unwrap_or_default() } else { Vec::new() };
        let (map, checksums) = (next(map), next(checksums));
        Ok(Space { slices: given, map, checksums, grant })
    }

    pub(super) fn put_back(&self, runs: &[ExtentRun]) {
        if runs.is_empty() {
            return;
        }
        let mut state = self.state.borrow_mut();
        runs.iter().for_each(|run| state.allocator.put(*run));
        self.lender.note_freed();
    }

    /// Commits, and frees the extents if nothing was written.
    ///
    /// If something was written, they stay taken until the pool is reopened, because it is unknown whether
    /// the catalog on the disks contains them.
    pub(super) async fn commit_or_put_back(
        &self,
        catalog: Catalog,
        runs: &[ExtentRun],
    ) -> Result<(), StoreError> {
        let room = room_for_lu_states(&catalog);
        let committed = self.commit_on(self.layout(), catalog, Superblocks::OfMetadataDisks, room).await;
        if committed.is_err() && self.writable().is_ok() {
            self.put_back(runs);
        }
        committed
    }

    /// Builds the [`SpecKind`] of each slice of a volume.
    fn slice_kind(
        self: &Rc<Inner>,
        id: VolumeId,
        entry: &Rc<VolumeEntry>,
    ) -> Result<impl Fn(u16) -> SpecKind + use<>, StoreError> {
        let grants = match entry.kind {
            VolumeKind::Thick | VolumeKind::Log => Vec::new(),
            VolumeKind::Ram => self.grants(id, entry)?,
        };
        let extents_offset: Arc<[u64]> =
            self.layout().geometry.iter().map(|geometry| geometry.extents_offset()).collect();
        let extent_bytes = self.extent_bytes;
        let entry = Rc::clone(entry);
        let map = MapPlaces {
            runs: entry.map.clone(),
            slices: entry.stripe.slices(),
            extent_bytes,
            extents_offset,
        };
        let checksums = entry.checksums.as_ref().map(|runs| {
            let places = MapPlaces { runs: runs.clone(), ..map.clone() };
            ChecksumArea { volume: id, places }
        });
        let inner = Rc::clone(self);
        Ok(move |slice: u16| match entry.kind {
            VolumeKind::Thick => SpecKind::Thick {
                runs: entry.slices[usize::from(slice)].clone(),
                block_size: entry.block_size,
                map: map.clone(),
                checksums: checksums.clone(),
            },
            VolumeKind::Log => SpecKind::Log {
                handle: inner.log(slice).expect("the catalogue was checked: it has a log for each slice"),
                branch: entry.branch,
                map: map.clone(),
            },
            VolumeKind::Ram => SpecKind::Ram { grants: grants.clone() },
        })
    }

    /// The memory of a RAM volume. Reserved now if the pool was opened after the volume was created.
    fn grants(
        &self,
        id: VolumeId,
        entry: &VolumeEntry,
    ) -> Result<Vec<Arc<crate::budget::RamGrant>>, StoreError> {
        let mut state = self.state.borrow_mut();
        let live = state.volumes.get_mut(&id).ok_or(StoreError::NoSuchVolume(id))?;
        if live.grants.is_empty() {
            live.grants.push(Arc::new(self.ram.reserve(entry.memory_wanted(entry.capacity))?));
        }
        Ok(live.grants.clone())
    }
}
