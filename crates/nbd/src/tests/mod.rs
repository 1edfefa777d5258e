//! The protocol against scripted clients.

mod answers;
mod connections;
mod malformed;
mod negotiations;

use crate::{Export, Extent, Map, Piece, Source};

/// The size of the image: not a whole number of blocks.
pub const SIZE: u64 = (3 << 20) + 512;

/// Data in the first half of each 64 KiB; every fourth 64 KiB has changed. From `bad` on nothing can be read.
pub struct Image {
    pub bad: u64,
}

pub const IMAGE: Image = Image { bad: u64::MAX };

const UNIT: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
#[error("a bad block")]
pub struct Bad;

impl Image {
    pub fn byte(at: u64) -> u8 {
        if at % UNIT < UNIT / 2 { (at / 512 % 255) as u8 + 1 } else { 0 }
    }

    fn is_set(map: Map, at: u64) -> bool {
        match map {
            Map::Allocation => at % UNIT < UNIT / 2,
            Map::Changes => (at / UNIT).is_multiple_of(4),
        }
    }
}

impl Source for Image {
    type Error = Bad;

    /// Short pieces, and zeros as data or as zeros.
    fn read(&self, offset: u64, len: u64) -> Result<Piece, Bad> {
        assert!(len > 0 && offset + len <= SIZE, "{len} bytes at {offset}");
        let len = len.min(200_000).min(self.bad.saturating_sub(offset));
        let zeros = UNIT - offset % UNIT;
        if len == 0 {
            Err(Bad)
        } else if zeros <= UNIT / 2 && offset.is_multiple_of(8192) {
            Ok(Piece::Zeros(zeros.min(len)))
        } else {
            Ok(Piece::Data((offset..offset + len).map(Image::byte).collect()))
        }
    }

    fn extents(&self, map: Map, offset: u64, len: u64) -> Result<Vec<Extent>, Bad> {
        assert!(len > 0 && offset + len <= SIZE, "{len} bytes at {offset}");
        if offset >= self.bad {
            return Err(Bad);
        }
        // Halves of units; the first one is cut, and the last one may end behind the range.
        let mut at = offset;
        let halves = std::iter::from_fn(|| {
            let half = Extent { len: UNIT / 2 - at % (UNIT / 2), is_set: Image::is_set(map, at) };
            let is_inside = at < offset + len;
            at += half.len;
            is_inside.then_some(half)
        });
        Ok(halves.collect())
    }
}

pub fn export() -> Export {
    Export { name: "db@b".into(), description: "volume db".into(), size: SIZE, bitmap: Some("a".into()) }
}
