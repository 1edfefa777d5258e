//! Writes of parts of disk blocks that a disk cannot read: a volume of 512-byte blocks on disks of 4096.

use super::bad_blocks::marked;
use super::full_disks::{FILE, fill};
use super::*;

use base::LbaRange;
use initiator::command::{CompareAndWrite, WriteSame};
use node::copies::{Cause, Copies};
use rt::sim::{DiskFaults, DiskImage, DiskLatency};

const SMALL: BlockSize = BlockSize::B512;
/// Number of the volume's blocks in one of the disk.
const IN_ONE: u64 = 8;
/// Number of blocks that are written at first.
const BLOCKS: u64 = 4 * IN_ONE;
/// The first block in the disk's bad block.
const BAD: u64 = IN_ONE;

fn cluster(seed: u64, nodes: usize, copies: u8) -> Cluster {
    let cluster = Cluster::with_disks(seed, nodes, 2, &Config::default(), &[4096]);
    cluster.add_shaped(Shape { block: SMALL, ..Shape::thick() }, copies);
    cluster.on(0, |session| async move {
        write_small(&session, 0, &Vec::from_iter((0..BLOCKS).map(marked))).await.unwrap();
    });
    cluster.world.run_for(Duration::from_millis(500));
    cluster
}

fn small(values: &[u64]) -> Chain {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes().repeat(64)).collect();
    Chain::copy_of(&bytes)
}

async fn write_small(session: &Session, lba: u64, values: &[u64]) -> Result<(), initiator::Error> {
    match session.write(LUN, Lba(lba), small(values), SMALL).await {
        Err(error) if error.is_unit_attention() => session.write(LUN, Lba(lba), small(values), SMALL).await,
        done => done,
    }
}

async fn read_small(session: &Session) -> Result<Vec<u64>, initiator::Error> {
    let read = || session.read(LUN, Lba(0), BlockCount(BLOCKS), SMALL);
    let data = match read().await {
        Err(error) if error.is_unit_attention() => read().await?,
        data => data?,
    };
    Ok(data.chunks_exact(512).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap())).collect())
}

impl Cluster {
    /// Makes this place of the node's disk unreadable until it is written.
    fn spoil_at(&self, index: usize, at: u64) {
        let faults = DiskFaults::default().remapping().with_unreadable(at..at + 512);
        self.world.set_disk_faults(self.servers[index], DISK, faults);
    }

    /// Runs a host of this node.
    fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        does: impl FnOnce(Rc<Session>) -> F + Send + 'static,
    ) -> T {
        let (client, portal) = (self.client("host"), self.portal(index));
        self.world.block_on(client, CoreId(0), move || async move {
            does(log_in(portal, "host").await.unwrap()).await
        })
    }

    fn assert_holds(&self, by: impl IntoIterator<Item = usize>, expected: &[u64]) {
        for index in by {
            let found = self.on(index, |session| async move { read_small(&session).await.unwrap() });
            assert_eq!(found, expected, "by node {index}");
        }
    }

    fn assert_equal(&self) {
        self.world.run_for(Duration::from_secs(1));
        assert_eq!(self.in_sync(0), 2);
        assert_eq!(self.checksum(0), self.checksum(1));
    }
}

/// Checks for MEDIUM ERROR, UNRECOVERED READ ERROR; returns the block in the sense data.
fn named_bad(done: Result<(), initiator::Error>) -> u64 {
    let error = done.unwrap_err();
    assert_eq!(error.sense(), Some((0x03, 0x1100)), "{error}");
    let initiator::Error::Status { sense, .. } = &error else { panic!("{error}") };
    assert_eq!(sense[0], 0xf0, "fixed format, with information");
    u64::from(u32::from_be_bytes(sense[3..7].try_into().unwrap()))
}

/// Another copy, whose disk has smaller blocks, can read all but a part of a block of the source's disk.
#[test]
fn only_what_no_copy_reads_of_a_block_of_a_disk_is_lost() {
    let cluster = Cluster::with_disks(1, 3, 2, &Config::default(), &[4096, 512, 512]);
    cluster.add_shaped(Shape { block: SMALL, ..Shape::thick() }, 3);
    cluster.on(0, |session| async move { write_small(&session, 100, &[1]).await.unwrap() });
    cluster.world.crash(cluster.servers[2]);
    cluster.world.run_for(Duration::from_secs(2));
    let written = Vec::from_iter((0..BLOCKS).map(marked));
    cluster.on(0, |session| async move { write_small(&session, 0, &written).await.unwrap() });
    cluster.spoil_at(0, cluster.place_of(0, marked(BAD)));
    cluster.spoil_at(1, cluster.place_of(1, marked(BAD)) + 2 * 512);
    cluster.start(2);
    cluster.wait_until_in_sync(0, 3);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.lost_blocks(2), [(1, BAD + 2)]);
    let found = cluster
        .on(2, |session| async move { session.read(LUN, Lba(BAD), BlockCount(2), SMALL).await.unwrap() });
    assert_eq!(found[..], small(&[marked(BAD), marked(BAD + 1)]).to_vec());
}

/// The only source's disk cannot read a part of what is one block of the joiner's disk, and that disk cannot
/// read the block.
///
/// Before, the joiner could write neither what comes before that part nor what follows: each resync failed.
#[test]
fn a_bad_block_that_is_lost_in_part_keeps_no_copy_out_of_sync() {
    let cluster = Cluster::with_disks(1, 2, 2, &Config::default(), &[512, 4096]);
    cluster.add_shaped(Shape { block: SMALL, ..Shape::thick() }, 2);
    let older = Vec::from_iter((0..BLOCKS).map(marked));
    cluster.on(0, |session| async move { write_small(&session, 0, &older).await.unwrap() });
    cluster.world.run_for(Duration::from_millis(500));
    let bad = cluster.place_of(1, marked(BAD));
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    let newer = Vec::from_iter((0..BLOCKS).map(|lba| marked(lba) + (1 << 16)));
    let written = newer.clone();
    cluster.on(0, |session| async move { write_small(&session, 0, &written).await.unwrap() });
    cluster.spoil_at(0, cluster.place_of(0, newer[BAD as usize]) + 2 * 512);
    cluster.spoil_at(1, bad);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.lost_blocks(1), [(1, BAD + 2)]);
    for (lba, count) in [(0, BAD + 2), (BAD + 3, BLOCKS - BAD - 3)] {
        let found = cluster.on(1, move |session| async move {
            session.read(LUN, Lba(lba), BlockCount(count), SMALL).await.unwrap()
        });
        assert_eq!(found[..], small(&newer[lba as usize..][..count as usize]).to_vec());
    }
    // A write of the lost part ends the loss.
    cluster.on(0, |session| async move { write_small(&session, BAD, &[1; IN_ONE as usize]).await.unwrap() });
    cluster.assert_equal();
    assert!(cluster.lost_blocks(1).is_empty());
}

/// The same, and the file system under the joiner has no room for the region for a while.
///
/// Before, the copy failed, and waited for an administrator: it wrote a part of the block before the block.
#[test]
fn a_bad_block_that_is_lost_in_part_may_wait_for_room() {
    const IN_FILE: &str = "in-file";
    let cluster = Cluster::new(1, 2, 2);
    for (index, block) in [512, 4096].into_iter().enumerate() {
        cluster.world.put_file(cluster.servers[index], FILE, DiskImage::new(64 * MIB, block));
        cluster.create_pool(index, IN_FILE, FILE);
    }
    cluster.control(0, |control| async move {
        let new = new_volume(IN_FILE, Shape { block: SMALL, ..Shape::thick() });
        let copies = Some(Placement::Count(2));
        control.create_volume(node::control::NewVolume { copies, ..new }).await.unwrap();
        map(&control, Shape::thick().name, 0).await.unwrap();
    });
    cluster.wait_until_all_serve();
    let older = Vec::from_iter((0..BLOCKS).map(marked));
    cluster.on(0, |session| async move { write_small(&session, 0, &older).await.unwrap() });
    cluster.world.run_for(Duration::from_millis(500));
    let spoil = |index: usize, value: u64, behind: u64| {
        let image = cluster.world.disk_image(cluster.servers[index], FILE);
        let is_it = |at: &u64| {
            let mut found = [0; 8];
            image.read(*at, &mut found);
            found == value.to_le_bytes()
        };
        let at = (0..image.size()).step_by(4096).find(is_it).expect("it is on the disk") + behind;
        let faults = DiskFaults::default().remapping().with_unreadable(at..at + 512);
        cluster.world.set_disk_faults(cluster.servers[index], FILE, faults);
    };
    spoil(1, marked(BAD), 0);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    let newer = Vec::from_iter((0..BLOCKS).map(|lba| marked(lba) + (1 << 16)));
    let bad = newer[BAD as usize];
    cluster.on(0, |session| async move { write_small(&session, 0, &newer).await.unwrap() });
    spoil(0, bad, 2 * 512);
    cluster.start(1);
    fill(&cluster, 1, 0);
    // The rest of the region, which takes no space yet, is written with it.
    cluster.wait_until("the copy has no room", || {
        (0..2).any(|core| {
            cluster.world.inspect(cluster.servers[1], CoreId(core), || {
                Copies::current().slices().iter().any(|copy| copy.has_no_room())
            })
        })
    });
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.in_sync(0), 1);
    cluster.world.set_space(cluster.servers[1], None);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    assert_eq!(cluster.lost_blocks(1), [(1, BAD + 2)]);
}

/// One copy's disk cannot read a block: hosts that write parts of it, through either node, do not notice.
pub(super) fn bad_on_one(seed: u64) {
    for bad in 0..2 {
        let cluster = cluster(seed, 2, 2);
        let at = cluster.place_of(bad, marked(BAD));
        let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
        for by in 0..2 {
            // Inside the block, across its beginning, across its end.
            for (round, (lba, count)) in
                [(BAD + 2, 1), (BAD - 2, 5), (2 * BAD - 1, 2)].into_iter().enumerate()
            {
                cluster.spoil_at(bad, at);
                let values: Vec<u64> = (0..count)
                    .map(|n| marked(lba + n) + ((1 + round as u64 + 10 * by as u64) << 16))
                    .collect();
                expected[lba as usize..][..values.len()].copy_from_slice(&values);
                cluster
                    .on(by, move |session| async move { write_small(&session, lba, &values).await.unwrap() });
                assert_eq!(cluster.in_sync(0), 2);
                cluster.assert_holds(0..2, &expected);
                // What is valid is valid on both.
                cluster.world.run_for(Duration::from_millis(200));
            }
        }
        cluster.assert_equal();
        let told = cluster.told_of(bad, &["read_failed", "block_repaired"]);
        assert!(told.iter().any(|event| event.code.as_str() == "read_failed"), "{told:?}");
        assert!(told.iter().any(|event| event.code.as_str() == "block_repaired"), "{told:?}");
        assert!(cluster.read_faults(1 - bad).is_empty(), "the other node's disk is well");
    }
}

#[test]
fn a_part_of_a_block_is_written_though_one_disk_does_not_read_the_rest() {
    each_seed(3, bad_on_one);
}

/// Hosts of both nodes write all parts of one bad block at the same time, again and again: each waits for the
/// others, and none forever.
#[test]
fn all_parts_of_a_bad_block_are_written_at_the_same_time() {
    each_seed(20, |seed| {
        let (cluster, mut rng) = (cluster(seed, 2, 2), Rng::new(seed));
        let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
        let at = cluster.place_of(1, marked(BAD));
        for round in 1..=4 {
            cluster.spoil_at(1, at);
            let done = Rc::new(Cell::new(0));
            let began = cluster.world.now();
            for lba in BAD..BAD + IN_ONE {
                let value = marked(lba) + (round << 16);
                expected[lba as usize] = value;
                let (client, portal) = (cluster.client("host"), cluster.portal((lba % 2) as usize));
                let (written, begins) = (Rc::clone(&done), Duration::from_micros(rng.below(2000)));
                drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
                    let session = log_in(portal, &format!("host-{lba}")).await.unwrap();
                    rt::sleep(begins).await;
                    write_small(&session, lba, &[value]).await.unwrap();
                    written.set(written.get() + 1);
                }));
            }
            assert!(
                cluster.world.run_until(|| done.get() == IN_ONE, Duration::from_secs(5)),
                "all are answered"
            );
            let took = cluster.world.now() - began;
            assert!(took < Duration::from_secs(1), "{took:?}");
            cluster.assert_holds(0..2, &expected);
            cluster.world.run_for(Duration::from_millis(200));
        }
        cluster.assert_equal();
    });
}

#[test]
fn every_command_that_writes_a_part_has_the_rest_from_the_other_copy() {
    each_seed(3, |seed| {
        for bad in 0..2 {
            let cluster = cluster(seed, 2, 2);
            let at = cluster.place_of(bad, marked(BAD));
            cluster.spoil_at(bad, at);
            cluster.on(0, |session| async move {
                let (compare, write) = (small(&[marked(BAD + 1)]), small(&[7]));
                let exchange = CompareAndWrite { lba: Lba(BAD + 1), compare, write, size: SMALL };
                session.compare_and_write(LUN, exchange).await.unwrap();
                assert_eq!(read_small(&session).await.unwrap()[BAD as usize + 1], 7);
            });
            cluster.world.run_for(Duration::from_secs(1));
            cluster.spoil_at(bad, at);
            cluster.on(0, |session| async move {
                let range = LbaRange { start: Lba(BAD - 2), count: BlockCount(4) };
                session.unmap(LUN, &[range]).await.unwrap();
            });
            // UNMAP may leave parts of the disk's blocks as they were; both copies hold the same.
            cluster.assert_equal();
            cluster.spoil_at(bad, at);
            let range = || LbaRange { start: Lba(BAD + 4), count: BlockCount(6) };
            cluster.on(1, move |session| async move {
                session.write_same(LUN, same(range(), 9)).await.unwrap();
                let found = read_small(&session).await.unwrap();
                assert_eq!(found[BAD as usize + 4..][..6], [9; 6]);
                assert_eq!(found[BAD as usize + 3], marked(BAD + 3));
            });
            cluster.assert_equal();
        }
    });
}

fn same(range: LbaRange, value: u64) -> WriteSame {
    WriteSame { lba: range.start, count: range.count, block: small(&[value]), unmap: false }
}

/// Only the command that needs the block ends with MEDIUM ERROR, and a write of the whole block repairs it.
fn only_the_command_fails(cluster: &Cluster, by: usize) {
    cluster.on(by, |session| async move {
        assert_eq!(named_bad(write_small(&session, BAD + 2, &[1, 2]).await), BAD + 2);
        assert_eq!(named_bad(write_small(&session, BAD - 2, &[1; 4]).await), BAD);
        let (compare, write) = (small(&[marked(BAD + 1)]), small(&[7]));
        let exchange = CompareAndWrite { lba: Lba(BAD + 1), compare, write, size: SMALL };
        assert_eq!(named_bad(session.compare_and_write(LUN, exchange).await), BAD + 1);
        let range = LbaRange { start: Lba(BAD + 4), count: BlockCount(6) };
        assert_eq!(named_bad(session.write_same(LUN, same(range, 9)).await), BAD + 4);
        // All others succeed.
        write_small(&session, 2 * BAD + 1, &[marked(2 * BAD + 1)]).await.unwrap();
        write_small(&session, 0, &[marked(0)]).await.unwrap();
        write_small(&session, BAD, &Vec::from_iter((BAD..2 * BAD).map(marked))).await.unwrap();
        write_small(&session, BAD + 2, &[marked(BAD + 2)]).await.unwrap();
        // A failed write has left the old or the new data.
        write_small(&session, 0, &Vec::from_iter((0..BLOCKS).map(marked))).await.unwrap();
    });
    cluster.assert_holds([by], &Vec::from_iter((0..BLOCKS).map(marked)));
}

#[test]
fn without_another_copy_only_the_command_that_needs_the_block_fails() {
    each_seed(3, |seed| {
        let cluster = cluster(seed, 2, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.spoil(0, [BAD], DiskFaults::default().remapping());
        only_the_command_fails(&cluster, 0);
        let faults = cluster.read_faults(0);
        assert!(matches!(faults.as_slice(), [(1, ..)]), "{faults:?}");
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.assert_equal();
        cluster.wait_until_all_serve();
        cluster.assert_holds(0..2, &Vec::from_iter((0..BLOCKS).map(marked)));
    });
}

#[test]
fn the_same_holds_for_the_only_copy() {
    let cluster = cluster(1, 2, 1);
    cluster.spoil(0, [BAD], DiskFaults::default().remapping());
    only_the_command_fails(&cluster, 0);
}

/// No disk can read the block: neither copy executes the write.
pub(super) fn bad_on_both(seed: u64) {
    for by in 0..2 {
        let cluster = cluster(seed, 2, 2);
        for index in 0..2 {
            cluster.spoil(index, [BAD], DiskFaults::default().remapping());
        }
        only_the_command_fails(&cluster, by);
        cluster.assert_equal();
        cluster.assert_holds(0..2, &Vec::from_iter((0..BLOCKS).map(marked)));
    }
}

#[test]
fn a_block_that_no_disk_reads_fails_only_the_command_that_needs_it() {
    each_seed(3, bad_on_both);
}

/// The disk accepts a write of the whole block and still cannot read it: its copy goes out of sync, and hosts
/// do not notice.
#[test]
fn a_copy_whose_block_stays_bad_leaves() {
    each_seed(3, |seed| {
        let cluster = cluster(seed, 2, 2);
        cluster.spoil(1, [BAD], DiskFaults::default());
        cluster.on(0, |session| async move { write_small(&session, BAD + 2, &[1]).await.unwrap() });
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.in_sync(0), 1);
        assert_eq!(cluster.reason(0), Cause::BlockUnrepaired);
        let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
        expected[BAD as usize + 2] = 1;
        cluster.assert_holds([0], &expected);
    });
}

/// A copy that resyncs has a bad block itself: it receives the whole block, even if its source knows of
/// partial writes.
#[test]
fn a_bad_block_of_a_copy_that_missed_writes_is_healed_by_its_sync() {
    each_seed(5, |seed| {
        let cluster = cluster(seed, 2, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.spoil(1, [BAD], DiskFaults::default().remapping());
        cluster.on(0, |session| async move {
            for lba in BAD..BAD + IN_ONE {
                write_small(&session, lba, &[marked(lba) + (1 << 16)]).await.unwrap();
            }
        });
        cluster.start(1);
        // Hosts continue to write parts of the block.
        for round in 2..20 {
            cluster.on(0, move |session| async move {
                let lba = BAD + round % IN_ONE;
                write_small(&session, lba, &[marked(lba) + (round << 16)]).await.unwrap();
            });
            cluster.world.run_for(Duration::from_millis(100));
        }
        cluster.wait_until_in_sync(0, 2);
        cluster.assert_equal();
    });
}

/// The disk under one copy does not answer reads any more.
///
/// Partial writes succeed all the same, through either node, because the other copy can be read. The copy
/// goes out of sync, even if no host reads there.
#[test]
fn part_of_a_block_is_written_although_a_disk_hangs() {
    each_seed(3, |seed| {
        for by in 0..2 {
            let cluster = cluster(seed, 2, 2);
            let hangs = Duration::from_secs(60)..Duration::from_secs(61);
            let latency = DiskLatency { read: hangs, ..DiskLatency::default() };
            cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
            let began = cluster.world.now();
            cluster.on(by, |session| async move {
                // A node whose own copy goes out of sync ends the command with an error: the host repeats it
                // through the other node.
                if let Err(error) = write_small(&session, BAD + 2, &[7]).await {
                    assert_ne!(error.sense().map(|(key, _)| key), Some(0x03), "{error}");
                }
            });
            let took = cluster.world.now() - began;
            assert!(took < Duration::from_secs(12), "{took:?}");
            cluster.on(1, |session| async move { write_small(&session, BAD + 2, &[7]).await.unwrap() });
            cluster.world.run_for(Duration::from_secs(1));
            assert_eq!(cluster.in_sync(1), 1);
            let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
            expected[BAD as usize + 2] = 7;
            cluster.assert_holds([1], &expected);
        }
    });
}

/// Disks with physical blocks of 4096 bytes and logical ones of 512: a single sector of an unreadable block
/// cannot be written, either.
#[test]
fn a_physical_block_is_written_again_as_a_whole() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_shaped(Shape { block: SMALL, ..Shape::thick() }, 2);
        cluster.on(0, |session| async move {
            write_small(&session, 0, &Vec::from_iter((0..BLOCKS).map(marked))).await.unwrap();
        });
        let at = cluster.place_of(0, marked(BAD));
        let faults = DiskFaults::default().remapping().with_physical(4096).with_unreadable(at..at + 4096);
        cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
        let read = |lba, count| {
            cluster.on(0, move |session| async move {
                let data = session.read(LUN, Lba(lba), BlockCount(count), SMALL).await.unwrap();
                assert_eq!(data.to_vec(), small(&Vec::from_iter((lba..lba + count).map(marked))).to_vec());
            });
        };
        read(BAD + 3, 1);
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.in_sync(0), 2, "the copy need not leave");
        let failed = cluster.failed_reads();
        read(0, BLOCKS);
        assert_eq!(cluster.failed_reads(), failed, "all of it can be read");
    });
}

/// Two copies in sync. The second one lost a disk block: it missed a write of a part of it, and the first
/// one's disk could not read the block when it was resynced. Also returns where the block lies on that disk.
fn with_lost_block() -> (Cluster, u64) {
    let cluster = cluster(1, 2, 2);
    let at = cluster.place_of(0, marked(BAD));
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    let part = |session: Rc<Session>| async move { write_small(&session, BAD, &[7]).await };
    cluster.on(0, part).unwrap();
    cluster.spoil_at(0, at);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    (cluster, at)
}

/// A disk block that is lost on one copy, because the other one could not read it, is written as a whole or
/// not at all: the other copy's disk still cannot read the rest.
#[test]
fn a_part_of_a_lost_block_is_not_written() {
    let (cluster, _) = with_lost_block();
    let one = |lba: u64, values: Vec<u64>| {
        move |session: Rc<Session>| async move { write_small(&session, lba, &values).await }
    };
    assert_eq!(cluster.told_of(1, &["blocks_lost"]).len(), 1);
    for by in 0..2 {
        named_bad(cluster.on(by, one(BAD + 2, vec![8])));
        named_bad(cluster.on(by, one(BAD - 1, vec![8, 9])));
        assert_eq!(cluster.in_sync(by), 2, "by node {by}");
    }
    // Nor when the other node is lost, whose copy could not come in sync with a part of the block.
    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(3));
    named_bad(cluster.on(1, one(BAD + 2, vec![8])));
    cluster.on(1, one(BAD + IN_ONE, vec![9])).unwrap();
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    let whole = Vec::from_iter((0..IN_ONE).map(|n| 100 + n));
    cluster.on(0, one(BAD, whole.clone())).unwrap();
    let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
    expected[BAD as usize..][..IN_ONE as usize].copy_from_slice(&whole);
    expected[(BAD + IN_ONE) as usize] = 9;
    cluster.assert_holds(0..2, &expected);
    cluster.assert_equal();
}

/// A copy that holds parts of a block that another one had lost notes that it does not hold them any more
/// before it writes the block as a whole. Meanwhile its disk can read the block again, and a write of another
/// part of it is carried out and acknowledged: that one is not overwritten by what the block held before.
#[test]
fn a_part_that_is_written_while_a_hold_of_the_block_ends_stays() {
    for round in 0..10 {
        let (cluster, at) = with_lost_block();
        let one = |lba: u64, values: Vec<u64>| {
            move |session: Rc<Session>| async move { write_small(&session, lba, &values).await }
        };
        assert!(!cluster.lost_blocks(1).is_empty());
        cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
        cluster.wait_until("the other copy has it again", || cluster.lost_blocks(1).is_empty());
        // Of this part the first copy holds nothing any more.
        cluster.on(0, one(BAD + 5, vec![8])).unwrap();
        cluster.spoil_at(0, at);
        let slow = Duration::from_millis(200)..Duration::from_millis(201);
        let latency = DiskLatency { write: slow, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
        let (client, portal) = (cluster.client("first"), cluster.portal(0));
        let first = cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "first").await.unwrap();
            write_small(&session, BAD + 2, &[9]).await
        });
        // In one of the rounds, this is while the note is being written.
        cluster.world.run_for(Duration::from_millis(100 * round));
        cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
        cluster.on(0, one(BAD + 5, vec![10])).unwrap();
        cluster.world.wait_for(first).unwrap().unwrap();
        cluster.world.set_disk_latency(cluster.servers[0], DISK, DiskLatency::default());
        let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
        for (part, value) in [(0, 7), (2, 9), (5, 10)] {
            expected[BAD as usize + part] = value;
        }
        cluster.assert_holds(0..2, &expected);
        cluster.assert_equal();
    }
}

/// Disks with blocks of 512 bytes, one of which has lost eight adjacent ones: each can be written on its own.
#[test]
fn small_blocks_that_are_lost_are_written_one_by_one() {
    let cluster = Cluster::with_disks(1, 2, 2, &Config::default(), &[512]);
    cluster.add_shaped(Shape { block: SMALL, ..Shape::thick() }, 2);
    let one = |lba: u64, values: Vec<u64>| {
        move |session: Rc<Session>| async move { write_small(&session, lba, &values).await }
    };
    cluster.on(0, one(0, Vec::from_iter((0..BLOCKS).map(|_| 5)))).unwrap();
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.on(0, one(0, Vec::from_iter((0..BLOCKS).map(marked)))).unwrap();
    let at = cluster.place_of(0, marked(BAD));
    let faults = DiskFaults::default().remapping().with_unreadable(at..at + 512 * IN_ONE);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    let mut expected = Vec::from_iter((0..BLOCKS).map(marked));
    for (round, lba) in (BAD..BAD + IN_ONE).enumerate() {
        match round {
            // While the second copy is out of sync.
            2 => {
                cluster.world.crash(cluster.servers[1]);
                cluster.world.run_for(Duration::from_secs(2));
            }
            4 => {
                cluster.start(1);
                cluster.wait_until_in_sync(0, 2);
                cluster.wait_until_all_serve();
            }
            _ => {}
        }
        expected[lba as usize] = 100 + lba;
        cluster.on(usize::from(round > 4), one(lba, vec![100 + lba])).unwrap();
        assert_eq!(cluster.in_sync(0), if (2..4).contains(&round) { 1 } else { 2 }, "round {round}");
    }
    cluster.assert_holds(0..2, &expected);
    cluster.world.run_for(Duration::from_secs(10));
    cluster.assert_equal();
}
