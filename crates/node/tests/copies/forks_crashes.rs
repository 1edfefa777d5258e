//! A crash at any moment of the scenarios in `forks.rs`: a fork is stored, settled, and forgotten in steps,
//! and a crash between any two of them is harmless.

use super::forks::{A, B, GOES_ON};
use super::*;

/// Longest time from the return of the first node until the fork is settled and both copies are equal.
const SETTLING: Duration = Duration::from_secs(3);
/// The sweep's step: prime, so that it does not always hit a timer at the same phase.
const STEP: Duration = Duration::from_millis(61);

fn sweep(from: u64, crash: impl Fn(&Cluster)) {
    let mut at = Duration::from_millis(from);
    while at < SETTLING {
        let cluster = Cluster::of_two(from + 1);
        cluster.put(A, 0..10, 1);
        cluster.lose_a();
        cluster.world.run_for(GOES_ON);
        cluster.put(B, 5..15, 2);
        cluster.return_a();
        cluster.world.run_for(at);
        crash(&cluster);
        cluster.wait_until_one();
        for (lba, value) in [(4, 1), (5, 2), (14, 2)] {
            let read = (cluster.read_block(A, lba), cluster.read_block(B, lba));
            assert_eq!(read, (value, value), "block {lba} after a crash at {at:?}");
        }
        at += STEP;
    }
}

#[test]
fn the_node_that_was_alone_crashes_while_it_is_settled() {
    sweep(7, |cluster| cluster.restart_b(Duration::from_millis(300)));
}

#[test]
fn the_node_that_is_back_crashes_while_it_is_settled() {
    sweep(11, |cluster| {
        cluster.lose_a();
        cluster.world.run_for(GOES_ON);
        cluster.return_a();
    });
}

#[test]
fn both_crash_while_it_is_settled() {
    sweep(13, |cluster| {
        cluster.lose_a();
        cluster.restart_b(Duration::from_millis(300));
        cluster.world.run_for(Duration::from_millis(500));
        cluster.return_a();
    });
}

/// While the fork is being stored: either it is stored or it is not, and no acknowledged write is lost.
#[test]
fn a_crash_while_the_fork_begins_is_harmless() {
    for at in (4500..7500).step_by(61).map(Duration::from_millis) {
        let cluster = Cluster::of_two(3);
        let (client, portal) = (cluster.client("writer"), cluster.portal(B));
        let answered = Rc::new(Cell::new(0));
        let told = Rc::clone(&answered);
        cluster.put(A, 0..10, 1);
        cluster.lose_a();
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
            loop {
                let Some(session) = log_in(portal, "writer").await else {
                    rt::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                while write(&session, 20, told.get() + 1).await.is_ok() {
                    told.set(told.get() + 1);
                }
            }
        }));
        cluster.world.run_for(at);
        cluster.world.crash(cluster.servers[B]);
        let before = answered.get();
        cluster.start(B);
        cluster.world.run_for(GOES_ON * 2);
        assert_eq!(cluster.serves(B), cluster.fork(B).is_some(), "at {at:?}");
        assert!(answered.get() >= before);
        cluster.return_a();
        cluster.wait_until_in_sync(A, 2);
        cluster.wait_until_all_serve();
        let now = cluster.read_block(A, 20);
        assert!(now >= before, "{now} at {at:?}, and {before} was answered");
    }
}
