//! Whether copies are equal: a checksum of each slice as it is on this node's disk.

use base::{ByteLen, ByteOffset, Crc32c};
use rt::CoreId;
use store::VolumeId;

use crate::shard::Shard;
use crate::volume::core_of;

/// How much is read at once.
const STEP_BYTES: u64 = 1 << 20;

/// One CRC32C for each slice of a volume's copy here, in order; `None` if one cannot be read. What is written meanwhile is in it or not.
pub async fn checksum(volume: VolumeId, slices: u16) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for slice in 0..slices {
        let core: CoreId = core_of(slice, rt::cores());
        all.push(rt::call(core, move || of_slice(volume, slice)).await?);
    }
    Some(all)
}

async fn of_slice(volume: VolumeId, slice: u16) -> Option<u32> {
    let slice = Shard::current().volume(volume)?.slice_of_this_core(slice)?;
    let (mut crc, mut at) = (Crc32c::new(), 0);
    while at < slice.len().0 {
        let len = STEP_BYTES.min(slice.len().0 - at);
        let data = slice.read_raw(ByteOffset(at), ByteLen(len)).await.ok()?;
        data.parts().iter().for_each(|part| crc.update(part));
        at += len;
    }
    Some(crc.value())
}
