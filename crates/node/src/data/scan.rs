//! Operations that read blocks and change none: VERIFY and GET LBA STATUS.

use base::{BlockCount, ByteLen, Chain, Lba, LbaRange};
use proto::block::{BlockDone, BlockError, Provisioning};
use store::Piece;

use super::{ClaimRole, Volume};

/// How many bytes one GET LBA STATUS looks at. It reports less than it could, as the standard allows, so that
/// no command keeps the slices busy with their maps for long. A striped volume has 4,096 pieces in this
/// range.
const STATUS_BYTES_MAX: u64 = 4 << 30;

/// The longest piece that is looked at in one turn: 4,096 chunks of memory, or a few hundred µs of a file
/// system's time if it has many extents there.
const STATUS_PIECE_BYTES_MAX: u64 = 64 << 20;

/// Pieces that are looked at before other tasks of the core run: about a microsecond each.
const STATUS_PIECES_A_TURN: usize = 16;

impl Volume {
    /// Reads all of `range`, only to find errors.
    pub(super) async fn verify(&self, range: LbaRange) -> Result<BlockDone, BlockError> {
        for step in self.steps(range) {
            self.read(step, ClaimRole::Ordinary).await?;
        }
        Ok(BlockDone::Done)
    }

    /// Compares `range` with `data`: either as many bytes, or one block that every block is compared with.
    pub(super) async fn compare(&self, range: LbaRange, data: &Chain) -> Result<BlockDone, BlockError> {
        let repeated = data.len() as u64 != (range.count * self.block_size).0;
        let mut at = 0;
        for step in self.steps(range) {
            let found = self.read(step, ClaimRole::Ordinary).await?;
            let len = found.len();
            let differs = if repeated {
                let block = data.len();
                let blocks = (0..len).step_by(block);
                blocks
                    .filter_map(|start| {
                        Some(start as u64 + first_difference(&found.slice(start..start + block), data)?)
                    })
                    .next()
            } else {
                first_difference(&found, &data.slice(at..at + len))
            };
            if let Some(offset) = differs {
                // With one block for all, the offset counts within that block (SBC-3 5.34).
                let offset = if repeated { offset % data.len() as u64 } else { at as u64 + offset };
                return Err(BlockError::Miscompare(offset));
            }
            at += len;
        }
        Ok(BlockDone::Done)
    }

    /// The state of the blocks from `start` on, in at most `max` descriptors.
    pub(super) async fn lba_status(
        &self,
        start: Lba,
        max: usize,
    ) -> Result<Vec<(Lba, BlockCount, Provisioning)>, BlockError> {
        let mut status = Extents { found: Vec::new(), max, full: false };
        let rest =
            self.blocks.get().0.saturating_sub(start.0).min(STATUS_BYTES_MAX >> self.block_size.shift());
        let rest = LbaRange { start, count: BlockCount(rest) };
        let pieces = self.pieces(rest).flat_map(|piece| parts(piece, ByteLen(STATUS_PIECE_BYTES_MAX)));
        for (number, piece) in (1..).zip(pieces) {
            let first = self.lba(piece.volume_offset);
            let count = piece.len.0 >> self.block_size.shift();
            let allocated = self.on_owner(piece.slice, move |slice| async move {
                slice.allocated(piece.offset, piece.len, max).await
            });
            let allocated = allocated.await.map_err(|error| self.block_error(piece, error))?;
            let is_all = allocated.len() < max;
            let mut at = 0;
            for (offset, len) in allocated {
                // A block with one allocated byte is mapped.
                let from = ((offset.0 - piece.offset.0) >> self.block_size.shift()).max(at);
                let to = (offset.0 - piece.offset.0 + len.0)
                    .div_ceil(u64::from(self.block_size.bytes()))
                    .min(count);
                status.add(first + BlockCount(at), from.saturating_sub(at), Provisioning::Deallocated);
                status.add(first + BlockCount(from), to.saturating_sub(from), Provisioning::Mapped);
                at = at.max(to);
            }
            // Several extents may lie in one block, so `status` may still have room. The next command begins
            // where these extents end.
            if !is_all {
                break;
            }
            status.add(first + BlockCount(at), count - at, Provisioning::Deallocated);
            if status.full {
                break;
            }
            if number % STATUS_PIECES_A_TURN == 0 {
                rt::next_turn().await;
            }
        }
        Ok(status.found)
    }
}

/// Splits a piece into parts of at most `max`: a piece of a volume with one slice may be very long.
fn parts(piece: Piece, max: ByteLen) -> impl Iterator<Item = Piece> {
    (0..piece.len.0).step_by(max.0 as usize).map(move |at| Piece {
        offset: piece.offset + ByteLen(at),
        volume_offset: piece.volume_offset + ByteLen(at),
        len: ByteLen((piece.len.0 - at).min(max.0)),
        ..piece
    })
}

/// Consecutive extents, merged where the state does not change.
struct Extents {
    found: Vec<(Lba, BlockCount, Provisioning)>,
    max: usize,
    /// An extent was left out: no later extent may be added.
    full: bool,
}

impl Extents {
    fn add(&mut self, start: Lba, count: u64, state: Provisioning) {
        if count == 0 || self.full {
            return;
        }
        let room = self.found.len() < self.max;
        match self.found.last_mut() {
            Some((_, length, last)) if *last == state => length.0 += count,
            _ if room => self.found.push((start, BlockCount(count), state)),
            _ => self.full = true,
        }
    }
}

/// The first difference between two chains of the same length.
pub(super) fn first_difference(a: &Chain, b: &Chain) -> Option<u64> {
    let (a, b) = (a.contiguous(), b.contiguous());
    assert_eq!(a.len(), b.len(), "lengths were checked when the command was parsed");
    if *a == *b {
        return None;
    }
    a.iter().zip(b.iter()).position(|(a, b)| a != b).map(|at| at as u64)
}
