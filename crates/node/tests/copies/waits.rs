//! Waits end when what they wait for happens, and not when somebody looks again.

use base::{ByteLen, ByteOffset};
use initiator::command::CompareAndWrite;
use node::copies::{self, Copies};
use rt::sim::{DiskLatency, NetProfile};

use super::*;

/// Two nodes with a volume, without the rare delays of networks and disks.
fn calm(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
    for server in &cluster.servers {
        let latency = DiskLatency { spike_one_in: 0, ..DiskLatency::default() };
        cluster.world.set_disk_latency(*server, DISK, latency);
    }
    cluster
}

/// Leases come to core 0, and are only left for other cores, unless a command waits there.
///
/// Core 1 notices that its leases are void when it is asked to read, and nothing else happens to its copies:
/// they are at rest.
#[test]
fn a_read_that_waits_for_a_lease_continues_when_it_comes() {
    each_seed(5, |seed| {
        let cluster = calm(seed);
        let server = cluster.servers[1];
        cluster.world.run_for(Duration::from_secs(10));
        cluster.world.freeze(server);
        cluster.world.run_for(Duration::from_millis(100));
        cluster.world.resume_with_time_of_day(server);
        cluster.world.run_for(Duration::from_secs(3));
        let waited = cluster.world.block_on(server, CoreId(1), || async {
            let here = Copies::current();
            assert_eq!(here.awake(), 0, "no tick wakes the read");
            let began = rt::now();
            assert!(!here.holds_all(began, [copies::NodeId(1)]));
            let copy = here.slices().into_iter().next().expect("each core has a slice");
            copy.read(ByteOffset(0), ByteLen(4096)).await.unwrap();
            rt::now().since(began)
        });
        assert!(waited < Duration::from_millis(10), "{waited:?}");
    });
}

/// While a write is under way, reads of its block wait for it; COMPARE AND WRITE through another node waits
/// until it is settled there. Neither takes much longer than a write. Without a notify, the wait would end
/// with a tick.
#[test]
fn a_write_holds_up_others_only_while_it_is_under_way() {
    each_seed(5, |seed| {
        let cluster = calm(seed);
        let (host, portals) = (cluster.client("host"), cluster.portals());
        let slowest = cluster.world.block_on(host, CoreId(0), move || async move {
            let writer = log_in(portals[0], "host").await.unwrap();
            let other = log_in(portals[1], "host").await.unwrap();
            write(&writer, 0, 0).await.unwrap();
            assert_eq!(read(&other, 0).await.unwrap(), 0);
            let (mut reads, mut exchanges) = (Duration::ZERO, Duration::ZERO);
            for value in 1..200 {
                let writes = Rc::clone(&writer);
                let written = rt::spawn(async move { write(&writes, 0, value).await.unwrap() });
                // Each finds the write a little further on its way.
                rt::sleep(Duration::from_micros(value * 5)).await;
                let began = rt::now();
                let found = read(&other, 0).await.unwrap();
                reads = reads.max(rt::now().since(began));
                assert!(found == value || found == value - 1);
                written.await;
                let began = rt::now();
                let (before, after) = (block(value), block(value));
                let exchange = CompareAndWrite { lba: Lba(0), compare: before, write: after, size: SIZE };
                other.compare_and_write(LUN, exchange).await.unwrap();
                exchanges = exchanges.max(rt::now().since(began));
            }
            (reads, exchanges)
        });
        let within = Duration::from_millis(20);
        assert!(slowest.0 < within && slowest.1 < within, "{slowest:?}");
    });
}
