//! A member that learns late of the end of a write sends it again, to others which have forgotten what
//! superseded it (R15, R18).

use replica::{Config, NodeId, Outcome, Replica, Revision};

use crate::copies::{Copies, LIFE, slot};

fn three() -> Config {
    Config::initial(&[1, 2, 3].map(|node| (NodeId(node), LIFE)), Revision(1))
}

const BOTH_DONE: [(u64, Outcome); 2] = [(7, Outcome::Done), (8, Outcome::Done)];

/// Two writes of copy 0 reach no other copy, and members change. Copy 1 reports that it has nothing to
/// finish. Then it receives the first write, and for a while nothing more from copy 0, so it sends that write
/// again. Copy 2 does not receive it, nor the report that copy 1 has something to finish. Meanwhile copy 0
/// completes both writes, and copy 2 forgets them. What it receives at last is not newer than what it has
/// forgotten.
#[test]
fn a_joiner_that_forgot_a_write_takes_no_older_one() {
    let mut all = Copies::new(&three());
    all.cut(0, 1);
    all.cut(0, 2);
    all.write(7);
    all.write(8);
    let four = three().add(slot(3), NodeId(4)).unwrap();
    all.activate(1, &four, true);
    all.activate(2, &four, true);
    all.deliver_between(1, 2);
    all.tick(1);
    all.deliver_between(1, 2);
    all.cut(1, 2);

    all.connect(0, 1);
    all.connect(0, 2);
    all.deliver_all();
    all.activate(0, &four, true);
    all.deliver_a_write(0, 1);
    all.cut(0, 1);
    all.deliver_between(0, 2);
    assert_eq!(all.block(), [8, 7, 8]);
    all.tick(1);
    all.tick(1);

    all.connect(0, 1);
    all.deliver_between(0, 1);
    assert_eq!((all.block(), &all.told[..]), ([8, 8, 8], &BOTH_DONE[..]));
    all.deliver_between(0, 2);
    all.tick(0);
    all.deliver_between(0, 2);
    all.tick(2);
    assert!(all.copies[2].is_at_rest(), "it has forgotten them");

    all.connect(1, 2);
    all.deliver_a_write(1, 2);
    assert_eq!(all.block(), [8, 8, 8]);
    all.deliver_all();
    for number in [0, 1, 2, 0, 1, 2] {
        all.tick(number);
        all.deliver_all();
    }
    assert_eq!(all.block(), [8, 8, 8]);
    assert!(all.copies.iter().all(Replica::is_at_rest), "and nobody waits for anything");
}

/// The same, with copy 2 joining. It has had both writes when it asks another copy, which has forgotten them,
/// what is equal; in between it receives the first write again.
#[test]
fn a_joiner_that_changes_sources_takes_no_older_write() {
    let outside = three().remove(slot(2)).unwrap();
    let mut all = Copies::new(&outside);
    all.cut(0, 1);
    all.cut(0, 2);
    all.write(7);
    all.write(8);
    let joins = outside.admit(slot(2), LIFE).unwrap();
    all.activate(1, &joins, true);
    all.activate(2, &joins, false);
    all.deliver_between(1, 2);

    all.connect(0, 1);
    all.deliver_between(0, 1);
    all.activate(0, &joins, true);
    all.deliver(0, 1);
    all.tick(1);
    while all.deliver(1, 0).is_some() {}
    all.deliver_a_write(0, 1);
    all.cut(0, 1);
    all.tick(1);
    all.tick(1);
    all.cut(1, 2);
    assert_eq!(all.block(), [8, 7, 0]);

    all.connect(0, 2);
    all.deliver_between(0, 2);
    all.connect(0, 1);
    all.deliver_between(0, 1);
    all.cut(0, 1);
    assert_eq!((all.block(), &all.told[..]), ([8, 8, 8], &BOTH_DONE[..]));
    all.tick(0);
    all.deliver_between(0, 2);
    all.tick(2);
    all.deliver_between(0, 2);
    all.cut(0, 2);
    all.tick(0);
    assert!(all.copies[0].is_at_rest(), "it has forgotten them");

    all.connect(1, 2);
    all.deliver_a_write(1, 2);
    all.cut(1, 2);
    all.connect(0, 2);
    all.budget = u32::MAX;
    all.deliver_all();
    assert_eq!(all.block(), [8, 8, 8]);
    assert!(all.copies[0].promotable().contains(slot(2)));
    let promoted = joins.promote(slot(2)).unwrap();
    (0..3).for_each(|number| all.activate(number, &promoted, true));
    all.connect(0, 1);
    all.connect(1, 2);
    all.deliver_all();
    for number in [0, 1, 2, 0, 1, 2] {
        all.tick(number);
        all.deliver_all();
    }
    assert_eq!(all.block(), [8, 8, 8]);
    assert!(all.copies.iter().all(Replica::is_at_rest), "and nobody waits for anything");
}
