//! Threads that have time give way to all others.

const NICE: i32 = 19;

/// Lets all others go before the calling thread; `who` it is is said if that fails.
pub fn lower(who: &str) {
    // Of the calling thread: that is how Linux has it.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of {who}");
    }
}
