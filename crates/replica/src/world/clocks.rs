//! Nodes that stall, with or without their clocks.

use super::*;

/// The maximum length of a stall: several leases.
const STANDSTILL_MAX_MILLIS: u64 = 300;

/// A stalled node: messages to it wait, and its disk's answers, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standstill {
    pub(super) since: Instant,
    until: Instant,
    /// Whether its clock stops, as in a paused virtual machine; otherwise it runs, as for a stopped process.
    pub(super) with_clock: bool,
    /// Whether the time of day is corrected at the end, so that the node notices.
    told: bool,
}

impl Node {
    /// Whether the node is running.
    pub(super) fn runs(&self) -> bool {
        self.up && self.standstill.is_none()
    }
}

impl World {
    pub(super) fn runs(&self, index: usize) -> bool {
        self.nodes[index].runs()
    }

    /// The node stalls for a while.
    pub(super) fn stand_still(&mut self, index: usize, with_clock: bool) {
        let wait = Duration::from_micros(self.clocks.below(STANDSTILL_MAX_MILLIS * 1000));
        let told = self.clocks.one_in(4);
        self.stand_still_for(index, wait, with_clock, told);
    }

    pub(super) fn stand_still_for(&mut self, index: usize, wait: Duration, with_clock: bool, told: bool) {
        if !self.runs(index) {
            return;
        }
        self.count(if with_clock { "clock stopped" } else { "process stood still" });
        self.say(|| format!("{index} stands still, its clock: {with_clock}"));
        let (since, until) = (self.now, self.now + wait);
        self.nodes[index].standstill = Some(Standstill { since, until, with_clock, told });
    }

    /// Ends the stalls whose time has come.
    pub(super) fn end_standstills(&mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].standstill.is_some_and(|standstill| standstill.until <= self.now) {
                self.end_standstill(index);
            }
        }
    }

    pub(super) fn end_standstill(&mut self, index: usize) {
        let now = self.now;
        let node = &mut self.nodes[index];
        let Some(Standstill { since, with_clock, told, .. }) = node.standstill.take() else { return };
        if with_clock {
            node.clock_stood += now.since(since);
            let clock = node.clock(now);
            if told {
                node.leases.handle_clock_stop(clock);
            }
        }
    }
}
