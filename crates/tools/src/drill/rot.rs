//! Rot: bits of a copy's data change on the disk, and the disk reports no error.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use api::Client;
use base::{Buf, Rng};
use initiator::Pattern;
use serde::Serialize;

use super::DrillError;
use super::fleet::Member;
use super::moved::sum;
use super::watch::now;

/// How many blocks are damaged at a time, twice in a cycle.
///
/// A copy with more than 64 bad blocks within an hour is on a failing disk, and leaves.
const BLOCKS: usize = 20;

/// The block of a log volume, as it lies on the disk.
const BLOCK: usize = 4096;

/// Bytes that are read at once in search of blocks.
const PIECE_BYTES: usize = 1 << 20;

/// The node whose disk rots.
pub struct Rot {
    client: Client,
    pool: PathBuf,
    rng: Rng,
    damaged: u64,
}

/// What a node has made of the damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rotted {
    /// Blocks in which a bit was flipped.
    pub damaged_blocks: u64,
    /// Reads that have found that.
    pub failed_reads: u64,
    /// Blocks that were repaired from another copy.
    pub repaired_blocks: u64,
}

impl Rot {
    /// Damages some of the blocks that the load has written.
    pub fn begin(node: &Member) -> Result<Rot, DrillError> {
        let (client, pool) = (node.client.clone(), node.pool_file());
        let mut rot = Rot { client, pool, rng: Rng::new(now().0), damaged: 0 };
        rot.damage()?;
        Ok(rot)
    }

    /// Damages some more.
    pub fn damage(&mut self) -> Result<(), DrillError> {
        // Past the cache, as the node does: a page that is written back could undo what the node writes.
        let disk = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&self.pool);
        let damaged = disk.and_then(|disk| damage(&disk, BLOCKS, &mut self.rng));
        self.damaged += damaged.map_err(|error| DrillError::PoolFile(self.pool.clone(), error))?;
        Ok(())
    }

    /// What the node has found and repaired since it started.
    pub fn found(&self) -> Rotted {
        let metrics = self.client.metrics().unwrap_or_default();
        Rotted {
            damaged_blocks: self.damaged,
            failed_reads: sum(&metrics, "ursa_disk_read_errors_total{", &[]),
            repaired_blocks: sum(&metrics, "ursa_disk_repaired_blocks_total{", &[]),
        }
    }
}

/// Flips a bit in each of this many blocks of the load, or in all that there are; returns in how many.
fn damage(disk: &File, wanted: usize, rng: &mut Rng) -> io::Result<u64> {
    let mut places = newest(disk)?;
    let mut damaged = 0;
    while damaged < wanted && !places.is_empty() {
        let at = places.swap_remove(rng.below(places.len() as u64) as usize);
        damaged += usize::from(flip(disk, at, rng)?);
    }
    Ok(damaged as u64)
}

/// Where the newest write to each block lies. What it has replaced is still on the disk, but no read finds
/// damage there.
fn newest(disk: &File) -> io::Result<Vec<u64>> {
    let end = disk.metadata()?.len() / BLOCK as u64 * BLOCK as u64;
    let mut found: HashMap<(u64, u64), (u64, u64)> = HashMap::new();
    let mut buf = Buf::zeroed(PIECE_BYTES);
    let mut start = 0;
    while start < end {
        let piece = &mut buf[..(end - start).min(PIECE_BYTES as u64) as usize];
        disk.read_exact_at(piece, start)?;
        for (at, block) in (start..).step_by(BLOCK).zip(piece.chunks_exact(BLOCK)) {
            let Some((run, sector, write)) = Pattern::identify(block) else { continue };
            let known = found.entry((run, sector)).or_insert((write, at));
            if write > known.0 {
                *known = (write, at);
            }
        }
        start += piece.len() as u64;
    }
    Ok(found.into_values().map(|(_, at)| at).collect())
}

/// Flips a bit of the load's block there; returns false if the node has written something else meanwhile.
fn flip(disk: &File, at: u64, rng: &mut Rng) -> io::Result<bool> {
    let mut block = Buf::zeroed(BLOCK);
    disk.read_exact_at(&mut block, at)?;
    let is_of_load = Pattern::identify(&block).is_some();
    if is_of_load {
        block[rng.below(BLOCK as u64) as usize] ^= 1u8 << rng.below(8);
        disk.write_all_at(&block, at)?;
    }
    Ok(is_of_load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_flips_in_the_newest_write_of_each_block() {
        let disk = tempfile::tempfile().unwrap();
        let mut before = vec![0; 5 * BLOCK + 100];
        let pattern = Pattern::new(7);
        for (place, offset, write) in [(0, 8192, 1), (1, 8192, 2), (3, 0, 1)] {
            pattern.fill(&mut before[place * BLOCK..][..BLOCK], offset, write);
        }
        before[4 * BLOCK..5 * BLOCK].fill(9);
        disk.write_all_at(&before, 0).unwrap();
        let mut places = newest(&disk).unwrap();
        places.sort_unstable();
        assert_eq!(places, [BLOCK as u64, 3 * BLOCK as u64]);

        assert_eq!(damage(&disk, 9, &mut Rng::new(1)).unwrap(), 2, "there are no more");
        let mut after = vec![0; before.len()];
        disk.read_exact_at(&mut after, 0).unwrap();
        let flipped = |place: usize| -> u32 {
            let bytes = place * BLOCK..(place + 1) * BLOCK;
            bytes.map(|at| (before[at] ^ after[at]).count_ones()).sum()
        };
        assert_eq!([0, 1, 2, 3, 4].map(flipped), [0, 1, 0, 1, 0]);
        assert!(!flip(&disk, BLOCK as u64, &mut Rng::new(1)).unwrap(), "it is not damaged twice");
    }
}
