//! Leaving a disk that is leaving the pool: the log empties its zones there, and returns them.
//!
//! What must never happen: a write finds no room because a zone has gone, or waits for more than a step of
//! the cleaner; something that cannot be read is given up.
//!
//! One zone is emptied at a time. First the log makes sure that it could do without the zone; if it could
//! not, it asks the pool for another one, on another disk. The next root retires the zone: no segment there
//! is begun or written any more. The cleaner moves what is live there, checkpoints write the leaves there
//! again, and each root frees what is left over. When no root names the zone any more, it goes back to the
//! pool like any other. Nothing of this is durable: after a crash it begins again with what is left.

use super::handle::Stays;
use super::segment::{Kind, Used};
use super::space::{LIVE_PERCENT, RESERVE};
use super::{Inner, Phase, Running};

/// How many map segments a checkpoint empties at most.
pub(super) const EVACUATED_MAX: usize = 8;

/// The same, in bytes, of those that are full because their zone is being emptied; but one in any case. Hosts
/// may have to wait for the checkpoint.
const EVACUATED_BYTES: u64 = 16 << 20;

impl Running {
    /// How many map segments of a zone that is being emptied a checkpoint empties at most.
    pub(super) fn evacuated_max(&self) -> usize {
        ((EVACUATED_BYTES / self.segment_bytes()) as usize).clamp(1, EVACUATED_MAX)
    }

    /// How many segments the next checkpoint takes at most for leaves that lie in a zone which is being
    /// emptied. Those that cannot be read count, too: they are tried again at any time, and must not take
    /// room then that hosts have got meanwhile.
    pub(super) fn evacuated_from(&self, zone: u32) -> u64 {
        let full = |used: &Used| used.kind == Kind::Map && used.live > 0;
        let full = self.segments.used_in(zone).filter(|(_, used)| full(used));
        let map = full.count().min(self.evacuated_max());
        // Each leaves the end of a segment unused, and so does each batch.
        (map + map.div_ceil(4)) as u64
    }

    /// Whether the log could do without a zone: with what is live there elsewhere, hosts may still write, and
    /// the map can be written.
    fn can_do_without(&self, zone: u32) -> bool {
        let map_need = self.map_need() + self.evacuated_from(zone);
        let (free, ready) = self.segments.unused_beside(zone);
        let Some(spare) = (free as u64).checked_sub(map_need) else { return false };
        // If the pool has no other zone, the cleaner makes room as it does in a full log.
        let least = if self.no_zone_since.is_some() { self.low() + 1 } else { self.high() };
        let total = self.segments.total().saturating_sub(self.segments.zone_segments.into());
        let taken = self.live_quarters() + self.append.expected + self.held(None);
        ready as u64 + spare >= least && taken <= self.usable_of(total, map_need) * LIVE_PERCENT / 100
    }

    /// The zone that the next root retires because its disk is leaving the pool.
    pub(super) fn zone_to_empty(&self) -> Option<u32> {
        let zone = self.segments.next_to_empty()?;
        if self.segments.emptied_zone().is_some() || self.returning > 0 || !self.may_return_zone() {
            return None;
        }
        // Announced segments of the zone cannot be used from then on. Others are announced by the same root,
        // and hosts should not have to wait for it.
        let hosts_go_on = self.append.is_idle() || self.segments.unused_beside(zone).1 > RESERVE;
        (hosts_go_on && self.can_do_without(zone)).then_some(zone)
    }

    /// Whether a zone on the disk that is leaving can only be emptied with another zone.
    pub(super) fn needs_zone_to_leave(&self) -> bool {
        let zone = self.segments.next_to_empty();
        zone.is_some_and(|zone| self.segments.emptied_zone().is_none() && !self.can_do_without(zone))
    }

    /// A segment of the zone that is being emptied, from which the cleaner can move what is live. It never
    /// takes the last segments from hosts for that.
    pub(super) fn victim_to_empty(&self) -> Option<u32> {
        let zone = self.segments.emptied_zone()?;
        if self.stock() <= self.low() {
            return None;
        }
        let mut segments = self.segments.used_in(zone);
        segments.find(|(_, used)| used.can_be_cleaned(self.root_sequence)).map(|(segment, _)| *segment)
    }

    /// Whether a segment is in the zone that is being emptied.
    pub(super) fn is_emptied(&self, segment: u32) -> bool {
        self.segments.emptied_zone().is_some_and(|zone| zone == self.segments.zone_of(segment))
    }

    /// Whether a checkpoint would bring the log further in leaving a disk, and nothing else would now.
    pub(super) fn leaves_by_checkpoint(&self) -> bool {
        let Some(zone) = self.segments.emptied_zone() else { return self.zone_to_empty().is_some() };
        if self.cleaning || self.victim_to_empty().is_some() {
            return false;
        }
        // Written again, freed, or covered by the root, so that the cleaner can take it.
        let changes = |used: &Used| {
            let is_new = used.kind == Kind::Data && used.newest >= self.root_sequence;
            let is_map = used.kind == Kind::Map && !used.stuck;
            !used.released && (used.live == 0 || used.cleaned > 0 || is_map || is_new)
        };
        let mut used = self.segments.used_in(zone);
        self.segments.is_unused(zone) || used.any(|(_, used)| changes(used))
    }

    /// How much is left on the disk that is leaving: zones, and, of the one that is being emptied, segments
    /// in use and grains of leaves there. (A checkpoint may evacuate some leaves of a segment, and the next
    /// one the others.)
    pub(super) fn left_on_disk(&self) -> (usize, Option<u64>) {
        let left = |used: &Used| 1 + if used.kind == Kind::Map { u64::from(used.live) } else { 0 };
        let emptied = self.segments.emptied_zone();
        let used = emptied.map(|zone| self.segments.used_in(zone).map(|(_, used)| left(used)).sum());
        (self.segments.on_leaving_disk(), used)
    }

    /// Why nothing brings the log further.
    pub(super) fn stays(&self) -> Option<Stays> {
        if let Some(zone) = self.segments.emptied_zone() {
            let is_stuck = |used: &Used| used.stuck && used.live > 0;
            let all_stuck = self.segments.used_in(zone).all(|(_, used)| is_stuck(used));
            return (all_stuck && !self.segments.is_unused(zone)).then_some(Stays::Unreadable);
        }
        let is_refused = self.none_to_leave && !self.asking;
        (is_refused && self.needs_zone_to_leave()).then_some(Stays::NoSpace)
    }

    /// Lets nothing keep the log from trying again.
    fn try_again_to_leave(&mut self) {
        if self.segments.on_leaving_disk() == 0 {
            return;
        }
        let stays = self.stays();
        if let Some(zone) = self.segments.emptied_zone().filter(|_| stays == Some(Stays::Unreadable)) {
            self.segments.unstick(zone);
        }
        self.unfolded.clear();
        self.none_to_leave = false;
        self.return_again_at = None;
        self.stock_changed = true;
    }
}

impl Inner {
    /// Takes note of which disk is leaving the pool.
    pub(super) fn take_leaving_disk(&self, disk: Option<u16>) {
        let mut state = self.state.borrow_mut();
        if state.segments.set_leaving_disk(disk) {
            state.none_to_leave = false;
            state.stock_changed = true;
            state.exhausted = false;
        }
    }

    /// Waits until the cleaner may move a step more from a segment of a zone that is being emptied. Returns
    /// whether it may: not if segments are short, or have become so few meanwhile that it should make room.
    ///
    /// What is moved takes room in the table of changes and in what a replay reads. While a checkpoint is
    /// under way, that is for hosts. If another one follows at once, there is one step for each: otherwise,
    /// nothing would move while hosts write that much.
    pub(super) async fn may_empty_more(&self) -> bool {
        let (checkpoints, had_enough) = {
            let state = self.state.borrow();
            (state.checkpoints, state.stock() >= state.high())
        };
        let is_short = || {
            let state = self.state.borrow();
            let stock = state.stock();
            stock <= state.low() || had_enough && stock < state.high()
        };
        let has_ended = || {
            let state = self.state.borrow();
            !state.checkpointing || state.checkpoints > checkpoints
        };
        self.changed.until(|| has_ended() || is_short() || !self.goes_on()).await;
        !is_short()
    }

    /// Tries again what has kept the log from leaving a disk, if it is to do so.
    pub(super) fn try_again(&self) {
        if self.handle.tries_again() {
            self.state.borrow_mut().try_again_to_leave();
        }
    }

    /// Whatever a checkpoint has changed on the disk that is leaving, another one may bring the log further.
    /// One that has changed nothing would be followed by others forever.
    pub(super) fn leave_on(&self, before: (usize, Option<u64>)) {
        let mut state = self.state.borrow_mut();
        if state.left_on_disk() != before {
            state.stock_changed = true;
        }
    }

    /// Reports why the log makes no progress in leaving a disk.
    pub(super) fn tell_stays(&self) {
        let stays = match self.phase.get() {
            Phase::Opening => None,
            Phase::Open => self.state.borrow().stays(),
            Phase::Refused | Phase::Failed => Some(Stays::Offline),
        };
        self.handle.set_stays(stays);
    }
}
