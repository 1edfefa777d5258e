//! Runs seeds, and leaves rules out.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use run::{Confirms, first_failure, run, run_with};

/// How many seeds a test run takes; `URSA_SEEDS` sets another number, `URSA_SEED` selects one seed. Noticing
/// one of the rules took 2,703 seeds.
const SEEDS: u64 = 4000;

/// The minimum number of each event in [`SEEDS`] seeds: about half of what was observed. A run in which hosts
/// make no progress, or nothing fails, proves nothing.
const FLOORS: [(&str, u64); 31] = [
    ("write", 540_000),
    ("write of unknown outcome", 29_000),
    ("read", 470_000),
    ("read again", 140_000),
    ("crash", 19_000),
    ("restart", 19_000),
    ("cut", 52_000),
    ("black-out", 2200),
    ("removal", 4500),
    ("admission", 1800),
    ("admission without bulk", 2600),
    ("promotion", 1000),
    ("recovery", 1500),
    ("record out of reach", 2200),
    ("isolation", 9900),
    ("copy taken away", 2800),
    ("copy added", 2800),
    ("membership policy removes a restarted process", 290),
    ("membership policy removes who is silent", 2500),
    ("death told", 10_000),
    ("membership policy removes the dead", 230),
    ("membership policy promotes", 4100),
    ("membership policy admits", 5400),
    ("membership policy goes on alone", 2100),
    ("membership policy removes who owes acknowledgements", 360),
    ("region found equal", 2000),
    ("region found different", 10_000),
    ("process stood still", 200),
    ("clock stopped", 200),
    ("confirmed read", 200),
    ("read that nobody confirmed in its epoch", 200),
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Does `work` for each of these numbers, on all processors.
fn on_all_processors<T: Send>(numbers: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(0);
    let take = || {
        let taken =
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < numbers));
        taken.map(&work).collect::<Vec<T>>()
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn no_seed_breaks_a_rule() {
    if let Some(seed) = number("URSA_SEED") {
        println!("{:?}", run(seed, None));
        return;
    }
    let seeds = number("URSA_SEEDS").unwrap_or(SEEDS);
    let repeat = |seed: u64| {
        println!("seed {seed}: URSA_SEED={seed} cargo test -p replica no_seed");
        run(seed, None)
    };
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (what, count) in on_all_processors(seeds, repeat).into_iter().flatten() {
        *counts.entry(what).or_default() += count;
    }
    println!("{counts:?}");
    for (what, floor) in FLOORS {
        let seen = counts.get(what).copied().unwrap_or(0);
        assert!(
            seen >= floor * seeds / SEEDS,
            "{what}: {seen} times, and {floor} is the least in {SEEDS} seeds"
        );
    }
}

#[test]
fn a_seed_is_a_run() {
    assert_eq!(run(5, None), run(5, None));
}

/// Three copies. 0 cannot reach 2, and then no one; meanwhile 1 lets 2 join and is lost, and 2 continues
/// alone. If 2 may be promoted before 0 has said that it knows of 2, no remaining copy has ever promised 0
/// anything.
fn a_joiner_that_not_all_know_of(canary: Option<Canary>) -> Result<(), linear::Violation> {
    let mut world = World::new(1, 3, canary);
    // All of this must happen within one lease.
    world.network = Duration::from_micros(100);
    world.disk = Duration::from_micros(100);
    world.steps(300);
    world.cut(0, 2);
    world.remove(1, 2);
    world.steps(300);
    world.isolate_from_record(0);
    world.admit(1, 2);
    for _ in 0..40 {
        world.step();
        world.promote(1);
        world.remove(2, 1);
    }
    world.cut(0, 1);
    for _ in 0..100 {
        world.step();
        world.remove(2, 0);
        world.host_write(2);
        world.host_read(0);
    }
    world.try_history()
}

#[test]
fn a_joiner_is_promoted_only_when_all_know_that_it_joins() {
    assert_eq!(a_joiner_that_not_all_know_of(None), Ok(()));
    a_joiner_that_not_all_know_of(Some(Canary::NoConfirm)).expect_err("a stale read");
}

/// Two copies. 1 joins and is promoted; at that moment 0 loses contact, and 1 continues alone. It never
/// promised 0 anything, and 0 must notice.
fn a_joiner_whose_lease_is_missing(canary: Option<Canary>) -> Result<(), linear::Violation> {
    let mut world = World::new(1, 2, canary);
    world.steps(300);
    world.remove(0, 1);
    world.steps(300);
    world.admit(0, 1);
    for _ in 0..60 {
        world.step();
        world.promote(0);
        if world.count_of("promotion") == 1 {
            break;
        }
    }
    world.isolate_from_record(0);
    world.cut(0, 1);
    for _ in 0..300 {
        world.step();
        world.remove(1, 0);
        world.host_write(1);
        world.host_read(0);
    }
    world.try_history()
}

#[test]
fn reads_need_the_lease_of_a_joiner() {
    assert_eq!(a_joiner_whose_lease_is_missing(None), Ok(()));
    a_joiner_whose_lease_is_missing(Some(Canary::NoJoinerLease)).expect_err("a stale read");
}

/// When a node learns that its clock was stopped: its time of day is corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockCorrection {
    Never,
    AtOnce,
    /// While its disk is reading for a host.
    WhileItReads,
}

/// Two copies. 1 is a virtual machine that is paused for three leases, together with its clock. It is
/// removed, and hosts write through 0. At the moment when 1 runs again, a host reads there: by its clock its
/// lease has not expired.
fn a_pause_with_the_clock(seed: u64, confirms: bool, told: ClockCorrection) -> Result<(), linear::Violation> {
    let mut world = World::new(seed, 2, None);
    world.nodes[1].confirms = confirms;
    world.hot = 1;
    (world.network, world.disk) = (Duration::from_micros(100), Duration::from_micros(100));
    world.steps(300);
    world.host_write(0);
    world.steps(30);
    world.stand_still_for(1, TERMS.length * 3, true, told == ClockCorrection::AtOnce);
    while !world.runs(1) {
        world.remove(0, 1);
        world.host_write(0);
        world.host_read(1);
        world.step();
    }
    // It has learned nothing yet: messages and the record's news arrive after its host's request.
    world.isolate_from_record(1);
    if told == ClockCorrection::WhileItReads {
        (0..8).for_each(|_| world.host_read(1));
        let node = &mut world.nodes[1];
        let clock = node.clock(world.now);
        node.leases.handle_clock_stop(clock);
    }
    for _ in 0..40 {
        world.host_read(1);
        world.step();
    }
    assert_eq!(world.count_of("removal"), 1);
    world.try_history()
}

#[test]
fn a_clock_that_stops_gives_an_old_read_unless_reads_are_confirmed() {
    let wrong = |confirms, told| {
        (0..50).filter(|seed| a_pause_with_the_clock(*seed, confirms, told).is_err()).count()
    };
    assert_eq!(wrong(true, ClockCorrection::Never), 0);
    assert!(wrong(false, ClockCorrection::Never) > 0, "the clock does not matter");
    assert_eq!(wrong(false, ClockCorrection::AtOnce), 0, "it knows that its clock stood");
    assert_eq!(wrong(false, ClockCorrection::WhileItReads), 0, "it knows that before it answers");
}

/// If all reads are confirmed, no clock matters: not the holder's, not the giver's, nor whether any node
/// waits.
#[test]
fn confirmed_reads_need_no_lease() {
    for canary in [Canary::NoLease, Canary::NoWait, Canary::NoBootWait, Canary::NoRevision] {
        for seed in 0..number("URSA_SEEDS").unwrap_or(100) {
            println!("seed {seed}, without {canary:?}");
            run_with(seed, Some(canary), Confirms::All);
        }
    }
}

/// Two copies. 1 restarts and continues alone at once, although its last life has promised 0 not to.
fn a_restart_within_a_lease(canary: Option<Canary>) -> Result<(), linear::Violation> {
    let mut world = World::new(1, 2, canary);
    world.steps(300);
    world.isolate_from_record(0);
    world.crash(1);
    world.cut(0, 1);
    world.restart(1);
    world.cut(0, 1);
    for _ in 0..200 {
        world.step();
        world.recover(1);
        world.host_write(1);
        world.host_read(0);
    }
    world.try_history()
}

#[test]
fn a_restarted_node_waits_out_the_promises_of_its_last_life() {
    assert_eq!(a_restart_within_a_lease(None), Ok(()));
    a_restart_within_a_lease(Some(Canary::NoBootWait)).expect_err("a stale read");
}

/// Two copies. While 1 is outside, a host writes a block through 0, whose disk can no longer read it after
/// that. 1 gets in sync without it, 0 is lost, and hosts read the block through 1.
fn what_no_copy_can_read(seed: u64, canary: Option<Canary>) -> Result<u64, linear::Violation> {
    const BLOCK: u64 = 2;
    let mut world = World::new(seed, 2, canary);
    (world.hot, world.calm) = (4, true);
    world.steps(300);
    (0..10).for_each(|_| {
        world.host_write(0);
        world.steps(10);
    });
    world.remove(0, 1);
    world.steps(200);
    (0..20).for_each(|_| {
        world.host_write(0);
        world.steps(10);
    });
    world.spoil(0, BLOCK, true);
    world.membership_policies = true;
    let mut steps = 0;
    while world.record.last().unwrap().in_sync().len() < 2 {
        world.step();
        steps += 1;
        assert!(
            steps < 4000,
            "the copy stays out of sync for one block: {}",
            world.nodes[0].replica.unrest()
        );
    }
    world.steps(100);
    world.membership_policies = false;
    if canary.is_none() {
        world.check_map();
    }
    world.crash(0);
    for _ in 0..400 {
        world.step();
        world.remove(1, 0);
        world.host_read_of(1, Blocks::new(BLOCK, BLOCK + 1));
    }
    let failed = world.count_of("read fails");
    // A host's write ends the loss.
    world.hot = 3;
    (0..60).for_each(|_| {
        world.host_write(1);
        world.steps(10);
    });
    if canary.is_none() {
        assert!(world.nodes[1].disk.lost().is_empty(), "seed {seed}");
    }
    world.host_read_of(1, Blocks::new(BLOCK, BLOCK + 1));
    world.steps(100);
    world.try_history().map(|()| failed)
}

#[test]
fn what_no_copy_can_read_keeps_none_out_of_sync() {
    let (mut failed, mut wrong) = (0, 0);
    for seed in 0..20 {
        failed += what_no_copy_can_read(seed, None).unwrap();
        wrong += u32::from(what_no_copy_can_read(seed, Some(Canary::LostUnnoted)).is_err());
    }
    assert!(failed > 0, "hosts are told that the block cannot be read");
    assert!(wrong > 0, "nobody reads anything stale without the rule");
}

/// Three copies. 2 joins and gets a region from 0, while 1 writes to it all the time and loses its link with
/// 2 after `steps`. 2 is promoted while its lease of 1 is still valid. That must not happen before 2 has the
/// write that was under way, or it reads what the blocks held before.
fn a_write_under_way_when_its_region_is_given(
    seed: u64,
    steps: u32,
    canary: Option<Canary>,
) -> Result<(), linear::Violation> {
    let mut world = World::new(seed, 3, canary);
    world.hot = 1;
    world.network = Duration::from_micros(100);
    world.disk = Duration::from_micros(100);
    world.steps(300);
    world.remove(0, 2);
    world.steps(200);
    for _ in 0..20 {
        world.host_write(0);
        world.steps(10);
    }
    world.admit(0, 2);
    for step in 0..80 {
        if step == steps {
            world.cut(1, 2);
        }
        world.step();
        world.host_write(1);
        world.promote(0);
        world.host_read(2);
    }
    world.try_history()
}

#[test]
fn a_joiner_waits_for_the_writes_that_were_under_way_in_a_region() {
    let mut stale = 0;
    for (seed, steps) in (0..20).flat_map(|seed| (1..40).map(move |steps| (seed, steps))) {
        assert_eq!(a_write_under_way_when_its_region_is_given(seed, steps, None), Ok(()));
        let without = a_write_under_way_when_its_region_is_given(seed, steps, Some(Canary::NoMoving));
        stale += u32::from(without.is_err());
    }
    assert!(stale > 0, "nobody reads anything stale without the rule");
    println!("{stale} of 780 times a stale read without the rule");
}

/// Two copies. 1 reads for a host. Its disk sees a write of which 0 never learns, and takes long to answer.
/// Meanwhile 1 is removed and comes back: nothing is left of that write, and no host may have seen it.
fn a_read_outlives_a_membership(seed: u64, canary: Option<Canary>) -> Result<(), linear::Violation> {
    let mut world = World::new(seed, 2, canary);
    world.hot = 1;
    (world.network, world.disk) = (Duration::from_micros(100), Duration::from_micros(100));
    world.steps(300);
    for _ in 0..20 {
        world.host_write(1);
        world.steps(10);
    }
    world.host_read(1);
    let now = world.now;
    let reading = world.nodes[1].host_reads.last_mut().expect("it may be read");
    (reading.look_at, reading.end_at) = (now + Duration::from_millis(6), now + Duration::from_millis(900));
    world.cut(0, 1);
    world.host_write(1);
    world.steps(20);
    world.remove(0, 1);
    world.steps(250);
    world.connect(0, 1);
    for _ in 0..2000 {
        world.step();
        world.admit(0, 1);
        world.promote(0);
    }
    assert_eq!(world.count_of("promotion"), 1);
    world.host_read(1);
    world.steps(20);
    world.try_history()
}

#[test]
fn what_was_read_in_an_earlier_membership_does_not_count() {
    let wrong = |canary| (0..20).filter(|seed| a_read_outlives_a_membership(*seed, canary).is_err()).count();
    assert_eq!(wrong(None), 0);
    assert!(wrong(Some(Canary::MarksOutlive)) > 0, "nobody reads anything stale without the rule");
}

/// Two copies. 1 takes a write of which 0 never learns and whose way to the disk is long, is removed, and
/// returns. 0 has not written there, and so wants to know whether the region is equal: until the old write
/// lands, it is.
fn an_old_write_lands_late(seed: u64, canary: Option<Canary>) -> bool {
    let mut world = World::new(seed, 2, canary);
    (world.network, world.disk) = (Duration::from_micros(100), Duration::from_micros(100));
    world.steps(300);
    world.cut(0, 1);
    world.host_write(1);
    // The dirty map is written fast, the data slowly.
    world.disk = Duration::from_millis(800);
    world.steps(10);
    world.disk = Duration::from_micros(100);
    world.remove(0, 1);
    world.steps(250);
    world.connect(0, 1);
    world.steps(2000);
    let [a, b] = [&world.nodes[0].disk, &world.nodes[1].disk];
    (0..GEOMETRY.regions()).any(|region| {
        let said = a.bits(region).contains(slot(1)) || b.bits(region).contains(slot(0));
        let blocks = GEOMETRY.blocks_of(region);
        !said && a.read(blocks) != b.read(blocks)
    })
}

#[test]
fn a_region_is_compared_when_old_writes_to_it_have_landed() {
    assert!((0..200).all(|seed| !an_old_write_lands_late(seed, None)));
    let unsaid = (0..200).filter(|seed| an_old_write_lands_late(*seed, Some(Canary::AskEarly))).count();
    assert!(unsaid > 0, "nothing is wrong without the rule");
    println!("{unsaid} of 200 times copies differ and no bit says so without the rule");
}

/// Two copies. 1 is outside, and its disk hangs when it gets what it missed. Meanwhile the link breaks again
/// and again. Returns how many blocks the disk was given at most.
fn links_break_while_a_disk_hangs(seed: u64, canary: Option<Canary>) -> u64 {
    let mut world = World::new(seed, 2, canary);
    world.calm = true;
    world.steps(300);
    world.remove(0, 1);
    world.steps(200);
    world.cut(0, 1);
    (0..40).for_each(|_| {
        world.host_write(0);
        world.steps(10);
    });
    world.connect(0, 1);
    let never = world.now + Duration::from_secs(3600);
    let mut given = 0;
    for step in 1..2000 {
        world.nodes[1].disk.hang_until(never);
        world.step();
        given = given.max(world.nodes[1].disk.blocks_under_way());
        if step % 100 == 0 {
            world.cut(0, 1);
            world.connect(0, 1);
        }
    }
    world.nodes[1].disk.answer();
    world.membership_policies = true;
    world.steps(8000);
    assert_eq!(world.record.last().unwrap().in_sync().len(), 2, "{}", world.nodes[1].replica.unrest());
    given
}

#[test]
fn a_disk_that_hangs_receives_each_region_once_however_often_the_link_breaks() {
    let mut had_any = false;
    for seed in 0..20 {
        let given = links_break_while_a_disk_hangs(seed, None);
        assert!(given <= GEOMETRY.blocks, "seed {seed}: {given} blocks");
        had_any |= given > 0;
    }
    assert!(had_any, "it is resynced");
    let more = (0..20)
        .filter(|seed| links_break_while_a_disk_hangs(*seed, Some(Canary::AskEarly)) > GEOMETRY.blocks);
    assert!(more.count() > 0, "nothing grows without the rule");
}

/// Two copies. 1 was removed, and another node gets a copy in its slot. When that copy has received
/// everything, 0 writes once more and restarts. The record that 0 has then is from before that copy was
/// added, and 0 must not forget what it has noted for it.
fn a_restart_with_an_old_record(seed: u64, canary: Option<Canary>) -> bool {
    let mut world = World::new(seed, 2, canary);
    (world.network, world.disk) = (Duration::from_micros(100), Duration::from_micros(100));
    world.steps(300);
    world.host_write(0);
    world.remove(0, 1);
    world.steps(200);
    world.take_away(0, 1);
    world.steps(200);
    world.add(0, 1);
    // The new copy gets everything, and stays outside.
    world.steps(2000);
    world.cut(0, 1);
    world.host_write(0);
    world.steps(20);
    world.crash(0);
    world.restart(0);
    // The record as it was before.
    (world.nodes[0].learned, world.nodes[0].record_gone_until) = (Some(2), Instant(0));
    world.steps(600);
    let [a, b] = [&world.nodes[0].disk, &world.nodes[1].disk];
    (0..GEOMETRY.regions()).any(|region| {
        let said = a.bits(region).contains(slot(1)) || b.bits(region).contains(slot(0));
        let blocks = GEOMETRY.blocks_of(region);
        !said && a.read(blocks) != b.read(blocks)
    })
}

#[test]
fn an_old_record_has_nothing_forgotten_that_is_noted_for_a_new_copy() {
    assert!((0..20).all(|seed| !a_restart_with_an_old_record(seed, None)));
    let unsaid =
        (0..20).filter(|seed| a_restart_with_an_old_record(*seed, Some(Canary::ClearOutside))).count();
    assert!(unsaid > 0, "nothing is wrong without the rule");
    println!("{unsaid} of 20 times copies differ and no bit says so without the rule");
}

/// Three copies. 2 is removed, and another node gets a copy in its slot. 0 has begun a write before it knows
/// of that, and so without a bit for it, and no other copy receives that write. 1 resyncs the new copy, which
/// is promoted without having received the write either. Until it receives it, only its own bits say where it
/// and 0 differ.
fn a_write_from_before_a_copy_was_added(seed: u64, canary: Option<Canary>) -> bool {
    let mut world = World::new(seed, 3, canary);
    (world.network, world.disk) = (Duration::from_micros(100), Duration::from_micros(100));
    world.steps(300);
    world.remove(1, 2);
    world.steps(200);
    world.take_away(1, 2);
    world.steps(200);
    world.cut(0, 1);
    world.host_write(0);
    world.steps(5);
    world.add(1, 2);
    world.cut(0, 2);
    world.steps(300);
    world.admit(1, 2);
    world.steps(20);
    // 1 learns that 0 acts in the epoch in which the new copy joins, and then nothing more.
    world.connect(0, 1);
    for _ in 0..200 {
        world.step();
        world.promote(1);
        if world.count_of("promotion") == 1 {
            world.cut(0, 1);
        }
    }
    let newest = world.record.last().unwrap();
    let [a, b] = [&world.nodes[0].disk, &world.nodes[2].disk];
    newest.in_sync().contains(slot(2))
        && (0..GEOMETRY.regions()).any(|region| {
            let said = a.bits(region).contains(slot(2)) || b.bits(region).contains(slot(0));
            let blocks = GEOMETRY.blocks_of(region);
            !said && a.read(blocks) != b.read(blocks)
        })
}

#[test]
fn a_new_copy_keeps_bits_for_members_with_unfinished_older_writes() {
    assert!((0..300).all(|seed| !a_write_from_before_a_copy_was_added(seed, None)));
    let rule = Some(Canary::NoFinished);
    let unsaid = (0..300).filter(|seed| a_write_from_before_a_copy_was_added(*seed, rule)).count();
    assert!(unsaid > 0, "nothing is wrong without the rule");
    println!("{unsaid} of 300 times copies differ and no bit says so without the rule");
}

/// Every rule that the model needs is needed here, too.
#[test]
fn every_rule_left_out_is_noticed() {
    notice(&CANARIES, number("URSA_SEEDS").unwrap_or(5000));
}

fn notice(canaries: &[Canary], seeds: u64) {
    let silent = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found: Vec<(Canary, Option<(u64, String)>)> = on_all_processors(canaries.len() as u64, |at| {
        let canary = canaries[at as usize];
        (canary, first_failure(0, seeds, canary))
    });
    std::panic::set_hook(silent);
    for (canary, failure) in &found {
        match failure {
            Some((seed, message)) => {
                println!("{canary:?}: seed {seed}: {}", message.chars().take(120).collect::<String>())
            }
            None => println!("{canary:?}: not noticed"),
        }
    }
    let missed: Vec<Canary> =
        found.iter().filter(|(_, failure)| failure.is_none()).map(|(canary, _)| *canary).collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// Rules whose absence seeds notice within a few hundred. The scenarios above are for those that need a
/// longer story; two more take more than ten thousand seeds: [`rare_rules_left_out_are_noticed`].
const CANARIES: [Canary; 20] = [
    Canary::AckSuperseded,
    Canary::NoIntent,
    Canary::CoordinatorIntent,
    Canary::NoJoinerAck,
    Canary::NoEpoch,
    Canary::NoLease,
    Canary::Unconfirmed,
    Canary::NoRevision,
    Canary::NoWait,
    Canary::PromoteEarly,
    Canary::NoIncarnation,
    Canary::NoOwnDirty,
    Canary::NoInherit,
    Canary::NoSyncTimestamp,
    Canary::OldWriteFresh,
    Canary::GrantBlind,
    Canary::NoFloor,
    Canary::AnyRead,
    Canary::ClearOutside,
    Canary::RepairLate,
];

/// A long run: `cargo test --release -p replica rare -- --ignored`.
#[test]
#[ignore = "takes minutes; a night's command"]
fn rare_rules_left_out_are_noticed() {
    notice(&[Canary::ForgetAsSource, Canary::JoinerReplays], number("URSA_SEEDS").unwrap_or(200_000));
}
