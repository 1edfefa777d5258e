//! The data of writes: by default data that no target can compress or deduplicate.

use std::fmt;
use std::str::FromStr;

use base::{Buf, Rng, SharedBuf};
use serde::{Deserialize, Serialize};

/// The granularity of uniqueness: the block size of common file systems and deduplication.
const UNIT: usize = 4096;
/// The number of different units that are duplicated: few enough that a target finds the duplicates, but more
/// than one, as in real data.
const ORIGINALS: u64 = 16;
/// The random bytes from which mixed units are cut.
const SOURCE_BYTES: usize = 1 << 20;

/// The kind of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Content {
    /// Random: incompressible, and no 4 KiB occur twice.
    #[default]
    Random,
    /// Zeros, which many targets do not even store.
    Zero,
    /// In every 4 KiB, `compressible` percent are zeros; `dedup` percent of all 4 KiB are copies of one of a
    /// few.
    Mixed {
        /// Percent.
        compressible: u8,
        /// Percent.
        dedup: u8,
    },
}

/// An invalid description of data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown kind of data {0:?}; use random, zero, compressible=50, dedup=30 or compressible=50,dedup=30"
)]
pub struct InvalidContent(String);

impl FromStr for Content {
    type Err = InvalidContent;

    fn from_str(text: &str) -> Result<Content, InvalidContent> {
        let invalid = || InvalidContent(text.to_owned());
        match text {
            "random" => return Ok(Content::Random),
            "zero" => return Ok(Content::Zero),
            _ => {}
        }
        let (mut compressible, mut dedup) = (None, None);
        for part in text.split(',') {
            let (name, percent) = part.split_once('=').ok_or_else(invalid)?;
            let percent = percent.parse().ok().filter(|percent| *percent <= 100).ok_or_else(invalid)?;
            let field = match name {
                "compressible" => &mut compressible,
                "dedup" => &mut dedup,
                _ => return Err(invalid()),
            };
            if field.replace(percent).is_some() {
                return Err(invalid());
            }
        }
        Ok(Content::Mixed { compressible: compressible.unwrap_or(0), dedup: dedup.unwrap_or(0) })
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Random => f.write_str("random"),
            Content::Zero => f.write_str("zero"),
            Content::Mixed { compressible, dedup } => write!(f, "compressible={compressible},dedup={dedup}"),
        }
    }
}

impl TryFrom<String> for Content {
    type Error = InvalidContent;

    fn try_from(text: String) -> Result<Content, InvalidContent> {
        text.parse()
    }
}

impl From<Content> for String {
    fn from(content: Content) -> String {
        content.to_string()
    }
}

/// Generates the data of successive writes of the same length.
pub(crate) struct Filler {
    content: Content,
    len: usize,
    rng: Rng,
    /// Random bytes for mixed units; empty for the other kinds.
    source: SharedBuf,
    /// A buffer with the data of an earlier write, which changes only as far as necessary.
    spare: Option<SharedBuf>,
}

impl Filler {
    pub(crate) fn new(content: Content, len: usize, mut rng: Rng) -> Filler {
        let source_bytes = if matches!(content, Content::Mixed { .. }) { SOURCE_BYTES } else { 0 };
        let mut source = Buf::uncleared(source_bytes);
        rng.fill(&mut source);
        Filler { content, len, rng, source: source.share(), spare: None }
    }

    /// The data of the next write.
    pub(crate) fn next(&mut self) -> SharedBuf {
        let mut data = self.spare.take().unwrap_or_else(|| self.first());
        match self.content {
            Content::Zero => {}
            Content::Random => self.stamp(data.make_mut()),
            Content::Mixed { compressible, dedup } => self.mix(data.make_mut(), compressible, dedup),
        }
        data
    }

    fn first(&mut self) -> SharedBuf {
        let mut buf = Buf::zeroed(self.len);
        if self.content == Content::Random {
            self.rng.fill(&mut buf);
        }
        buf.share()
    }

    /// Takes back the data of a write for reuse. If it is still in use elsewhere, the next write gets a copy.
    pub(crate) fn give_back(&mut self, data: SharedBuf) {
        self.spare = Some(data);
    }

    /// Makes every unit unique: 16 random bytes at its start.
    fn stamp(&mut self, data: &mut [u8]) {
        for unit in data.chunks_mut(UNIT) {
            self.rng.fill(&mut unit[..16]);
        }
    }

    fn mix(&mut self, data: &mut [u8], compressible: u8, dedup: u8) {
        for unit in data.chunks_mut(UNIT) {
            let duplicate = self.rng.below(100) < u64::from(dedup);
            let random = unit.len() * usize::from(100 - compressible) / 100;
            let (random, zeros) = unit.split_at_mut(random);
            zeros.fill(0);
            // Originals begin where no other unit does: at the first offsets of the source that are not
            // multiples of 8.
            let from = match duplicate {
                true => 8 * self.rng.below(ORIGINALS) as usize + 1,
                false => 8 * self.rng.below((SOURCE_BYTES - UNIT) as u64 / 8) as usize,
            };
            random.copy_from_slice(&self.source[from..from + random.len()]);
            if !duplicate {
                let stamp = random.len().min(16);
                self.rng.fill(&mut random[..stamp]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_shown() {
        for text in ["random", "zero", "compressible=50,dedup=30"] {
            assert_eq!(text.parse::<Content>().unwrap().to_string(), text);
        }
        assert_eq!("dedup=7".parse(), Ok(Content::Mixed { compressible: 0, dedup: 7 }));
        for text in ["", "Random", "compressible=101", "dedup=", "dedup=1,dedup=2", "size=3"] {
            assert!(text.parse::<Content>().is_err(), "{text}");
        }
    }

    /// How often each unit of some writes occurs, and the share of zero bytes.
    fn units(content: Content) -> (BTreeMap<Vec<u8>, usize>, f64) {
        let mut filler = Filler::new(content, 8 * UNIT, Rng::new(1));
        let (mut units, mut zeros) = (BTreeMap::new(), 0);
        for _ in 0..200 {
            let data = filler.next();
            zeros += data.iter().filter(|byte| **byte == 0).count();
            data.chunks(UNIT).for_each(|unit| *units.entry(unit.to_vec()).or_default() += 1);
            filler.give_back(data);
        }
        (units, zeros as f64 / (200 * 8 * UNIT) as f64)
    }

    #[test]
    fn random_data_is_never_twice_the_same() {
        let (units, zeros) = units(Content::Random);
        assert_eq!(units.len(), 1600);
        assert!(zeros < 0.01, "{zeros}");
    }

    #[test]
    fn mixed_data_has_the_requested_shares() {
        let (units, zeros) = units(Content::Mixed { compressible: 50, dedup: 25 });
        let duplicates: usize = units.values().filter(|count| **count > 1).sum();
        assert!((320..480).contains(&duplicates), "{duplicates}");
        assert!((0.5..0.51).contains(&zeros), "{zeros}");
        assert_eq!(units.len(), 1600 - duplicates + ORIGINALS as usize);
    }

    #[test]
    fn zeros_are_zeros() {
        assert_eq!(units(Content::Zero).0.len(), 1);
    }

    #[test]
    fn memory_in_use_is_not_reused() {
        let mut filler = Filler::new(Content::Random, 512, Rng::new(1));
        let first = filler.next();
        let copy = first.to_vec();
        filler.give_back(first.clone());
        let second = filler.next();
        assert_eq!(*first, *copy);
        assert_ne!(*first, *second);
    }
}
