//! Raises the limits of the process as far as it may.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limits on open files (including connections) and locked memory (used by rings) to the hard
/// ones.
pub fn raise() {
    for resource in [Resource::Nofile, Resource::Memlock] {
        let Rlimit { current, maximum } = getrlimit(resource);
        if current == maximum {
            continue;
        }
        if let Err(error) = setrlimit(resource, Rlimit { current: maximum, maximum }) {
            tracing::warn!(?resource, %error, "cannot raise a limit of the process");
        }
    }
}
