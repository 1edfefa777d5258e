//! Waits end when what they wait for happens, and not when somebody looks again.

use base::{ByteLen, ByteOffset};
use node::copies::{self, Copies};
use rt::sim::{DiskLatency, NetProfile};

use super::*;

/// Leases come to core 0, and are only left for other cores, unless a command waits there.
///
/// Core 1 notices that its leases are void when it is asked to read, and nothing else happens to its copies:
/// they are at rest.
#[test]
fn a_read_that_waits_for_a_lease_continues_when_it_comes() {
    each_seed(5, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let server = cluster.servers[1];
        cluster.world.set_net_profile(NetProfile { spike_one_in: 0, ..NetProfile::default() });
        let latency = DiskLatency { spike_one_in: 0, ..DiskLatency::default() };
        cluster.world.set_disk_latency(server, DISK, latency);
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
