//! Volumes that are grown, renamed or changed otherwise while they are in use.

use std::rc::Rc;

use base::{BlockCount, ByteLen};
use proto::scsi::LuConfig;
use store::{Compression, Pool, SpacePolicy, VolumeInfo, WhenFull};

use super::super::change::{Changing, WaitsFor};
use super::super::doing::Doing;
use super::super::turns::{NOTHING, Thing};
use super::super::{Control, ControlError, Result};
use super::{VolumeStatus, check_space, compression_in_logs, has_empty_slices, whole_blocks};
use crate::attach::access::VolumeName;
use crate::copies::volume_name_key;
use crate::data::VolumeId;
use crate::shard::{Shard, on_all_cores};

/// What to change in how a volume shares the space of its pool; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceChange {
    /// What its writes do when the pool is full.
    pub when_full: Option<WhenFull>,
    /// The space that only this volume can use.
    pub reserve: Option<ByteLen>,
}

impl SpaceChange {
    /// The policy after the change.
    #[must_use]
    pub fn of(self, before: SpacePolicy) -> SpacePolicy {
        SpacePolicy {
            when_full: self.when_full.unwrap_or(before.when_full),
            reserve: self.reserve.unwrap_or(before.reserve),
        }
    }
}

impl Control {
    /// Grows a volume that is in use.
    ///
    /// # Errors
    /// [`ControlError::WouldShrink`]; no space.
    pub async fn grow_volume(self: &Rc<Control>, name: &str, size: ByteLen) -> Result<VolumeStatus> {
        self.change_recorded(Doing::GrowVolume, name, move |control, changing, info| async move {
            control.grow_replicated(&changing, &info, size).await
        })
        .await
    }

    /// Changes a volume in the cluster's record. Each node holds the volume for its own part.
    async fn change_recorded<F: Future<Output = Result<()>> + 'static>(
        self: &Rc<Control>,
        doing: Doing,
        name: &str,
        change: impl FnOnce(Rc<Control>, Rc<Changing>, VolumeInfo) -> F + 'static,
    ) -> Result<VolumeStatus> {
        let (before, pool) = self.volume_and_pool_name(name)?;
        self.change(doing.of(&before.name), NOTHING, |control, changing| async move {
            changing.concerns(before.id);
            let volume = changing.hold(Thing::volume_in(before.id, pool)).await?;
            let (_, info) = control.volume_to_change(&before)?;
            drop(volume);
            change(Rc::clone(&control), changing, info).await?;
            control.volume(&before.id.to_string())
        })
        .await
    }

    /// Grows the slices of a volume on all cores to what its pool has added to them.
    pub(in crate::control) async fn grow_slices(&self, pool: &Pool, id: VolumeId) -> Result<()> {
        let pool_id = pool.id();
        let specs = self.specs_by_core(pool, id)?;
        on_all_cores(move || async move {
            let shard = Shard::current();
            if let (Some(volume), Some(disks)) = (shard.volume(id), shard.disks(pool_id)) {
                volume.grow(specs[usize::from(rt::core().0)].clone(), &disks);
            }
        })
        .await;
        Ok(())
    }

    /// Changes how a volume that is in use shares the space of its pool.
    ///
    /// # Errors
    /// The policy does not suit the volume; no space for the reserve.
    pub async fn set_space(self: &Rc<Control>, name: &str, change: SpaceChange) -> Result<VolumeStatus> {
        self.change_recorded(Doing::SetSpace, name, move |control, changing, info| async move {
            control.set_space_replicated(&changing, &info, change).await
        })
        .await
    }

    /// Checks, without doing it, whether a volume of this size could share the space of its pool in another
    /// way; returns how it does now, and how it would then.
    ///
    /// # Errors
    /// The policy does not suit the volume.
    pub fn check_set_space(
        &self,
        name: &str,
        change: SpaceChange,
        size: ByteLen,
    ) -> Result<(SpacePolicy, SpacePolicy)> {
        let VolumeStatus { info, .. } = self.volume(name)?;
        self.check_in_one_pool(&info)?;
        let after = change.of(info.space);
        check_space(after, info.kind, size)?;
        Ok((info.space, after))
    }

    /// Renames a volume. Its identity stays the same.
    pub async fn rename_volume(self: &Rc<Control>, name: &str, new_name: &str) -> Result<VolumeStatus> {
        let new_name: VolumeName = new_name.parse()?;
        let (before, pool) = self.volume_and_pool_name(name)?;
        self.change(Doing::RenameVolume.of(&before.name), NOTHING, |control, changing| async move {
            changing.concerns(before.id);
            let _name = changing.hold([Thing::VolumeName(new_name.to_string())]).await?;
            let _volume = changing.hold(Thing::volume_in(before.id, pool)).await?;
            if control.volume_named(new_name.as_str()).is_ok() {
                return Err(ControlError::Exists { kind: "volume", name: new_name.into() });
            }
            let (pool, before) = control.volume_to_change(&before)?;
            if before.is_sole() && !control.reconciler()?.has(before.id) {
                // Its name was taken in the record, which gets it soon.
                changing.waits_for(WaitsFor::Disks(pool.paths()));
                pool.rename_volume(before.id, new_name.as_str()).await?;
                return control.volume(&before.id.to_string());
            }
            changing.waits_for(WaitsFor::ClusterRecord);
            control.rename_replicated(&before, new_name.as_str()).await?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            // So that the old name is free here at once. If this fails, the pool follows later, as those of
            // the other nodes do.
            let _followed = pool.rename_volume(before.id, new_name.as_str()).await;
            control.volume(&before.id.to_string())
        })
        .await
    }

    /// Sets whether the blocks of a log-structured volume are compressed that are written from now on, on all
    /// nodes with a copy.
    ///
    /// # Errors
    /// The volume is not log-structured; errors of the cluster's record.
    pub async fn set_compression(
        self: &Rc<Control>,
        name: &str,
        compression: Compression,
    ) -> Result<VolumeStatus> {
        self.change_recorded(Doing::SetCompression, name, move |control, changing, info| async move {
            changing.waits_for(WaitsFor::ClusterRecord);
            control.set_compression_replicated(&info, compression).await
        })
        .await
    }

    /// Checks, without doing it, whether [`Control::set_compression`] is possible.
    ///
    /// # Errors
    /// There is no such volume, or it is not log-structured.
    pub fn check_compression(&self, name: &str) -> Result<()> {
        let VolumeStatus { info, .. } = self.volume(name)?;
        self.check_in_one_pool(&info)?;
        check_compressible(compression_in_logs(&info).is_some())
    }

    /// Checks, without doing it, whether a volume could get another name and size; returns its size after
    /// that.
    ///
    /// # Errors
    /// As [`Control::rename_volume`] and [`Control::grow_volume`], except those that only pools can report.
    pub fn check_change(&self, name: &str, new_name: Option<&str>, size: Option<ByteLen>) -> Result<ByteLen> {
        let VolumeStatus { info, copies, .. } = self.volume(name)?;
        self.check_in_one_pool(&info)?;
        if let Some(new_name) = new_name.filter(|new_name| *new_name != info.name) {
            let new_name: VolumeName = new_name.parse()?;
            let key = volume_name_key(new_name.as_str());
            let in_record = self.reconciler().is_ok_and(|reconciler| reconciler.revision_of(&key).is_some());
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
            Some(_) if !info.is_sole() && has_empty_slices(&info.stripe, from) => {
                Err(ControlError::TooSmallToGrow(info.name))
            }
            _ => Ok(to),
        }
    }
}

/// Tells all cores what writes to a volume do when its pool is full.
pub(in crate::control) async fn show_when_full(id: VolumeId, when_full: WhenFull) {
    on_all_cores(move || async move {
        if let Some(volume) = Shard::current().volume(id) {
            volume.set_when_full(when_full);
        }
    })
    .await;
}

/// Checks that a volume's blocks can be compressed: it is a log volume, or becomes one.
pub(in crate::control) fn check_compressible(is_log: bool) -> Result<()> {
    let reason = "only volumes of kind `log` can be compressed";
    match is_log {
        true => Ok(()),
        false => Err(ControlError::Invalid { field: "compression", reason }),
    }
}

/// Reports a volume's new capacity to hosts.
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
