//! The simulator's engine.

use std::time::Duration;

use cluster::memory::{Fault, Memory};
use cluster::{Error, Event, MemberChange, NodeId, Outcome, Refusal, Revision, Transaction};

use rt::CoreId;
use rt::sim::World;

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

#[test]
fn simulated_cores_wait_in_virtual_time() {
    let world = World::new(1);
    let core = world.add_node("a", 1, |_| std::future::pending());
    let memory = Memory::new([node(1), node(2)]);
    let (store, faulty) = (memory.store(node(1)), memory.clone());
    world.block_on(core, CoreId(0), move || async move {
        let deadline = Duration::from_secs(2);
        let put = store.cas(Transaction::new(1).put("a", "x"), deadline).await;
        assert_eq!(put, Ok(Outcome::Committed(Revision(1))));
        faulty.begin(node(1), Fault::Unreachable);
        let began = rt::now();
        let lost = store.cas(Transaction::new(2).put("a", "y"), deadline).await;
        assert_eq!(lost, Err(Error::OutcomeUnknown));
        assert_eq!(rt::now() - began, Duration::from_secs(3), "the deadline and a second of grace");
        let mut watch = faulty.store(node(2)).watch(Revision(1), deadline).await.unwrap();
        let news = rt::spawn(async move { watch.next().await.map(|event| event.revision()) });
        rt::sleep(Duration::from_secs(1)).await;
        faulty.end(node(1), Fault::Unreachable);
        assert_eq!(news.await, Ok(Revision(2)), "who waits is woken");
        let read = store.get("a", deadline).await.unwrap().unwrap();
        assert_eq!((&read.value[..], read.revision), (&b"y"[..], Revision(2)));
    });
}
