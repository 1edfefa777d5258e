//! Persistent reservations over several paths that fail and come back, with a second host.

use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, Chain, Lba};
use initiator::command::{ReadKeys, ReadReservation, ReservationType};
use initiator::multipath::{Claim, Failure, What};
use initiator::{Error, Lun, Multipath, MultipathOptions, Policy, Search, UnitSelector};

use crate::array::{Array, BLOCK};
use crate::ram_target::NAME;

const OURS: u64 = 0xa;
const THEIRS: u64 = 0xb;
const KIND: ReservationType = ReservationType::WriteExclusiveRegistrantsOnly;

/// More than enough for a path to come back: it is retried within five seconds.
const BACK: Duration = Duration::from_secs(20);

/// A host with all paths, used in turn.
fn host(array: &Array, name: &str) -> Rc<Multipath> {
    let mut options = MultipathOptions { policy: Policy::RoundRobin(1), ..MultipathOptions::default() };
    options.login.initiator = format!("iqn.2026-01.org.ursa:{name}");
    let search = Search {
        portals: array.all_portals(),
        target: Some(NAME.into()),
        unit: UnitSelector::Lun(Lun(0)),
        discover: false,
    };
    array.run(move || async move { Rc::new(Multipath::open(&search, options).await.unwrap()) })
}

fn with<T: 'static, F: Future<Output = T> + 'static>(
    array: &Array,
    host: &Rc<Multipath>,
    function: impl FnOnce(Rc<Multipath>) -> F + 'static,
) -> T {
    let host = Rc::clone(host);
    array.run(move || function(host))
}

fn claim(array: &Array, host: &Rc<Multipath>, claim: Claim) -> Result<(), Failure> {
    with(array, host, move |host| async move { host.claim(claim).await })
}

fn register(array: &Array, host: &Rc<Multipath>, key: u64) {
    with(array, host, move |host| async move { host.register(key).await.unwrap() });
}

fn keys(array: &Array, host: &Rc<Multipath>) -> Vec<u64> {
    let mut keys = with(array, host, |host| async move { host.send(&ReadKeys).await.unwrap() });
    keys.sort_unstable();
    keys
}

/// Writes over every path; returns whether all writes were admitted, or none.
fn may_write(array: &Array, host: &Rc<Multipath>) -> bool {
    let results = with(array, host, |host| async move {
        let mut results = Vec::new();
        for lba in 0..8 {
            let data = Chain::copy_of(&vec![1; BLOCK.bytes() as usize]);
            results.push(host.write(Lba(lba), data).await);
        }
        results
    });
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(error.answer(), Some(Error::Status { status: 0x18, .. })), "{error}");
    }
    let may = results.iter().filter(|result| result.is_ok()).count();
    assert!(may == 0 || may == results.len(), "{may} of {} writes", results.len());
    may > 0
}

fn fenced(host: &Multipath) -> usize {
    host.events().iter().filter(|event| matches!(event.what, What::Fenced(_))).count()
}

#[test]
fn a_host_holds_a_reservation_by_all_of_its_paths() {
    let array = Array::new(1, &[1, 2]);
    let [a, b] = ["a", "b"].map(|name| host(&array, name));
    register(&array, &a, OURS);
    assert_eq!(keys(&array, &a), [OURS; 3]);
    claim(&array, &a, Claim::Reserve(KIND)).unwrap();
    let held = with(&array, &b, |host| async move { host.send(&ReadReservation).await.unwrap().unwrap() });
    assert_eq!((held.key, held.kind), (OURS, KIND));
    assert!(may_write(&array, &a) && !may_write(&array, &b));
    with(&array, &b, |host| async move { host.read(Lba(0), BlockCount(1)).await.unwrap() });
    // Another host preempts the first.
    register(&array, &b, THEIRS);
    assert!(may_write(&array, &b), "all registrants may");
    claim(&array, &b, Claim::PreemptAndAbort(KIND, OURS)).unwrap();
    assert_eq!(keys(&array, &b), [THEIRS; 3]);
    assert!(!may_write(&array, &a) && may_write(&array, &b));
    claim(&array, &b, Claim::Release(KIND)).unwrap();
    with(&array, &b, |host| async move { host.unregister().await.unwrap() });
    assert!(keys(&array, &b).is_empty() && may_write(&array, &a));
}

#[test]
fn a_path_added_later_is_registered() {
    for seed in 0..4 {
        let array = Array::new(seed, &[1, 1]);
        let a = host(&array, "a");
        array.cut(0, 0);
        array.world.run_for(BACK);
        register(&array, &a, OURS);
        assert_eq!(keys(&array, &a), [OURS], "seed {seed}: one path is away");
        claim(&array, &a, Claim::Reserve(KIND)).unwrap();
        array.heal(0, 0);
        array.world.run_for(BACK);
        assert_eq!(keys(&array, &a), [OURS; 2], "seed {seed}");
        // The path is lost and comes back, and so does its controller.
        for _ in 0..2 {
            array.cut(0, 0);
            array.world.run_for(BACK);
            array.heal(0, 0);
            array.world.kill(array.controllers[1]);
            array.world.run_for(BACK);
            array.start(1);
            array.world.run_for(BACK);
        }
        assert_eq!(keys(&array, &a), [OURS; 2], "seed {seed}");
        assert!(may_write(&array, &a) && a.paths().iter().all(|path| path.in_use), "seed {seed}");
        assert_eq!(fenced(&a), 0, "seed {seed}");
        // A key that was unregistered meanwhile does not remain.
        array.cut(0, 0);
        array.world.run_for(BACK);
        with(&array, &a, |host| async move { host.unregister().await.unwrap() });
        array.heal(0, 0);
        array.world.run_for(BACK);
        assert!(keys(&array, &a).is_empty(), "seed {seed}");
    }
}

/// The purpose of a fence: a host that was cut off must not write when it comes back.
#[test]
fn a_fenced_host_does_not_come_back_by_a_path_that_does() {
    for (seed, registered_before) in [(1, true), (2, true), (3, false), (4, false)] {
        let array = Array::new(seed, &[1, 1]);
        let [a, b] = ["a", "b"].map(|name| host(&array, name));
        if registered_before {
            register(&array, &a, OURS);
        }
        array.cut(0, 0);
        array.world.run_for(BACK);
        register(&array, &a, OURS);
        let _ = a.events();
        // The other host has lost that network, too, and uses the other one.
        register(&array, &b, THEIRS);
        claim(&array, &b, Claim::Reserve(KIND)).unwrap();
        claim(&array, &b, Claim::Preempt(KIND, OURS)).unwrap();
        array.heal(0, 0);
        array.world.run_for(BACK);
        assert!(a.paths().iter().all(|path| path.in_use), "seed {seed}: it may read");
        assert!(!may_write(&array, &a), "seed {seed}");
        assert_eq!(fenced(&a), 1, "seed {seed}: by the path that came back");
        assert!(!keys(&array, &b).contains(&OURS), "seed {seed}");
        // The fenced host may register again deliberately.
        register(&array, &a, OURS);
        assert!(may_write(&array, &a), "seed {seed}");
    }
}
