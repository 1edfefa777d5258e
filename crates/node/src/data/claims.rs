//! The claims on the bytes of a slice.
//!
//! Nearly every claim is short (a command's piece of a stripe unit) and overlaps nothing. Short claims are
//! kept by their start, so a check of a range only looks at claims near it, however many there are elsewhere.
//! The few longer claims are checked one by one.

use std::collections::BTreeMap;
use std::ops::Range;

/// The longest claim that is kept by its start: a stripe unit, and the step of long operations.
const SHORT_BYTES_MAX: u64 = 1 << 20;

/// Claims on ranges of bytes, each with its number: older ones have lower numbers.
#[derive(Default)]
pub(super) struct Claims {
    /// The ends, by start and number.
    short: BTreeMap<(u64, u64), u64>,
    long: BTreeMap<u64, Range<u64>>,
}

fn is_short(range: &Range<u64>) -> bool {
    range.end - range.start <= SHORT_BYTES_MAX
}

impl Claims {
    /// Adds a claim. Its number must be new.
    pub(super) fn add(&mut self, number: u64, range: &Range<u64>) {
        if is_short(range) {
            self.short.insert((range.start, number), range.end);
        } else {
            self.long.insert(number, range.clone());
        }
    }

    /// Removes a claim.
    pub(super) fn remove(&mut self, number: u64, range: &Range<u64>) {
        if is_short(range) {
            self.short.remove(&(range.start, number));
        } else {
            self.long.remove(&number);
        }
    }

    /// The youngest claim older than this number that overlaps the range.
    pub(super) fn youngest_older(&self, than: u64, range: &Range<u64>) -> Option<u64> {
        let near = (range.start.saturating_sub(SHORT_BYTES_MAX), 0)..(range.end, 0);
        let short = self.short.range(near).filter(|((_, number), end)| *number < than && **end > range.start);
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let long = self.long.range(..than).rev().find(|(_, other)| overlaps(other));
        short.map(|((_, number), _)| *number).max().max(long.map(|(number, _)| *number))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.short.is_empty() && self.long.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    /// Compares with a list that is searched from end to end.
    #[test]
    fn claims_are_found_however_long_they_are() {
        const LENGTHS: [u64; 8] =
            [0, 1, 512, 4096, SHORT_BYTES_MAX - 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 5 * SHORT_BYTES_MAX];
        let mut found = [0; 2];
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut claims = Claims::default();
            let mut list: Vec<(u64, Range<u64>)> = Vec::new();
            let range = |rng: &mut Rng| {
                let start = rng.below(6 * SHORT_BYTES_MAX / 4096) * 4096 + rng.below(3);
                start..start + LENGTHS[rng.below(LENGTHS.len() as u64) as usize]
            };
            for number in 0..500 {
                let claim = range(&mut rng);
                claims.add(number, &claim);
                list.push((number, claim));
                while list.len() > 12 || rng.one_in(3) && !list.is_empty() {
                    let (number, claim) = list.swap_remove(rng.below(list.len() as u64) as usize);
                    claims.remove(number, &claim);
                }
                let (than, range) = (rng.below(number + 2), range(&mut rng));
                let overlaps = |claim: &Range<u64>| claim.start < range.end && range.start < claim.end;
                let older = list.iter().filter(|(number, claim)| *number < than && overlaps(claim));
                let expected = older.map(|(number, _)| *number).max();
                assert_eq!(claims.youngest_older(than, &range), expected, "{than}, {range:?}, {list:?}");
                found[usize::from(expected.is_some())] += 1;
            }
            list.drain(..).for_each(|(number, claim)| claims.remove(number, &claim));
            assert!(claims.is_empty());
        }
        assert!(found.iter().all(|count| *count > 1000), "{found:?}");
    }
}
