//! Writes that were answered as having an unknown result, by a node that has lost its leases.
//!
//! They may still take effect when the nodes are together again, but not after a later write to the same
//! block, nor after they were fenced off.

use cluster::memory::Fault;
use initiator::command::{PersistentReserveOut, ReservationType, ServiceAction};
use initiator::{Error, Session};
use rt::sim::{DiskLatency, NetProfile};

use super::forks::record_node;
use super::*;

pub(super) const IO_PROCESS_TERMINATED: (u8, u16) = (0x0b, 0x0006);
/// NOT READY, LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION.
pub(super) const BECOMES_ACCESSIBLE: (u8, u16) = (0x02, 0x040a);

/// Two nodes that reach neither each other nor the record, so neither continues without the other. The second
/// one has given up a write.
fn given_up(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 2, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    let (host, portal) = (cluster.client("host"), cluster.portal(1));
    let session = cluster.world.spawn_on(host, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        let register = PersistentReserveOut::register(7);
        persist(async || session.reserve(LUN, register).await).await;
        write(&session, 0, 1).await.unwrap();
        // It begins while there are leases still.
        rt::sleep(Duration::from_millis(1200)).await;
        session.write(LUN, Lba(0), block(2), SIZE).await
    });
    cluster.world.run_for(Duration::from_secs(1));
    cluster.world.cut(cluster.servers[0], cluster.servers[1]);
    (0..2).for_each(|node| cluster.record.begin(record_node(node), Fault::Unreachable));
    let answer = cluster.world.wait_for(session).expect("the host is there");
    assert_eq!(answer.unwrap_err().sense(), Some(IO_PROCESS_TERMINATED));
    // Messages on different links come in any order.
    let delay = Duration::from_micros(20)..Duration::from_millis(40);
    cluster.world.set_net_profile(NetProfile { delay, ..NetProfile::default() });
    cluster
}

/// The nodes reach each other again, link by link.
fn together_again(cluster: &Cluster, seed: u64) {
    (0..2).for_each(|node| cluster.record.end(record_node(node), Fault::Unreachable));
    cluster.world.heal_all();
    let mut rng = Rng::new(seed);
    for _ in 0..rng.below(6) {
        cluster.world.run_for(Duration::from_millis(rng.below(300)));
        cluster.world.break_connections(cluster.servers[0], cluster.servers[1]);
    }
}

/// Retries, as hosts do after such a response.
async fn persist<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> T {
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(Error::Status { .. }) => rt::sleep(Duration::from_micros(200)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn fence(session: &Session) {
    let out = |action, action_key| PersistentReserveOut {
        action,
        kind: ReservationType::WriteExclusive,
        key: 9,
        action_key,
        survives: false,
    };
    persist(async || session.reserve(LUN, PersistentReserveOut::register(9)).await).await;
    persist(async || session.reserve(LUN, out(ServiceAction::Reserve, 0)).await).await;
    persist(async || session.reserve(LUN, out(ServiceAction::PreemptAndAbort, 7)).await).await;
}

/// The host writes something else through the other node: that stays.
fn written_since(seed: u64) {
    let cluster = given_up(seed);
    let (host, portal) = (cluster.client("host"), cluster.portal(0));
    let written = cluster.world.spawn_on(host, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        persist(async || write(&session, 0, 3).await).await;
    });
    together_again(&cluster, seed);
    cluster.world.wait_for(written).expect("the host is there");
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.read_block(0, 0), 3, "seed {seed}");
}

#[test]
fn later_writes_are_not_overwritten() {
    each_seed(10, written_since);
}

/// A write waits for an earlier one to the same block, which does not end for longer than a host waits.
///
/// By the time that it could begin, the host may have sent it through the other node, and another write
/// since.
pub(super) fn begun_late(seed: u64) {
    let cluster = Cluster::new(seed, 2, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    let (host, portal) = (cluster.client("host"), cluster.portal(0));
    let session = cluster.world.block_on(host, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        write(&session, 0, 1).await.unwrap();
        session
    });
    (0..2).for_each(|node| cluster.record.begin(record_node(node), Fault::Unreachable));
    let hang = Duration::from_millis(4000)..Duration::from_millis(4001);
    let slow = DiskLatency { write: hang, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
    let written = [2, 3].map(|value| {
        let session = Rc::clone(&session);
        let write = move || async move { session.write(LUN, Lba(0), block(value), SIZE).await };
        let written = cluster.world.spawn_on(host, CoreId(0), write);
        cluster.world.run_for(Duration::from_millis(10));
        written
    });
    cluster.world.set_disk_latency(cluster.servers[1], DISK, DiskLatency::default());
    let [first, second] = written.map(|write| cluster.world.wait_for(write).expect("the host is there"));
    first.unwrap();
    assert_eq!(second.unwrap_err().sense(), Some(BECOMES_ACCESSIBLE));
    assert_eq!(cluster.read_block(0, 0), 2, "seed {seed}");
}

#[test]
fn commands_that_waited_too_long_are_not_started() {
    each_seed(3, begun_late);
}

/// Another host fences it off through the other node: from then on the block does not change any more.
fn fenced_since(seed: u64) {
    let cluster = given_up(seed);
    let (fencer, portal) = (cluster.client("fencer"), cluster.portal(0));
    let read_then = cluster.world.spawn_on(fencer, CoreId(0), move || async move {
        let session = log_in(portal, "fencer").await.unwrap();
        fence(&session).await;
        persist(async || read(&session, 0).await).await
    });
    together_again(&cluster, seed);
    let before = cluster.world.wait_for(read_then).expect("the fencer is there");
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.read_block(0, 0), before, "seed {seed}");
}

#[test]
fn nothing_changes_once_it_is_fenced_off() {
    each_seed(10, fenced_since);
}
