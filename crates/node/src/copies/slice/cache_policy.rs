//! When a cache above a copy's disk may acknowledge a write: it depends on how many copies are in sync (C8).
//!
//! No layout has such a cache yet; the policy is decided here for future ones. They must obey two rules: a
//! write is acknowledged by the policy of the configuration in which it is decided, and `flush` brings to the
//! disk what was held back.

use std::rc::Rc;

use replica::Config;

use super::SliceCopy;

/// What a write needs before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// It is in memory, here and on another node in sync.
    WriteBack,
    /// It is on the disk, since no other copy is in sync.
    WriteThrough,
}

impl CachePolicy {
    /// The policy of a configuration.
    ///
    /// A copy that is still joining does not count as a second one: it may have to begin again.
    pub fn of(config: &Config) -> CachePolicy {
        match config.in_sync().len() {
            0 | 1 => CachePolicy::WriteThrough,
            _ => CachePolicy::WriteBack,
        }
    }
}

impl SliceCopy {
    /// The policy of the current configuration.
    pub fn cache_policy(&self) -> CachePolicy {
        self.cache_policy.get()
    }

    /// Sets the policy, before the first write of a configuration is decided.
    ///
    /// If writes may no longer be held back, those that are go to the disk at once.
    pub(super) fn set_cache_policy(self: &Rc<Self>, policy: CachePolicy) {
        if self.cache_policy.replace(policy) != policy && policy == CachePolicy::WriteThrough {
            tracing::info!(copy = %self.address, "no other copy is in sync: writes go to the disk at once");
            self.flush_cache();
        }
    }
}
