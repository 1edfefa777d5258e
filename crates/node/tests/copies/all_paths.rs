//! Hosts that use all nodes at once, while one of them is lost or joins.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, Lba};
use initiator::multipath::UnitSelector;
use initiator::{Multipath, MultipathOptions, Search, discover};
use node::control::AddedCopy;
use rt::CoreId;
use rt::sim::DiskLatency;
use store::VolumeKind;

use super::reservations::{joined, log_in_again};
use super::{Cluster, LUN, block, log_in, read, write};
use crate::rig::{DISK, Shape, TARGET, named};
use crate::seeds::each_seed;

const WRITERS: u64 = 12;

/// Writes during the loss of a node are repeated as soon as the others have continued without it: not only
/// when the lost node can be reached again, and not only when they must have ended by the clock.
#[test]
fn the_death_of_a_node_is_a_short_stall_for_a_host_that_uses_all_paths() {
    let kill = |cluster: &Cluster| cluster.world.kill(cluster.servers[1]);
    let repeated = Cell::new(0);
    each_seed(3, |seed| repeated.set(repeated.get() + stall(seed, kill, Duration::from_millis(1500))));
    assert!(repeated.get() > 0, "nothing was ever under way through the lost node");
}

/// A host learns of a process's death from its peer's kernel. It learns of a power loss only by silence, for
/// which it waits seven seconds.
#[test]
fn the_loss_of_a_machine_is_a_stall_of_what_silence_takes() {
    let crash = |cluster: &Cluster| cluster.world.crash(cluster.servers[1]);
    let repeated = Cell::new(0);
    each_seed(2, |seed| repeated.set(repeated.get() + stall(seed, crash, Duration::from_millis(7500))));
    assert!(repeated.get() > 0, "nothing was ever under way through the lost node");
}

/// Some initiators remember the portal group of a portal, and refuse to log in if it is another one.
#[test]
fn a_node_that_joins_is_in_the_portal_group_that_hosts_know() {
    each_seed(2, |seed| {
        let (cluster, client, session) = joined(seed);
        let [first, second] = [0, 1].map(|index| cluster.portal(index));
        let known = session.portal_group().expect("each login returns it");
        let group_at_login = || {
            let group = move || async move { log_in_again(second, "host").await.portal_group() };
            cluster.world.block_on(client, CoreId(0), group)
        };
        let listed_at = |portal| {
            let targets = cluster
                .world
                .block_on(client, CoreId(0), move || async move { discover(portal, &named("host")).await });
            targets.unwrap().remove(0).addresses
        };
        assert!(cluster.world.break_connections(client, cluster.servers[1]) > 0);
        assert_eq!(group_at_login(), Some(known));
        assert_eq!(listed_at(second), [format!("{second},{known}")]);
        cluster.world.crash(cluster.servers[1]);
        cluster.start(1);
        assert_eq!(group_at_login(), Some(known));
        cluster.world.run_for(Duration::from_secs(3));
        // The other nodes say the same of it.
        cluster.control(1, |control| async move {
            let copy = AddedCopy { node: 1, pool: None, instead_of: None };
            control.add_copy(Shape::thick().name, copy).await.unwrap();
        });
        cluster.wait_until_in_sync(1, 2);
        cluster.world.run_for(Duration::from_secs(1));
        let founders = cluster.control(0, |control| async move { control.portal_group() });
        assert_ne!(founders, known);
        let (at_first, at_second) = (format!("{first},{founders}"), format!("{second},{known}"));
        assert_eq!(listed_at(first), [at_first.clone(), at_second.clone()]);
        assert_eq!(listed_at(second), [at_second, at_first]);
        drop(session);
    });
}

/// A write reaches one node while that node reads the block, and is delayed on its way to another.
///
/// A host that has seen the write through one node must see it through the other.
pub(super) fn nobody_sees_what_others_do_not(seed: u64) {
    const LOOKS: Duration = Duration::from_millis(60);
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    let [reader, writer, late] = [0, 1, 2].map(|index| cluster.client(&format!("host-{index}")));
    let [at_reader, at_writer, at_late] = [0, 1, 2].map(|index| cluster.portal(index));
    let sessions = [(reader, at_reader), (writer, at_writer), (late, at_late)].map(|(client, portal)| {
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            write(&session, 0, 1).await.unwrap();
            session
        })
    });
    let [by_reader, by_writer, by_late] = sessions;
    let latency = DiskLatency { read: LOOKS..LOOKS * 11 / 10, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
    let seen = Rc::new(Cell::new(None));
    let sees = Rc::clone(&seen);
    drop(cluster.world.spawn_on(reader, CoreId(0), move || async move {
        sees.set(read(&by_reader, 0).await.ok());
    }));
    cluster.world.run_for(LOOKS / 3);
    cluster.world.cut_one_way(cluster.servers[1], cluster.servers[2]);
    drop(cluster.world.spawn_on(writer, CoreId(0), move || async move { write(&by_writer, 0, 2).await }));
    cluster.world.run_for(LOOKS);
    // `None`: the read waits until all nodes have the write.
    let first = seen.get();
    let then =
        cluster.world.block_on(late, CoreId(0), move || async move { read(&by_late, 0).await.unwrap() });
    assert!(first.is_none_or(|first| first <= then), "one node gave {first:?}, and then another {then}");
    cluster.world.heal_all();
    cluster.world.run_for(Duration::from_secs(1));
    assert!(matches!(seen.get(), Some(1 | 2)), "{seen:?}");
}

#[test]
fn a_write_is_visible_through_all_nodes_or_none() {
    each_seed(3, nobody_sees_what_others_do_not);
}

/// A host writes through all of three nodes while `harm` is done to one: no write may take longer than
/// `limit`.
///
/// Returns how many had to be repeated.
fn stall(seed: u64, harm: impl Fn(&Cluster), limit: Duration) -> u64 {
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    let portals: Vec<SocketAddr> = (0..3).map(|index| cluster.portal(index)).collect();
    let client = cluster.client("host");
    let (longest, written) = (Rc::new(Cell::new(Duration::ZERO)), Rc::new(RefCell::new(BTreeMap::new())));
    let stop = Rc::new(Cell::new(false));
    let (slowest, results, end) = (Rc::clone(&longest), Rc::clone(&written), Rc::clone(&stop));
    let done = cluster.world.spawn_on(client, CoreId(0), move || async move {
        let target = Some(TARGET.to_owned());
        let search = Search { portals, target, unit: UnitSelector::Lun(LUN), discover: false };
        let unit = Multipath::open(&search, MultipathOptions::default()).await.unwrap();
        let writers = (0..WRITERS).map(|lba| {
            let (unit, slowest, results, end) = (&unit, &slowest, &results, &end);
            async move {
                let mut value = 0;
                while !end.get() {
                    value += 1;
                    let began = rt::now();
                    unit.write(Lba(lba), block(value)).await.unwrap();
                    results.borrow_mut().insert(lba, value);
                    slowest.set(slowest.get().max(rt::now().since(began)));
                    rt::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        rt::join_all(writers).await;
        let expected = results.borrow().clone();
        for (lba, value) in expected {
            let found = unit.read(Lba(lba), BlockCount(1)).await.unwrap();
            assert_eq!(found[..8], value.to_le_bytes(), "block {lba}");
        }
        unit.repeated()
    });
    cluster.world.run_for(Duration::from_secs(1));
    longest.set(Duration::ZERO);
    cluster.world.run_for(Duration::from_secs(1));
    // Its disks are slow at times.
    let usual = longest.take().min(Duration::from_millis(300));
    harm(&cluster);
    cluster.world.run_for(Duration::from_secs(12));
    stop.set(true);
    let repeated = cluster.world.wait_for(done).expect("the host comes to its end");
    assert_eq!(written.borrow().len(), WRITERS as usize);
    assert!(longest.get() < limit + usual, "a write took {:?}, and {usual:?} before", longest.get());
    repeated
}
