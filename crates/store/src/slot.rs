//! A metadata slot: one generation of the catalog, which is either intact or ignored. Byte table:
//! `docs/formats/pool.md`.

use base::Crc32c;

use crate::cursor::Cursor;
use crate::id::PoolId;
use crate::superblock::VERSION;

const MAGIC: &[u8; 8] = b"URSAMETA";

/// Bytes before the catalog.
pub(crate) const HEADER_BYTES: usize = 64;

/// Offset of the checksum in the header.
const CRC_AT: usize = 12;
const CRC_END: usize = CRC_AT + 4;

/// A slot's header, read before it is known whether the rest is intact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The generation of the catalog.
    pub generation: u64,
    /// The length of the catalog.
    pub len: u64,
}

/// Encodes a slot with `catalog`, without padding.
pub(crate) fn encode(pool: PoolId, generation: u64, catalog: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + catalog.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 6]);
    bytes.extend_from_slice(&pool.0);
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&(catalog.len() as u64).to_le_bytes());
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(catalog);
    let crc = checksum(&bytes);
    bytes[CRC_AT..CRC_END].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The checksum covers the whole header and the catalog; the checksum field itself counts as zeros.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&bytes[..CRC_AT]);
    crc.update(&[0; CRC_END - CRC_AT]);
    crc.update(&bytes[CRC_END..]);
    crc.value()
}

/// Decodes the header of a slot; `None` if it is not a slot of `pool`.
pub(crate) fn decode_header(pool: PoolId, bytes: &[u8]) -> Option<Header> {
    let mut fields = Cursor::new(bytes);
    if fields.take(MAGIC.len())? != MAGIC {
        return None;
    }
    if fields.u16()? != VERSION {
        return None;
    }
    fields.take(CRC_END - MAGIC.len() - 2)?;
    if fields.id()? != pool.0 {
        return None;
    }
    Some(Header { generation: fields.u64()?, len: fields.u64()? })
}

/// The catalog in a slot with this header, if it is intact.
pub(crate) fn decode(header: Header, bytes: &[u8]) -> Option<&[u8]> {
    let len = usize::try_from(header.len).ok()?.checked_add(HEADER_BYTES)?;
    let bytes = bytes.get(..len)?;
    let stored = Cursor::new(&bytes[CRC_AT..]).u32()?;
    (stored == checksum(bytes)).then(|| &bytes[HEADER_BYTES..])
}
