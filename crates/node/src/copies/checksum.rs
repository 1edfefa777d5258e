//! Whether copies are equal: a checksum of each slice as it is on this node's disk.

use base::{ByteLen, ByteOffset, Crc32c};
use store::{SliceError, VolumeId};

use crate::shard::Shard;
use crate::volume::Slice;

/// How much is read at once.
const STEP_BYTES: u64 = 1 << 20;

/// One CRC32C for each slice of a volume's copy here, in order; `None` if one cannot be read. What is written meanwhile is in it or not.
pub async fn checksum(volume: VolumeId, slices: u16) -> Option<Vec<u32>> {
    let volume = Shard::current().volume(volume)?;
    let mut all = Vec::new();
    for slice in 0..slices {
        all.push(volume.on_owner(slice, |slice| async move { of_slice(&slice).await }).await.ok()?);
    }
    Some(all)
}

async fn of_slice(slice: &Slice) -> Result<u32, SliceError> {
    let (mut crc, mut at) = (Crc32c::new(), 0);
    while at < slice.len().0 {
        let len = STEP_BYTES.min(slice.len().0 - at);
        let data = slice.read_raw(ByteOffset(at), ByteLen(len)).await?;
        data.parts().iter().for_each(|part| crc.update(part));
        at += len;
    }
    Ok(crc.value())
}
