//! Converting the slices of a volume to another layout. Each core converts its own.

use base::ByteLen;
use store::{CoreDisks, ReadFailure, SliceError, SliceSpec};

use super::{Volume, VolumeId, core_of};
use crate::shard::Shard;

/// One step of the conversion of a slice of a volume, on the slice's core: returns how much is left to copy.
///
/// Blocks that this node's disk cannot read are repaired from another copy first. The volume stays open until
/// the step has ended.
///
/// # Errors
/// Those of the layouts; [`SliceError::Offline`] if this node does not serve the slice.
pub async fn convert_some(id: VolumeId, slice: u16) -> Result<ByteLen, SliceError> {
    rt::call(core_of(slice, rt::cores()), move || async move {
        // Whoever closes the volume waits for its unit.
        let unit = Shard::current().unit(id).ok_or(SliceError::Offline)?;
        let slice = unit.volume().slice(slice).ok_or(SliceError::Offline)?;
        let converted = slice.layout().convert_some().await;
        match converted {
            Err(SliceError::Unreadable(bad)) if bad.cause != ReadFailure::Lost => {
                if slice.repair_found(bad).await { slice.layout().convert_some().await } else { converted }
            }
            _ => converted,
        }
    })
    .await
}

impl Volume {
    /// Tells this core's slices that the volume is being converted.
    pub fn begin_conversion(&self, specs: &[SliceSpec], disks: &CoreDisks) {
        for spec in specs {
            if let Some(slice) = self.slice(spec.index()) {
                slice.layout().begin_conversion(spec, disks);
            }
        }
    }

    /// How many of this core's slices have everything in both layouts, and keep it so from now on.
    ///
    /// # Errors
    /// See [`store::Slice::become_equal`]. Some slices may be equal.
    pub async fn become_equal(&self) -> Result<usize, SliceError> {
        let mut equal = 0;
        for slice in self.slices.iter().flatten() {
            equal += usize::from(slice.layout().become_equal().await?);
        }
        Ok(equal)
    }

    /// Waits for what a disk that hangs has not finished in layouts that this core's slices were being
    /// converted to: hosts have not waited for it.
    pub async fn late_ended(&self) {
        for slice in self.own_slices() {
            slice.layout().late_ended().await;
        }
    }

    /// Makes only the present layout of this core's slices count.
    pub fn count_present_only(&self) {
        self.slices.iter().flatten().for_each(|slice| slice.layout().count_present_only());
    }

    /// Lets this core's slices turn to the layout that they were converted to, or stay with the present one.
    /// Returns whether the space of the other one can be freed.
    pub async fn end_conversion(&self, switched: bool) -> bool {
        let mut is_free = true;
        for slice in self.slices.iter().flatten() {
            is_free &= slice.layout().end_conversion(switched).await;
        }
        is_free
    }
}
