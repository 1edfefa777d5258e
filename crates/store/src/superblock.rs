//! The superblock: which pool and which of its disks this is, its layout, and which generation is certainly
//! durable.
//!
//! Byte table: `docs/formats/pool.md`.

use base::crc32c;

use crate::cursor::Cursor;
use crate::geometry::{Geometry, SUPERBLOCK_BYTES};
use crate::id::{DiskId, PoolId};

const MAGIC: &[u8; 8] = b"URSAPOOL";

/// The version of the format of everything in a pool, except the contents of volumes.
pub(crate) const VERSION: u16 = 1;

/// Whether zeroing frees a disk's space or keeps it.
const GIVEN_BACK: u8 = 1;
const KEPT: u8 = 2;

base::numbered! {
    /// What a pool uses a disk for.
    ///
    /// A disk with another role is refused ([`Unreadable::Role`]): a version that does not know the role
    /// would put extents on the disk.
    pub(crate) enum DiskRole: u8 {
        /// Extents of volumes.
        Data = 1,
    }
}

/// Offset of the checksum, which covers everything before it.
pub(crate) const CRC_AT: usize = SUPERBLOCK_BYTES as usize - 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub pool: PoolId,
    pub disk: DiskId,
    pub index: u16,
    pub count: u16,
    /// This generation of the metadata is durable on every disk that has metadata.
    pub generation: u64,
    pub geometry: Geometry,
    /// Whether the disk's space stays allocated when it is zeroed ([`rt::Disk::is_reserved`]).
    pub reserved: bool,
    pub role: DiskRole,
}

/// Why a superblock could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// There is no superblock.
    Absent,
    /// There was one, but the checksum is wrong, or a field is impossible.
    Damaged,
    /// It is intact, but of an unknown version.
    Version(u16),
    /// It is intact, but the disk has an unknown role.
    Role { role: u8, generation: u64 },
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SUPERBLOCK_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.index.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.pool.0);
        bytes.extend_from_slice(&self.disk.0);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.disk_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.extent_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.slot_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.extents.to_le_bytes());
        bytes.push(if self.reserved { KEPT } else { GIVEN_BACK });
        bytes.push(self.role as u8);
        bytes.resize(CRC_AT, 0);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Superblock, Unreadable> {
        if !bytes.starts_with(MAGIC) {
            return Err(Unreadable::Absent);
        }
        let (covered, crc) = bytes.split_at_checked(CRC_AT).ok_or(Unreadable::Damaged)?;
        if crc != crc32c(covered).to_le_bytes() {
            return Err(Unreadable::Damaged);
        }
        let mut fields = Cursor::new(&covered[MAGIC.len()..]);
        match fields.u16().ok_or(Unreadable::Damaged)? {
            VERSION => Superblock::decode_fields(fields).unwrap_or(Err(Unreadable::Damaged)),
            other => Err(Unreadable::Version(other)),
        }
    }

    /// `None`: a field is impossible.
    fn decode_fields(mut fields: Cursor<'_>) -> Option<Result<Superblock, Unreadable>> {
        let index = fields.u16()?;
        let count = fields.u16()?;
        fields.take(2)?;
        let pool = PoolId(fields.id()?);
        let disk = DiskId(fields.id()?);
        let generation = fields.u64()?;
        let disk_bytes = fields.u64()?;
        let extent_bytes = fields.u64()?;
        let slot_bytes = fields.u64()?;
        let extents = fields.u32()?;
        let zeroed = fields.u8()?;
        let role = fields.u8()?;
        // Comes first: what the other fields may be depends on the role.
        let Some(role) = DiskRole::from_number(role) else {
            return Some(Err(Unreadable::Role { role, generation }));
        };
        let geometry = Geometry::new(disk_bytes, extent_bytes, slot_bytes)?;
        let sound = index < count
            && usize::from(count) <= crate::geometry::DISKS_MAX
            && geometry.disk_bytes == disk_bytes
            && geometry.extents == extents;
        let reserved = match zeroed {
            GIVEN_BACK => false,
            KEPT => true,
            _ => return None,
        };
        let superblock = Superblock { pool, disk, index, count, generation, geometry, reserved, role };
        sound.then_some(Ok(superblock))
    }
}
