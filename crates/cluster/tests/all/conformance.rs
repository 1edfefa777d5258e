//! The behavior that all engines share. Each test gets two stores of one record, possibly of two nodes, and
//! may find keys of other tests in it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Error, Event, Everything, Invalid, Outcome, Revision, Store, Transaction, Watch};

/// The deadline of a call that should succeed.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn op_id() -> u128 {
    // Unique among the tests of this run and of earlier runs.
    use std::hash::{BuildHasher, RandomState};
    u128::from(RandomState::new().hash_one(1)) << 64 | u128::from(RandomState::new().hash_one(2))
}

fn transaction() -> Transaction {
    Transaction::new(op_id())
}

fn committed(store: &Store, transaction: Transaction) -> Revision {
    match store.cas(transaction, SOON).wait() {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

fn value(store: &Store, key: &str) -> Option<(Vec<u8>, Revision)> {
    let entry = store.get(key, SOON).wait().unwrap();
    entry.map(|entry| (entry.value.to_vec(), entry.revision))
}

/// All tests. `name` separates the keys of several runs.
pub(crate) fn suite(one: &Store, two: &Store, name: &str) {
    values_are_read_everywhere(one, two, name);
    a_transaction_is_all_or_nothing(one, two, name);
    the_same_transaction_takes_effect_once(one, two, name);
    what_is_no_transaction_is_refused(one, name);
    large_values_pass(one, two, name);
    a_list_is_sorted_and_of_one_revision(one, two, name);
    a_counter_counts_each_increment_once(one, two, name);
    watches_see_every_change_in_order(one, two, name);
    a_status_tells_what_it_is(one);
}

fn values_are_read_everywhere(one: &Store, two: &Store, name: &str) {
    let key = format!("{name}/value");
    assert_eq!(value(one, &key), None);
    let first = committed(one, transaction().put(&key, "a"));
    assert_eq!(value(two, &key), Some((b"a".to_vec(), first)));
    let second = committed(two, transaction().put(&key, ""));
    assert!(second > first);
    assert_eq!(value(one, &key), Some((b"".to_vec(), second)));
    let third = committed(one, transaction().delete(&key));
    assert!(third > second);
    assert_eq!(value(two, &key), None);
    assert!(committed(one, transaction().delete(&key)) > third, "also when there is nothing to delete");
}

fn a_transaction_is_all_or_nothing(one: &Store, two: &Store, name: &str) {
    let [a, b] = ["a", "b"].map(|part| format!("{name}/both/{part}"));
    let first = committed(one, transaction().expect(&a, None).expect(&b, None).put(&a, "1").put(&b, "1"));
    let stale = transaction().expect(&a, Some(first)).expect(&b, None).put(&a, "2").delete(&b);
    let conflict = two.cas(stale, SOON).wait();
    assert_eq!(conflict, Ok(Outcome::Conflict { key: b.clone(), found: Some(first) }));
    assert_eq!(value(one, &a), Some((b"1".to_vec(), first)));
    let second =
        committed(two, transaction().expect(&a, Some(first)).expect(&b, Some(first)).put(&a, "2").delete(&b));
    let gone = transaction().expect(&b, Some(first)).put(&b, "3");
    assert_eq!(one.cas(gone, SOON).wait(), Ok(Outcome::Conflict { key: b.clone(), found: None }));
    let there = transaction().expect(&a, None).put(&a, "3");
    assert_eq!(one.cas(there, SOON).wait(), Ok(Outcome::Conflict { key: a.clone(), found: Some(second) }));
    assert_eq!(value(two, &a), Some((b"2".to_vec(), second)));
}

fn the_same_transaction_takes_effect_once(one: &Store, two: &Store, name: &str) {
    let key = format!("{name}/once");
    let add = transaction().expect(&key, None).put(&key, "1");
    let first = committed(one, add.clone());
    let second = committed(one, transaction().put(&key, "2"));
    assert_eq!(
        committed(two, add.clone()),
        first,
        "its result is remembered, although it would conflict now"
    );
    assert_eq!(committed(one, add), first);
    assert_eq!(value(one, &key), Some((b"2".to_vec(), second)));
}

fn what_is_no_transaction_is_refused(one: &Store, name: &str) {
    let key = format!("{name}/refused");
    let refused = |it| one.cas(it, SOON).wait();
    assert_eq!(refused(transaction().put(&key, vec![0; 262_145])), Err(Error::Invalid(Invalid::Value)));
    assert_eq!(refused(transaction().put("", "x")), Err(Error::Invalid(Invalid::Key)));
    assert_eq!(refused(transaction().put(&key, "x").delete(&key)), Err(Error::Invalid(Invalid::Twice)));
    assert_eq!(value(one, &key), None);
}

fn large_values_pass(one: &Store, two: &Store, name: &str) {
    let keys: Vec<String> = (0..3).map(|part| format!("{name}/large/{part}")).collect();
    let large = keys.iter().fold(transaction(), |it, key| it.put(key, vec![7; 262_144]));
    let revision = committed(one, large);
    for key in &keys {
        assert_eq!(value(two, key), Some((vec![7; 262_144], revision)));
    }
    let many = (0..100).fold(transaction(), |it, n| it.put(&format!("{name}/many/{n}"), "x"));
    committed(one, many);
    assert_eq!(two.list(&format!("{name}/many/"), SOON).wait().unwrap().entries.len(), 100);
    committed(one, keys.iter().fold(transaction(), |it, key| it.delete(key)));
}

fn a_list_is_sorted_and_of_one_revision(one: &Store, two: &Store, name: &str) {
    let key = |part: &str| format!("{name}/list/{part}");
    let all = ["b", "a", "c/d"].iter().fold(transaction(), |it, part| it.put(&key(part), *part));
    let revision =
        committed(one, all.put(&format!("{name}/list"), "outside").put(&format!("{name}/lisu"), "outside"));
    let list = two.list(&key(""), SOON).wait().unwrap();
    assert!(list.revision >= revision);
    let expected: Vec<_> = ["a", "b", "c/d"].map(|part| (key(part), part.as_bytes().to_vec())).into();
    let found: Vec<_> = list.entries.into_iter().map(|(key, it)| (key, it.value.to_vec())).collect();
    assert_eq!(found, expected);
}

fn a_counter_counts_each_increment_once(one: &Store, two: &Store, name: &str) {
    const EACH: u64 = 15;
    let key = format!("{name}/counter");
    let count = |store: &Store| {
        for _ in 0..EACH {
            loop {
                let before = value(store, &key);
                let (old, revision) =
                    before.map(|(value, revision)| (value, Some(revision))).unwrap_or_default();
                let old = old.try_into().map(u64::from_le_bytes).unwrap_or_default();
                let next = transaction().expect(&key, revision).put(&key, (old + 1).to_le_bytes());
                match store.cas(next, SOON).wait().unwrap() {
                    Outcome::Committed(_) => break,
                    Outcome::Conflict { key: conflicting, .. } => assert_eq!(conflicting, key),
                }
            }
        }
    };
    thread::scope(|scope| {
        for store in [one, one, two, two] {
            scope.spawn(|| count(store));
        }
    });
    let (found, _) = value(one, &key).unwrap();
    assert_eq!(found, (4 * EACH).to_le_bytes());
}

/// The revisions that the watch has seen for keys that begin with `prefix`, up to `until`.
fn follow(watch: &mut Watch, from: &mut Everything, until: Revision) -> Vec<Revision> {
    let deadline = Instant::now() + SOON;
    let mut seen = Vec::new();
    while from.revision < until {
        assert!(Instant::now() < deadline, "the watch has not come to {until}: {seen:?}");
        let Some(event) = watch.wait(Duration::from_millis(100)).unwrap() else { continue };
        assert!(event.revision() > from.revision, "in order");
        seen.push(event.revision());
        match event {
            Event::Everything(all) => *from = (*all).clone(),
            Event::Change(change) => from.change(&change),
        }
    }
    seen
}

fn watches_see_every_change_in_order(one: &Store, two: &Store, name: &str) {
    let prefix = format!("{name}/watch/");
    let mut here = one.list("", SOON).wait().unwrap();
    let mut there = here.clone();
    let mut watch_here = one.watch(here.revision, SOON).wait().unwrap();
    let mut watch_there = two.watch(here.revision, SOON).wait().unwrap();
    let mut made = Vec::new();
    for round in 0..30 {
        let key = |n: u32| format!("{prefix}{}", n % 4);
        let change = transaction().put(&key(round), round.to_le_bytes()).delete(&key(round + 1));
        made.push(committed(if round % 2 == 0 { one } else { two }, change));
    }
    let last = *made.last().unwrap();
    assert_eq!(follow(&mut watch_here, &mut here, last), made);
    assert_eq!(follow(&mut watch_there, &mut there, last), made);
    let now = two.list("", SOON).wait().unwrap();
    let entries = |it: Everything| -> BTreeMap<_, _> { it.entries };
    let now = entries(now);
    assert!(now == entries(here) && now == entries(there), "the changes lead to what is read");

    // From the middle, and from the distant past, which is answered with everything or change by change.
    let (mut middle, mut beginning) =
        (Everything { revision: made[9], ..Everything::default() }, Everything::default());
    let mut watch = one.watch(made[9], SOON).wait().unwrap();
    assert_eq!(follow(&mut watch, &mut middle, last), made[10..]);
    let mut watch = two.watch(Revision(0), SOON).wait().unwrap();
    follow(&mut watch, &mut beginning, last);
    assert!(entries(beginning) == now);
    assert_eq!(watch.wait(Duration::from_millis(50)), Ok(None), "nothing has changed since");
}

fn a_status_tells_what_it_is(one: &Store) {
    let status = one.status(SOON).wait().unwrap();
    assert!(status.quorum && status.term > 0 && status.trouble.is_none(), "{status:?}");
    assert!(status.revision > Revision(0), "{status:?}");
    assert_eq!(status.leader.is_some(), !status.voters.is_empty(), "nodes lead where nodes vote: {status:?}");
}
