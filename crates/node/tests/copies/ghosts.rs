//! Commands of many steps whose path fails: none of their remaining steps may follow what their initiator has
//! written elsewhere since.

use super::*;

use base::LbaRange;
use initiator::command::{CopySegment, ExtendedCopy, WriteSame};
use initiator::{Options, Timeouts, Transfer};
use proto::scsi::Cdb;
use rt::sim::DiskLatency;

/// The block of the last step of UNMAP and EXTENDED COPY.
const LAST: u64 = 0;
/// The blocks of the volume. WRITE SAME and ORWRITE of all of them have eight steps, in their order.
const BLOCKS: u64 = 2048;
/// Longer than an initiator waits before it gives up a path and uses another one.
const GIVES_UP: Duration = Duration::from_secs(4);

/// A command of many steps.
#[derive(Clone, Copy)]
pub(super) enum Long {
    /// UNMAP of 256 ranges.
    Unmap,
    /// EXTENDED COPY with the maximum number of segments.
    Copy,
    /// WRITE SAME of the whole volume.
    WriteSame,
    /// ORWRITE of the whole volume. It has locked all blocks, so nothing can be written elsewhere before it
    /// has ended.
    OrWrite,
}

impl Long {
    /// A cluster whose disks are so slow that the command takes many seconds.
    fn slow_cluster(self, seed: u64) -> Cluster {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let slow = match self {
            Long::Unmap => 30..50,
            Long::Copy => 300..400,
            // Two such writes take less than the time after which a copy is taken out of sync.
            Long::WriteSame | Long::OrWrite => 800..900,
        };
        let write = Duration::from_millis(slow.start)..Duration::from_millis(slow.end);
        for server in &cluster.servers {
            let latency = DiskLatency { write: write.clone(), ..DiskLatency::default() };
            cluster.world.set_disk_latency(*server, DISK, latency);
        }
        cluster
    }

    /// The block of the last step.
    fn last(self) -> u64 {
        match self {
            Long::Unmap | Long::Copy => LAST,
            Long::WriteSame | Long::OrWrite => BLOCKS - 1,
        }
    }

    async fn send(self, session: &Session) -> Result<(), initiator::Error> {
        match self {
            Long::Unmap => session.unmap(LUN, &ranges()).await,
            Long::Copy => {
                let name = session.identify(LUN).await?.unit.naa().unwrap();
                let one =
                    |to: u64| CopySegment { source: Lba(1500), destination: Lba(to), count: BlockCount(1) };
                let segments: Vec<_> = (1..32).map(|number| one(number * 4)).chain([one(LAST)]).collect();
                let copy = ExtendedCopy { source: name, destination: name, size: SIZE, segments: &segments };
                session.extended_copy(LUN, copy).await
            }
            Long::WriteSame => {
                let count = BlockCount(BLOCKS);
                let same = WriteSame { lba: Lba(0), count, block: block(9), unmap: false };
                session.write_same(LUN, same).await
            }
            Long::OrWrite => {
                let mut cdb = [0; 16];
                cdb[0] = 0x8b;
                cdb[10..14].copy_from_slice(&(BLOCKS as u32).to_be_bytes());
                let data = Chain::copy_of(&vec![9u8; (BLOCKS * u64::from(SIZE.bytes())) as usize]);
                session.command(LUN, Cdb(cdb), Transfer::Out(data)).await.map(drop)
            }
        }
    }
}

/// An initiator that sends nothing else while it waits, and waits for long.
fn patient() -> Options {
    let long = Duration::from_secs(600);
    let timeouts =
        Timeouts { command: long, abort: long, ping_after: long, ping_deadline: long, ..Timeouts::default() };
    Options { timeouts, ..named("host") }
}

fn ranges() -> Vec<LbaRange> {
    let one = |lba: u64| LbaRange { start: Lba(lba), count: BlockCount(1) };
    (1..256).map(|number| one(number * 4)).chain([one(LAST)]).collect()
}

/// Its initiator continues through the other node.
pub(super) fn left_by_a_lost_path(seed: u64, long: Long) {
    let cluster = long.slow_cluster(seed);
    let (host, portals) = (cluster.client("host"), [cluster.portal(0), cluster.portal(1)]);
    let sent = cluster.world.spawn_on(host, CoreId(0), move || async move {
        let session = Session::connect(portals[0], TARGET, &patient()).await.unwrap();
        session.make_ready(LUN).await.unwrap();
        long.send(&session).await
    });
    cluster.world.run_for(Duration::from_secs(2 + seed % 4));
    cluster.world.cut(host, cluster.servers[0]);
    cluster.world.run_for(GIVES_UP);
    cluster.world.block_on(host, CoreId(0), move || async move {
        let session = log_in(portals[1], "host").await.unwrap();
        while let Err(error) = write(&session, long.last(), 7).await {
            assert!(matches!(long, Long::OrWrite), "{error}");
            rt::sleep(Duration::from_millis(100)).await;
        }
    });
    cluster.world.run_for(Duration::from_secs(40));
    assert_eq!(cluster.read_block(1, long.last()), 7, "seed {seed}");
    drop(sent);
}

#[test]
fn no_step_of_a_long_command_follows_a_write_through_another_path() {
    each_seed(4, |seed| {
        left_by_a_lost_path(seed, Long::Unmap);
        left_by_a_lost_path(seed, Long::Copy);
        left_by_a_lost_path(seed, Long::WriteSame);
        left_by_a_lost_path(seed, Long::OrWrite);
    });
}

/// On a path that works the command takes as long as necessary, even if its initiator sends nothing else.
#[test]
fn a_long_unmap_completes_if_its_path_works() {
    each_seed(2, |seed| {
        let cluster = Long::Unmap.slow_cluster(seed);
        let (host, portal) = (cluster.client("host"), cluster.portal(0));
        let began = cluster.world.now();
        cluster.world.block_on(host, CoreId(0), move || async move {
            let session = Session::connect(portal, TARGET, &patient()).await.unwrap();
            session.make_ready(LUN).await.unwrap();
            for number in [LAST, 4, 255 * 4] {
                write(&session, number, 7).await.unwrap();
            }
            session.unmap(LUN, &ranges()).await.unwrap();
        });
        let took = cluster.world.now() - began;
        assert!(took > Duration::from_secs(8), "{took:?} is not long");
        for number in [LAST, 4, 255 * 4] {
            assert_eq!(cluster.read_block(1, number), 0);
        }
    });
}
