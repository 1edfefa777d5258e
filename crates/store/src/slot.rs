//! A metadata slot: one generation of the catalogue, whole or not there. Byte table: `docs/formats/pool.md`.

use base::Crc32c;

use crate::cursor::Cursor;
use crate::id::PoolId;
use crate::superblock::VERSION;

const MAGIC: &[u8; 8] = b"URSAMETA";

/// Before the catalogue.
pub(crate) const HEADER_BYTES: usize = 64;

/// Where the checksum is in the header: over all behind it.
const CRC_AT: usize = 12;
const CRC_END: usize = CRC_AT + 4;

/// A slot's header, before anybody knows whether the rest is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Of the catalogue.
    pub generation: u64,
    /// The catalogue's length.
    pub len: u64,
}

/// The slot's bytes for `catalog`, without padding.
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

/// The magic and the version are covered as well; the checksum itself counts as zeros.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&bytes[..CRC_AT]);
    crc.update(&[0; CRC_END - CRC_AT]);
    crc.update(&bytes[CRC_END..]);
    crc.value()
}

/// The header of a slot of `pool`, if that is one.
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

/// The catalogue in a slot whose header says `header`, if it is whole.
pub(crate) fn decode(header: Header, bytes: &[u8]) -> Option<&[u8]> {
    let len = usize::try_from(header.len).ok()?.checked_add(HEADER_BYTES)?;
    let bytes = bytes.get(..len)?;
    let stored = Cursor::new(&bytes[CRC_AT..]).u32()?;
    (stored == checksum(bytes)).then(|| &bytes[HEADER_BYTES..])
}
