//! Pace: how much hosts and the cleaner may write while a checkpoint is made, and what hosts' writes cost
//! while the cleaner works because segments are short.
//!
//! What must never happen: a write waits for all of a checkpoint, or for more steps of the cleaner than slots
//! are owed. So what may be written is known when a part of a checkpoint begins, and becomes free with its
//! steps; and a checkpoint makes no more steps while hosts wait than what they have written makes necessary.

use super::changes::Changes;
use super::checkpoint::STEP_LEAVES;
use super::leaf::{LEAF_GRAIN, LeafKey};
use super::place::SLOT_BYTES;
use super::segment::Open;
use super::space::RESERVE;
use super::{LogTuning, Running};

/// Hosts and the cleaner may write this part of what they may write during a checkpoint before it has got
/// anywhere. The rest becomes theirs as it advances.
const AT_ONCE_PART: u64 = 4;

/// A checkpoint begins when 1/`FREEZE_PART` of the replay bytes have been written; the rest is for what is
/// written meanwhile.
pub(super) const FREEZE_PART: u64 = 2;

/// Of what is left before a freeze, hosts may write 1/`SWEEP_PART` during a sweep. The rest is for the merge.
const SWEEP_PART: u64 = 2;

/// A sweep makes a step in any case for this many changes that wait to be merged: eight for each of its
/// leaves. So it takes an eighth of the steps that the merge may take.
const SWEEP_CHANGES: usize = 8 * STEP_LEAVES;

/// But no more steps than leave hosts this many bytes to write for each: that is less than they wait for at a
/// time.
const SWEEP_BYTES: u64 = 64 << 10;

/// How many leaves a checkpoint evacuates in any case; more if its merge has written more. That suffices: in
/// a sparse segment, each frees the room of two.
const EVACUATED_LEAVES: usize = 4 * STEP_LEAVES;

/// The minimum share of the cleaner's gain that hosts get.
const HOSTS_SHARE_MIN_PERMILLE: u64 = 100;

/// How many slots hosts may owe: a record that is written below low water takes no more than they have
/// earned, or this many.
///
/// The next write waits until they are earned, and each step of the cleaner or of a checkpoint earns at least
/// one.
pub(super) const DEBT_SLOTS_MAX: usize = 32;

/// While the cleaner works because segments are short, a record of fewer blocks than this waits for more as
/// long as [`GATHERING_RECORDS`] of hosts are under way.
///
/// Each record has a head. In a full log, its slot costs as much as a block that hosts write: others are
/// moved for it.
const GATHERED_BLOCKS: usize = 16;
const GATHERING_RECORDS: usize = 2;

/// What hosts and the cleaner may write during a part of a checkpoint: its sweep, or from the freeze to the
/// root.
///
/// If they could write all of it at once, the next write would wait for the rest of the checkpoint, which in
/// a large log takes seconds. So a write waits for a few steps of the checkpoint at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meanwhile {
    /// How many bytes had been written since the last freeze, and how many entries the table had.
    before: (u64, u64),
    bytes: u64,
    /// How many entries the table may get. A slot has up to four compressed blocks, so they fill it long
    /// before the bytes are used up.
    entries: u64,
    /// How far the checkpoint has got, in thousandths.
    done: u64,
}

impl Meanwhile {
    /// Whether more may be written if there is this much already.
    fn allows(self, bytes: u64, entries: u64) -> bool {
        bytes < self.part(self.bytes) && entries < self.part(self.entries)
    }

    /// How much of it all there may be by now.
    fn part(self, all: u64) -> u64 {
        let at_once = all / AT_ONCE_PART;
        at_once + (all - at_once) * self.done / 1000
    }
}

/// What a checkpoint does no longer than it must if hosts wait: the steps of its sweep, or the leaves that it
/// evacuates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// How many are done in any case.
    least: usize,
    pub(super) done: usize,
    /// Something waits for the end of the checkpoint.
    is_awaited: bool,
}

impl Steps {
    /// How many leaves a checkpoint evacuates whose merge has written `merged`.
    pub(super) fn of_evacuation(merged: usize, is_awaited: bool) -> Steps {
        Steps { least: merged.max(EVACUATED_LEAVES), done: 0, is_awaited }
    }

    /// How much of what is done in any case has been done, in thousandths.
    pub(super) fn permille(&self) -> u64 {
        (self.done.min(self.least) * 1000 / self.least) as u64
    }
}

impl Running {
    /// Whether hosts' data must be paid for with credit that the cleaner earns.
    pub(super) fn is_paced(&self) -> bool {
        self.cleaning && self.stock() <= self.low()
    }

    /// Whether there is credit, or none is needed.
    pub(super) fn may_write_data(&self) -> bool {
        self.credit > 0 || !self.is_paced()
    }

    /// How many slots of data the next record of hosts may have, besides other limits.
    pub(super) fn data_slots_left(&self) -> usize {
        if self.is_paced() { (self.credit.max(0) as usize).max(DEBT_SLOTS_MAX) } else { usize::MAX }
    }

    /// Whether the next record of hosts waits for more blocks: not if the cleaner only empties a zone of a
    /// disk that is leaving.
    pub(super) fn gathers(&self) -> bool {
        self.cleaning
            && self.stock() < self.high()
            && self.append.records >= GATHERING_RECORDS
            && !self.append.has_control()
            && self.append.waiting_entries(GATHERED_BLOCKS) < GATHERED_BLOCKS
    }

    /// Gives hosts credit for slots that the cleaner has gained.
    ///
    /// Near low water hosts get only part of the gain, the less the fewer segments are left. If they could
    /// take all of it, the map would have to be written into the reserve, for fewer and fewer segments each
    /// time.
    pub(super) fn earn(&mut self, slots: u64) {
        let share = (self.stock() * 1000 / self.low()).clamp(HOSTS_SHARE_MIN_PERMILLE, 1000);
        let earned = (slots * share / 1000).max(1) as i64;
        self.credit = (self.credit + earned).min(i64::from(self.segments.slots));
    }

    /// Decides how much may be written during a sweep, and how many steps that makes in any case.
    pub(super) fn bound_sweep(&mut self, tuning: &LogTuning) -> Steps {
        let (bytes, entries) = self.left_to_write(tuning);
        let bytes = bytes / SWEEP_PART;
        self.begin_meanwhile(bytes, entries / SWEEP_PART);
        let least = (self.active.len() / SWEEP_CHANGES).min((bytes / SWEEP_BYTES) as usize);
        Steps { least: least.max(1), done: 0, is_awaited: false }
    }

    /// Decides how much may be written until the root, right after the freeze.
    pub(super) fn bound_meanwhile(&mut self, tuning: &LogTuning) {
        let (bytes, entries) = self.left_to_write(tuning);
        // The root announces less by what was written. After more than half, the next checkpoint would begin
        // at once, and leave next to nothing for its own duration.
        self.begin_meanwhile(bytes.min(self.replay_bytes() / FREEZE_PART), entries);
    }

    fn begin_meanwhile(&mut self, bytes: u64, entries: u64) {
        let before = (self.since_freeze, self.active.len() as u64);
        self.meanwhile = Some(Meanwhile { before, bytes, entries, done: 0 });
    }

    /// How many bytes may be written before the next root, and how many entries the tables may get.
    fn left_to_write(&self, tuning: &LogTuning) -> (u64, u64) {
        let tables = self.active.len() + self.frozen.as_ref().map_or(0, Changes::len);
        let entries = self.changes_max(tuning).saturating_sub(tables) as u64;
        // Hosts lose those in a zone that the root retires before it is durable.
        let retired = self.zone_to_return();
        let ready = match retired {
            Some(zone) => self.segments.unused_beside(zone).1,
            None => self.segments.ready.len(),
        };
        let is_lost = |open: &Open| Some(self.segments.zone_of(open.segment)) == retired;
        let open = self.segments.hosts.filter(|open| !is_lost(open) && !self.is_kept_for_control());
        let bytes = ready.saturating_sub(RESERVE) as u64 * self.segment_bytes()
            + u64::from(self.segments.rest(open)) * SLOT_BYTES as u64;
        (bytes.min(self.replay_bytes().saturating_sub(self.since_freeze)), entries)
    }

    /// Takes note of how far the checkpoint has got, in thousandths. Returns whether anybody may wait for
    /// that.
    ///
    /// The cleaner may wait for the root, because no other segment can be cleaned before that, and earns
    /// nothing. So hosts get as much for a step of the checkpoint as for one of the cleaner that gains next
    /// to nothing.
    pub(super) fn advance(&mut self, done: u64) -> bool {
        if self.is_paced() {
            self.earn(0);
        }
        match &mut self.meanwhile {
            Some(meanwhile) => {
                debug_assert!(meanwhile.done <= done, "hosts keep what they may write already");
                meanwhile.done = done.min(1000);
                true
            }
            None => false,
        }
    }

    /// Whether hosts' data may be written, as far as a checkpoint is concerned that is under way.
    pub(super) fn keeps_pace(&self) -> bool {
        self.allows_times(1)
    }

    /// Whether it may be written if there were this many times as much already.
    fn allows_times(&self, times: u64) -> bool {
        let (bytes, entries) = (self.since_freeze, self.active.len() as u64);
        self.meanwhile.is_none_or(|meanwhile| {
            let (before, entered) = meanwhile.before;
            meanwhile.allows(times * bytes.saturating_sub(before), times * entries.saturating_sub(entered))
        })
    }

    /// The same for a step of the cleaner. When hosts have no segment left, it takes nothing away from them.
    pub(super) fn cleaner_keeps_pace(&self) -> bool {
        self.keeps_pace() || self.segments.ready.len() <= RESERVE
    }

    /// Whether a sweep makes another step: those that it makes in any case, and more until something waits
    /// for the checkpoint; or, unless a write of hosts waits, as long as it has time.
    pub(super) fn sweeps_on(&self, steps: &Steps, has_time: bool, tuning: &LogTuning) -> bool {
        let is_waited_for = self.is_checkpoint_due(tuning) || !self.keeps_pace();
        steps.done < steps.least || !is_waited_for || has_time && !self.append.has_data()
    }

    /// Whether a checkpoint evacuates these leaves, too: not without room, nor if hosts have written half of
    /// what they may have written by now, or something waits for this checkpoint or the next one.
    pub(super) fn evacuates_on(&self, steps: &Steps, leaves: &[LeafKey]) -> bool {
        let grains = |key: &LeafKey| self.leaves.get(key).map_or(0, |place| u64::from(place.len));
        let bytes = leaves.iter().map(grains).sum::<u64>() * LEAF_GRAIN as u64;
        let is_awaited = steps.is_awaited || self.checkpoint_wanted || !self.allows_times(2);
        if steps.done >= steps.least && is_awaited {
            return false;
        }
        // What is freed in a zone that is being emptied does not become free for the map: if leaves waited
        // for room there, the log would never leave its disk. The map finds room among announced segments.
        self.segments.emptied_zone().is_some() || self.has_room_to_evacuate(bytes)
    }
}

#[cfg(test)]
mod tests {
    use base::ByteLen;

    use super::super::LogMemory;
    use super::super::leaf::Era;
    use super::super::segment::Kind;
    use super::super::space::ANNOUNCED_EXTRA;
    use super::super::state::LeafPlace;
    use super::super::tests::without_pool;
    use super::*;

    /// A log with segments of 1 MiB, this many of which are announced.
    fn announced(ready: u32) -> Running {
        let mut state = without_pool(20, LogMemory::new(ByteLen(1 << 30)));
        state.segments.ready = (0..ready).map(|segment| (segment, 7)).collect();
        state
    }

    /// The same at a freeze.
    fn frozen(ready: u32, changes_max: usize) -> Running {
        let mut state = announced(ready);
        state.frozen = Some(Changes::default());
        state.bound_meanwhile(&tuning(changes_max));
        state
    }

    fn tuning(changes_max: usize) -> LogTuning {
        LogTuning { changes_min: changes_max, changes_max, ..LogTuning::default() }
    }

    /// Enters changes until the table has this many.
    fn fill(state: &mut Running, until: u64) {
        for block in state.active.len() as u64..until {
            state.active.zero(Era::first(1), 2 * block, 1, &mut Vec::new());
        }
    }

    /// Before, they filled the table at once, and then waited for the rest of the checkpoint.
    #[test]
    fn compressed_blocks_keep_pace_with_a_checkpoint_by_their_number() {
        let mut state = frozen(70, 4096);
        fill(&mut state, 1023);
        assert!(state.keeps_pace());
        fill(&mut state, 1024);
        assert!(!state.keeps_pace(), "a quarter of the table");
        assert!(state.advance(500));
        assert!(state.keeps_pace());
        fill(&mut state, 2560);
        assert!(!state.keeps_pace());
    }

    /// Before, all of a replay's bytes could be written during one checkpoint. Its root then announced next
    /// to nothing, and writes waited for the one that followed at once.
    #[test]
    fn each_checkpoint_leaves_as_much_for_the_next_one() {
        let mut state = frozen(300, 1 << 20);
        state.advance(1000);
        let half = LogTuning::default().replay_bytes / 2;
        state.since_freeze = half - 1;
        assert!(state.keeps_pace());
        state.since_freeze = half;
        assert!(!state.keeps_pace());
        let left = state.announced(state.since_freeze) as u64 - ANNOUNCED_EXTRA;
        // A root names 92 segments at most.
        assert_eq!(left, (half >> 20).min(92 - ANNOUNCED_EXTRA));
    }

    /// Before, there was no pace if less than 4 MiB was left: hosts wrote that at once, and then waited for
    /// all of a checkpoint, which may have any length.
    #[test]
    fn hosts_keep_pace_with_a_checkpoint_however_little_is_left() {
        let mut state = announced(RESERVE as u32 + 1);
        let open = state.segments.begin(300, 7, Kind::Data);
        state.segments.hosts = Some(Open { next: 192, ..open });
        state.frozen = Some(Changes::default());
        state.bound_meanwhile(&tuning(4096));
        // An announced segment, and a quarter of the open one.
        let all = 5 << 18;
        for (done, part) in [(0, all / 4), (500, all * 5 / 8), (1000, all)] {
            state.advance(done);
            state.since_freeze = part - 1;
            assert!(state.keeps_pace(), "{done}");
            state.since_freeze = part;
            assert!(!state.keeps_pace(), "{done}");
        }
    }

    /// Before, only the cleaner earned anything. When it waited for a checkpoint, so did hosts: for all of
    /// it.
    #[test]
    fn steps_of_a_checkpoint_earn_what_hosts_owe() {
        let mut state = frozen(RESERVE as u32, 4096);
        state.cleaning = true;
        state.credit = -(DEBT_SLOTS_MAX as i64);
        for _ in 0..DEBT_SLOTS_MAX {
            assert!(!state.may_write_data());
            state.advance(0);
        }
        state.advance(0);
        assert!(state.may_write_data());
        state.cleaning = false;
        state.advance(0);
        assert_eq!(state.credit, 1, "nothing is owed to anybody");
    }

    /// Before, a sweep took a second, in which hosts could use up what they had for the whole checkpoint.
    #[test]
    fn a_sweep_leaves_as_much_for_the_merge() {
        let mut state = announced(RESERVE as u32 + 64);
        let tuning = tuning(64 << 10);
        fill(&mut state, 10_000);
        state.since_freeze = 100 << 20;
        let mut steps = state.bound_sweep(&tuning);
        assert_eq!(steps.least, 10_000 / SWEEP_CHANGES);
        while steps.done < steps.least {
            assert!(state.sweeps_on(&steps, false, &tuning));
            steps.done += 1;
            state.advance(steps.permille());
        }
        state.since_freeze += (32 << 20) - 1;
        assert!(state.keeps_pace());
        state.since_freeze += 1;
        assert!(!state.keeps_pace() && !state.sweeps_on(&steps, false, &tuning));
        assert!(state.sweeps_on(&steps, true, &tuning), "no host waits");
        // With little to write, hosts wait for one step.
        let mut state = announced(RESERVE as u32);
        fill(&mut state, 10_000);
        assert_eq!(state.bound_sweep(&tuning).least, 1);
    }

    /// Before, a checkpoint evacuated eight segments, though hosts waited for it: thousands of leaves.
    #[test]
    fn no_more_leaves_are_evacuated_than_there_is_time_and_room_for() {
        let mut state = frozen(70, 4096);
        state.segments.free = (100..110).collect();
        let place = LeafPlace { segment: 0, at: 0, len: 73, blocks: 512, quarters: 2048 };
        let keys: Vec<LeafKey> = (0..1000).map(|number| (Era::first(1), number)).collect();
        state.leaves = keys.iter().map(|key| (*key, place)).collect();
        let step = &keys[..STEP_LEAVES];
        let mut steps = Steps::of_evacuation(0, false);
        steps.done = EVACUATED_LEAVES;
        assert!(state.evacuates_on(&steps, step), "hosts do not need the time");
        state.since_freeze = 9 << 20;
        assert!(state.keeps_pace() && !state.evacuates_on(&steps, step), "half of what they may write");
        steps.done -= 1;
        assert!(state.evacuates_on(&steps, step));
        let mut steps = Steps::of_evacuation(2 * EVACUATED_LEAVES, true);
        steps.done = 2 * EVACUATED_LEAVES - 1;
        assert!(state.evacuates_on(&steps, step), "no fewer than the merge has written");
        state.since_freeze = 0;
        steps.done += 1;
        assert!(!state.evacuates_on(&steps, step), "something waits for the checkpoint");
        // The state needs a segment for each copy.
        steps.done = 0;
        state.segments.free.truncate(3);
        assert!(state.evacuates_on(&steps, step));
        state.segments.free.truncate(2);
        assert!(!state.evacuates_on(&steps, step));
    }
}
