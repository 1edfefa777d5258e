//! The memory that all logs of a node take together.
//!
//! What a log must have (the directory of its leaves, bits, the tables of changes) it takes; leaves get what
//! is left. As long as there is some, a log keeps what it has read. When there is none, each log is entitled
//! to a *share* in proportion to what it maps: one that has less has those give leaves up that have more.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base::ByteLen;

/// A log counts as if it mapped so many leaves more: one that holds little yet is to become fast, too. A
/// quarter of a GiB.
const WEIGHT_AT_LEAST: u64 = 128;

/// See the module. Clones share the limit.
#[derive(Clone, Debug)]
pub struct LogMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
    /// Sum of the members' weights.
    weights: AtomicU64,
    members: Mutex<Vec<Weak<Member>>>,
}

/// What others know of a log. Bytes.
struct Member {
    required: AtomicU64,
    leaves: AtomicU64,
    weight: AtomicU64,
    /// Has the log call [`LogShare::is_above`] soon.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} + {} bytes", load(&self.required), load(&self.leaves))
    }
}

fn load(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

impl LogMemory {
    /// No more than `limit` for what can be given up; what logs must have may exceed it.
    pub fn new(limit: ByteLen) -> LogMemory {
        let (used, weights, members) = Default::default();
        LogMemory(Arc::new(Inner { limit: limit.0, used, weights, members }))
    }

    /// The limit.
    pub fn limit(&self) -> ByteLen {
        ByteLen(self.0.limit)
    }

    /// What is taken.
    pub fn used(&self) -> ByteLen {
        ByteLen(load(&self.0.used))
    }

    /// The share of a log that is opened. `ring` tells it that others want memory, from any core.
    pub(super) fn join(&self, ring: impl Fn() + Send + Sync + 'static) -> LogShare {
        let (required, leaves, ring) = (AtomicU64::new(0), AtomicU64::new(0), Box::new(ring));
        let member = Arc::new(Member { required, leaves, weight: AtomicU64::new(WEIGHT_AT_LEAST), ring });
        self.0.weights.fetch_add(WEIGHT_AT_LEAST, Ordering::Relaxed);
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&member));
        LogShare { memory: self.clone(), member, has_asked: Cell::new(false) }
    }
}

impl Inner {
    fn share(&self, member: &Member) -> u64 {
        let weights = load(&self.weights).max(1);
        (u128::from(self.limit) * u128::from(load(&member.weight)) / u128::from(weights)) as u64
    }

    fn is_above(&self, member: &Member) -> bool {
        load(&member.leaves) > 0 && load(&member.required) + load(&member.leaves) > self.share(member)
    }
}

/// What one log takes; given back when dropped.
pub(super) struct LogShare {
    memory: LogMemory,
    member: Arc<Member>,
    /// Others were asked, and have not been since there was room.
    has_asked: Cell<bool>,
}

impl LogShare {
    /// What the log is entitled to, in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.0.share(&self.member)
    }

    /// The log must have so many bytes, and has so many leaves.
    pub fn require(&self, bytes: u64, leaves: u64) {
        let inner = &self.memory.0;
        let weight = leaves + WEIGHT_AT_LEAST;
        let before = self.member.weight.swap(weight, Ordering::Relaxed);
        inner.weights.fetch_add(weight.wrapping_sub(before), Ordering::Relaxed);
        let before = self.member.required.swap(bytes, Ordering::Relaxed);
        inner.used.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Takes memory for a leaf. `false`: there is none; the log has to give up another leaf.
    pub fn take(&self, bytes: u64) -> bool {
        let inner = &self.memory.0;
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= inner.limit);
        let fits = inner.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if fits {
            self.member.leaves.fetch_add(bytes, Ordering::Relaxed);
            self.has_asked.set(false);
        } else if !self.is_above() && !self.has_asked.replace(true) {
            let members = inner.members.lock().unwrap_or_else(PoisonError::into_inner);
            let above = members.iter().filter_map(Weak::upgrade).filter(|other| inner.is_above(other));
            above.for_each(|other| (other.ring)());
        }
        fits
    }

    /// Gives back what was taken for a leaf.
    pub fn give(&self, bytes: u64) {
        self.member.leaves.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether the log has leaves, and more than its share.
    pub fn is_above(&self) -> bool {
        self.memory.0.is_above(&self.member)
    }

    /// Whether others want what this log has above its share: less than a sixteenth is left.
    pub fn is_short(&self) -> bool {
        let inner = &self.memory.0;
        load(&inner.used) > inner.limit - inner.limit / 16
    }
}

impl Drop for LogShare {
    fn drop(&mut self) {
        let inner = &self.memory.0;
        let taken = load(&self.member.required) + load(&self.member.leaves);
        inner.used.fetch_sub(taken, Ordering::Relaxed);
        inner.weights.fetch_sub(load(&self.member.weight), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn join(memory: &LogMemory) -> (LogShare, Arc<AtomicBool>) {
        let rung = Arc::new(AtomicBool::new(false));
        let ring = Arc::clone(&rung);
        (memory.join(move || ring.store(true, Ordering::Relaxed)), rung)
    }

    #[test]
    fn a_log_alone_has_all_and_shares_follow_what_is_mapped() {
        let memory = LogMemory::new(ByteLen(1000));
        let (one, _) = join(&memory);
        assert_eq!(one.bytes(), 1000);
        let (other, _) = join(&memory);
        assert_eq!((one.bytes(), other.bytes()), (500, 500));
        one.require(10, 2 * WEIGHT_AT_LEAST);
        assert_eq!((one.bytes(), other.bytes()), (750, 250));
        one.require(5, 0);
        assert_eq!((one.bytes(), other.bytes(), memory.used()), (500, 500, ByteLen(5)));
        assert!(one.take(300));
        drop(one);
        assert_eq!((other.bytes(), memory.used()), (1000, ByteLen(0)));
    }

    #[test]
    fn the_log_above_its_share_is_asked_once() {
        let memory = LogMemory::new(ByteLen(1000));
        let ((one, one_rung), (other, other_rung)) = (join(&memory), join(&memory));
        assert!(one.take(900), "nobody else wants it");
        assert!(other.take(100) && !other.take(1));
        let was_rung = |rung: &AtomicBool| rung.swap(false, Ordering::Relaxed);
        assert!(was_rung(&one_rung) && one.is_above() && one.is_short());
        assert!(!was_rung(&other_rung) && !other.is_above());
        assert!(!other.take(1) && !was_rung(&one_rung), "it was asked");
        one.give(400);
        assert!(other.take(400) && !one.is_above() && !other.is_above());
        assert!(!other.take(1) && !was_rung(&one_rung), "each has its share");
    }

    #[test]
    fn what_a_log_must_have_it_gets() {
        let memory = LogMemory::new(ByteLen(1000));
        let ((one, _), (other, _)) = (join(&memory), join(&memory));
        assert!(one.take(200));
        one.require(1200, 0);
        assert!(one.is_above() && one.is_short() && !other.take(1));
        one.give(200);
        assert!(!one.is_above(), "there is nothing to give up");
        one.require(300, 0);
        assert!(other.take(700) && !other.take(1));
    }
}
