//! The offset of a thread's next request, as DISKSPD chooses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Rng;

use crate::{Access, Share, Workload};

/// The part of a target that is used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// The offsets of one thread's requests.
pub(crate) struct Sequence {
    region: Region,
    steps: Steps,
}

enum Steps {
    Random {
        rng: Rng,
        align: u64,
        /// The number of possible offsets.
        choices: u64,
        parts: Vec<Part>,
    },
    /// The thread has a position of its own.
    Own { stride: u64, next: u64, block: u64 },
    /// All threads of the target share one position.
    Interlocked { stride: u64, count: Arc<AtomicU64>, choices: u64 },
}

/// Some of the possible offsets, and how many requests go there.
struct Part {
    /// The percentage of the requests that go to this part, or to one before it.
    up_to: u64,
    first: u64,
    count: u64,
}

/// Parts in which random requests are distributed evenly; none if they are everywhere.
fn parts(shares: &[Share], choices: u64) -> Vec<Part> {
    if shares.is_empty() {
        return Vec::new();
    }
    let (mut up_to, mut target) = (0, 0);
    let at = |percent: u64| (u128::from(choices) * u128::from(percent) / 100) as u64;
    // What is left of both.
    let rest = Share { requests: 100, target: 100 };
    let mut parts = Vec::new();
    for share in shares.iter().chain(std::iter::once(&rest)) {
        let first = at(target).min(choices - 1);
        target = (target + u64::from(share.target)).min(100);
        up_to = (up_to + u64::from(share.requests)).min(100);
        // A small target may have no offset in a part.
        parts.push(Part { up_to, first, count: at(target).saturating_sub(first).max(1) });
    }
    parts
}

impl Sequence {
    /// The offsets of thread number `thread` of a target; `None` if the region has no room for a request.
    ///
    /// Interlocked threads share `count`.
    pub(crate) fn new(
        workload: &Workload,
        region: Region,
        thread: u32,
        count: &Arc<AtomicU64>,
    ) -> Option<Sequence> {
        let block = u64::from(workload.block);
        let room = region.len.checked_sub(block)?;
        let steps = match workload.access {
            Access::Random { align } => {
                let rng = Rng::new(workload.seed.wrapping_add(thread.into()));
                let choices = room / align + 1;
                Steps::Random { rng, align, choices, parts: parts(&workload.shares, choices) }
            }
            Access::Sequential { stride, interlocked: true } => {
                Steps::Interlocked { stride, count: Arc::clone(count), choices: room / stride + 1 }
            }
            Access::Sequential { stride, interlocked: false } => {
                let start = workload.thread_stride.saturating_mul(thread.into());
                let next = if start <= room { start } else { 0 };
                Steps::Own { stride, next, block }
            }
        };
        Some(Sequence { region, steps })
    }

    /// The next offset on the target, in bytes.
    pub(crate) fn next(&mut self) -> u64 {
        let relative = match &mut self.steps {
            Steps::Random { rng, align, choices, parts } if parts.is_empty() => rng.below(*choices) * *align,
            Steps::Random { rng, align, parts, .. } => {
                let drawn = rng.below(100);
                let part = parts.iter().find(|part| drawn < part.up_to).expect("the last one takes the rest");
                (part.first + rng.below(part.count)) * *align
            }
            Steps::Own { stride, next, block } => {
                let this = *next;
                let after = this.saturating_add(*stride);
                *next = if after.saturating_add(*block) <= self.region.len { after } else { 0 };
                this
            }
            Steps::Interlocked { stride, count, choices } => {
                count.fetch_add(1, Ordering::Relaxed) % *choices * *stride
            }
        };
        self.region.start + relative
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: Region = Region { start: 65536, len: 20480 };

    fn offsets(access: Access, thread: u32, count: usize) -> Vec<u64> {
        let workload = Workload { block: 4096, access, thread_stride: 12288, ..Workload::default() };
        let mut sequence = Sequence::new(&workload, REGION, thread, &Arc::default()).unwrap();
        (0..count).map(|_| sequence.next() - REGION.start).collect()
    }

    #[test]
    fn sequential_requests_follow_each_other_and_begin_again() {
        let sequential = |stride| Access::Sequential { stride, interlocked: false };
        assert_eq!(offsets(sequential(4096), 0, 7), [0, 4096, 8192, 12288, 16384, 0, 4096]);
        assert_eq!(offsets(sequential(8192), 0, 4), [0, 8192, 16384, 0]);
        assert_eq!(offsets(sequential(4096), 1, 3), [12288, 16384, 0]);
        assert_eq!(offsets(sequential(4096), 2, 2), [0, 4096], "a start with no room for a request");
    }

    #[test]
    fn interlocked_threads_share_their_place() {
        let access = Access::Sequential { stride: 4096, interlocked: true };
        let workload = Workload { block: 4096, access, ..Workload::default() };
        let count = Arc::default();
        let mut threads = [0, 1].map(|thread| Sequence::new(&workload, REGION, thread, &count).unwrap());
        let offsets: Vec<u64> = (0..6).map(|at| threads[at % 2].next() - REGION.start).collect();
        assert_eq!(offsets, [0, 4096, 8192, 12288, 16384, 0]);
    }

    #[test]
    fn random_requests_cover_the_whole_range_and_no_more() {
        for (align, choices) in [(4096, 5), (512, 33)] {
            let mut seen = offsets(Access::Random { align }, 0, 2000);
            assert!(seen.iter().all(|offset| offset % align == 0 && offset + 4096 <= REGION.len));
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), choices);
        }
    }

    #[test]
    fn shares_get_their_requests() {
        let shares = ["70/20", "20/30"].map(|share| share.parse::<Share>().unwrap()).to_vec();
        let access = Access::Random { align: 4096 };
        let workload = Workload { block: 4096, access, shares, ..Workload::default() };
        let region = Region { start: 65536, len: 1000 * 4096 };
        let mut sequence = Sequence::new(&workload, region, 0, &Arc::default()).unwrap();
        let mut counts = [0; 3];
        let mut highest = 0;
        for _ in 0..10_000 {
            let block = (sequence.next() - region.start) / 4096;
            highest = highest.max(block);
            counts[match block {
                0..200 => 0,
                200..500 => 1,
                _ => 2,
            }] += 1;
        }
        let near = |count: i32, wanted: i32| (count - wanted).abs() < 200;
        assert!(near(counts[0], 7000) && near(counts[1], 2000) && near(counts[2], 1000), "{counts:?}");
        assert!((980..1000).contains(&highest), "{highest}");
        // With fewer blocks than parts.
        let small = Region { start: 0, len: 4096 };
        let mut sequence = Sequence::new(&workload, small, 0, &Arc::default()).unwrap();
        assert!((0..100).all(|_| sequence.next() == 0));
    }

    #[test]
    fn a_region_may_be_too_small() {
        let small = Region { start: 0, len: 65535 };
        assert!(Sequence::new(&Workload::default(), small, 0, &Arc::default()).is_none());
    }
}
