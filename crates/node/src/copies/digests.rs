//! What a copy holds on this node's disk, in short.

use base::{ByteLen, ByteOffset};
use sha2::{Digest, Sha256};
use store::{BadBlock, SliceError, VolumeId};

use crate::control::note_bad_block;
use crate::shard::Shard;

/// What one digest is of: a region, so that a difference is told as precisely as a sync would mend it.
pub const DIGEST_BYTES: u64 = 64 << 10;
/// What may be asked for at once.
const DIGESTS_BYTES_MAX: u64 = 16 << 20;

/// The SHA-256 of each [`DIGEST_BYTES`] of a part of a slice, in order; the last may be of less. `None` if
/// the slice is not open, or that is too much at once. What is written meanwhile is in it or not. What the
/// disk does not read is first written again with what another copy holds, if that can be.
///
/// # Errors
/// The block that this node's disk does not read.
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
            // Hosts' commands of this core come in between.
            rt::next_turn().await;
        }
        Ok(digests)
    });
    match read.await {
        Ok(digests) => Some(Ok(digests)),
        Err(SliceError::Unreadable(bad)) => {
            note_bad_block(volume.id(), volume.volume_offset(slice, bad.offset), bad);
            Some(Err(bad))
        }
        Err(_) => None,
    }
}
