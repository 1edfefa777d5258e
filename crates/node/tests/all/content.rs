//! What tests write: every sector contains its origin, so that a lost, misplaced or torn one is recognized.
//!
//! | bytes of a sector | field, little-endian |
//! |---|---|
//! | 0-7 | the volume, from 1 |
//! | 8-15 | the sector's number on the volume |
//! | 16-23 | the client |
//! | 24-31 | the number of the client's write, from 1 |
//! | 32-511 | words that follow from the four above |

use base::{Buf, Chain};

/// What every disk writes atomically, in bytes.
pub(crate) const SECTOR: usize = 512;

/// The client and the number of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    pub(crate) client: u64,
    pub(crate) sequence: u64,
}

/// A sector with content that no test wrote there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "shown when a test fails")]
pub(crate) struct Foreign {
    pub(crate) sector: u64,
    /// Volume, sector, client and sequence, as found.
    pub(crate) found: [u64; 4],
}

fn word(seed: [u64; 4], at: usize) -> u64 {
    let mixed = seed
        .iter()
        .fold(at as u64, |sum, part| (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    mixed ^ mixed >> 29
}

/// Data for the sectors of a volume from `first` on.
pub(crate) fn stamped(volume: u64, first: u64, sectors: usize, stamp: Stamp) -> Chain {
    let mut data = Buf::uncleared(sectors * SECTOR);
    for (sector, bytes) in (first..).zip(data.chunks_exact_mut(SECTOR)) {
        let head = [volume, sector, stamp.client, stamp.sequence];
        for (at, place) in bytes.chunks_exact_mut(8).enumerate() {
            let value = head.get(at).copied().unwrap_or_else(|| word(head, at));
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
    data.into()
}

/// The write that the sector comes from; `None` for zeros.
pub(crate) fn stamp_of(volume: u64, sector: u64, bytes: &[u8]) -> Result<Option<Stamp>, Foreign> {
    assert_eq!(bytes.len(), SECTOR);
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let found = [words[0], words[1], words[2], words[3]];
    let whole = words.iter().enumerate().skip(4).all(|(at, value)| *value == word(found, at));
    if found[..2] != [volume, sector] || !whole {
        return Err(Foreign { sector, found });
    }
    Ok(Some(Stamp { client: found[2], sequence: found[3] }))
}

/// The write that all of `data` comes from, which begins at sector `first`.
///
/// # Panics
/// If there is foreign data, or a mix.
pub(crate) fn single_stamp(volume: u64, first: u64, data: &[u8]) -> Option<Stamp> {
    let mut stamps = (first..).zip(data.chunks_exact(SECTOR)).map(|(sector, bytes)| {
        stamp_of(volume, sector, bytes).unwrap_or_else(|foreign| panic!("{foreign:?}"))
    });
    let stamp = stamps.next().unwrap();
    assert!(stamps.all(|other| other == stamp), "sectors from {first} on are a mix");
    stamp
}

#[test]
fn a_stamp_is_read_back_and_every_damage_is_seen() {
    let stamp = Stamp { client: 3, sequence: 9 };
    let data = stamped(7, 100, 2, stamp).to_vec();
    assert_eq!(single_stamp(7, 100, &data), Some(stamp));
    assert_eq!(stamp_of(7, 0, &[0; SECTOR]), Ok(None));
    assert!(stamp_of(8, 100, &data[..SECTOR]).is_err(), "another volume's");
    assert!(stamp_of(7, 101, &data[..SECTOR]).is_err(), "another place's");
    for at in 0..SECTOR {
        let mut damaged = data[..SECTOR].to_vec();
        damaged[at] ^= 1;
        assert_ne!(stamp_of(7, 100, &damaged), Ok(Some(stamp)), "byte {at}");
    }
}

#[test]
#[should_panic(expected = "a mix")]
fn a_mix_of_two_writes_is_seen() {
    let one = stamped(1, 0, 1, Stamp { client: 1, sequence: 1 }).to_vec();
    let other = stamped(1, 1, 1, Stamp { client: 1, sequence: 2 }).to_vec();
    single_stamp(1, 0, &[one, other].concat());
}
