//! Records what a run has written where, so that it knows what every read must return.
//!
//! Among the requests of all threads, either one writes a block or many read it, never both, so that it is
//! known what a read must return. A block's number increases by one with each write that was answered. Each
//! block has one word, which is claimed with one compare-and-swap, and released with one addition or store.

use std::sync::atomic::{AtomicU64, Ordering};

/// The most blocks: 2 GiB of memory.
pub(crate) const BLOCKS_MAX: u64 = 1 << 28;

// | bits | |
// |---|---|
// | 0-31 | the number of the last write that was answered; zero: none |
// | 32-47 | requests that read it now |
// | 63 | a request writes it now |
const READER: u64 = 1 << 32;
const READERS: u64 = 0xffff << 32;
const WRITER: u64 = 1 << 63;
const NUMBER: u64 = 0xffff_ffff;

/// The blocks of the used part of a target.
pub(crate) struct Ledger {
    blocks: Vec<AtomicU64>,
    /// Whether each block held the data of write 0 when the run began.
    filled: bool,
}

/// The right to use a block for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The number of the last write before this request.
    number: u64,
    read: bool,
}

impl Ledger {
    /// A ledger of `count` blocks, which hold write 0 if they are `filled`.
    pub(crate) fn new(count: u64, filled: bool) -> Ledger {
        assert!(count <= BLOCKS_MAX, "the caller has compared");
        Ledger { blocks: (0..count).map(|_| AtomicU64::new(0)).collect(), filled }
    }

    /// Claims a block; `None` if a conflicting request uses it.
    pub(crate) fn claim(&self, block: u64, read: bool) -> Option<Claim> {
        let word = &self.blocks[block as usize];
        let taken = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |word| match read {
            _ if word & WRITER != 0 => None,
            true if word & READERS == READERS => None,
            true => Some(word + READER),
            false if word & READERS != 0 => None,
            false => Some(word | WRITER),
        });
        taken.ok().map(|word| Claim { number: word & NUMBER, read })
    }

    /// Releases a block after its request was answered.
    pub(crate) fn release(&self, block: u64, claim: Claim) {
        let word = &self.blocks[block as usize];
        match claim.read {
            true => drop(word.fetch_sub(READER, Ordering::Release)),
            false => word.store(claim.write_number() & NUMBER, Ordering::Release),
        }
    }

    /// The write whose data a read with this claim must return; `None` if it is unknown.
    pub(crate) fn expected(&self, claim: Claim) -> Option<u64> {
        (claim.number > 0 || self.filled).then_some(claim.number)
    }
}

impl Claim {
    pub(crate) fn write_number(self) -> u64 {
        // After four billion writes to a block the number starts again at 1.
        self.number % NUMBER + 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let ledger = Ledger::new(2, false);
        let first = ledger.claim(1, true).unwrap();
        let second = ledger.claim(1, true).unwrap();
        assert_eq!(ledger.expected(first), None);
        assert_eq!(ledger.claim(1, false), None);
        ledger.release(1, first);
        ledger.release(1, second);
        let write = ledger.claim(1, false).unwrap();
        assert_eq!(write.write_number(), 1);
        assert_eq!((ledger.claim(1, true), ledger.claim(1, false)), (None, None));
        ledger.release(1, write);
        assert_eq!(ledger.expected(ledger.claim(1, true).unwrap()), Some(1));
        assert_eq!(ledger.expected(ledger.claim(0, true).unwrap()), None);
        assert_eq!(Ledger::new(1, true).claim(0, true).map(|claim| claim.number), Some(0));
    }

    #[test]
    fn a_number_that_is_used_up_begins_again() {
        let ledger = Ledger::new(1, false);
        ledger.blocks[0].store(NUMBER, Ordering::Relaxed);
        let claim = ledger.claim(0, false).unwrap();
        assert_eq!(claim.write_number(), 1);
        ledger.release(0, claim);
        assert_eq!(ledger.blocks[0].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn threads_do_not_get_into_each_others_way() {
        let ledger = Arc::new(Ledger::new(4, true));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let ledger = Arc::clone(&ledger);
                std::thread::spawn(move || {
                    let mut writes = 0;
                    for turn in 0..20_000_u64 {
                        let (block, read) = ((turn + thread) % 4, turn % 3 == 0);
                        if let Some(claim) = ledger.claim(block, read) {
                            writes += u64::from(!read);
                            ledger.release(block, claim);
                        }
                    }
                    writes
                })
            })
            .collect();
        let writes: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let words: Vec<u64> = ledger.blocks.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert!(words.iter().all(|word| *word <= NUMBER), "everything was given back");
        assert_eq!(words.iter().sum::<u64>(), writes);
    }
}
