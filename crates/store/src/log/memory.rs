//! The memory that all logs of a node share.
//!
//! A log takes what it must have (the directory of its leaves, bits, tables of changes); leaves get what is
//! left. As long as memory is left, a log keeps the leaves that it has read. When none is left, it gives up a
//! leaf for each one that it reads. Each log is entitled to a *share* in proportion to its map: a log with
//! less than its share makes those with more give up leaves.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base::ByteLen;

/// Added to the size of each log's map, so that a log which holds little yet becomes fast, too.
const WEIGHT_AT_LEAST: u64 = 1 << 20;

/// How much a log gives up at once; in between, the core can do other things.
const STEP_BYTES: u64 = 1 << 20;

/// A log asks others for memory once per this many leaves that found none.
const ASK_EVERY: u32 = 256;

/// The memory of the logs, see the module. Clones share the limit.
#[derive(Clone, Debug)]
pub struct LogMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
    /// The sum of the members' weights.
    weights: AtomicU64,
    members: Mutex<Vec<Weak<Member>>>,
}

/// What other logs know of a log, in bytes.
pub(super) struct Member {
    required: AtomicU64,
    leaves: AtomicU64,
    weight: AtomicU64,
    /// Others want what the log has above its share.
    asked: AtomicBool,
    /// Makes the log check `asked`; may be called from any core.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl Member {
    /// All memory that the log takes.
    pub(super) fn bytes(&self) -> u64 {
        load(&self.required) + load(&self.leaves)
    }
}

base::shows!(Debug for Member, |it| "{} + {} bytes", load(&it.required), load(&it.leaves));

fn load(figure: &AtomicU64) -> u64 {
    figure.load(Ordering::Relaxed)
}

impl LogMemory {
    /// Memory of `limit` bytes. Leaves never exceed it, but what logs must have may.
    pub fn new(limit: ByteLen) -> LogMemory {
        let (used, weights, members) = Default::default();
        LogMemory(Arc::new(Inner { limit: limit.0, used, weights, members }))
    }

    /// The limit.
    pub fn limit(&self) -> ByteLen {
        ByteLen(self.0.limit)
    }

    /// The memory that is taken.
    pub fn used(&self) -> ByteLen {
        ByteLen(load(&self.0.used))
    }

    /// Creates the share of a log that is opened. `ring` makes the log call [`LogShare::to_give_up`], from
    /// any core.
    pub(super) fn join(&self, ring: impl Fn() + Send + Sync + 'static) -> LogShare {
        let (required, leaves, asked) = Default::default();
        let weight = AtomicU64::new(WEIGHT_AT_LEAST);
        let member = Arc::new(Member { required, leaves, weight, asked, ring: Box::new(ring) });
        self.0.weights.fetch_add(WEIGHT_AT_LEAST, Ordering::Relaxed);
        let mut members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&member));
        LogShare { memory: self.clone(), member, unserved: Cell::new(0) }
    }

    /// Checks that the total is the sum of what the logs have; none of them may change it meanwhile.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check(&self) {
        let members = self.0.members.lock().unwrap_or_else(PoisonError::into_inner);
        let taken: u64 = members.iter().filter_map(Weak::upgrade).map(|member| member.bytes()).sum();
        assert_eq!(self.used(), ByteLen(taken));
    }
}

impl Inner {
    fn share(&self, member: &Member) -> u64 {
        let weights = load(&self.weights).max(1);
        (u128::from(self.limit) * u128::from(load(&member.weight)) / u128::from(weights)) as u64
    }

    /// What the log has above its share and can give up.
    fn excess(&self, member: &Member) -> u64 {
        member.bytes().saturating_sub(self.share(member)).min(load(&member.leaves))
    }
}

/// One log's part of the memory; returned when dropped.
pub(super) struct LogShare {
    memory: LogMemory,
    member: Arc<Member>,
    /// How many leaves found no memory.
    unserved: Cell<u32>,
}

impl LogShare {
    /// What the log is entitled to, in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.0.share(&self.member)
    }

    /// The part that other logs see.
    pub fn member(&self) -> Weak<Member> {
        Arc::downgrade(&self.member)
    }

    /// Sets how many bytes the log must have, and the size of its map on disk.
    pub fn require(&self, bytes: u64, map_bytes: u64) {
        let inner = &self.memory.0;
        let weight = map_bytes + WEIGHT_AT_LEAST;
        let before = self.member.weight.swap(weight, Ordering::Relaxed);
        inner.weights.fetch_add(weight.wrapping_sub(before), Ordering::Relaxed);
        let before = self.member.required.swap(bytes, Ordering::Relaxed);
        let used = inner.used.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        if bytes > before && used.saturating_add(bytes - before) > inner.limit {
            self.ask();
        }
    }

    /// Takes memory for a leaf. Returns `false` if there is none.
    pub fn take(&self, bytes: u64) -> bool {
        let inner = &self.memory.0;
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= inner.limit);
        let fits = inner.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if fits {
            self.member.leaves.fetch_add(bytes, Ordering::Relaxed);
        } else {
            let unserved = self.unserved.get();
            self.unserved.set(unserved.wrapping_add(1));
            if unserved.is_multiple_of(ASK_EVERY) && inner.excess(&self.member) == 0 {
                self.ask();
            }
        }
        fits
    }

    /// Takes memory for a leaf after the same amount was returned.
    pub fn take_in_exchange(&self, bytes: u64) {
        self.member.leaves.fetch_add(bytes, Ordering::Relaxed);
        self.memory.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the memory of a leaf.
    pub fn give(&self, bytes: u64) {
        self.member.leaves.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How much the log must give up now: what others have asked for, or what exceeds the limit.
    pub fn to_give_up(&self) -> u64 {
        let inner = &self.memory.0;
        let asked = self.member.asked.swap(false, Ordering::Relaxed);
        let excess = if asked { inner.excess(&self.member) } else { 0 };
        excess.max(load(&inner.used).saturating_sub(inner.limit)).min(STEP_BYTES)
    }

    /// Asks the logs that have clearly more than their share.
    fn ask(&self) {
        let inner = &self.memory.0;
        let members: Vec<Arc<Member>> = {
            let members = inner.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().filter_map(Weak::upgrade).collect()
        };
        for member in members.iter().filter(|member| inner.excess(member) > inner.share(member) / 16) {
            if !member.asked.swap(true, Ordering::Relaxed) {
                (member.ring)();
            }
        }
    }
}

impl Drop for LogShare {
    fn drop(&mut self) {
        let inner = &self.memory.0;
        inner.used.fetch_sub(self.member.bytes(), Ordering::Relaxed);
        inner.weights.fetch_sub(load(&self.member.weight), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(memory: &LogMemory) -> (LogShare, Arc<AtomicBool>) {
        let rung = Arc::new(AtomicBool::new(false));
        let ring = Arc::clone(&rung);
        (memory.join(move || ring.store(true, Ordering::Relaxed)), rung)
    }

    fn was_rung(rung: &AtomicBool) -> bool {
        rung.swap(false, Ordering::Relaxed)
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
        memory.check();
        drop(one);
        assert_eq!((other.bytes(), memory.used()), (1000, ByteLen(0)));
    }

    #[test]
    fn only_the_log_above_its_share_is_asked_and_only_now_and_then() {
        let memory = LogMemory::new(ByteLen(1000));
        let ((one, one_rung), (other, other_rung)) = (join(&memory), join(&memory));
        assert!(one.take(900), "nobody else wants it");
        assert_eq!(one.to_give_up(), 0);
        assert!(other.take(100) && !other.take(1));
        assert!(was_rung(&one_rung) && !was_rung(&other_rung));
        // Meanwhile it exchanges leaves.
        for _ in 1..ASK_EVERY {
            other.give(1);
            other.take_in_exchange(1);
            assert!(!other.take(1));
        }
        assert!(!was_rung(&one_rung));
        assert_eq!((one.to_give_up(), one.to_give_up()), (400, 0));
        one.give(400);
        assert!(other.take(400) && !other.take(1) && !was_rung(&one_rung), "each has its share");
        assert_eq!(memory.used(), ByteLen(1000));
    }

    #[test]
    fn a_log_gets_its_minimum() {
        let memory = LogMemory::new(ByteLen(1000));
        let ((one, one_rung), (other, _)) = (join(&memory), join(&memory));
        assert!(one.take(700));
        other.require(400, 0);
        assert!(was_rung(&one_rung), "there is too little now");
        assert_eq!(
            (one.to_give_up(), one.to_give_up(), other.to_give_up()),
            (200, 100, 100),
            "100 are too much"
        );
        one.require(1200, 0);
        assert!(!other.take(1) && was_rung(&one_rung));
        one.give(700);
        other.require(500, 0);
        assert!(!was_rung(&one_rung), "there is nothing to give up");
        memory.check();
    }
}
