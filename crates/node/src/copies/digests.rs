//! Digests of what a copy holds on this node's disk, to compare copies.

use base::{ByteLen, ByteOffset};
use sha2::{Digest, Sha256};
use store::{BadBlock, SliceError, VolumeId};

use crate::control::note_bad_block;
use crate::shard::Shard;

/// The bytes that one digest covers: a region, so a difference is located as precisely as a resync would
/// repair it.
pub const DIGEST_BYTES: u64 = 64 << 10;
/// The most bytes that one call may cover.
const DIGESTS_BYTES_MAX: u64 = 16 << 20;

/// The SHA-256 of each [`DIGEST_BYTES`] of a part of a slice, in order; the last one may cover fewer bytes.
///
/// `None`: the slice is not open, or the part is too long. A write during the call may or may not be
/// included. Blocks that the disk cannot read are first rewritten with what another copy holds, if possible.
///
/// # Errors
/// The block that this node's disk cannot read.
pub async fn digests(
    volume: VolumeId,
    slice: u16,
    offset: u64,
    len: u64,
) -> Option<Result<Vec<[u8; 32]>, BadBlock>> {
    if len > DIGESTS_BYTES_MAX {
        return None;
    }
    let volume = Shard::current().volume(volume)?;
    let read = volume.on_owner(slice, move |slice| async move {
        let mut digests = Vec::new();
        let (mut at, end) = (offset, offset.saturating_add(len).min(slice.len().0));
        while at < end {
            let len = DIGEST_BYTES.min(end - at);
            let data = slice.read_repaired(ByteOffset(at), ByteLen(len)).await?;
            let mut sha = Sha256::new();
            data.parts().iter().for_each(|part| sha.update(&part[..]));
            digests.push(sha.finalize().into());
            at += len;
            // Let commands of hosts run on this core in between.
            rt::next_turn().await;
        }
        Ok(digests)
    });
    match read.await {
        Ok(digests) => Some(Ok(digests)),
        Err(SliceError::Unreadable(bad)) => {
            note_bad_block(volume.id(), volume.volume_offset(slice, bad.offset), bad, None);
            Some(Err(bad))
        }
        Err(_) => None,
    }
}
