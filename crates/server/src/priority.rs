//! Lowers the priority of threads that have time.

const NICE: i32 = 19;

/// Gives the calling thread the lowest priority. A failure is logged with its name, `who`.
pub fn lower(who: &str) {
    // On Linux this affects only the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of {who}");
    }
}
