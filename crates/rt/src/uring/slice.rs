//! The time slice of a core that shares its processor.

use std::time::Duration;

/// The time slice that a core requests: as little as the kernel accepts. A thread with a shorter slice is
/// scheduled sooner when it has work (EEVDF, from Linux 6.12 on; before, this has no effect), and gets no
/// less time in total. With the usual slices, a core that shares its processor waits now and then until a
/// control plane or a client has used up its own: some milliseconds.
const SLICE: Duration = Duration::from_micros(100);

/// Requests short slices for the calling thread, if it has the ordinary policy: another policy was chosen for
/// a reason. It is no failure if the kernel refuses.
pub(super) fn ask_for_short() {
    let Some(mut how) = told().filter(|how| how.sched_policy == libc::SCHED_OTHER as u32) else { return };
    how.sched_runtime = SLICE.as_nanos() as u64;
    // SAFETY: the kernel reads the structure, whose first field states its size, and only changes this
    // thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const how, 0) };
    if set != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "a core keeps the slices that all have");
    }
}

/// The scheduling parameters of the calling thread.
fn told() -> Option<libc::sched_attr> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut how: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes into the structure, which is that large.
    let told = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut how, size, 0) };
    (told == 0).then_some(how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_from_linux_6_12_on() {
        let told = std::thread::spawn(|| {
            ask_for_short();
            let how = told().unwrap();
            (how.sched_policy, Duration::from_nanos(how.sched_runtime))
        });
        let (policy, slice) = told.join().unwrap();
        assert_eq!(policy, libc::SCHED_OTHER as u32);
        // An older kernel reports none.
        assert!(slice == SLICE || slice.is_zero(), "{slice:?}");
    }
}
