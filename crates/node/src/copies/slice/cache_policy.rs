//! When a cache above a copy's disk may acknowledge a write: by how many copies are in sync (C8).
//!
//! No layout has such a cache yet; the policy is decided here for those to come. What they must keep to: a
//! write is acknowledged by the policy of the configuration that it is decided in, and what is held back goes
//! to the disk by `flush`.

use std::rc::Rc;

use replica::Config;

use super::SliceCopy;

/// What it takes to acknowledge a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// That memory has it: here, and on another node in sync.
    WriteBack,
    /// That the disk has it. Nobody else has.
    WriteThrough,
}

impl CachePolicy {
    /// The policy of a configuration. A copy that is still joining is no second one: it may have to begin
    /// again.
    pub fn of(config: &Config) -> CachePolicy {
        match config.in_sync().len() {
            0 | 1 => CachePolicy::WriteThrough,
            _ => CachePolicy::WriteBack,
        }
    }
}

impl SliceCopy {
    /// As of the configuration that is acted in.
    pub fn cache_policy(&self) -> CachePolicy {
        self.cache_policy.get()
    }

    /// Before the first write of a configuration is decided. What was held back until now goes to the disk at
    /// once, if it may be held back no more.
    pub(super) fn set_cache_policy(self: &Rc<Self>, policy: CachePolicy) {
        if self.cache_policy.replace(policy) != policy && policy == CachePolicy::WriteThrough {
            tracing::info!(copy = %self.address, "no other copy is in sync: writes go to the disk at once");
            self.flush_cache();
        }
    }
}
