use std::panic::{AssertUnwindSafe, catch_unwind};

use replica::{CopyState, Revision, Standing};

use super::*;
use crate::canary::make;

const LIFE: u64 = 3;
/// The epoch of these tests.
const EPOCH: u64 = 7;
const HERE: Here = Here { len: 1 << 20, block_bytes: 512, detached: false };
/// Claims of this copy have greater numbers.
const BEFORE: u64 = 1000;

fn node(number: u16) -> NodeId {
    NodeId(number)
}

fn in_sync(life: u64) -> Standing {
    Standing::InSync(Incarnation(life))
}

fn joining() -> Standing {
    Standing::Joining(Incarnation(LIFE))
}

/// Copies on nodes 1, 2 … in slots 0, 1 ….
fn config(epoch: u64, standings: &[Standing]) -> Config {
    let mut copies = [None; Slot::MAX];
    for (slot, standing) in standings.iter().enumerate() {
        copies[slot] = Some(CopyState { node: node(slot as u16 + 1), standing: *standing });
    }
    Config::recorded(Epoch(epoch), Revision(epoch), copies)
}

/// The copy in this slot, one of three that are in sync.
fn new(slot: usize) -> Locks {
    let mut locks = Locks::new(Slot::new(slot).unwrap(), BEFORE);
    locks.enter(config(EPOCH, &[in_sync(LIFE); 3]));
    locks
}

fn works(locks: &mut Locks) -> Vec<Work> {
    std::iter::from_fn(|| locks.poll()).collect()
}

fn hear(locks: &mut Locks, from: u16, message: LockMessage) {
    locks.handle_message(node(from), Incarnation(LIFE), HERE, message);
}

fn take(number: u64, epoch: u64, range: Range<u64>) -> LockMessage {
    LockMessage::Take { number, epoch: Epoch(epoch), range }
}

fn say(to: u16, message: LockMessage) -> Work {
    Work::Say(node(to), message)
}

fn holds(epoch: u64, numbers: &[u64]) -> LockMessage {
    LockMessage::Holds { epoch: Epoch(epoch), numbers: numbers.to_vec() }
}

fn settle(claim: u64, range: Range<u64>, asks: bool) -> Work {
    Work::Settle { claim, range, asks }
}

fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

/// Node 2, whose command holds a range on all nodes.
fn holding() -> (Locks, u64) {
    let mut locks = new(1);
    let number = locks.begin(0..512, at(5)).unwrap();
    hear(&mut locks, 1, LockMessage::Taken(number));
    locks.handle_come(number);
    hear(&mut locks, 3, LockMessage::Taken(number));
    works(&mut locks);
    assert_eq!(locks.look(number, at(9)), Look::Holds);
    (locks, number)
}

/// Node 1, which has given a range to node 2. Returns the claim, too.
fn giving() -> (Locks, u64) {
    let mut locks = new(0);
    hear(&mut locks, 2, take(8, EPOCH, 0..512));
    let Some(Work::Queue(claim, _)) = locks.poll() else { panic!("it is queued") };
    locks.handle_come(claim);
    locks.handle_settled(claim);
    assert_eq!(works(&mut locks), [settle(claim, 0..512, true), say(2, LockMessage::Taken(8))]);
    (locks, claim)
}

#[test]
fn a_range_is_locked_on_all_members_in_the_order_of_slots() {
    let mut locks = Locks::new(Slot::new(1).unwrap(), BEFORE);
    locks.enter(config(EPOCH, &[in_sync(LIFE), in_sync(LIFE), joining(), Standing::Outside]));
    let number = locks.begin(0..512, at(5)).unwrap();
    let waits = |locks: &Locks| assert_eq!(locks.look(number, at(4)), Look::Waits(at(5)));
    assert_eq!(works(&mut locks), [say(1, take(number, EPOCH, 0..512))]);
    waits(&locks);
    hear(&mut locks, 1, LockMessage::Taken(number));
    assert_eq!(works(&mut locks), [Work::Queue(number, 0..512)]);
    waits(&locks);
    locks.handle_come(number);
    assert_eq!(works(&mut locks), [say(3, take(number, EPOCH, 0..512))], "joiners, too");
    waits(&locks);
    assert!(!locks.holds(&(0..512)));
    hear(&mut locks, 3, LockMessage::Taken(number));
    assert_eq!(works(&mut locks), []);
    assert_eq!(locks.look(number, at(4)), Look::Holds);
    assert!(locks.holds(&(0..512)) && locks.holds(&(256..512)));
    assert!(!locks.holds(&(0..513)));
}

#[test]
fn a_command_gives_up_in_the_end() {
    let mut locks = new(1);
    let number = locks.begin(0..512, at(5)).unwrap();
    assert_eq!(locks.look(number, at(5)), Look::Late);
    locks.end(number);
    assert_eq!(
        works(&mut locks),
        [say(1, take(number, EPOCH, 0..512)), say(1, LockMessage::Release(number))]
    );
    // The answer was on its way.
    hear(&mut locks, 1, LockMessage::Taken(number));
    assert_eq!(works(&mut locks), []);
}

#[test]
fn an_answer_counts_only_if_it_was_asked_for() {
    let mut locks = new(1);
    let number = locks.begin(0..512, at(5)).unwrap();
    for message in [LockMessage::Taken(number + 1), LockMessage::Refused(number + 1)] {
        hear(&mut locks, 1, message);
    }
    hear(&mut locks, 3, LockMessage::Taken(number));
    hear(&mut locks, 9, LockMessage::Taken(number));
    assert_eq!(works(&mut locks), [say(1, take(number, EPOCH, 0..512))]);
    hear(&mut locks, 1, LockMessage::Taken(number));
    hear(&mut locks, 1, LockMessage::Taken(number));
    locks.handle_come(number);
    locks.handle_come(number);
    assert_eq!(works(&mut locks), [Work::Queue(number, 0..512), say(3, take(number, EPOCH, 0..512))]);
    assert_eq!(locks.look(number, at(4)), Look::Waits(at(5)), "node 3 was not asked before");
}

#[test]
fn a_refusal_ends_the_attempt_and_gives_back_what_it_has() {
    let mut locks = new(2);
    let number = locks.begin(0..512, at(5)).unwrap();
    hear(&mut locks, 1, LockMessage::Taken(number));
    hear(&mut locks, 2, LockMessage::Refused(number));
    works(&mut locks);
    assert_eq!(locks.look(number, at(4)), Look::Refused);
    hear(&mut locks, 2, LockMessage::Taken(number));
    assert_eq!(locks.look(number, at(4)), Look::Refused);
    locks.end(number);
    assert_eq!(works(&mut locks), [1, 2].map(|to| say(to, LockMessage::Release(number))));
    assert!(locks.begin(0..512, at(5)).unwrap() > number, "the next attempt has another number");
}

#[test]
fn a_range_is_given_when_it_is_free_and_settled() {
    let mut locks = new(0);
    hear(&mut locks, 2, take(8, EPOCH, 0..512));
    let Some(Work::Queue(claim, range)) = locks.poll() else { panic!("it is queued") };
    assert_eq!((range, locks.poll()), (0..512, None));
    locks.handle_settled(claim);
    assert_eq!(locks.poll(), None, "hosts' operations are under way");
    locks.handle_come(claim);
    assert_eq!(works(&mut locks), [settle(claim, 0..512, true)]);
    assert!(locks.awaits_settled(claim));
    locks.handle_settled(claim);
    assert_eq!(works(&mut locks), [say(2, LockMessage::Taken(8))]);
    assert!(!locks.awaits_settled(claim));
    locks.handle_settled(claim);
    assert_eq!(works(&mut locks), [], "it is said once");
    hear(&mut locks, 2, LockMessage::Release(8));
    assert_eq!(works(&mut locks), [Work::Leave(claim)]);
}

#[test]
fn a_range_that_is_given_back_meanwhile_is_not_given() {
    let mut locks = new(0);
    hear(&mut locks, 2, take(8, EPOCH, 0..512));
    hear(&mut locks, 2, LockMessage::Release(8));
    let all = works(&mut locks);
    let [Work::Queue(claim, _), Work::Leave(left)] = all[..] else { panic!("{all:?}") };
    assert_eq!(claim, left);
    locks.handle_come(claim);
    locks.handle_settled(claim);
    assert_eq!(works(&mut locks), []);
}

#[test]
fn nothing_is_given_in_another_epoch_or_to_another_life_or_that_is_not_there() {
    let mut locks = new(0);
    for epoch in [EPOCH - 1, EPOCH + 1] {
        hear(&mut locks, 2, take(8, epoch, 0..512));
        assert_eq!(works(&mut locks), [say(2, LockMessage::Refused(8))]);
    }
    for range in [512..HERE.len + 512, 0..500, 500..512] {
        hear(&mut locks, 2, take(8, EPOCH, range));
        assert_eq!(works(&mut locks), [say(2, LockMessage::Refused(8))]);
    }
    locks.handle_message(node(2), Incarnation(LIFE + 1), HERE, take(8, EPOCH, 0..512));
    assert_eq!(works(&mut locks), [say(2, LockMessage::Refused(8))]);
    hear(&mut locks, 9, take(8, EPOCH, 0..512));
    assert_eq!(works(&mut locks), [], "it has no copy");
    assert_eq!(
        Locks::new(Slot::new(0).unwrap(), BEFORE).begin(0..512, at(5)),
        None,
        "nor does it act in an epoch"
    );
}

#[test]
fn the_next_epoch_releases_what_was_given() {
    let (mut locks, claim) = giving();
    locks.enter(config(EPOCH, &[in_sync(LIFE); 3]).committed_at(Revision(99)));
    assert_eq!(works(&mut locks), [], "it is the same epoch");
    locks.enter(config(EPOCH + 1, &[in_sync(LIFE); 2]));
    assert_eq!(works(&mut locks), [Work::Leave(claim)]);
}

#[test]
fn a_range_is_held_in_its_epoch_only() {
    let (mut locks, number) = holding();
    locks.enter(config(EPOCH + 1, &[in_sync(LIFE); 2]));
    assert!(!locks.holds(&(0..512)), "others may have written in the epoch after");
    assert_eq!(locks.look(number, at(4)), Look::Holds, "the command finds out when it writes");
    let attempt = locks.begin(0..512, at(5)).unwrap();
    locks.enter(config(EPOCH + 2, &[in_sync(LIFE); 3]));
    assert_eq!(locks.look(attempt, at(4)), Look::Refused);
}

#[test]
fn a_range_is_given_back_when_its_write_is_settled() {
    let (mut locks, number) = holding();
    locks.end(number);
    assert_eq!(works(&mut locks), [settle(number, 0..512, false)]);
    assert!(!locks.holds(&(0..512)), "no other write of the command begins");
    locks.handle_link_up(node(1));
    assert_eq!(works(&mut locks), [say(1, holds(EPOCH, &[number]))]);
    locks.handle_settled(number);
    let released = [1, 3].map(|to| say(to, LockMessage::Release(number)));
    assert_eq!(works(&mut locks), [&[Work::Leave(number)][..], &released].concat());
    locks.handle_link_up(node(1));
    assert_eq!(works(&mut locks), [say(1, holds(EPOCH, &[]))]);
}

#[test]
fn what_was_held_in_an_earlier_epoch_is_not_given_back() {
    for ended_before in [false, true] {
        let (mut locks, number) = holding();
        let attempt = locks.begin(512..1024, at(5)).unwrap();
        if ended_before {
            locks.end(number);
        }
        works(&mut locks);
        locks.enter(config(EPOCH + 1, &[in_sync(LIFE); 3]));
        locks.handle_link_up(node(1));
        locks.end(number);
        // A member that still acts in the earlier epoch must not let a write begin there.
        let mut all = works(&mut locks);
        assert!(all.contains(&Work::Leave(number)));
        all.retain(|work| *work != Work::Leave(number));
        assert_eq!(all, [say(1, holds(EPOCH + 1, &[]))]);
        locks.end(attempt);
        assert_eq!(works(&mut locks), [say(1, LockMessage::Release(attempt))], "it has written nothing");
    }
}

#[test]
fn numbers_are_not_used_again_by_a_copy_that_is_opened_again() {
    assert!(new(1).begin(0..512, at(5)).unwrap() > BEFORE);
}

#[test]
fn what_was_not_answered_over_a_lost_link_is_refused() {
    let mut locks = new(2);
    let (first, second) = (locks.begin(0..512, at(5)).unwrap(), locks.begin(512..1024, at(5)).unwrap());
    hear(&mut locks, 1, LockMessage::Taken(first));
    works(&mut locks);
    locks.handle_link_up(node(1));
    assert_eq!(works(&mut locks), [say(1, holds(EPOCH, &[first]))]);
    assert_eq!(locks.look(first, at(4)), Look::Waits(at(5)));
    assert_eq!(locks.look(second, at(4)), Look::Refused);
    locks.handle_link_up(node(9));
    assert_eq!(works(&mut locks), [], "it has no copy");
}

#[test]
fn what_a_node_no_longer_holds_is_released() {
    let (mut locks, claim) = giving();
    hear(&mut locks, 2, take(9, EPOCH, 512..1024));
    hear(&mut locks, 3, take(9, EPOCH, 1024..1536));
    let all = works(&mut locks);
    let [Work::Queue(second, _), Work::Queue(..)] = all[..] else { panic!("{all:?}") };
    hear(&mut locks, 2, holds(EPOCH, &[8, 10]));
    assert_eq!(works(&mut locks), [Work::Leave(second)]);
    hear(&mut locks, 2, holds(EPOCH, &[]));
    assert_eq!(works(&mut locks), [Work::Leave(claim)]);
}

#[test]
fn what_another_life_of_the_node_holds_counts_for_nothing() {
    let (mut locks, _) = giving();
    for message in [holds(EPOCH, &[]), LockMessage::Release(8)] {
        locks.handle_message(node(2), Incarnation(LIFE + 1), HERE, message);
    }
    assert_eq!(works(&mut locks), []);
}

/// Its copy was opened again meanwhile, in the same life, and acts in a later epoch than this one.
#[test]
fn what_a_node_holds_in_another_epoch_counts_for_nothing() {
    let (mut locks, _) = giving();
    for epoch in [EPOCH - 1, EPOCH + 1] {
        hear(&mut locks, 2, holds(epoch, &[]));
        assert_eq!(works(&mut locks), []);
    }
}

#[test]
fn a_detached_copy_gives_nothing_and_hears_what_is_given_back() {
    let detached = Here { detached: true, ..HERE };
    for released in [LockMessage::Release(8), holds(EPOCH, &[])] {
        let (mut locks, claim) = giving();
        let number = locks.begin(512..1024, at(5)).unwrap();
        works(&mut locks);
        for ignored in [take(9, EPOCH, 512..1024), LockMessage::Refused(number), LockMessage::Taken(number)] {
            locks.handle_message(node(2), Incarnation(LIFE), detached, ignored);
        }
        assert_eq!(works(&mut locks), []);
        assert_eq!(locks.look(number, at(4)), Look::Waits(at(5)));
        locks.handle_message(node(2), Incarnation(LIFE), detached, released);
        assert_eq!(works(&mut locks), [Work::Leave(claim)]);
    }
}

#[test]
fn a_copy_that_leaves_ends_all_claims_and_says_nothing() {
    let (mut locks, number) = holding();
    hear(&mut locks, 1, take(8, EPOCH, 512..1024));
    let attempt = locks.begin(512..1024, at(5)).unwrap();
    hear(&mut locks, 1, LockMessage::Taken(attempt));
    let ended = locks.begin(2048..4096, at(5)).unwrap();
    hear(&mut locks, 1, LockMessage::Taken(ended));
    locks.handle_come(ended);
    hear(&mut locks, 3, LockMessage::Taken(ended));
    locks.end(ended);
    let all = works(&mut locks);
    let Some(Work::Queue(given, _)) = all.first() else { panic!("{all:?}") };
    locks.leave();
    assert_eq!(works(&mut locks), [*given, ended, number, attempt].map(Work::Leave));
    assert_eq!(locks.look(attempt, at(4)), Look::Refused);
    assert!(!locks.holds(&(0..512)));
    [number, attempt].into_iter().for_each(|number| locks.end(number));
    assert_eq!(works(&mut locks), []);
    assert_eq!(locks.begin(0..512, at(5)), None);
    hear(&mut locks, 1, take(9, EPOCH, 0..512));
    assert_eq!(works(&mut locks), [say(1, LockMessage::Refused(9))]);
}

#[test]
fn rules_that_are_left_out_are_noticed() {
    let rules: [(Canary, fn()); 6] = [
        (Canary::LockHere, a_range_is_locked_on_all_members_in_the_order_of_slots),
        (Canary::GiveUnsettled, a_range_is_given_when_it_is_free_and_settled),
        (Canary::ReleaseUnsettled, a_range_is_given_back_when_its_write_is_settled),
        (Canary::HoldsOfAnyLife, what_another_life_of_the_node_holds_counts_for_nothing),
        (Canary::HoldsOfAnyEpoch, what_a_node_holds_in_another_epoch_counts_for_nothing),
        (Canary::ReleaseAfterEpoch, what_was_held_in_an_earlier_epoch_is_not_given_back),
    ];
    for (canary, test) in rules {
        make(Some(canary));
        let noticed = catch_unwind(AssertUnwindSafe(test)).is_err();
        make(None);
        assert!(noticed, "{canary:?} was not noticed");
    }
}
