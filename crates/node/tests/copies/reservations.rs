//! Reservations through several nodes: all nodes enforce what one has acknowledged.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{Lba, Rng};
use cluster::memory::Fault;
use initiator::command::{PersistentReserveOut, ReadFullStatus, ReadKeys, ReservationType, ServiceAction};
use initiator::{Options, Session};
use node::control::{AddedCopy, TargetSpec};
use node::copies::StandingEntry;
use node::member::Reconciler;
use node::{Config, Control};
use replica::Epoch;
use rt::CoreId;
use rt::sim::{DiskLatency, NodeId};
use store::{VolumeId, VolumeKind};

use super::forks::{A, B, GOES_ON, record_node};
use super::{CLUSTER, Cluster, LUN, SIZE, attended, block, log_in, read, write};
use crate::rig::{DISK, POOL, Shape, TARGET, map, named, new_volume};
use crate::seeds::each_seed;

const KIND: ReservationType = ReservationType::WriteExclusiveRegistrantsOnly;

pub(super) async fn reserve(
    session: &Session,
    command: PersistentReserveOut,
) -> Result<(), initiator::Error> {
    match session.reserve(LUN, command).await {
        Err(error) if error.is_unit_attention() => session.reserve(LUN, command).await,
        done => done,
    }
}

pub(super) async fn keys(session: &Session) -> BTreeSet<u64> {
    let keys = match session.send(LUN, &ReadKeys).await {
        Err(error) if error.is_unit_attention() => session.send(LUN, &ReadKeys).await,
        done => done,
    };
    keys.unwrap().into_iter().collect()
}

fn out(action: ServiceAction, key: u64, action_key: u64) -> PersistentReserveOut {
    PersistentReserveOut { action, kind: KIND, key, action_key, survives: false }
}

pub(super) fn is_conflict(result: &Result<(), initiator::Error>) -> bool {
    const RESERVATION_CONFLICT: u8 = 0x18;
    matches!(result, Err(initiator::Error::Status { status: RESERVATION_CONFLICT, .. }))
}

#[test]
fn a_reservation_holds_on_all_nodes_and_survives_the_node_it_was_made_through() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        let (holder, other) = (cluster.client("holder"), cluster.client("other"));
        let portals: Vec<SocketAddr> = (0..3).map(|index| cluster.portal(index)).collect();
        let portal = portals[0];
        cluster.world.block_on(holder, CoreId(0), move || async move {
            let session = log_in(portal, "holder").await.unwrap();
            reserve(&session, PersistentReserveOut::register(7)).await.unwrap();
            reserve(&session, out(ServiceAction::Reserve, 7, 0)).await.unwrap();
            write(&session, 0, 1).await.unwrap();
        });
        let refused = |portals: Vec<SocketAddr>| {
            cluster.world.block_on(other, CoreId(0), move || async move {
                for portal in portals {
                    let session = log_in(portal, "other").await.unwrap();
                    assert!(is_conflict(&write(&session, 0, 2).await), "through {portal}");
                    assert_eq!(read(&session, 0).await.unwrap(), 1);
                    assert_eq!(keys(&session).await, BTreeSet::from([7]));
                }
            });
        };
        refused(portals.clone());
        cluster.world.crash(cluster.servers[0]);
        refused(portals[1..].to_vec());
        cluster.start(0);
        cluster.wait_until_all_serve();
        refused(portals.clone());
        // Another host takes it over through another node, and releases it through a third.
        let (second, third) = (portals[1], portals[2]);
        cluster.world.block_on(other, CoreId(0), move || async move {
            let session = log_in(second, "other").await.unwrap();
            reserve(&session, PersistentReserveOut::register(9)).await.unwrap();
            reserve(&session, out(ServiceAction::Preempt, 9, 7)).await.unwrap();
            write(&session, 0, 3).await.unwrap();
            reserve(&session, out(ServiceAction::Release, 9, 0)).await.unwrap();
            let session = log_in(third, "other").await.unwrap();
            assert_eq!(keys(&session).await, BTreeSet::from([9]));
            write(&session, 0, 4).await.unwrap();
        });
    });
}

#[test]
fn persistent_reservations_survive_a_blackout() {
    each_seed(2, |seed| {
        for survives in [true, false] {
            let cluster = Cluster::new(seed, 3, 1);
            cluster.add_volume(VolumeKind::Thick, 3);
            let client = cluster.client("holder");
            let portal = cluster.portal(1);
            cluster.world.block_on(client, CoreId(0), move || async move {
                let session = log_in(portal, "holder").await.unwrap();
                let register = PersistentReserveOut { survives, ..PersistentReserveOut::register(7) };
                reserve(&session, register).await.unwrap();
            });
            cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
            (0..3).for_each(|index| cluster.start(index));
            cluster.wait_until_all_serve();
            for index in 0..3 {
                let portal = cluster.portal(index);
                let found = cluster.world.block_on(client, CoreId(0), move || async move {
                    keys(&log_in(portal, "holder").await.unwrap()).await
                });
                let expected = if survives { BTreeSet::from([7]) } else { BTreeSet::new() };
                assert_eq!(found, expected, "node {}", index + 1);
            }
        }
    });
}

/// The key of the hosts that are fenced off.
const WRITERS: u64 = 0xaa;

fn surviving(key: u64) -> PersistentReserveOut {
    PersistentReserveOut { survives: true, ..PersistentReserveOut::register(key) }
}

/// Writes increasing numbers to block 0, without end, and only while it is registered.
async fn writer(portal: SocketAddr, name: String, next: Rc<Cell<u64>>) {
    loop {
        if let Some(session) = log_in(portal, &name).await {
            while reserve(&session, surviving(WRITERS)).await.is_ok() {
                loop {
                    next.set(next.get() + 1);
                    // The unit attention for a lost registration precedes the execution of the write.
                    if session.write(LUN, Lba(0), block(next.get()), SIZE).await.is_err() {
                        break;
                    }
                }
                rt::sleep(Duration::from_millis(1)).await;
            }
        }
        rt::sleep(Duration::from_millis(20)).await;
    }
}

/// Fences the writers off, after which nothing may change any more; through changing nodes, while these
/// crash.
async fn fencer(portals: Vec<SocketAddr>, fenced: Rc<Cell<u64>>, mut rng: Rng) {
    loop {
        let index = rng.below(portals.len() as u64) as usize;
        if let Some(session) = log_in(portals[index], "fencer").await {
            let result = fence(&session, &fenced, &mut rng).await;
            if result.is_err_and(|error| !matches!(error, initiator::Error::Status { .. })) {
                // Its commands through this node may still be executed.
                rt::sleep(Duration::from_secs(3)).await;
            }
        }
        rt::sleep(Duration::from_millis(rng.below(200))).await;
    }
}

async fn fence(session: &Session, fenced: &Cell<u64>, rng: &mut Rng) -> Result<(), initiator::Error> {
    const KEY: u64 = 0xfe;
    let kind = ReservationType::WriteExclusive;
    let out =
        |action, action_key| PersistentReserveOut { action, kind, key: KEY, action_key, survives: true };
    reserve(session, surviving(KEY)).await?;
    // An earlier session of this client may hold it, through another node.
    let held = reserve(session, out(ServiceAction::Reserve, 0)).await;
    if is_conflict(&held) {
        return reserve(session, out(ServiceAction::Clear, 0)).await;
    }
    held?;
    reserve(session, out(ServiceAction::PreemptAndAbort, WRITERS)).await?;
    let before = read(session, 0).await?;
    for _ in 0..5 {
        rt::sleep(Duration::from_millis(rng.below(50))).await;
        let after = read(session, 0).await?;
        assert_eq!(before, after, "a write took effect after its initiator was fenced off");
    }
    fenced.set(fenced.get() + 1);
    reserve(session, out(ServiceAction::Release, 0)).await
}

fn fencing(seed: u64, disturbed: bool) {
    let mut rng = Rng::new(seed);
    let nodes = 2 + rng.below(2) as usize;
    let cluster = Cluster::new(seed, nodes, 1 + rng.below(2) as usize);
    cluster.add_volume(VolumeKind::Thick, nodes as u8);
    let portals: Vec<SocketAddr> = (0..nodes).map(|index| cluster.portal(index)).collect();
    let next = Rc::new(Cell::new(0));
    for (index, portal) in portals.iter().enumerate() {
        let name = format!("writer-{index}");
        let (client, portal, next) = (cluster.client(&name), *portal, Rc::clone(&next));
        drop(cluster.world.spawn_on(client, CoreId(0), move || writer(portal, name, next)));
    }
    let fenced = Rc::new(Cell::new(0));
    let (client, counter, fork) = (cluster.client("fencer"), Rc::clone(&fenced), rng.fork());
    drop(cluster.world.spawn_on(client, CoreId(0), move || fencer(portals, counter, fork)));
    if disturbed {
        cluster.disturb(&mut rng);
        cluster.wait_until_all_serve();
    }
    cluster.world.run_for(Duration::from_secs(5));
    assert!(fenced.get() > 0, "nobody was fenced off");
    assert!(next.get() > 500, "only {} writes", next.get());
}

#[test]
fn nothing_of_a_fenced_initiator_takes_effect() {
    each_seed(2, |seed| fencing(seed, false));
}

#[test]
fn nothing_of_a_fenced_initiator_takes_effect_while_nodes_crash_and_links_break() {
    each_seed(6, |seed| fencing(seed, true));
}

/// A write that reaches a node when the node learns that it was removed.
///
/// It was admitted under the reservations of that time, and must not be executed when the node is a member
/// again: its initiator has been fenced off through another node.
pub(super) fn lost_and_back(seed: u64) {
    const THERE: u64 = 24;
    let cluster = Cluster::new(seed, 2, 4);
    cluster.add_volume(VolumeKind::Thick, 2);
    let next = Rc::new(Cell::new(0));
    for number in 0..THERE {
        let name = format!("writer-{number}");
        let (client, portal, next) = (cluster.client(&name), cluster.portal(1), Rc::clone(&next));
        drop(cluster.world.spawn_on(client, CoreId(0), move || writer(portal, name, next)));
    }
    let (fencer, portal) = (cluster.client("fencer"), cluster.portal(0));
    let read_there = || {
        cluster.world.block_on(fencer, CoreId(0), move || async move {
            read(&log_in(portal, "fencer").await.unwrap(), 0).await.unwrap()
        })
    };
    cluster.world.run_for(Duration::from_millis(500));
    assert!(next.get() > 0, "there is somebody to be fenced off");
    cluster.world.pause(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.in_sync(0), 1, "the first node goes on alone");
    cluster.world.block_on(fencer, CoreId(0), move || async move {
        let session = log_in(portal, "fencer").await.unwrap();
        let out = |action, action_key| {
            let kind = ReservationType::WriteExclusive;
            PersistentReserveOut { action, kind, key: 0xfe, action_key, survives: true }
        };
        reserve(&session, surviving(0xfe)).await.unwrap();
        reserve(&session, out(ServiceAction::Reserve, 0)).await.unwrap();
        reserve(&session, out(ServiceAction::PreemptAndAbort, WRITERS)).await.unwrap();
    });
    let fenced = read_there();
    cluster.world.resume(cluster.servers[1]);
    cluster.wait_until_in_sync(0, 2);
    for _ in 0..20 {
        cluster.world.run_for(Duration::from_millis(100));
        assert_eq!(read_there(), fenced, "a write took effect after its initiator was fenced off");
    }
}

#[test]
fn commands_received_by_a_lost_node_are_not_executed_when_it_is_back() {
    // Without the rule, about one seed in eight fails.
    each_seed(8, lost_and_back);
}

/// Each client registers a key through one node, again and again with another key.
async fn registrant(portals: Vec<SocketAddr>, id: u64, holds: Rc<RefCell<BTreeSet<u64>>>, mut rng: Rng) {
    let name = format!("registrant-{id}");
    let mut serial = 0;
    loop {
        // Always through the same node: the nexus is what registers.
        let Some(session) = log_in(portals[id as usize % portals.len()], &name).await else {
            rt::sleep(Duration::from_millis(100)).await;
            continue;
        };
        loop {
            serial += 1;
            let key = serial << 8 | (id + 1);
            holds.borrow_mut().retain(|held| held & 0xff != id + 1);
            if reserve(&session, surviving(key)).await.is_err() {
                break;
            }
            holds.borrow_mut().insert(key);
            rt::sleep(Duration::from_millis(rng.below(100))).await;
        }
    }
}

fn all_agree(seed: u64) {
    let mut rng = Rng::new(seed);
    let nodes = 2 + rng.below(2) as usize;
    let cluster = Cluster::new(seed, nodes, 1 + rng.below(2) as usize);
    cluster.add_volume(VolumeKind::Thick, nodes as u8);
    let portals: Vec<SocketAddr> = (0..nodes).map(|index| cluster.portal(index)).collect();
    let holds = Rc::new(RefCell::new(BTreeSet::new()));
    let mut clients = Vec::new();
    for id in 0..4 {
        let client = cluster.client(&format!("registrant-{id}"));
        let (portals, holds, fork) = (portals.clone(), Rc::clone(&holds), rng.fork());
        drop(cluster.world.spawn_on(client, CoreId(0), move || registrant(portals, id, holds, fork)));
        clients.push(client);
    }
    cluster.disturb(&mut rng);
    cluster.wait_until_all_serve();
    clients.iter().for_each(|client| cluster.world.crash(*client));
    cluster.world.run_for(Duration::from_secs(5));
    let watcher = cluster.client("watcher");
    let found: Vec<BTreeSet<u64>> = portals
        .into_iter()
        .map(|portal| {
            cluster.world.block_on(watcher, CoreId(0), move || async move {
                keys(&log_in(portal, "watcher").await.unwrap()).await
            })
        })
        .collect();
    assert!(found.iter().all(|keys| *keys == found[0]), "{found:x?}");
    assert!(holds.borrow().is_subset(&found[0]), "{:x?} of {:x?}", found[0], holds.borrow());
    assert!(!found[0].is_empty());
}

#[test]
fn all_nodes_agree_on_the_registrants() {
    each_seed(5, all_agree);
}

/// A node executes a change, which its disk makes slow, when another node with a lower slot becomes a member
/// and decides a change against the earlier state. Both acknowledged changes must hold.
pub(super) fn decided_on_both_sides_of_a_promotion(seed: u64) {
    const STORES: Duration = Duration::from_millis(400);
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    let handoff = cluster.control(0, |control| async move { control.handoff() }).expect("it is in a cluster");
    cluster.world.crash(cluster.servers[0]);
    assert_eq!(super::watcher(&cluster, handoff), 2, "both of the others believe it");
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.in_sync(1), 2);
    cluster.start(0);
    let joins = || {
        cluster.control(1, |control| async move {
            let copies = &control.reconciler().unwrap().volumes()[0].entry.copies;
            copies.iter().any(|copy| copy.standing == StandingEntry::Joining)
        })
    };
    assert!(cluster.world.run_until(joins, Duration::from_secs(10)));
    let proposers = [1, 2].map(record_node);
    proposers.iter().for_each(|node| cluster.record.begin(*node, Fault::Unreachable));
    cluster.world.run_for(Duration::from_millis(100));
    assert!(joins(), "it is not promoted yet");
    for index in [0, 1] {
        let latency =
            DiskLatency { flush: STORES..STORES + Duration::from_millis(1), ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[index], DISK, latency);
    }
    // Each host has a session when it begins.
    let registers = |index: usize| {
        let (client, portal) = (cluster.client(&format!("host-{index}")), cluster.portal(index));
        let answered = Rc::new(Cell::new(false));
        let answers = Rc::clone(&answered);
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
            let options = named(&format!("host-{index}"));
            let session = Session::connect(portal, TARGET, &options).await.unwrap();
            while session.reserve(LUN, surviving(0x10 + index as u64)).await.is_err() {
                rt::sleep(Duration::from_millis(5)).await;
            }
            answers.set(true);
            std::future::pending::<()>().await;
        }));
        answered
    };
    let answered = [registers(1), registers(0)];
    cluster.world.run_for(Duration::from_millis(50));
    proposers.iter().for_each(|node| cluster.record.end(*node, Fault::Unreachable));
    let all = || answered.iter().all(|answered| answered.get());
    assert!(cluster.world.run_until(all, Duration::from_secs(20)));
    cluster.world.run_for(STORES * 4);
    for index in 0..3 {
        let portal = cluster.portal(index);
        let found = cluster.world.block_on(cluster.client("looks"), CoreId(0), move || async move {
            keys(&log_in(portal, "looks").await.unwrap()).await
        });
        assert_eq!(found, BTreeSet::from([0x10, 0x11]), "both were answered");
    }
}

#[test]
fn answered_changes_hold_though_a_member_joins_meanwhile() {
    each_seed(4, decided_on_both_sides_of_a_promotion);
}

const VICTIM: u64 = 0x11;

/// Registers a key through a node, then runs a function, and keeps the session. The result becomes true when
/// the function has ended.
fn registered<F: Future<Output = ()> + 'static>(
    cluster: &Cluster,
    name: &'static str,
    index: usize,
    key: u64,
    then: impl FnOnce(Session) -> F + 'static,
) -> Rc<Cell<bool>> {
    let (client, portal) = (cluster.client(name), cluster.portal(index));
    let done = Rc::new(Cell::new(false));
    let told = Rc::clone(&done);
    drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
        let session = Session::connect(portal, TARGET, &named(name)).await.unwrap();
        session.make_ready(LUN).await.unwrap();
        reserve(&session, PersistentReserveOut::register(key)).await.unwrap();
        then(session).await;
        told.set(true);
        std::future::pending::<()>().await;
    }));
    done
}

fn slow_writes(cluster: &Cluster, index: usize, latency: Duration) {
    let write = latency..latency + Duration::from_millis(1);
    let latency = DiskLatency { write, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[index], DISK, latency);
}

/// When the others begin their next step.
const THEN: Duration = Duration::from_millis(300);

/// A write is on its way through a node that is lost, while its initiator is fenced off through another one.
///
/// What the lost node has left with that one is completed before the response to the fencing.
pub(super) fn left_by_a_lost_node(seed: u64) {
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    let handoff = cluster.control(2, |control| async move { control.handoff() }).expect("it is in a cluster");
    registered(&cluster, "victim", 2, VICTIM, |session| async move {
        rt::sleep(THEN).await;
        // No response comes.
        let _ = session.write(LUN, Lba(0), block(1), SIZE).await;
    });
    let fenced = registered(&cluster, "fencer", 1, 0xfe, |session| async move {
        rt::sleep(THEN + Duration::from_millis(30)).await;
        reserve(&session, out(ServiceAction::PreemptAndAbort, 0xfe, VICTIM)).await.unwrap();
    });
    cluster.world.run_for(THEN);
    // The first node learns of the write only from the second one, after that has learned of the loss; and
    // then it is slow.
    cluster.world.cut_one_way(cluster.servers[2], cluster.servers[0]);
    slow_writes(&cluster, 0, Duration::from_millis(1200));
    cluster.world.run_for(Duration::from_millis(150));
    assert!(!fenced.get(), "the node that carries the write out waits for the first one");
    cluster.world.crash(cluster.servers[2]);
    assert_eq!(super::watcher(&cluster, handoff), 2, "both of the others believe it");
    let has_orphans = |index: usize| {
        cluster.world.block_on(cluster.servers[index], CoreId(0), || async {
            node::copies::Copies::current().slices().iter().any(|copy| copy.has_orphans())
        })
    };
    let mut left = false;
    while !fenced.get() {
        left |= has_orphans(1);
        cluster.world.run_for(Duration::from_millis(1));
    }
    assert!(left, "the second node has something to bring to its end");
    assert!(
        !has_orphans(0) && !has_orphans(1),
        "a write can still take effect whose initiator is fenced off"
    );
}

#[test]
fn a_fencing_waits_for_what_a_lost_node_has_left() {
    each_seed(4, left_by_a_lost_node);
}

/// What each node reports to the others about the unit of the volume.
///
/// A node reports a change once it is in effect there and what it aborts has ended (U10).
fn reports(cluster: &Cluster) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    let report = |server: &NodeId| {
        cluster.world.inspect(*server, CoreId(0), || {
            let reconciler = Control::current().reconciler().unwrap();
            let entry = reconciler.volumes().remove(0).entry;
            let id = VolumeId::parse(&entry.id).unwrap();
            reconciler.tell(id, Epoch(entry.epoch)).expect("the node is a member")
        })
    };
    cluster.servers.iter().map(report).collect()
}

/// A change that is half executed here is neither present nor absent: nothing is decided meanwhile.
///
/// Which of the two hosts gets its response first does not matter: the node that is asked for a second change
/// may learn first that all have the first one.
pub(super) fn decided_beside_another(seed: u64) {
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    registered(&cluster, "victim", 0, VICTIM, |session| async move {
        rt::sleep(THEN).await;
        let _ = session.write(LUN, Lba(0), block(1), SIZE).await;
    });
    // The second one finds no registration with that key any more. The network may delay the fencer.
    let won = Rc::new(Cell::new(0));
    let [fencer_won, late_won] = [0; 2].map(|_| Rc::clone(&won));
    let fenced = registered(&cluster, "fencer", 1, 0xfe, |session| async move {
        rt::sleep(THEN + Duration::from_millis(50)).await;
        let result = reserve(&session, out(ServiceAction::PreemptAndAbort, 0xfe, VICTIM)).await;
        assert!(result.is_ok() || is_conflict(&result), "{result:?}");
        fencer_won.set(fencer_won.get() + u32::from(result.is_ok()));
    });
    let refused = registered(&cluster, "late", 0, 0xfd, |session| async move {
        rt::sleep(THEN + Duration::from_millis(100)).await;
        let result = reserve(&session, out(ServiceAction::Preempt, 0xfd, VICTIM)).await;
        assert!(result.is_ok() || is_conflict(&result), "{result:?}");
        late_won.set(late_won.get() + u32::from(result.is_ok()));
    });
    cluster.world.run_for(THEN);
    // The write, through the first node, waits for the third one, and the node that aborts it waits for the
    // write.
    slow_writes(&cluster, 2, Duration::from_millis(900));
    let before = reports(&cluster);
    for count in [1, 2] {
        let answered = || u32::from(refused.get()) + u32::from(fenced.get()) >= count;
        assert!(cluster.world.run_until(answered, Duration::from_secs(10)));
        let now = reports(&cluster);
        let have_it = now.iter().all(|report| *report == now[0] && *report != before[0]);
        assert!(have_it, "a response rests on a change that not all nodes have: {now:?}");
    }
    assert_eq!(won.get(), 1);
}

#[test]
fn nothing_is_decided_during_another_change() {
    each_seed(4, decided_beside_another);
}

/// A node's agreement on a reservation while it was alone makes it differ from the other node, even without
/// any read or write of a block.
#[test]
fn a_reservation_through_an_isolated_node_is_not_dropped_silently() {
    each_seed(2, |seed| {
        for keep in [A, B] {
            let cluster = Cluster::of_two(seed);
            cluster.put(A, 0..10, 1);
            cluster.cut_nodes();
            cluster.world.run_for(GOES_ON);
            let (holder, portal) = (cluster.client("holder"), cluster.portal(B));
            cluster.world.block_on(holder, CoreId(0), move || async move {
                let session = log_in(portal, "holder").await.unwrap();
                reserve(&session, PersistentReserveOut::register(7)).await.unwrap();
            });
            cluster.heal_nodes();
            cluster.wait_until_split();
            cluster.resolve(A, keep).unwrap();
            cluster.wait_until_one();
            let expected = if keep == B { BTreeSet::from([7]) } else { BTreeSet::new() };
            for portal in [A, B].map(|index| cluster.portal(index)) {
                let found = cluster.world.block_on(holder, CoreId(0), move || async move {
                    keys(&log_in(portal, "holder").await.unwrap()).await
                });
                assert_eq!(found, expected, "through {portal}, node {} is kept", keep + 1);
            }
        }
    });
}

/// Logs in under the names that this initiator always has.
pub(super) async fn log_in_again(portal: SocketAddr, name: &str) -> Rc<Session> {
    let options = Options { isid: Some([0x40, 0, 1, 0x37, 0, 0]), ..named(name) };
    let session = Session::connect(portal, TARGET, &options).await.unwrap();
    session.make_ready(LUN).await.unwrap();
    Rc::new(session)
}

/// The ports that initiators are registered through, and their keys.
pub(super) async fn registrants(session: &Session) -> Vec<(u16, u64)> {
    let all = attended(async || session.send(LUN, &ReadFullStatus).await).await.unwrap();
    all.into_iter().map(|registrant| (registrant.port, registrant.key)).collect()
}

/// The second node has a volume alone, which a host has reserved, and is about to join the cluster of the
/// first one. Returns the host's session.
fn about_to_join(seed: u64) -> (Cluster, NodeId, Rc<Session>) {
    about_to_join_from(Cluster::apart(seed, 2, 2, &Config::default(), &[512]))
}

/// The same with nodes that are not in this cluster yet. The second one may be in another.
pub(super) fn about_to_join_from(cluster: Cluster) -> (Cluster, NodeId, Rc<Session>) {
    cluster.control(1, |control| async move {
        let name = TARGET.to_owned();
        control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        control.create_volume(new_volume(POOL, Shape::thick())).await.unwrap();
        map(&control, Shape::thick().name, 0).await.unwrap();
    });
    let (client, portal) = (cluster.client("host"), cluster.portal(1));
    let session = cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in_again(portal, "host").await;
        reserve(&session, surviving(7)).await.unwrap();
        reserve(&session, out(ServiceAction::Reserve, 7, 0)).await.unwrap();
        write(&session, 0, 1).await.unwrap();
        assert_eq!(registrants(&session).await, [(0x0101, 7)]);
        session
    });
    cluster.enter_one(0);
    // As when a node joins: first what it has, then the node.
    let target =
        cluster.control(1, |control| async move { control.access().target(TARGET).cloned().unwrap() });
    cluster.control(0, |control| async move {
        let value = serde_json::to_vec(&target).unwrap();
        let transaction = Reconciler::transaction().put(&format!("target/{TARGET}"), value);
        control.reconciler().unwrap().commit(transaction).await.unwrap();
    });
    (cluster, client, session)
}

/// As [`about_to_join`], a while after it has joined. The session has lasted.
pub(super) fn joined(seed: u64) -> (Cluster, NodeId, Rc<Session>) {
    let (cluster, client, session) = about_to_join(seed);
    cluster.enter_one(1);
    cluster.world.run_for(Duration::from_secs(3));
    (cluster, client, session)
}

/// Its ports get other numbers. Otherwise the host would be kept out by its own reservation, or come back by
/// an old registration after it was fenced off.
#[test]
fn what_is_registered_on_a_node_that_joins_stays_registered() {
    each_seed(2, |seed| {
        let (cluster, client, session) = joined(seed);
        let portal = cluster.portal(1);
        let holder = Rc::clone(&session);
        cluster.world.block_on(client, CoreId(0), move || async move {
            let told = holder.reserve(LUN, out(ServiceAction::Reserve, 7, 0)).await;
            assert_eq!(told.unwrap_err().sense(), Some((0x06, 0x3f03)), "INQUIRY data has changed");
            assert_eq!(registrants(&holder).await, [(0x0201, 7)]);
            reserve(&holder, out(ServiceAction::Reserve, 7, 0)).await.unwrap();
            write(&holder, 0, 2).await.unwrap();
            // The same after another login.
            let holder = log_in_again(portal, "host").await;
            reserve(&holder, out(ServiceAction::Reserve, 7, 0)).await.unwrap();
            write(&holder, 0, 3).await.unwrap();
        });
        drop(session);
        let other = cluster.client("other");
        cluster.world.block_on(other, CoreId(0), move || async move {
            let session = log_in_again(portal, "other").await;
            assert!(is_conflict(&write(&session, 0, 4).await));
            reserve(&session, surviving(9)).await.unwrap();
            reserve(&session, out(ServiceAction::Preempt, 9, 7)).await.unwrap();
            assert_eq!(registrants(&session).await, [(0x0201, 9)]);
        });
        let is_fenced_off = || {
            cluster.world.block_on(client, CoreId(0), move || async move {
                let session = log_in_again(portal, "host").await;
                assert_eq!(registrants(&session).await, [(0x0201, 9)]);
                is_conflict(&write(&session, 0, 5).await)
            })
        };
        assert!(is_fenced_off());
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        cluster.world.run_for(Duration::from_secs(3));
        assert!(is_fenced_off());
    });
}

/// Its pool has them under the old number, until the volume gets a copy on another node. From then on a
/// number means the node that has it.
#[test]
fn what_was_registered_before_a_node_joined_is_known_to_all_copies() {
    each_seed(2, |seed| {
        let (cluster, client, session) = joined(seed);
        drop(session);
        cluster.control(1, |control| async move {
            let copy = AddedCopy { node: 1, pool: None, instead_of: None };
            control.add_copy(Shape::thick().name, copy).await.unwrap();
        });
        cluster.wait_until_in_sync(1, 2);
        cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
        (0..2).for_each(|index| cluster.start(index));
        cluster.wait_until_all_serve();
        let [first, second] = [0, 1].map(|index| cluster.portal(index));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in_again(first, "host").await;
            assert_eq!(registrants(&session).await, [(0x0201, 7)]);
            assert!(is_conflict(&write(&session, 0, 2).await), "it is registered at the second node only");
            let session = log_in_again(second, "host").await;
            write(&session, 0, 2).await.unwrap();
        });
    });
}

/// Crashes the second node while it enters the cluster of the first one, at a different time for each `cut`,
/// and starts it. At once, whether or not the node has read its record, the host is registered as before and
/// may write, and no other host may. Returns whether the node is in the cluster of the first one.
pub(super) fn crash_while_it_enters(cluster: &Cluster, client: NodeId, cut: u64) -> bool {
    let (server, place) = (cluster.servers[1], cluster.place_in_cluster(1));
    drop(cluster.world.spawn_on(server, CoreId(0), move || async move {
        let _ = Control::current().enter_cluster(place, 0).await;
    }));
    cluster.world.run_for(Duration::from_micros(100 * cut * cut));
    cluster.world.crash(server);
    cluster.start(1);
    let is_member = cluster.control(1, |control| async move { control.place().unwrap().cluster == CLUSTER });
    let (portal, port) = (cluster.portal(1), if is_member { 0x0201 } else { 0x0101 });
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in_again(portal, "host").await;
        assert_eq!(registrants(&session).await, [(port, 7)], "cut {cut}");
        write(&session, 0, 2).await.unwrap();
    });
    let other = cluster.client("other");
    cluster.world.block_on(other, CoreId(0), move || async move {
        let session = log_in_again(portal, "other").await;
        assert!(is_conflict(&write(&session, 0, 3).await), "cut {cut}");
    });
    is_member
}

#[test]
fn a_crash_while_a_node_joins_costs_no_registration() {
    let (mut alone, mut member) = (0, 0);
    for cut in 0..30 {
        let (cluster, client, session) = about_to_join(cut);
        drop(session);
        match crash_while_it_enters(&cluster, client, cut) {
            true => member += 1,
            false => alone += 1,
        }
    }
    assert!(alone > 0 && member > 0, "{alone} alone, {member} members");
}
