//! The limits of the process: as high as it may raise them itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limits on open files (a connection is one) and on locked memory (rings take some) to the
/// hard ones.
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
