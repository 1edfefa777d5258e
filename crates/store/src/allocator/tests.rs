use proptest::prelude::*;

use super::{Allocator, ExtentRun};

/// The obvious allocator: a flag per extent.
struct Oracle(Vec<Vec<bool>>);

impl Oracle {
    fn set(&mut self, run: ExtentRun, free: bool) {
        for extent in run.start..run.end() {
            let flag = &mut self.0[run.disk as usize][extent as usize];
            assert_ne!(*flag, free, "extent {extent} of disk {} has two owners", run.disk);
            *flag = free;
        }
    }

    fn free(&self, disk: usize) -> u64 {
        self.0[disk].iter().filter(|free| **free).count() as u64
    }
}

fn check(allocator: &Allocator, oracle: &Oracle) {
    for (index, disk) in allocator.disks.iter().enumerate() {
        assert_eq!(disk.free, oracle.free(index));
        let mut flags = vec![false; oracle.0[index].len()];
        let mut last_end = None;
        for (start, len) in &disk.runs {
            assert!(*len > 0 && last_end != Some(*start), "runs are not empty and do not touch");
            flags[*start as usize..(start + len) as usize].fill(true);
            last_end = Some(start + len);
        }
        assert_eq!(flags, oracle.0[index]);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Allocate(Vec<u64>),
    Free(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => prop::collection::vec(0u64..12, 1..5).prop_map(Op::Allocate),
        2 => any::<prop::sample::Index>().prop_map(Op::Free),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_flag_an_extent(
        disks in prop::collection::vec(0u32..40, 1..5),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut allocator = Allocator::new(disks.iter().copied());
        let mut oracle = Oracle(disks.iter().map(|extents| vec![true; *extents as usize]).collect());
        let mut owned: Vec<Vec<Vec<ExtentRun>>> = Vec::new();
        for op in ops {
            match op {
                Op::Allocate(wanted) => {
                    let free: u64 = (0..disks.len()).map(|disk| oracle.free(disk)).sum();
                    match allocator.allocate(&wanted) {
                        None => prop_assert!(wanted.iter().sum::<u64>() > free),
                        Some(slices) => {
                            for (runs, wanted) in slices.iter().zip(&wanted) {
                                let got: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
                                prop_assert_eq!(got, *wanted);
                                runs.iter().for_each(|run| oracle.set(*run, false));
                            }
                            owned.push(slices);
                        }
                    }
                }
                Op::Free(index) if !owned.is_empty() => {
                    for run in owned.swap_remove(index.index(owned.len())).into_iter().flatten() {
                        allocator.put(run);
                        oracle.set(run, true);
                    }
                }
                Op::Free(_) => {}
            }
            check(&allocator, &oracle);
        }
        // A catalog that is read again leads to the same map.
        let mut again = Allocator::new(disks.iter().copied());
        owned.into_iter().flatten().flatten().for_each(|run| again.take(run));
        check(&again, &oracle);
    }
}

#[test]
fn volumes_spread_over_the_disks() {
    let mut allocator = Allocator::new([100, 100, 100, 100]);
    let used_of = |slices: Vec<Vec<ExtentRun>>| {
        let mut used = [0; 4];
        slices.into_iter().flatten().for_each(|run| used[run.disk as usize] += run.count);
        used
    };
    // Fewer slices than disks, as many, more.
    assert_eq!(used_of(allocator.allocate(&[8, 8]).unwrap()), [4; 4]);
    assert_eq!(used_of(allocator.allocate(&[5; 4]).unwrap()), [5; 4]);
    assert_eq!(used_of(allocator.allocate(&[3; 8]).unwrap()), [6; 4]);
    assert_eq!(used_of(allocator.allocate(&[40]).unwrap()), [10; 4]);
}

#[test]
fn a_fragmented_disk_still_gives_all_it_has() {
    let mut allocator = Allocator::new([10]);
    for start in [1, 4, 5, 8] {
        allocator.take(ExtentRun { disk: 0, start, count: 1 });
    }
    assert_eq!(allocator.allocate(&[7]), None);
    let runs = allocator.allocate(&[6]).unwrap().remove(0);
    assert_eq!(
        runs.iter().map(|run| (run.start, run.count)).collect::<Vec<_>>(),
        [(2, 2), (6, 2), (0, 1), (9, 1)]
    );
    assert_eq!(allocator.free(), 0);
}
