//! Clocks that are wrong.
//!
//! The clock of a paused virtual machine stops, and is set right afterwards, or beyond that. The time of day
//! may be set by anyone.

use std::time::Duration;

use base::Rng;
use cluster::memory::Fault;
use replica::LEASE_LENGTH;

use super::{Harm, Harms, number};

/// A machine and its clock stand still, for a moment or until the others go on without it.
///
/// Only where reads are confirmed (R24): leases alone do not help then.
pub const STOP: Harm = Harm::new("clock stop", 8, |harms, victim, rng| {
    let cluster = harms.cluster;
    let can = harms.plan.confirms[victim.index]
        && cluster.is_started(victim.index)
        && cluster.is_in_sync(victim.index);
    if can {
        harms.stop_clock(victim.index, victim.other, rng);
    }
    can
})
.may_split();

/// A machine stands still for a moment, and then its clock leaps, as after a resume of a virtual machine.
///
/// It leaps by the missed time, or by more if all other nodes have their reads confirmed: a lease that the
/// machine granted expires too early then. The machine is cut off from the others meanwhile, so it takes them
/// for lost, continues without them at once, and they do not know it.
pub const LEAP: Harm = Harm::new("clock leap", 6, |harms, victim, rng| {
    let can = harms.cluster.is_started(victim.index);
    if can {
        harms.leap_clock(victim.index, victim.other, rng);
    }
    can
})
.may_split();

/// A machine's time of day is set forward or back.
pub const TIME_OF_DAY: Harm = Harm::new("time of day set", 4, |harms, victim, rng| {
    let (world, machine) = (&harms.cluster.world, harms.machine(victim.index));
    let most = SET_BY_MILLIS[rng.below(SET_BY_MILLIS.len() as u64) as usize];
    let by = Duration::from_millis(1 + rng.below(most));
    if rng.one_in(2) {
        world.put_time_of_day_forward(machine, by);
    } else {
        world.put_time_of_day_back(machine, by);
    }
    true
});

/// How far the time of day is set, at most: seconds, a day, years.
const SET_BY_MILLIS: [u64; 3] = [2_000, 86_400_000, 300_000_000_000];
/// By how much a clock leaps beyond the missed time, at most.
const TOO_FAR_MAX: Duration = Duration::from_secs(10);
/// A machine that stands still for this long is removed, if the record can be reached.
const STOP_MAX: Duration = Duration::from_secs(2);
/// If its clock then leaps too far, it stands still for this part of that time at most: the others must not
/// miss it before it runs again and misses them.
const STOP_PARTS: u32 = 16;
/// How long it stands still after its removal, at most.
///
/// The others act without it once the leases that it holds have expired by their clocks.
const OUT_MAX: Duration = Duration::from_secs(2);
/// How long the resumed node receives no change of the record, at most: longer than its leases seem to last.
const UNAWARE_MAX: Duration = Duration::from_millis(1500);
/// How often to check whether the others have gone on.
const LOOK: Duration = Duration::from_millis(20);
/// How long its leases may seem to last when it runs again: clocks drift by half a percent.
const MISLED_MAX: Duration = LEASE_LENGTH.saturating_add(Duration::from_millis(20));

impl Harms<'_> {
    /// Hosts write through another node meanwhile, and read through this one afterwards; the other way round,
    /// if the clock leaps too far.
    fn leap_clock(&self, index: usize, other: usize, rng: &mut Rng) {
        let (world, machine) = (&self.cluster.world, self.machine(index));
        let mut up_to = |most: Duration| Duration::from_micros(rng.below(most.as_micros() as u64));
        let (stood, beyond, after) = (up_to(STOP_MAX), up_to(TOO_FAR_MAX), up_to(UNAWARE_MAX));
        let others = (0..self.cluster.servers.len()).filter(|other| *other != index);
        let are_confirmed = { others.clone() }.all(|other| self.plan.confirms[other]);
        let leaps_too_far = self.plan.leaps_too_far && are_confirmed && !self.uncounted;
        let stood = if leaps_too_far { stood / STOP_PARTS } else { stood };
        let unaware = if leaps_too_far { self.leave_unaware(index) } else { Vec::new() };
        let began = world.now();
        world.freeze(machine);
        self.hurry.begin(if leaps_too_far { index } else { other });
        self.inside.run_for(stood);
        world.resume(machine);
        let missed = world.now() - began;
        if self.uncounted {
            self.counts.count("clock that does not leap");
        } else if leaps_too_far {
            world.leap_clock(machine, missed + beyond);
            self.counts.count("clock that leaps too far");
            let misled_until = world.now() + MISLED_MAX;
            others.for_each(|other| self.cluster.servers[other].misled_until.set(misled_until));
        } else {
            world.leap_clock(machine, missed);
        }
        self.inside.run_for(after);
        self.hurry.end();
        for other in unaware {
            world.heal(machine, self.machine(other));
            self.cluster.record.end(number(other), Fault::WatchHeld);
        }
    }

    /// Cuts a node off from all others, and keeps changes of the record from these. Returns those of them for
    /// which that was not so before.
    fn leave_unaware(&self, index: usize) -> Vec<usize> {
        let machine = self.machine(index);
        let others = (0..self.cluster.servers.len()).filter(|other| *other != index);
        let others =
            others.filter(|other| !self.news_held[*other] && !self.is_cut(machine, self.machine(*other)));
        let others: Vec<usize> = others.collect();
        for other in &others {
            self.cluster.world.cut(machine, self.machine(*other));
            self.cluster.record.begin(number(*other), Fault::WatchHeld);
        }
        others
    }

    /// Hosts write through another node meanwhile, and read through this one as soon as it runs again.
    fn stop_clock(&self, index: usize, other: usize, rng: &mut Rng) {
        let (world, machine) = (&self.cluster.world, self.machine(index));
        let mut up_to = |most: Duration| Duration::from_micros(rng.below(most.as_micros() as u64));
        let (short, out, unaware) = (up_to(STOP_MAX), up_to(OUT_MAX), up_to(UNAWARE_MAX));
        let unheard = !rng.one_in(3) && !self.news_held[index];
        world.freeze(machine);
        if unheard {
            self.cluster.record.begin(number(index), Fault::WatchHeld);
        }
        if rng.one_in(4) {
            // As for a snapshot.
            self.inside.run_for(short);
        } else {
            let until = world.now() + STOP_MAX;
            while self.cluster.is_in_sync(index) && world.now() < until {
                self.inside.run_for(LOOK);
            }
            self.hurry.begin(other);
            self.inside.run_for(out);
        }
        if rng.one_in(4) {
            world.resume_with_time_of_day(machine);
        } else {
            world.resume(machine);
        }
        self.cluster.servers[index].misled_until.set(world.now() + MISLED_MAX);
        self.inside.run_for(unaware);
        self.hurry.end();
        if unheard {
            self.cluster.record.end(number(index), Fault::WatchHeld);
        }
    }
}
