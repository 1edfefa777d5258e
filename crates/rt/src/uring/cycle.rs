//! The loop of a core.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Instant;

use super::counters::{Counters, SINCE_BOOT, read_clock};
use super::doorbell::Doorbell;
use super::driver::Driver;
use super::idle::Idle;
use crate::executor::{Clock, Core};

/// Tasks that run between two turns of the ring. More would make completions wait, fewer would batch less.
const TASKS_MAX: usize = 512;

/// How often a core that looks for work reads the clock: once per this many looks of a few nanoseconds each.
const LOOKS_PER_CLOCK: u32 = 16;

/// The clocks of production.
///
/// What this node has promised to others, and they to it, must not last longer because the machine slept. So
/// the time is CLOCK_BOOTTIME, which includes sleep, and is read as quickly as CLOCK_MONOTONIC (both from the
/// vDSO). The ring waits by CLOCK_MONOTONIC, as the kernel does: after the machine has slept, a timer may be
/// late by its remaining time, but is never early.
pub(super) struct SinceBoot;

impl Clock for SinceBoot {
    fn now(&self) -> Instant {
        Instant(read_clock(SINCE_BOOT).expect("every Linux since 2.6.39 has CLOCK_BOOTTIME"))
    }

    fn wall(&self) -> u64 {
        read_clock(libc::CLOCK_REALTIME).expect("every Linux has CLOCK_REALTIME")
    }
}

/// One core's loop and its counters.
pub(super) struct Cycle {
    pub(super) core: Rc<Core>,
    pub(super) driver: Rc<Driver>,
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) counters: Arc<Counters>,
    /// The node is stopping.
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) idle: Idle,
    pub(super) polling_ns: u64,
    pub(super) busy_turns: u64,
}

impl Cycle {
    /// Runs until the node stops.
    pub(super) fn run(&mut self) {
        let mut began = SinceBoot.now();
        while !self.stopping.load(Ordering::Acquire) {
            let told = self.core.take_messages();
            self.core.begin_turn();
            let ran = self.core.run_ready(TASKS_MAX);
            self.driver.relieve();
            self.busy_turns += u64::from(ran > 0);
            self.publish();
            let now = SinceBoot.now();
            if told || ran > 0 {
                self.counters.turns.record(began, now);
            }
            began = now;
            let next = self.core.timers.next_deadline();
            if next.is_some_and(|deadline| deadline <= now) {
                self.core.fire_timers(now);
            }
            if self.core.has_ready() {
                if self.driver.has_work() {
                    self.driver.turn();
                }
            } else {
                began = self.rest(now, next);
            }
        }
        self.publish();
    }

    /// Without ready tasks, submits their requests and waits for something to happen. Returns when it
    /// happened: `now`, if it already had.
    fn rest(&mut self, now: Instant, deadline: Option<Instant>) -> Instant {
        let look = self.idle.look();
        if look > Duration::ZERO && self.driver.has_work() && self.driver.turn() {
            return now;
        }
        let start = SinceBoot.now();
        let until = deadline.map(|deadline| deadline.since(start));
        if look > Duration::ZERO
            && let Some(found) = self.look(start, until.map_or(look, |until| until.min(look)))
        {
            return found;
        }
        self.doorbell.announce_sleep();
        // Anything sent before the announcement is found here, anything sent after it rings.
        if !self.core.remote().has_messages() && !self.stopping.load(Ordering::SeqCst) {
            let timeout = deadline.map(|deadline| deadline.since(SinceBoot.now()));
            self.driver.turn_sleeping(timeout);
        }
        self.doorbell.awake();
        let awake = SinceBoot.now();
        self.idle.ended(awake.since(start));
        awake
    }

    /// Looks for work in shared memory for at most `limit`; returns when it found some.
    fn look(&mut self, start: Instant, limit: Duration) -> Option<Instant> {
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.driver.has_work() || self.core.remote().has_mail() {
                    let found = SinceBoot.now();
                    let gap = found.since(start);
                    self.polling_ns += gap.as_nanos() as u64;
                    self.idle.ended(gap);
                    if self.driver.has_work() {
                        self.driver.turn();
                    }
                    return Some(found);
                }
                std::hint::spin_loop();
            }
            let gap = SinceBoot.now().since(start);
            if gap >= limit {
                self.polling_ns += gap.as_nanos() as u64;
                return None;
            }
            // Any other thread of this processor (of a guest, a client, another node) has work; this core
            // only hopes for some.
            std::thread::yield_now();
        }
    }

    fn publish(&self) {
        let (enters, completions) = (self.driver.enters(), self.driver.completions());
        self.counters.publish(self.polling_ns, self.busy_turns, enters, completions);
    }
}
