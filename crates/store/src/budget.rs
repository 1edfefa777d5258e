//! The memory that all RAM volumes of a node may take together.
//!
//! A RAM volume is thick: its whole size is reserved when it is created, so that a write never fails for lack
//! of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::ByteLen;

use crate::error::StoreError;

/// A limit in bytes, shared by all clones.
#[derive(Clone, Debug)]
pub struct RamBudget {
    limit: u64,
    used: Arc<AtomicU64>,
}

impl RamBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: ByteLen) -> RamBudget {
        RamBudget { limit: limit.0, used: Arc::default() }
    }

    /// The memory that is left.
    pub fn free(&self) -> ByteLen {
        ByteLen(self.limit.saturating_sub(self.used.load(Ordering::Relaxed)))
    }

    /// Reserves `len` bytes until the grant is dropped.
    pub fn reserve(&self, len: ByteLen) -> Result<RamGrant, StoreError> {
        let fits = |used: u64| used.checked_add(len.0).filter(|used| *used <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(RamGrant { len: len.0, used: Arc::clone(&self.used) }),
            Err(_) => Err(StoreError::NoMemory { wanted: len, free: self.free() }),
        }
    }
}

/// Reserved memory; returned to the budget when dropped.
#[derive(Debug)]
pub struct RamGrant {
    len: u64,
    used: Arc<AtomicU64>,
}

impl Drop for RamGrant {
    fn drop(&mut self) {
        self.used.fetch_sub(self.len, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_memory_is_free_again() {
        let budget = RamBudget::new(ByteLen(100));
        let grant = budget.reserve(ByteLen(60)).unwrap();
        let refused = budget.clone().reserve(ByteLen(41));
        assert!(matches!(refused, Err(StoreError::NoMemory { wanted: ByteLen(41), free: ByteLen(40) })));
        drop(grant);
        assert_eq!(budget.free(), ByteLen(100));
        assert!(budget.reserve(ByteLen(u64::MAX)).is_err());
    }
}
