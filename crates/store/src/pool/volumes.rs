//! Making, growing, changing and deleting volumes.

use base::{BlockSize, ByteLen};
use rt::CoreId;

use super::{Inner, Pool, Usage};
use crate::catalog::VolumeKind;
use crate::error::StoreError;
use crate::id::VolumeId;
use crate::slice::SliceSpec;
use crate::stripe::Stripe;

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// What it is called: 1 to 63 letters, digits, `.`, `_` or `-`, unique in the pool.
    pub name: String,
    /// Where its blocks are.
    pub kind: VolumeKind,
    /// The logical block.
    pub block_size: BlockSize,
    /// log2 of logical blocks in a physical block: 3 for 512e, 0 where they are the same. Only kept for the node.
    pub physical_exponent: u8,
    /// The size: a multiple of the block.
    pub capacity: ByteLen,
    /// Over how many slices it is striped, for ever; a power of two. `None`: one a core, fewer if it is small.
    pub slices: Option<u16>,
    /// When it is made, in seconds since 1970.
    pub created: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Who it is, for ever.
    pub id: VolumeId,
    /// What it is called.
    pub name: String,
    /// Where its blocks are.
    pub kind: VolumeKind,
    /// The logical block.
    pub block_size: BlockSize,
    /// log2 of logical blocks in a physical block.
    pub physical_exponent: u8,
    /// The size.
    pub capacity: ByteLen,
    /// How it maps to slices.
    pub stripe: Stripe,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What it takes of the pool (thick) or of memory at most (RAM).
    pub reserved: ByteLen,
}

impl Pool {
    /// All volumes, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        todo!()
    }

    /// One volume.
    pub fn volume(&self, id: VolumeId) -> Option<VolumeInfo> {
        todo!()
    }

    /// Makes a volume that reads as zeros.
    ///
    /// # Errors
    /// A specification that cannot be, a name that is taken, no space, or what writing the metadata met.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<VolumeInfo, StoreError> {
        todo!()
    }

    /// Makes a volume larger; what is new reads as zeros. Then give the slices that are open their new
    /// specifications ([`Slice::grow`](crate::Slice::grow)), and only then tell hosts the new size.
    ///
    /// # Errors
    /// [`StoreError::Shrink`], no space, or what writing the metadata met.
    pub async fn grow_volume(&self, id: VolumeId, capacity: ByteLen) -> Result<VolumeInfo, StoreError> {
        todo!()
    }

    /// Deletes a volume, and gives its space back. Its slices must have been closed on all cores.
    ///
    /// # Errors
    /// [`StoreError::VolumeOpen`], or what writing the metadata met.
    pub async fn delete_volume(&self, id: VolumeId) -> Result<(), StoreError> {
        todo!()
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// A name that cannot be or is taken, or what writing the metadata met.
    pub async fn rename_volume(&self, id: VolumeId, name: &str) -> Result<VolumeInfo, StoreError> {
        todo!()
    }

    /// Keeps the state of a volume's logical unit (reservations, mode pages): bytes that mean nothing here. Durable
    /// when done.
    ///
    /// # Errors
    /// [`StoreError::LuStateTooLarge`], [`StoreError::MetadataFull`], or what writing the metadata met.
    pub async fn set_lu_state(&self, id: VolumeId, state: Vec<u8>) -> Result<(), StoreError> {
        todo!()
    }

    /// What [`Pool::set_lu_state`] kept last; empty if it never did.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVolume`].
    pub fn lu_state(&self, id: VolumeId) -> Result<Vec<u8>, StoreError> {
        todo!()
    }

    /// The slices of a volume that `core` of `cores` serves: slice `i` belongs to core `i % cores`. To be opened
    /// there, once.
    ///
    /// # Errors
    /// [`StoreError::NoSuchVolume`]; [`StoreError::NoMemory`] for a RAM volume of an opened pool whose memory is not
    /// there.
    pub fn volume_slices(
        &self,
        id: VolumeId,
        core: CoreId,
        cores: usize,
    ) -> Result<Vec<SliceSpec>, StoreError> {
        todo!()
    }
}

impl Inner {
    pub(super) fn usage(&self) -> Usage {
        todo!()
    }

    pub(super) async fn export(self: std::rc::Rc<Self>) -> Result<(), StoreError> {
        todo!()
    }
}
