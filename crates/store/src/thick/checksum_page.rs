//! A page of checksums of a thick slice, as it lies on a disk.
//!
//! Byte table: `docs/formats/checksums.md`. Why pages are open or closed: `docs/why/checksums.md`.

use base::crc32c;

use crate::copy::MAP_PAGE_BYTES;
use crate::id::VolumeId;

/// What has one checksum: the largest block that a disk has.
pub(super) const UNIT: u64 = 4096;

/// Bytes of a page; a block of any disk, as a page of a dirty map.
pub(crate) const PAGE_BYTES: usize = MAP_PAGE_BYTES;

const HEADER_BYTES: usize = 64;

const PAGE_SUMS: usize = (PAGE_BYTES - HEADER_BYTES) / 4;

/// Units that a page covers.
pub(super) const PAGE_UNITS: u64 = PAGE_SUMS as u64;

/// Bytes of the slice that a page covers.
pub(crate) const PAGE_COVERS: u64 = PAGE_UNITS * UNIT;

const MAGIC: [u8; 8] = *b"URSASUMS";
const VERSION: u16 = 1;
const CLOSED: u8 = 1;
const OPEN: u8 = 2;
const CRC_AT: usize = 12;

/// The CRC32C of a unit of zeros.
const OF_ZEROS: u32 = 0x98f9_4189;

/// How many pages of checksums a slice of `len` bytes has.
pub(crate) fn checksum_pages(len: u64) -> u64 {
    len.div_ceil(PAGE_COVERS)
}

/// What is known of the content of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum(u32);

impl Sum {
    /// The unit is zeros: what a page says that was never written.
    pub(super) const ZEROS: Sum = Sum(0);
    /// The unit may hold anything.
    pub(super) const UNKNOWN: Sum = Sum(u32::MAX);

    /// That of a unit with this CRC32C.
    pub(super) fn of_crc(crc: u32) -> Sum {
        // No unit counts as unknown because of its content.
        Sum((crc ^ OF_ZEROS).min(u32::MAX - 1))
    }

    /// That of a unit with this content.
    pub(super) fn of(unit: &[u8]) -> Sum {
        Sum::of_crc(crc32c(unit))
    }
}

pub(crate) type Sums = Box<[Sum; PAGE_SUMS]>;

/// Those of units that were never written.
pub(crate) fn zeros() -> Sums {
    Box::new([Sum::ZEROS; PAGE_SUMS])
}

/// Which page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) volume: VolumeId,
    /// The number of the slice in its volume.
    pub(crate) slice: u16,
    pub(crate) page: u64,
}

/// What a page on a disk says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The checksums of what was durable when it was written. Nothing was written since.
    Closed(Sums),
    /// Units may have been written since: it says nothing of any.
    Open,
    /// It is not whole, or another page: it says nothing of any unit.
    Damaged,
}

/// The page with these checksums, closed, or open.
pub(crate) fn encode(identity: Identity, sums: &Sums, is_closed: bool) -> [u8; PAGE_BYTES] {
    let mut bytes = [0; PAGE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10] = if is_closed { CLOSED } else { OPEN };
    bytes[16..32].copy_from_slice(&identity.volume.0);
    bytes[32..34].copy_from_slice(&identity.slice.to_le_bytes());
    bytes[40..48].copy_from_slice(&identity.page.to_le_bytes());
    for (target, sum) in bytes[HEADER_BYTES..].chunks_exact_mut(4).zip(sums.iter()) {
        target.copy_from_slice(&sum.0.to_le_bytes());
    }
    let crc = crc32c(&bytes);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes what should be this page. Takes any bytes.
pub(crate) fn decode(identity: Identity, bytes: &[u8]) -> Found {
    if bytes.len() != PAGE_BYTES {
        return Found::Damaged;
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Closed(zeros());
    }
    let mut sums = zeros();
    for (sum, bytes) in sums.iter_mut().zip(bytes[HEADER_BYTES..].chunks_exact(4)) {
        *sum = Sum(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    }
    // Only what would be written today is whole.
    if bytes[10] == CLOSED {
        let is_whole = encode(identity, &sums, true)[..] == *bytes;
        return if is_whole { Found::Closed(sums) } else { Found::Damaged };
    }
    // It may be torn, which does not matter: the power failed while the page was being opened or closed.
    let header = encode(identity, &sums, false);
    let is_open = header[..CRC_AT] == bytes[..CRC_AT] && header[16..HEADER_BYTES] == bytes[16..HEADER_BYTES];
    if is_open { Found::Open } else { Found::Damaged }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { volume: VolumeId([7; 16]), slice: 258, page: 3 };

    fn sums() -> Sums {
        let mut sums = zeros();
        sums[0] = Sum::of(&[7; UNIT as usize]);
        sums[1] = Sum::UNKNOWN;
        sums
    }

    #[test]
    fn bytes_are_as_documented() {
        let bytes = encode(IDENTITY, &sums(), true);
        assert_eq!(bytes[..12], *b"URSASUMS\x01\x00\x01\x00");
        let mut unsigned = bytes;
        unsigned[12..16].fill(0);
        assert_eq!(bytes[12..16], crc32c(&unsigned).to_le_bytes());
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..40], [0x02, 0x01, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..48], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[48..64].iter().all(|byte| *byte == 0));
        // The CRC32C of 4096 sevens is 978678a9, that of 4096 zeros 98f94189.
        assert_eq!(bytes[64..76], [0x20, 0x39, 0x7f, 0x0f, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(encode(IDENTITY, &sums(), false)[10], 2);
        assert_eq!(PAGE_UNITS, 1008);
    }

    #[test]
    fn zeros_have_the_sum_of_a_page_that_was_never_written() {
        assert_eq!(Sum::of(&[0; UNIT as usize]), Sum::ZEROS);
        assert_eq!(decode(IDENTITY, &[0; PAGE_BYTES]), Found::Closed(zeros()));
        assert_ne!(Sum::of_crc(!OF_ZEROS), Sum::UNKNOWN);
    }

    #[test]
    fn a_page_that_is_not_whole_or_is_another_says_nothing() {
        let closed = encode(IDENTITY, &sums(), true);
        assert_eq!(decode(IDENTITY, &closed), Found::Closed(sums()));
        assert_eq!(decode(IDENTITY, &encode(IDENTITY, &sums(), false)), Found::Open);
        let others = [
            Identity { page: 4, ..IDENTITY },
            Identity { slice: 0, ..IDENTITY },
            Identity { volume: VolumeId([8; 16]), ..IDENTITY },
        ];
        for other in others {
            assert_eq!(decode(other, &closed), Found::Damaged);
        }
        for bit in 0..PAGE_BYTES * 8 {
            let mut bytes = closed;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(decode(IDENTITY, &bytes), Found::Closed(_)), "bit {bit}");
        }
        assert_eq!(decode(IDENTITY, &closed[..512]), Found::Damaged);
    }

    /// A power cut keeps any sectors of a page that is being written.
    #[test]
    fn a_torn_page_says_what_was_before_or_what_is_after_or_nothing() {
        let (mut before, after) = (zeros(), sums());
        before[900] = Sum::of(&[1; UNIT as usize]);
        let closed = encode(IDENTITY, &before, true);
        let opened = encode(IDENTITY, &before, false);
        let closed_again = encode(IDENTITY, &after, true);
        let torn = |from: &[u8; PAGE_BYTES], to: &[u8; PAGE_BYTES], sectors: u32| {
            let mut bytes = *from;
            for sector in (0..8).filter(|sector| sectors >> sector & 1 == 1) {
                let range = sector * 512..sector * 512 + 512;
                bytes[range.clone()].copy_from_slice(&to[range]);
            }
            decode(IDENTITY, &bytes)
        };
        for sectors in 0..256 {
            let found = torn(&closed, &opened, sectors);
            let is_old = found == Found::Closed(before.clone());
            assert!(is_old && sectors & 1 == 0 || found == Found::Open && sectors & 1 == 1, "{sectors}");
            match torn(&opened, &closed_again, sectors) {
                Found::Closed(found) => assert_eq!(found, after),
                Found::Open => assert_eq!(sectors & 1, 0),
                Found::Damaged => assert_eq!(sectors & 1, 1),
            }
        }
    }
}
