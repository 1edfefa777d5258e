//! A set of regions, which may be as large as all regions of a disk of many terabytes.
//!
//! 64 neighbors share one word: a TiB of 64 KiB regions, all in the set, takes 6 MiB of memory and 3 MiB on
//! the wire. Scattered regions take some dozen bytes each.

use std::collections::BTreeMap;

const WORD: u64 = u64::BITS as u64;

/// A set of regions, in order; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// Never zero; the key is the first region of the word divided by 64.
    words: BTreeMap<u64, u64>,
    len: u64,
}

impl Regions {
    /// How many regions the set has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the region is in the set.
    pub fn contains(&self, region: u64) -> bool {
        self.words.get(&(region / WORD)).is_some_and(|word| word & bit(region) != 0)
    }

    /// Adds a region.
    pub fn insert(&mut self, region: u64) {
        let word = self.words.entry(region / WORD).or_default();
        self.len += u64::from(*word & bit(region) == 0);
        *word |= bit(region);
    }

    /// The first region.
    pub fn first(&self) -> Option<u64> {
        let (at, word) = self.words.first_key_value()?;
        Some(at * WORD + u64::from(word.trailing_zeros()))
    }

    /// Removes the first region and returns it.
    pub fn pop_first(&mut self) -> Option<u64> {
        let mut entry = self.words.first_entry()?;
        let region = entry.key() * WORD + u64::from(entry.get().trailing_zeros());
        *entry.get_mut() &= !bit(region);
        if *entry.get() == 0 {
            entry.remove();
        }
        self.len -= 1;
        Some(region)
    }

    /// Moves all regions of `other` into this set.
    pub fn append(&mut self, other: &mut Regions) {
        for (at, word) in std::mem::take(other).words {
            self.insert_word(at, word);
        }
    }

    /// Keeps the regions for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        *self = self.iter().filter(|region| keep(*region)).collect();
    }

    /// All regions, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let of_word = |(at, word): (&u64, &u64)| {
            let (at, word) = (*at, *word);
            (0..WORD).map(move |offset| at * WORD + offset).filter(move |region| word & bit(*region) != 0)
        };
        self.words.iter().flat_map(of_word)
    }

    /// The words as they go on the wire: the number of each and its bits, in order, none zero.
    pub(crate) fn words(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.words.iter().map(|(at, word)| (*at, *word))
    }

    /// Adds the regions of a word.
    pub(crate) fn insert_word(&mut self, at: u64, bits: u64) {
        if bits != 0 {
            let word = self.words.entry(at).or_default();
            self.len += u64::from((bits & !*word).count_ones());
            *word |= bits;
        }
    }

    /// The number of the last word.
    pub(crate) fn last_word(&self) -> Option<u64> {
        self.words.last_key_value().map(|(at, _)| *at)
    }

    /// The last region.
    pub(crate) fn last(&self) -> Option<u64> {
        let (at, word) = self.words.last_key_value()?;
        Some(at * WORD + u64::from(word.ilog2()))
    }
}

fn bit(region: u64) -> u64 {
    1 << (region % WORD)
}

impl FromIterator<u64> for Regions {
    fn from_iter<I: IntoIterator<Item = u64>>(regions: I) -> Regions {
        let mut set = Regions::default();
        regions.into_iter().for_each(|region| set.insert(region));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::Rng;

    use super::*;

    #[test]
    fn it_is_a_set() {
        let mut rng = Rng::new(1);
        for _ in 0..50 {
            let (mut set, mut model) = (Regions::default(), BTreeSet::new());
            for _ in 0..400 {
                match rng.below(8) {
                    0 => assert_eq!(set.pop_first(), model.pop_first()),
                    1 => {
                        let more: Vec<u64> = (0..rng.below(40)).map(|_| rng.below(1000)).collect();
                        set.append(&mut more.iter().copied().collect());
                        model.extend(more);
                    }
                    2 => {
                        let third = rng.below(3);
                        set.retain(|region| region % 3 != third);
                        model.retain(|region| region % 3 != third);
                    }
                    _ => {
                        let region = rng.below(1000);
                        assert_eq!(set.contains(region), model.contains(&region));
                        set.insert(region);
                        model.insert(region);
                    }
                }
                assert!(set.iter().eq(model.iter().copied()));
                assert_eq!((set.len(), set.is_empty()), (model.len() as u64, model.is_empty()));
                assert_eq!((set.first(), set.last()), (model.first().copied(), model.last().copied()));
                let mut again = Regions::default();
                set.words().for_each(|(at, word)| again.insert_word(at, word));
                assert_eq!(again, set);
            }
        }
    }
}
