//! Recognizable content, and how much of a disk it takes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The smallest unit that a disk writes atomically.
pub const SECTOR: usize = 512;

/// Bytes that look random, the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&next(&mut state).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The next of a sequence of random numbers (xorshift64).
pub fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// `len` bytes in which every sector contains the writer, the number of the write, and the sector's place.
pub fn stamped(writer: u32, number: u64, first_sector: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (index, sector) in bytes.chunks_mut(SECTOR).enumerate() {
        sector[..4].copy_from_slice(b"e2e!");
        sector[4..8].copy_from_slice(&writer.to_le_bytes());
        sector[8..16].copy_from_slice(&number.to_le_bytes());
        sector[16..24].copy_from_slice(&(first_sector + index as u64).to_le_bytes());
        let fill = crc32c::crc32c(&sector[..24]);
        for word in sector[24..].chunks_mut(4) {
            word.copy_from_slice(&fill.to_le_bytes()[..word.len()]);
        }
    }
    bytes
}

/// The number of the write that a stamped sector comes from; `None` for zeros.
///
/// # Panics
/// If the sector is neither zeros nor a whole stamped sector of this writer and place.
#[track_caller]
pub fn stamp(sector: &[u8], writer: u32, place: u64) -> Option<u64> {
    if sector.iter().all(|&byte| byte == 0) {
        return None;
    }
    let number = u64::from_le_bytes(sector[8..16].try_into().expect("eight bytes"));
    assert_eq!(
        sector,
        stamped(writer, number, place, SECTOR),
        "sector {place} is torn, misplaced or not from writer {writer}"
    );
    Some(number)
}

/// Bytes that the files below `path` take on their disk, without holes.
pub fn disk_bytes(path: &Path) -> u64 {
    let metadata = fs::symlink_metadata(path).expect("the data directory is there");
    if !metadata.is_dir() {
        return metadata.blocks() * 512;
    }
    let entries = fs::read_dir(path).expect("the data directory can be read");
    entries.map(|entry| disk_bytes(&entry.expect("an entry can be read").path())).sum()
}
