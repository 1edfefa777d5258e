//! Copies that have come to rest need no ticks, so that volumes that nobody uses cost nothing.

use replica::{Config, NodeId, Replica, Revision};

use crate::copies::{Copies, LIFE, slot};

fn three() -> Config {
    Config::initial(&[1, 2, 3].map(|node| (NodeId(node), LIFE)), Revision(1))
}

/// A tick of each copy, and what follows from it.
fn tick(all: &mut Copies) {
    for number in 0..3 {
        all.tick(number);
        if let Some(page) = all.copies[number].poll_idle() {
            all.copies[number].handle_page_written(page.page, Ok(()));
            all.carry_out(number);
        }
    }
    all.deliver_all();
}

/// Ticks until no copy needs any more; returns how many that took.
fn come_to_rest(all: &mut Copies) -> u32 {
    for ticks in 0..100 {
        if !all.copies.iter().any(Replica::needs_tick) {
            return ticks;
        }
        tick(all);
    }
    panic!("it does not come to rest: {:?}", all.copies.iter().map(Replica::unrest).collect::<Vec<_>>());
}

#[test]
fn a_volume_that_nobody_uses_comes_to_rest_until_it_is_written_to() {
    let mut all = Copies::new(&three());
    come_to_rest(&mut all);
    for number in 0..3 {
        all.tick(number);
        assert!((0..3).all(|other| all.deliver(number, other).is_none()), "a tick at rest sends nothing");
    }

    all.write(7);
    assert!(all.copies[0].needs_tick() && !all.copies[1].needs_tick());
    all.deliver_all();
    assert!(all.copies.iter().all(Replica::needs_tick));
    let ticks = come_to_rest(&mut all);
    assert!(ticks >= 20, "bits of the dirty map stay for five seconds after a write: {ticks}");
    assert!(all.copies.iter().all(|copy| copy.map().is_clean()), "and the disk knows that they are gone");
}

#[test]
fn copies_with_a_new_link_and_copies_that_bring_another_up_to_date_need_ticks() {
    let mut all = Copies::new(&three());
    come_to_rest(&mut all);
    all.cut(0, 1);
    all.connect(0, 1);
    assert!(
        all.copies[0].needs_tick() && all.copies[1].needs_tick(),
        "the other one may know no floor of it"
    );
    all.deliver_all();
    come_to_rest(&mut all);

    let outside = three().remove(slot(2)).unwrap();
    for number in 0..3 {
        all.activate(number, &outside, number < 2);
    }
    all.deliver_all();
    (0..100).for_each(|_| tick(&mut all));
    assert!(all.copies.iter().all(Replica::needs_tick));
}
