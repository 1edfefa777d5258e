//! A node in a virtual machine that is paused: its clock stops while the others continue without it, and its
//! leases seem to last.

use cluster::memory::Fault;
use node::copies::{self, Copies};
use rt::sim::NetProfile;

use super::forks::record_node;
use super::*;

/// What a host read through a node that was just resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Old,
    New,
    /// An error, or nothing before the node knew that it was removed.
    Nothing,
}

/// A paused node, a write without it, and a read through it after the pause.
///
/// The second of two nodes is paused; `told`: its time of day reveals that afterwards. A host writes through
/// the first one as soon as that continues without the second. When the second one runs again, it receives no
/// change of the record for a second, and finds a read in its kernel's buffers.
fn read_after_a_pause(seed: u64, read_confirm: bool, told: bool) -> Read {
    let cluster = Cluster::with_config(seed, 2, 1, &Config { read_confirm, ..Config::default() });
    cluster.add_volume(VolumeKind::Thick, 2);
    let (host, portals) = (cluster.client("host"), [cluster.portal(0), cluster.portal(1)]);
    let sessions = Rc::new(RefCell::new(Vec::new()));
    let kept = Rc::clone(&sessions);
    cluster.world.block_on(host, CoreId(0), move || async move {
        for portal in portals {
            let session = log_in(portal, "host").await.unwrap();
            write(&session, 0, 1).await.unwrap();
            assert_eq!(read(&session, 0).await.unwrap(), 1);
            kept.borrow_mut().push(session);
        }
    });
    let [first, second] = [0, 1].map(|index| Rc::clone(&sessions.borrow()[index]));
    cluster.world.freeze(cluster.servers[1]);
    cluster.record.begin(record_node(1), Fault::WatchHeld);
    cluster.world.block_on(host, CoreId(0), move || async move {
        // This write begins while the second node is a member, and is on its way to it: of this block the
        // node would return nothing.
        write(&first, 100, 1).await.unwrap();
        write(&first, 0, 2).await.unwrap();
    });
    assert_eq!(cluster.in_sync(0), 1, "the first node goes on alone");
    let answer = Rc::new(Cell::new(Read::Nothing));
    let noted = Rc::clone(&answer);
    drop(cluster.world.spawn_on(host, CoreId(0), move || async move {
        noted.set(match read(&second, 0).await {
            Ok(1) => Read::Old,
            Ok(_) => Read::New,
            Err(_) => Read::Nothing,
        });
    }));
    cluster.world.run_for(Duration::from_millis(100));
    if told {
        cluster.world.resume_with_time_of_day(cluster.servers[1]);
    } else {
        cluster.world.resume(cluster.servers[1]);
    }
    cluster.world.run_for(Duration::from_secs(1));
    let answer = answer.get();
    cluster.record.end(record_node(1), Fault::WatchHeld);
    cluster.wait_until_in_sync(0, 2);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
    answer
}

#[test]
fn a_node_that_was_paused_with_its_clock_gives_no_old_read() {
    each_seed(5, |seed| {
        assert_eq!(read_after_a_pause(seed, true, false), Read::Nothing);
        assert_eq!(
            read_after_a_pause(seed, false, true),
            Read::Nothing,
            "leases are void, and asked for again in vain"
        );
        assert_eq!(
            read_after_a_pause(seed, false, false),
            Read::Old,
            "that is the risk of `read-confirm = never`"
        );
    });
}

/// A core that does nothing notices when it is first asked. By then the first core has had leases again for
/// long, and the answers to its requests may wait.
#[test]
fn each_core_whose_leases_are_void_gets_new_ones_at_once() {
    each_seed(5, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
        let server = cluster.servers[1];
        cluster.world.freeze(server);
        cluster.world.run_for(Duration::from_millis(100));
        cluster.world.resume_with_time_of_day(server);
        cluster.world.run_for(Duration::from_secs(1));
        for core in [0, 1] {
            let holds = || {
                cluster.world.block_on(server, CoreId(core), || async {
                    Copies::current().holds_all(rt::now(), [copies::NodeId(1)])
                })
            };
            assert_eq!(holds(), core == 0, "core {core}: only the first one has looked");
            cluster.world.run_for(Duration::from_millis(30));
            assert!(holds(), "core {core}");
        }
    });
}

/// A volume with a single member needs no confirmation; nor does one whose other member is gone for good.
#[test]
fn a_confirmed_read_asks_no_one_without_other_members() {
    each_seed(2, |seed| {
        let cluster = Cluster::with_config(seed, 2, 2, &Config { read_confirm: true, ..Config::default() });
        cluster.add_volume(VolumeKind::Thick, 2);
        let (host, portal) = (cluster.client("host"), cluster.portal(0));
        let session = cluster.world.block_on(host, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            for value in 1..50 {
                write(&session, value, value).await.unwrap();
                assert_eq!(read(&session, value).await.unwrap(), value);
            }
            session
        });
        cluster.world.crash(cluster.servers[1]);
        cluster.world.block_on(host, CoreId(0), move || async move {
            for value in 1..50 {
                assert_eq!(read(&session, value).await.unwrap(), value);
            }
        });
        assert_eq!(cluster.in_sync(0), 1);
    });
}
