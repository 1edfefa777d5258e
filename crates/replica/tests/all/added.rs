//! A copy is added while a write is under way of which only its coordinator knows. The coordinator does not
//! know of that copy, and so has set no bit for it (R8, R19).

use replica::canary::{Canary, make};
use replica::{Config, DirtyMap, Incarnation, NodeId, Revision, Slots, Standing};

use crate::copies::{Copies, GEOMETRY, LIFE, MISSED, slot};

const NEXT_LIFE: Incarnation = Incarnation(2);
/// More ticks than bits are kept for after the last write.
const WARM_TICKS: u32 = 40;

/// Copies 0 and 1 are in sync. Copy 0 has a write that no other copy has, and does not know yet that copy 2
/// was added.
fn added() -> (Copies, Config) {
    let two = Config::initial(&[1, 2].map(|node| (NodeId(node), LIFE)), Revision(1));
    let mut all = Copies::new(&two);
    all.budget = u32::MAX;
    // By then everything before is finished.
    wait(&mut all, WARM_TICKS);
    all.cut(0, 1);
    all.write(7);
    let three = two.add(slot(2), NodeId(3)).unwrap();
    let mut blank = DirtyMap::new(GEOMETRY.regions());
    blank.mark(0..GEOMETRY.regions(), Slots::ALL);
    all.start(2, LIFE, blank, &three);
    all.activate(1, &three, true);
    (all, three)
}

/// Lets time pass, and delivers all messages that can arrive.
fn wait(all: &mut Copies, ticks: u32) {
    for _ in 0..ticks {
        (0..3).for_each(|number| all.tick(number));
        all.deliver_all();
    }
}

/// Activates the configuration on these copies, which were members before.
fn enter(all: &mut Copies, numbers: &[usize], config: Config) -> Config {
    numbers.iter().for_each(|number| all.activate(*number, &config, true));
    all.deliver_all();
    config
}

/// Copy `from` resyncs copy `to`, as far as it gives that copy anything, and `to` joins.
fn bring_in(all: &mut Copies, config: Config, from: usize, to: usize, life: Incarnation) -> Config {
    all.connect(from, to);
    all.copies[to].catch_up();
    wait(all, WARM_TICKS);
    let joins = config.admit(slot(to), life).unwrap();
    all.activate(to, &joins, false);
    enter(all, &[from], joins.clone());
    wait(all, WARM_TICKS);
    assert!(all.copies[from].promotable().contains(slot(to)));
    enter(all, &[from, to], joins.promote(slot(to)).unwrap())
}

/// All nodes are lost, and copy 0 is back first. It resyncs copy 1 and is lost again, so copy 2 gets what it
/// misses from copy 1.
fn lose_all(mut all: Copies, config: Config) {
    let alone = config.recover(slot(0), NEXT_LIFE).unwrap();
    all.restart(0, NEXT_LIFE, &alone);
    all.restart(1, NEXT_LIFE, &alone);
    let config = bring_in(&mut all, alone, 0, 1, NEXT_LIFE);
    all.cut(0, 1);
    let config = enter(&mut all, &[1], config.remove(slot(0)).unwrap());
    all.restart(2, NEXT_LIFE, &config);
    let config = bring_in(&mut all, config, 1, 2, NEXT_LIFE);
    assert_eq!(config.copy(slot(2)).unwrap().standing, Standing::InSync(NEXT_LIFE));
    assert_eq!(all.block(), [7, 7, 7]);
}

#[test]
fn a_joiner_that_has_all_but_a_running_write_gets_it_later() {
    let (mut all, three) = added();
    all.connect(1, 2);
    all.copies[2].catch_up();
    wait(&mut all, WARM_TICKS);
    assert_eq!(all.block(), [7, 0, 0]);
    lose_all(all, three);
}

#[test]
fn a_joiner_that_joins_during_a_write_gets_it_later() {
    let (mut all, three) = added();
    all.connect(1, 2);
    let joins = three.admit(slot(2), LIFE).unwrap();
    all.activate(2, &joins, false);
    enter(&mut all, &[1], joins.clone());
    wait(&mut all, 2);
    // Copy 1 learns only one thing of copy 0: it acts in this epoch, too.
    all.activate(0, &joins, true);
    all.connect(0, 1);
    all.deliver(0, 1);
    all.cut(0, 1);
    assert!(all.copies[1].promotable().contains(slot(2)));
    let promoted = enter(&mut all, &[1, 2], joins.promote(slot(2)).unwrap());
    wait(&mut all, WARM_TICKS);
    assert_eq!(all.block(), [7, 0, 0]);
    lose_all(all, promoted);
}

/// The disks are slow, so a write waits for its bits. When it is its turn, nobody needs a bit for copy 2 any
/// more, and none is set.
fn a_copy_is_dropped_while_a_write_waits(canary: Option<Canary>) -> [u8; 3] {
    make(canary);
    let three = Config::initial(&[1, 2, 3].map(|node| (NodeId(node), LIFE)), Revision(1));
    let mut all = Copies::new(&three);
    all.holds_pages = true;
    all.write_elsewhere(5);
    all.write(7);
    all.deliver_all();
    (0..2).for_each(|number| all.cut(number, 2));
    let two = enter(&mut all, &[0, 1], three.remove(slot(2)).unwrap());
    enter(&mut all, &[0, 1], two.drop_copy(slot(2)).unwrap());
    all.write_pages();
    wait(&mut all, WARM_TICKS);
    make(None);
    all.block()
}

#[test]
fn a_write_waits_for_no_bit_of_a_copy_that_is_gone() {
    assert_eq!(a_copy_is_dropped_while_a_write_waits(None)[..2], [7, 7]);
    assert_eq!(a_copy_is_dropped_while_a_write_waits(Some(Canary::IntentOutlives))[..2], [0, 0]);
}

/// A copy outside is closed and opened again while a region is on its way to it. What it says of that region
/// is not taken for an answer to what it has asked since.
#[test]
fn a_copy_that_is_opened_again_does_not_answer_for_what_it_asked_before() {
    let two = Config::initial(&[1, 2, 3].map(|node| (NodeId(node), LIFE)), Revision(1));
    let config = two.remove(slot(2)).unwrap();
    for (first_number, is_still_missed) in [(0, false), (1 << 32, true)] {
        let mut all = Copies::new(&config);
        wait(&mut all, WARM_TICKS);
        all.cut(1, 2);
        all.budget = u32::MAX;
        all.copies[2].catch_up();
        all.carry_out(2);
        while all.deliver(2, 0).is_some() {}
        // The region is on its way to copy 2.
        all.reopen(2, first_number, &config);
        all.copies[2].catch_up();
        all.carry_out(2);
        while all.deliver(0, 2).is_some() {}
        all.write_elsewhere(9);
        all.deliver_between(0, 1);
        while all.deliver(2, 0).is_some() {}
        // What was sent since is lost.
        all.cut(0, 2);
        let is_missed = all.copies[0].map().get(MISSED).contains(slot(2));
        assert_eq!(is_missed, is_still_missed, "numbers from {first_number}");
    }
}
