//! The offset of a thread's next request, as DISKSPD chooses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Rng;

use crate::{Access, Workload};

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
    },
    /// The thread has a position of its own.
    Own { stride: u64, next: u64, block: u64 },
    /// All threads of the target share one position.
    Interlocked { stride: u64, count: Arc<AtomicU64>, choices: u64 },
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
                Steps::Random { rng, align, choices: room / align + 1 }
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
            Steps::Random { rng, align, choices } => rng.below(*choices) * *align,
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
    fn random_requests_go_everywhere_and_stay_inside() {
        for (align, choices) in [(4096, 5), (512, 33)] {
            let mut seen = offsets(Access::Random { align }, 0, 2000);
            assert!(seen.iter().all(|offset| offset % align == 0 && offset + 4096 <= REGION.len));
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), choices);
        }
    }

    #[test]
    fn a_region_may_be_too_small() {
        let small = Region { start: 0, len: 65535 };
        assert!(Sequence::new(&Workload::default(), small, 0, &Arc::default()).is_none());
    }
}
