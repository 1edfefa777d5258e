//! The space of deleted snapshots, which logs free in the background: how far each pool of this node is, and
//! whether somebody has paused it.
//!
//! A pause lasts until it is resumed, the pool is closed or the node restarts: logs free what they find when
//! they are opened.

use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use store::{Pool, PoolId};

use super::super::{Control, ControlError, Result};
use super::scheduled::unix_now;
use crate::copies::SyncPause;
use crate::shard::{Shard, on_all_cores};

/// What is being freed in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeing {
    /// The pool.
    pub pool: PoolId,
    /// Its name.
    pub name: String,
    /// How many bytes have been freed.
    pub done: u64,
    /// How many there were to free, with those of snapshots that were deleted meanwhile.
    pub total: u64,
    /// Bytes per second since it began, or was resumed.
    pub rate: u64,
    /// How long ago it began.
    pub age: Duration,
    /// Who has paused it, and when.
    pub paused: Option<SyncPause>,
}

/// How far a pool is.
#[derive(Debug)]
pub(super) struct Course {
    began: Instant,
    total: u64,
    left: u64,
    /// From when on its pace counts, and how many bytes had been freed then.
    paced: (Instant, u64),
    paused: Option<SyncPause>,
}

impl Course {
    fn begin(now: Instant, left: u64) -> Course {
        Course { began: now, total: left, left, paced: (now, 0), paused: None }
    }

    /// `left`: the bytes that are left now, more than before if other snapshots were deleted.
    fn observe(&mut self, left: u64) {
        self.total += left.saturating_sub(self.left);
        self.left = left;
    }

    fn pause(&mut self, by: &str, at: u64) {
        self.paused.get_or_insert_with(|| SyncPause { by: by.to_owned(), at });
    }

    fn resume(&mut self, now: Instant) {
        self.paused = None;
        self.paced = (now, self.done());
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.paused.is_none()
    }

    fn done(&self) -> u64 {
        self.total - self.left
    }

    fn shown(&self, pool: &Pool, now: Instant) -> Freeing {
        Freeing {
            pool: pool.id(),
            name: pool.name(),
            done: self.done(),
            total: self.total,
            rate: self.rate(now),
            age: now.since(self.began),
            paused: self.paused.clone(),
        }
    }

    fn rate(&self, now: Instant) -> u64 {
        let (from, before) = self.paced;
        let freed = u128::from(self.done() - before) * 1000;
        freed.checked_div(now.since(from).as_millis()).unwrap_or_default() as u64
    }
}

impl Control {
    /// Notes how far pools are, and sees to it that those that are paused stay so: more of their logs may
    /// have been opened.
    pub(in crate::control) fn follow_freeing(self: &Rc<Control>) {
        for Freeing { pool, paused, .. } in self.freeings() {
            if paused.is_some() {
                let control = Rc::clone(self);
                self.snapshots.pausing.start(pool, async move {
                    // It may just have been resumed.
                    if control.is_freeing_paused(pool) {
                        control.set_freeing(pool, true).await;
                    }
                });
            }
        }
    }

    /// The pools of this node in which space of deleted snapshots is being freed, or that are paused.
    pub fn freeings(&self) -> Vec<Freeing> {
        let (now, pools) = (rt::now(), self.open_pools());
        let mut courses = self.snapshots.freeing.borrow_mut();
        courses.retain(|id, _| pools.iter().any(|pool| pool.id() == *id));
        for pool in &pools {
            let left = pool.log_space().map_or(0, |space| space.freeing);
            match courses.get_mut(&pool.id()) {
                Some(course) => course.observe(left),
                None if left > 0 => drop(courses.insert(pool.id(), Course::begin(now, left))),
                None => {}
            }
        }
        courses.retain(|_, course| !course.is_over());
        let shown = |pool: &Pool| Some(courses.get(&pool.id())?.shown(pool, now));
        pools.iter().filter_map(shown).collect()
    }

    /// Pauses the freeing of space in a pool. What is deleted meanwhile is not freed either.
    ///
    /// # Errors
    /// The pool is not open.
    pub async fn pause_freeing(&self, pool: PoolId, by: &str) -> Result<()> {
        if self.pool_with(pool).is_none() {
            return Err(ControlError::not_found("pool", &pool.to_string()));
        }
        let begun = || Course::begin(rt::now(), 0);
        self.snapshots.freeing.borrow_mut().entry(pool).or_insert_with(begun).pause(by, unix_now());
        self.set_freeing(pool, true).await;
        Ok(())
    }

    /// Lets a pool that was paused free the space of deleted snapshots again.
    pub async fn resume_freeing(&self, pool: PoolId) {
        if let Some(course) = self.snapshots.freeing.borrow_mut().get_mut(&pool) {
            course.resume(rt::now());
        }
        self.set_freeing(pool, false).await;
    }

    fn is_freeing_paused(&self, pool: PoolId) -> bool {
        self.snapshots.freeing.borrow().get(&pool).is_some_and(|course| course.paused.is_some())
    }

    /// Has the logs of a pool stop freeing, or continue.
    async fn set_freeing(&self, pool: PoolId, is_paused: bool) {
        // The pool is not held meanwhile.
        let volumes = self.pool_with(pool).map(|pool| pool.volumes()).unwrap_or_default();
        let ids: Vec<_> = volumes.into_iter().map(|volume| volume.id).collect();
        on_all_cores(move || async move {
            for volume in ids.iter().filter_map(|id| Shard::current().volume(*id)) {
                let slices = volume.own_slices().filter(|slice| slice.len().0 > 0);
                slices.for_each(|slice| slice.layout().pause_freeing(is_paused));
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_deleted_meanwhile_adds_to_what_there_is_to_free() {
        let mut course = Course::begin(at(10), 1_000);
        assert_eq!((course.done(), course.rate(at(10))), (0, 0));
        course.observe(600);
        assert_eq!((course.done(), course.total, course.rate(at(12))), (400, 1_000, 200));
        course.observe(900);
        assert_eq!((course.done(), course.total), (400, 1_300));
        assert!(!course.is_over());
        course.observe(0);
        assert_eq!((course.done(), course.is_over()), (1_300, true));
    }

    #[test]
    fn a_pause_names_its_author_and_does_not_count_for_the_rate() {
        let mut course = Course::begin(at(0), 1_000);
        course.observe(500);
        course.pause("eva", 77);
        course.pause("max", 99);
        assert_eq!(course.paused, Some(SyncPause { by: "eva".into(), at: 77 }));
        course.observe(0);
        assert!(!course.is_over(), "what is deleted later is not freed");
        course.observe(500);
        course.resume(at(1_000));
        course.observe(300);
        assert_eq!((course.paused.clone(), course.rate(at(1_002))), (None, 100));
    }
}
