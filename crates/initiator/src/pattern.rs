//! Data that identifies itself: every sector carries its address and the number of its write, so that a
//! misplaced, lost or torn write is detected.
//!
//! | bytes of a sector | field, little-endian |
//! |---|---|
//! | 0-7 | the run: a random number |
//! | 8-15 | the sector's number on the unit, in sectors of 512 bytes |
//! | 16-23 | the number of the write, from 1 |
//! | 24-511 | words that are computed from the three above |

use std::fmt;

/// Every disk writes this much atomically.
const SECTOR: usize = 512;

/// The data of one run.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    run: u64,
}

/// A sector that does not hold the expected data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongSector {
    /// Its number on the unit, in sectors of 512 bytes.
    pub sector: u64,
    /// The write that it should hold.
    pub expected: u64,
    /// The run, sector and write in its first words.
    pub found: [u64; 3],
    /// Whether the rest of the sector agrees with those.
    pub whole: bool,
}

impl fmt::Display for WrongSector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongSector { sector, expected, found: [run, found, write], whole } = self;
        let state = if *whole { "" } else { ", damaged" };
        write!(
            f,
            "sector {sector} should hold write {expected}; it holds write {write} of sector {found} of run {run:#x}{state}"
        )
    }
}

impl Pattern {
    /// The data of the run with this number.
    pub fn new(run: u64) -> Pattern {
        Pattern { run }
    }

    /// Fills whole sectors, from byte `offset` of the unit on, with the data of write number `write`.
    pub fn fill(self, data: &mut [u8], offset: u64, write: u64) {
        for (i, sector) in data.as_chunks_mut::<SECTOR>().0.iter_mut().enumerate() {
            for (word, value) in sector.as_chunks_mut().0.iter_mut().zip(self.words(number(offset, i), write))
            {
                *word = value.to_le_bytes();
            }
        }
    }

    /// Checks data that was read from byte `offset` of the unit against write number `write`.
    pub fn check(self, data: &[u8], offset: u64, write: u64) -> Result<(), WrongSector> {
        for (i, sector) in data.as_chunks::<SECTOR>().0.iter().enumerate() {
            let found = || sector.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            if !found().eq(self.words(number(offset, i), write)) {
                let mut head = [0; 3];
                head.iter_mut().zip(found()).for_each(|(head, found)| *head = found);
                let whole = found().eq(Pattern { run: head[0] }.words(head[1], head[2]));
                return Err(WrongSector { sector: number(offset, i), expected: write, found: head, whole });
            }
        }
        Ok(())
    }

    /// The run, the sector and the write of data that is one write of whole sectors; `None`: it is something
    /// else, or damaged.
    pub fn identify(data: &[u8]) -> Option<(u64, u64, u64)> {
        let (words, _) = data.first_chunk::<24>()?.as_chunks::<8>();
        let [run, sector, write] = [0, 1, 2].map(|word| u64::from_le_bytes(words[word]));
        let offset = sector.checked_mul(SECTOR as u64)?;
        Pattern { run }.check(data, offset, write).ok()?;
        Some((run, sector, write))
    }

    fn words(self, sector: u64, write: u64) -> impl Iterator<Item = u64> {
        let mut state = self.run ^ sector.rotate_left(24) ^ write.rotate_left(48);
        let rest = std::iter::from_fn(move || {
            // A Weyl sequence: cheap, and no two of its words are the same.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            Some(state)
        });
        [self.run, sector, write].into_iter().chain(rest).take(SECTOR / 8)
    }
}

fn number(offset: u64, index: usize) -> u64 {
    offset / SECTOR as u64 + index as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_data_is_recognised() {
        let pattern = Pattern::new(7);
        let mut data = [0; 4096];
        pattern.fill(&mut data, 8192, 3);
        assert_eq!(data[..24], [7, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pattern.check(&data, 8192, 3), Ok(()));
        assert_eq!(Pattern::identify(&data), Some((7, 16, 3)));
        assert_eq!(Pattern::identify(&[0; 4096]), None);
        let stale = pattern.check(&data, 8192, 4).unwrap_err();
        assert_eq!(stale, WrongSector { sector: 16, expected: 4, found: [7, 16, 3], whole: true });
        let misplaced = pattern.check(&data, 4096, 3).unwrap_err();
        assert_eq!((misplaced.sector, misplaced.found[1]), (8, 16));
        data[1000] ^= 1;
        assert_eq!(Pattern::identify(&data), None);
        let damaged = pattern.check(&data, 8192, 3).unwrap_err();
        assert_eq!((damaged.sector, damaged.whole), (17, false));
        assert_eq!(
            damaged.to_string(),
            "sector 17 should hold write 3; it holds write 3 of sector 17 of run 0x7, damaged"
        );
    }
}
