//! Which processors the control plane's threads run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use terms::cores::Cores;

/// Keeps the calling thread, and all threads that it starts, off the processors that cores are pinned to.
///
/// A processor that alternates between a core and the control plane has the data of neither in its caches,
/// and hosts wait for that. Cores that the kernel places share their processors with everything else, and so
/// do pinned ones if this process may use no other processors.
pub fn leave_cores_alone(cores: &Cores) {
    let (processors, pinned) = cores.processors();
    if !pinned {
        return;
    }
    let kept_off = sched_getaffinity(None).and_then(|allowed| match without(allowed, &processors) {
        Some(others) => sched_setaffinity(None, &others),
        None => Ok(()),
    });
    if let Err(error) = kept_off {
        tracing::warn!(%error, "cannot keep the control plane's threads off the processors that cores are pinned to");
    }
}

/// The processors of `allowed` without these; `None` if no processor remains.
fn without(mut allowed: CpuSet, processors: &[usize]) -> Option<CpuSet> {
    processors
        .iter()
        .filter(|processor| **processor < CpuSet::MAX_CPU)
        .for_each(|processor| allowed.unset(*processor));
    (allowed.count() > 0).then_some(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    #[test]
    fn other_processors_are_used_if_available() {
        assert_eq!(without(set(&[0, 1, 2, 3]), &[0, 2]), Some(set(&[1, 3])));
        assert_eq!(without(set(&[0, 1]), &[0, 1]), None);
        assert_eq!(without(set(&[1]), &[CpuSet::MAX_CPU]), Some(set(&[1])));
    }

    #[test]
    fn control_threads_avoid_pinned_cores_even_if_started_later() {
        let mine = || sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|processor| mine().is_set(*processor)).unwrap();
        std::thread::spawn(move || {
            let before = mine();
            leave_cores_alone(&Cores::Count(1));
            assert_eq!(mine(), before);
            leave_cores_alone(&Cores::Processors(vec![first]));
            let child = std::thread::spawn(mine).join().unwrap();
            assert_eq!(child, without(before, &[first]).unwrap_or(before));
        })
        .join()
        .unwrap();
    }
}
