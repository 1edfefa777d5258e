//! Unusual ends of forks: copies or volumes were deleted meanwhile, nodes stood still, were set back or have
//! faults, or messages are lost.

use cluster::MemberChange;
use cluster::memory::Fault;
use node::control::{ControlError, NotServed};
use node::copies::SplitBrainPolicy;
use node::member::ForkState;
use rt::sim::{DiskFaults, DiskImage};

use super::forks::{A, B, GOES_ON, record_node};
use super::*;

/// Another volume of the same two nodes, with which no node may continue alone.
fn add_another(cluster: &Cluster, name: &'static str) {
    cluster.control(A, move |control| async move {
        let shape = Shape { name, ..Shape::thick() };
        let copies = Some(Placement::Count(2));
        let new = node::control::NewVolume { copies, ..new_volume(POOL, shape) };
        control.create_volume(new).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(1));
}

fn add_plain(cluster: &Cluster) {
    add_another(cluster, "plain");
}

fn serves_plain(cluster: &Cluster, index: usize) -> bool {
    cluster.control(index, |control| async move {
        let volumes = control.reconciler().unwrap().volumes();
        volumes.iter().any(|volume| volume.entry.name == "plain" && volume.serving)
    })
}

/// Whether the node's pool has something of the volume.
fn has_copy(cluster: &Cluster, index: usize) -> bool {
    cluster.control(index, |control| async move {
        control.volumes().await.iter().any(|it| it.info.name == "thick")
    })
}

fn wait(cluster: &Cluster, what: &str, is_so: impl Fn() -> bool) {
    assert!(cluster.world.run_until(is_so, Duration::from_secs(30)), "{what}");
}

/// Node B has continued alone, and hosts have written there. Another volume is not concerned.
fn with_plain_and_fork(seed: u64) -> Cluster {
    let cluster = Cluster::of_two(seed);
    add_plain(&cluster);
    cluster.cut_nodes();
    cluster.world.run_for(GOES_ON);
    cluster.put(B, 3..8, 200);
    cluster
}

/// The other volume is served again by both, and node B keeps what it has of this one, even after a restart.
fn keep_what_is_left(cluster: &Cluster, restarts: bool) {
    wait(cluster, "leases are given again", || serves_plain(cluster, A) && serves_plain(cluster, B));
    if restarts {
        cluster.restart_b(Duration::from_secs(1));
        wait(cluster, "after a restart, too", || serves_plain(cluster, A) && serves_plain(cluster, B));
    }
    cluster.world.run_for(Duration::from_secs(5));
    assert!(has_copy(cluster, B), "nothing is deleted unasked");
}

/// An administrator removes the copy from the node that has continued alone, without knowing of the fork.
fn taken_away(seed: u64) {
    let cluster = with_plain_and_fork(seed);
    let gone = cluster.control(A, |control| async move { control.remove_copy("thick", 2).await });
    assert!(gone.unwrap(), "it is no copy any more");
    cluster.heal_nodes();
    cluster.wait_until_split();
    keep_what_is_left(&cluster, seed.is_multiple_of(2));
    assert!(matches!(cluster.resolve(A, B), Err(ControlError::HasNoCopy { .. })));
    cluster.resolve(A, A).unwrap();
    wait(&cluster, "it is deleted", || !has_copy(&cluster, B));
    wait(&cluster, "no fork is shown", || (cluster.fork(A), cluster.serves(A)) == (None, true));
}

#[test]
fn a_copy_removed_meanwhile_is_kept_until_somebody_decides() {
    each_seed(4, taken_away);
}

/// An administrator deletes the volume meanwhile.
fn deleted(seed: u64) {
    let cluster = with_plain_and_fork(seed);
    cluster.control(A, |control| async move { control.delete_volume("thick", true).await }).unwrap();
    cluster.heal_nodes();
    keep_what_is_left(&cluster, seed.is_multiple_of(2));
    let shown = cluster.control(B, |control| async move { control.volume("thick").unwrap().problem });
    assert!(matches!(shown, Some(NotServed::DeletedWhileAlone)), "{shown:?}");
    cluster.control(B, |control| async move { control.delete_volume("thick", true).await }).unwrap();
    assert!(!has_copy(&cluster, B));
    cluster.restart_b(Duration::from_secs(1));
    wait(&cluster, "all is well", || serves_plain(&cluster, A) && serves_plain(&cluster, B));
}

#[test]
fn a_volume_that_was_deleted_meanwhile_is_kept_until_it_is_deleted_there_too() {
    each_seed(4, deleted);
}

/// The second node stands still; the first one continues without it, and is lost.
fn second_stood_still(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.put(A, 0..10, 1);
    cluster.world.pause(cluster.servers[B]);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.put(A, 5..15, 2);
    cluster.record.begin(record_node(B), Fault::WatchHeld);
    cluster.lose_a();
    cluster.world.run_for(Duration::from_secs(4));
    cluster.world.resume(cluster.servers[B]);
    cluster.world.run_for(GOES_ON * 2);
    assert!(!cluster.serves(B), "it has not listened");
    cluster.record.end(record_node(B), Fault::WatchHeld);
    cluster.return_a();
    cluster.wait_until_one();
    assert_eq!((cluster.read_block(B, 4), cluster.read_block(B, 14)), (1, 2));
}

/// The first node stands still, and the second continues alone: the first one must not continue, too, before
/// it has listened.
fn first_stood_still(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.put(A, 0..10, 1);
    cluster.record.begin(record_node(B), Fault::Unreachable);
    cluster.world.pause(cluster.servers[A]);
    cluster.world.run_for(GOES_ON);
    cluster.put(B, 5..15, 2);
    cluster.world.resume(cluster.servers[A]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.record.end(record_node(B), Fault::Unreachable);
    cluster.world.run_for(Duration::from_secs(1));
    assert!(cluster.fork(B).is_none_or(|fork| fork.state == ForkState::Alone), "{:?}", cluster.fork(B));
    cluster.wait_until_one();
    assert_eq!((cluster.read_block(A, 4), cluster.read_block(A, 14)), (1, 2));
}

#[test]
fn a_paused_node_does_not_mistake_its_own_pause_for_silence() {
    each_seed(4, second_stood_still);
    each_seed(4, first_stood_still);
}

/// The second node's own record is set back to before the cut.
pub(super) fn set_back(seed: u64) {
    let cluster = Cluster::of_two(seed);
    cluster.put(A, 0..10, 1);
    let record: DiskImage = cluster.world.disk_image(cluster.servers[B], "/ursa/record");
    cluster.cut_nodes();
    cluster.world.run_for(GOES_ON);
    cluster.put(A, 0..5, 100);
    cluster.put(B, 3..8, 200);
    cluster.heal_nodes();
    cluster.wait_until_split();
    let before = cluster.checksum(B);
    cluster.world.crash(cluster.servers[B]);
    cluster.world.remove_disk(cluster.servers[B], "/ursa/record");
    cluster.world.put_file(cluster.servers[B], "/ursa/record", record);
    cluster.start(B);
    cluster.world.run_for(Duration::from_secs(10));
    assert_eq!(cluster.checksum(B), before, "what it has is not written over");
    assert!(!cluster.serves(B));
    cluster.resolve(A, B).unwrap();
    cluster.wait_until_one();
    assert_eq!([4, 7].map(|lba| cluster.read_block(A, lba)), [200, 200]);
}

#[test]
fn a_node_that_was_set_back_still_waits_for_a_decision() {
    each_seed(3, set_back);
}

/// The node that continues alone reopens its pool, and no host comes after that.
///
/// Before, what hosts had written there was discarded without a word: the copy did not know any more that it
/// had served one.
fn reopened(seed: u64) {
    let cluster = Cluster::both_gone_on(seed);
    let faults = DiskFaults::default().with_unwritable(0..64 * MIB);
    cluster.world.set_disk_faults(cluster.servers[B], DISK, faults);
    let portal = cluster.portal(B);
    cluster.world.block_on(cluster.client("host"), CoreId(0), move || async move {
        let session = log_in(portal, "host").await.expect("it serves");
        assert!(write_durably(&session, 9, 300).await.is_err());
    });
    cluster.world.set_disk_faults(cluster.servers[B], DISK, DiskFaults::default());
    cluster.control(B, |control| async move { control.reopen_pool(POOL).await.map(drop) }).unwrap();
    cluster.world.run_for(Duration::from_secs(3));
    cluster.heal_nodes();
    cluster.wait_until_split();
    cluster.resolve(A, B).unwrap();
    cluster.wait_until_one();
    assert_eq!([4, 7].map(|lba| cluster.read_block(A, lba)), [200, 200]);
}

#[test]
fn what_was_written_before_a_pool_was_reopened_is_not_forgotten() {
    each_seed(3, reopened);
}

#[test]
fn a_side_that_cannot_be_served_cannot_be_kept() {
    each_seed(3, |seed| {
        let cluster = Cluster::both_gone_on(seed);
        assert!(matches!(cluster.would_resolve(B, B), Err(ControlError::NotSplitYet { node: 2, .. })));
        assert!(matches!(cluster.resolve(B, B), Err(ControlError::NotSplitYet { node: 2, .. })));
        cluster.heal_nodes();
        cluster.wait_until_split();
        if seed.is_multiple_of(2) {
            cluster.world.crash(cluster.servers[B]);
        } else {
            // Only writes reveal that a disk has failed.
            cluster.world.crash(cluster.servers[B]);
            cluster.world.set_disk_dead(cluster.servers[B], DISK, true);
            cluster.start(B);
            cluster.world.run_for(Duration::from_secs(3));
        }
        let refused = cluster.resolve(A, B);
        assert!(refused.is_err(), "{refused:?}");
        let told = cluster.would_resolve(A, B);
        assert!(told.is_err(), "{told:?}");
        assert!(cluster.serves(A));
        cluster.put(A, 0..2, 300);
        cluster.world.set_disk_dead(cluster.servers[B], DISK, false);
        if !seed.is_multiple_of(2) {
            cluster.world.crash(cluster.servers[B]);
        }
        cluster.start(B);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.resolve(A, B).unwrap();
        cluster.wait_until_one();
        assert_eq!(cluster.read_block(A, 7), 200);
    });
}

/// The first node has stopped in favor of the second, and it is unknown whether the record says so.
#[test]
fn a_decision_of_which_nobody_knows_can_be_taken_again_either_way() {
    let ends: Vec<bool> = (1..=6)
        .map(|seed| {
            let cluster = Cluster::both_gone_on(seed);
            cluster.heal_nodes();
            cluster.wait_until_split();
            let fault = if seed.is_multiple_of(2) { Fault::AnswersLost } else { Fault::Unreachable };
            let deciding = cluster.world.spawn_on(cluster.servers[A], CoreId(0), || async move {
                Control::current().resolve_fork("thick", 2).await
            });
            // The question whether the other one works is on its way.
            cluster.world.run_for(Duration::from_micros(100 * seed));
            cluster.record.begin(record_node(A), fault);
            cluster.world.run_for(Duration::from_secs(8));
            cluster.record.end(record_node(A), fault);
            drop(deciding);
            cluster.world.run_for(Duration::from_secs(1));
            match cluster.resolve(A, A) {
                Ok(()) | Err(ControlError::NoFork(_)) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
            cluster.wait_until_one();
            cluster.read_block(A, 7) == 200
        })
        .collect();
    assert!(ends.contains(&true), "none has taken effect");
}

/// The record does what the second node asks of it, but its answers are lost: to settle a fork takes six
/// seconds, until that node no longer waits for one. To settle three takes no longer.
#[test]
fn a_fork_that_waits_for_the_record_keeps_no_other_waiting() {
    each_seed(2, |seed| {
        let cluster = Cluster::of_two(seed);
        for name in ["second", "third"] {
            add_another(&cluster, name);
            let set = cluster.control(A, move |control| async move {
                control.set_split_brain_policy(name, SplitBrainPolicy::Heartbeat, "test").await
            });
            set.unwrap();
        }
        cluster.world.run_for(Duration::from_secs(2));
        let forks = || {
            cluster.control(B, |control| async move {
                let volumes = control.reconciler().unwrap().volumes();
                volumes.iter().filter(|volume| volume.fork.is_some()).count()
            })
        };
        cluster.lose_a();
        cluster.world.run_for(GOES_ON);
        assert_eq!(forks(), 3);
        cluster.record.begin(record_node(B), Fault::AnswersLost);
        let began = cluster.world.now();
        cluster.return_a();
        wait(&cluster, "they are settled", || forks() == 0);
        let took = cluster.world.now() - began;
        assert!(took < Duration::from_secs(12), "seed {seed}: {took:?}");
        cluster.record.end(record_node(B), Fault::AnswersLost);
        cluster.wait_until_one();
    });
}

#[test]
fn an_agreement_is_about_the_nodes_that_it_was_made_for() {
    each_seed(1, |seed| {
        let cluster = Cluster::of_two(seed);
        let policy = |index: usize| {
            cluster.control(index, |control| async move {
                control.reconciler().unwrap().volumes()[0].policy.as_ref().map(|chosen| chosen.policy)
            })
        };
        assert_eq!(policy(B), Some(SplitBrainPolicy::Heartbeat));
        cluster.control(A, |control| async move { control.remove_copy("thick", 2).await }).unwrap();
        assert_eq!(policy(A), None);
        assert!(cluster.fork(A).is_none_or(|fork| fork.state != ForkState::Alone));
    });
}

/// The first node is lost for good during a split brain: there is no node to ask to stop.
#[test]
fn the_survivor_of_a_split_decides_alone() {
    each_seed(2, |seed| {
        let cluster = Cluster::both_gone_on(seed);
        cluster.heal_nodes();
        cluster.wait_until_split();
        cluster.world.crash(cluster.servers[A]);
        assert!(cluster.would_resolve(B, B).is_err(), "nobody has said that it does not come back");
        assert!(cluster.resolve(B, B).is_err(), "nobody has said that it does not come back");
        cluster.control(B, |control| async move {
            let reconciler = control.reconciler().unwrap();
            for change in [MemberChange::Promote(record_node(B)), MemberChange::Remove(record_node(A))] {
                // It may be a voter already.
                let _ = reconciler.change_members(change, Duration::from_secs(5)).await;
            }
        });
        cluster.restart_b(Duration::from_secs(1));
        cluster.world.run_for(Duration::from_secs(3));
        let told = cluster.would_resolve(B, B).unwrap();
        assert_eq!((told.given_up, told.stops), (vec![1], None), "nobody is there to stop");
        cluster.resolve(B, B).unwrap();
        wait(&cluster, "it serves", || cluster.serves(B));
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!((cluster.fork(B), cluster.read_block(B, 7), cluster.read_block(B, 9)), (None, 200, 1));
    });
}
