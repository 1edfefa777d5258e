//! The simulator's engine.

use std::time::Duration;

use cluster::memory::{Fault, Memory};
use cluster::{Error, Event, MemberChange, NodeId, Outcome, Refusal, Revision, Transaction};

use crate::conformance::{SOON, suite};

fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

#[test]
fn memory_conforms() {
    let memory = Memory::new([node(1), node(2)]);
    suite(&memory.store(node(1)), &memory.store(node(2)), "memory");
}

#[test]
fn a_node_that_is_cut_off_waits_and_its_late_calls_take_effect() {
    let memory = Memory::new([node(1), node(2)]);
    let (one, two) = (memory.store(node(1)), memory.store(node(2)));
    let mut watch = two.watch(Revision(0), SOON).wait().unwrap();
    memory.begin(node(2), Fault::Unreachable);
    assert_eq!(two.get("a", Duration::ZERO).wait(), Err(Error::NoQuorum));
    let late = two.cas(Transaction::new(1).put("a", "late"), Duration::ZERO);
    assert_eq!(late.wait(), Err(Error::OutcomeUnknown));
    let put = one.cas(Transaction::new(2).put("a", "here"), SOON).wait();
    assert_eq!(put, Ok(Outcome::Committed(Revision(1))));
    assert_eq!(watch.wait(Duration::ZERO), Ok(None));
    assert!(!two.status(SOON).wait().unwrap().quorum);
    memory.end(node(2), Fault::Unreachable);
    let seen = |event: Option<Event>| event.map(|event| event.revision());
    assert_eq!(watch.wait(Duration::ZERO).map(seen), Ok(Some(Revision(1))));
    assert_eq!(watch.wait(Duration::ZERO).map(seen), Ok(Some(Revision(2))), "the call whose caller gave up");
    assert_eq!(two.get("a", SOON).wait().unwrap().unwrap().value[..], b"late"[..]);
}

#[test]
fn a_lost_answer_is_an_unknown_outcome() {
    let memory = Memory::new([node(1)]);
    let store = memory.store(node(1));
    memory.begin(node(1), Fault::AnswersLost);
    let put = Transaction::new(1).expect("a", None).put("a", "x");
    assert_eq!(store.cas(put.clone(), Duration::ZERO).wait(), Err(Error::OutcomeUnknown));
    memory.end(node(1), Fault::AnswersLost);
    assert_eq!(store.cas(put, SOON).wait(), Ok(Outcome::Committed(Revision(1))), "and took effect once");
}

#[test]
fn a_watch_that_is_held_up_skips_nothing() {
    let memory = Memory::new([node(1)]);
    let store = memory.store(node(1));
    memory.begin(node(1), Fault::WatchHeld);
    for number in 1..=3 {
        store.cas(Transaction::new(number).put("a", "x"), SOON).wait().unwrap();
    }
    let mut watch = store.watch(Revision(0), SOON).wait().unwrap();
    assert_eq!(watch.wait(Duration::ZERO), Ok(None));
    assert_eq!(store.get("a", SOON).wait().unwrap().unwrap().revision, Revision(3), "reads are not");
    memory.end(node(1), Fault::WatchHeld);
    let revisions =
        std::iter::from_fn(|| watch.wait(Duration::ZERO).unwrap()).map(|event| event.revision().0);
    assert_eq!(revisions.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn members_change_by_the_same_rules() {
    let memory = Memory::new([node(1)]);
    let store = memory.store(node(1));
    let change = |change| store.change_members(change, SOON).wait();
    assert_eq!(change(MemberChange::Add(node(2))), Ok(()));
    assert_eq!(change(MemberChange::Promote(node(2))), Ok(()));
    assert_eq!(change(MemberChange::Remove(node(1))), Ok(()));
    assert_eq!(change(MemberChange::Add(node(1))), Err(Error::Membership(Refusal::Gone(node(1)))));
    assert_eq!(store.status(SOON).wait().unwrap().voters, [2]);
}
