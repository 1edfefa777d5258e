//! Blocks that one node's disk cannot read: hosts read them from another copy, and the node repairs them.
//!
//! If that does not help, the copy goes out of sync.

use std::ops::Range;

use super::*;

use initiator::Transfer;
use initiator::command::{CompareAndWrite, CopySegment, ExtendedCopy};
use node::control::FaultKind;
use node::copies::Cause;
use node::events::Event;
use proto::scsi::Cdb;
use rt::sim::{DiskFaults, DiskLatency, Fault};

/// A value that is nowhere else on a disk.
pub(super) fn marked(lba: u64) -> u64 {
    0xbad0_b10c_0000_0000 | lba
}

impl Cluster {
    /// The place on its node's disk where the copy has the block with this value in each word.
    pub(super) fn place_of(&self, index: usize, value: u64) -> u64 {
        self.places_of(index, value.to_le_bytes()).next().expect("it is on the disk")
    }

    /// The places of blocks on a node's disk that begin with these bytes.
    pub(super) fn places_of(&self, index: usize, start: [u8; 8]) -> impl Iterator<Item = u64> {
        let image = self.world.disk_image(self.servers[index], DISK);
        (0..image.size()).step_by(SIZE.bytes() as usize).filter(move |at| {
            let mut found = [0; 8];
            image.read(*at, &mut found);
            found == start
        })
    }

    /// Makes these blocks, which hold [`marked`] values, unreadable on the node's disk.
    pub(super) fn spoil(&self, index: usize, lbas: impl IntoIterator<Item = u64>, faults: DiskFaults) {
        let places = lbas.into_iter().map(|lba| self.place_of(index, marked(lba)));
        let faults = places.fold(faults, |faults, at| faults.with_unreadable(at..at + 512));
        self.world.set_disk_faults(self.servers[index], DISK, faults);
    }

    /// Number of reads that have failed on any disk.
    pub(super) fn failed_reads(&self) -> u64 {
        self.world.fault_counts().of(Fault::ReadError)
    }

    /// Events of a node with these codes.
    pub(super) fn told_of(&self, index: usize, codes: &[&str]) -> Vec<Event> {
        let taken = self.control(index, |control| control.next_events());
        let all = taken.events.into_iter().map(|(_, event)| event);
        all.filter(|event| codes.contains(&event.code.as_str())).collect()
    }

    /// Acknowledges the read errors of the node's disk.
    fn acknowledge(&self, index: usize) {
        let acknowledge = |control: Rc<Control>| async move { control.acknowledge_read_errors(POOL).await };
        self.control(index, acknowledge).unwrap();
    }

    /// Why the volume's members changed last, as a node knows it.
    pub(super) fn reason(&self, index: usize) -> Cause {
        self.control(index, |control| async move {
            control.reconciler().unwrap().volumes().remove(0).entry.reason
        })
    }

    /// For each disk of a node with read errors: the number of blocks, how many of them are still unreadable,
    /// and the first of these.
    pub(super) fn read_faults(&self, index: usize) -> Vec<(usize, usize, Option<u64>)> {
        let faults = self.control(index, |control| async move { control.faults() });
        let kinds = faults.into_iter().map(|fault| fault.kind);
        let read_failed = |kind: FaultKind| match kind {
            FaultKind::ReadFailed { blocks, bad, first, .. } => {
                Some((blocks, bad, first.map(|first| first.lba)))
            }
            _ => None,
        };
        kinds.filter_map(read_failed).collect()
    }

    /// Number of blocks that its copies have lost, and the first of them.
    pub(super) fn lost_blocks(&self, index: usize) -> Vec<(u64, u64)> {
        self.world.run_for(Duration::from_secs(1));
        let faults = self.control(index, |control| async move { control.faults() });
        let lost = |kind: FaultKind| match kind {
            FaultKind::BlocksLost { blocks, lba, .. } => Some((blocks, lba)),
            _ => None,
        };
        faults.into_iter().filter_map(|fault| lost(fault.kind)).collect()
    }

    /// Writes [`marked`] values to these blocks through the first node.
    pub(super) fn write_marked(&self, lbas: impl IntoIterator<Item = u64> + 'static) {
        let (client, portal) = (self.client("writer"), self.portal(0));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "writer").await.unwrap();
            for lba in lbas {
                write(&session, lba, marked(lba)).await.unwrap();
            }
        });
        // Blocks are valid on all nodes.
        self.world.run_for(Duration::from_millis(500));
    }

    pub(super) fn read_all(
        &self,
        by: usize,
        lbas: impl IntoIterator<Item = u64> + 'static,
    ) -> Vec<Result<u64, Option<(u8, u16)>>> {
        let (client, portal) = (self.client("reader"), self.portal(by));
        self.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "reader").await.unwrap();
            let mut found = Vec::new();
            for lba in lbas {
                found.push(read(&session, lba).await.map_err(|error| error.sense()));
            }
            found
        })
    }

    pub(super) fn assert_reads(&self, by: usize, lbas: impl IntoIterator<Item = u64> + Clone + 'static) {
        let found = self.read_all(by, lbas.clone());
        let expected: Vec<_> = lbas.into_iter().map(|lba| Ok(marked(lba))).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_bad_block_on_one_copy_is_read_from_the_other_and_written_again() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked([3, 700]);
        cluster.spoil(0, [3, 700], DiskFaults::default().remapping());
        cluster.assert_reads(0, [3, 700]);
        cluster.world.run_for(Duration::from_secs(1));
        let failed = cluster.failed_reads();
        assert!(failed >= 2, "{failed}");
        cluster.assert_reads(0, [3, 700]);
        assert_eq!(cluster.failed_reads(), failed, "the blocks are good again");
        assert_eq!(cluster.in_sync(0), 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));

        // There is one event, and a finding until an administrator acknowledges it.
        let told = cluster.told_of(0, &["read_failed", "block_repaired"]);
        let told: Vec<_> = told.iter().map(|event| (event.code.as_str(), event.cause)).collect();
        let expected = [("read_failed", Some("medium_error")), ("block_repaired", None)];
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(expected.iter().all(|event| told.iter().filter(|it| *it == event).count() == 2), "{told:?}");
        assert_eq!(cluster.read_faults(0), [(2, 0, None)]);
        assert!(cluster.read_faults(1).is_empty(), "the other node's disk is well");
        let errors = cluster.control(0, |control| async move {
            control.pool(POOL).unwrap().state.unwrap().read_errors.remove(0)
        });
        assert_eq!((errors.disk.as_str(), errors.repaired), (DISK, 2));
        assert_eq!(Vec::from_iter(errors.failed.into_values()), [2]);
        cluster.acknowledge(0);
        assert!(cluster.read_faults(0).is_empty());
    });
}

#[test]
fn read_errors_are_shown_after_a_restart_until_acknowledged() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked([3, 700]);
        cluster.spoil(0, [3, 700], DiskFaults::default().remapping());
        cluster.assert_reads(0, [3, 700]);
        cluster.world.run_for(Duration::from_secs(15));
        let shown = [(2, 0, None)];
        assert_eq!(cluster.read_faults(0), shown);
        let restart = || {
            cluster.world.crash(cluster.servers[0]);
            cluster.start(0);
            cluster.wait_until_in_sync(0, 2);
        };
        restart();
        assert_eq!(cluster.read_faults(0), shown);
        cluster.acknowledge(0);
        assert!(cluster.read_faults(0).is_empty());
        restart();
        assert!(cluster.read_faults(0).is_empty());
    });
}

#[test]
fn a_copy_whose_bad_block_cannot_be_written_again_leaves() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked([3]);
        let offset = cluster.place_of(0, marked(3));
        cluster.spoil(0, [3], DiskFaults::default());
        cluster.assert_reads(0, [3]);
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.in_sync(1), 1);
        let reason = cluster.reason(1);
        assert_eq!(reason, Cause::BlockUnrepaired);
        // Each node reports where, since the record does.
        for told in [0, 1].map(|index| cluster.told_of(index, &["copy_out_of_sync"])) {
            let [lost] = &told[..] else { panic!("{told:?}") };
            assert_eq!((lost.cause, lost.node), (Some("block_unrepaired"), Some(1)));
            let range = lost.range.clone().unwrap();
            assert_eq!((range.node, &*range.pool, &*range.disk), (1, POOL, DISK));
            assert_eq!(
                (range.offset, range.len, range.lba, range.blocks),
                (offset, u64::from(SIZE.bytes()), 3, 1)
            );
        }
        cluster.assert_reads(1, [3]);
        // It comes back after its disk was replaced, here by an end of the faults.
        cluster.world.set_disk_faults(cluster.servers[0], DISK, DiskFaults::default());
        cluster.control(0, |control| async move { control.reopen_pool(POOL).await.map(drop) }).unwrap();
        cluster.wait_until_in_sync(1, 2);
        cluster.wait_until_all_serve();
        cluster.assert_reads(0, [3]);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

/// Reads in progress when the copy goes out of sync: other copies have the data, so at most the path is lost,
/// and no host may hear that the data are.
#[test]
fn no_read_reports_lost_data_while_its_copy_leaves() {
    const BLOCKS: u64 = 12;
    each_seed(20, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked(0..BLOCKS);
        cluster.spoil(0, 0..BLOCKS, DiskFaults::default());
        let (client, portal) = (cluster.client("reader"), cluster.portal(0));
        let found = cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "reader").await.unwrap();
            let mut found = Vec::new();
            for _ in 0..10 {
                let reads = (0..BLOCKS).map(|lba| read(&session, lba));
                let all = rt::join_all(reads.collect::<Vec<_>>()).await;
                found.extend((0..BLOCKS).zip(all));
            }
            found
        });
        let mut lost = false;
        for (lba, found) in found {
            match found {
                Ok(value) => assert_eq!(value, marked(lba)),
                // MEDIUM ERROR and HARDWARE ERROR.
                Err(error) => {
                    assert!(!error.sense().is_some_and(|(key, _)| [0x03, 0x04].contains(&key)), "{error}");
                    lost = true;
                }
            }
        }
        assert!(lost, "the copy leaves while somebody reads");
    });
}

#[test]
fn without_another_copy_only_commands_that_touch_the_block_fail() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked(0..8);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.spoil(0, [5], DiskFaults::default().remapping());
    let found = cluster.read_all(0, [4, 5, 6]);
    // MEDIUM ERROR, UNRECOVERED READ ERROR.
    assert_eq!(found, [Ok(marked(4)), Err(Some((0x03, 0x1100))), Ok(marked(6))]);
    // A host's write repairs it.
    cluster.write_marked([5]);
    cluster.assert_reads(0, 0..8);
}

/// Each copy has other bad blocks: together they have all data.
#[test]
fn bad_blocks_on_both_copies_are_each_read_from_the_other() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked(0..8);
        cluster.spoil(0, [1, 2, 6], DiskFaults::default().remapping());
        cluster.spoil(1, [0, 5, 7], DiskFaults::default().remapping());
        for by in 0..2 {
            let (client, portal) = (cluster.client("reader"), cluster.portal(by));
            cluster.world.block_on(client, CoreId(0), move || async move {
                let session = log_in(portal, "reader").await.unwrap();
                let data = session.read(LUN, Lba(0), BlockCount(8), SIZE).await.unwrap();
                let found = data
                    .chunks_exact(SIZE.bytes() as usize)
                    .map(|block| u64::from_le_bytes(block[..8].try_into().unwrap()));
                assert_eq!(found.collect::<Vec<_>>(), (0..8).map(marked).collect::<Vec<_>>());
            });
            cluster.world.run_for(Duration::from_secs(1));
        }
        assert_eq!(cluster.in_sync(0), 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

#[test]
fn every_command_that_reads_gets_the_block_from_the_other_copy() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked(0..6);
        // The disk remaps blocks when they are written, and they stay bad until hosts have read what they
        // want.
        cluster.spoil(0, [1, 2, 3], DiskFaults::default().remapping());
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            let exchange =
                CompareAndWrite { lba: Lba(1), compare: block(marked(1)), write: block(7), size: SIZE };
            session.compare_and_write(LUN, exchange).await.unwrap();
            assert_eq!(read(&session, 1).await.unwrap(), 7);
            // VERIFY (10) of one block.
            let verify = Cdb([0x2f, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
            session.command(LUN, verify, Transfer::None).await.unwrap();
        });
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.in_sync(0), 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
        assert!(cluster.verify(1).is_equal(), "the rest was repaired on the way");
    });
}

/// EXTENDED COPY of blocks of the volume to another place in it; an error is its source's sense key and code.
async fn copy_blocks(session: &Session, from: Range<u64>, to: u64) -> Result<(), (u8, u16)> {
    /// COPY ABORTED, THIRD PARTY DEVICE FAILURE (SPC-4).
    const THIRD_PARTY: (u8, u16) = (0x0a, 0x0d01);
    let name = session.identify(LUN).await.unwrap().unit.naa().unwrap();
    let count = BlockCount(from.end - from.start);
    let segments = [CopySegment { source: Lba(from.start), destination: Lba(to), count }];
    let copy = || ExtendedCopy { source: name, destination: name, size: SIZE, segments: &segments };
    let Err(error) = session.extended_copy(LUN, copy()).await else { return Ok(()) };
    assert_eq!(error.sense(), Some(THIRD_PARTY), "{error}");
    let initiator::Error::Status { sense, .. } = error else { panic!("it has sense data") };
    // SPC-4 6.4.5: where the source's status and sense data are, in the bytes after those of the command
    // itself.
    let answer = &sense[usize::from(sense[8])..];
    assert_eq!(answer[0], 0x02, "CHECK CONDITION");
    Err((answer[3], u16::from_be_bytes([answer[13], answer[14]])))
}

#[test]
fn blocks_that_are_copied_come_from_the_other_copy_where_they_are_bad() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked(0..6);
        cluster.spoil(0, [1, 2], DiskFaults::default().remapping());
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            copy_blocks(&session, 0..6, 100).await.unwrap();
        });
        assert!(cluster.failed_reads() > 0, "the disk was asked for them");
        cluster.world.run_for(Duration::from_secs(1));
        for by in 0..2 {
            let copied: Vec<_> = (0..6).map(|lba| Ok(marked(lba))).collect();
            assert_eq!(cluster.read_all(by, 100..106), copied);
        }
        assert_eq!(cluster.in_sync(0), 2);
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

#[test]
fn a_copy_of_blocks_that_nobody_can_read_says_what_its_source_says() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked(0..6);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.spoil(0, [3], DiskFaults::default().remapping());
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        // MEDIUM ERROR, UNRECOVERED READ ERROR.
        assert_eq!(copy_blocks(&session, 0..6, 100).await, Err((0x03, 0x1100)));
        assert_eq!(read(&session, 103).await.unwrap(), 0, "nothing is written that was not read");
        // Only commands that touch the block fail.
        copy_blocks(&session, 4..6, 100).await.unwrap();
        assert_eq!(read(&session, 100).await.unwrap(), marked(4));
        // A write repairs it.
        write(&session, 3, marked(3)).await.unwrap();
        copy_blocks(&session, 0..6, 100).await.unwrap();
        assert_eq!(read(&session, 103).await.unwrap(), marked(3));
    });
}

/// `volume verify` repairs what it can; a copy that it cannot repair goes out of sync.
#[test]
fn a_comparison_repairs_a_bad_block_or_its_copy_leaves() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked([700]);
    cluster.spoil(1, [700], DiskFaults::default().remapping());
    let found = cluster.verify(0);
    assert!(found.is_equal(), "{found:?}");
    assert_eq!(cluster.told_of(1, &["read_failed", "block_repaired"]).len(), 2);
    cluster.spoil(1, [700], DiskFaults::default());
    cluster.verify(0);
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.in_sync(0), 1);
}

/// A resync's source has a bad block that a third copy has: the resync reads it there.
#[test]
fn a_source_with_a_bad_block_gives_what_another_copy_has() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 2);
        cluster.add_volume(VolumeKind::Thick, 3);
        cluster.write_marked([5]);
        cluster.world.crash(cluster.servers[2]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.write_marked([4, 300]);
        for source in 0..2 {
            let lba = [4, 300][source];
            cluster.spoil(source, [lba], DiskFaults::default().remapping());
        }
        cluster.start(2);
        cluster.wait_until_in_sync(0, 3);
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.checksum(0), cluster.checksum(2));
        assert_eq!(cluster.checksum(1), cluster.checksum(2));
    });
}

/// The pool of a copy was set back, so that its regions are compared with those of the other one; its disk
/// cannot read one of them.
#[test]
fn a_bad_block_found_by_a_joiner_that_compares_is_reported() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked([5]);
    cluster.world.run_for(Duration::from_secs(10));
    cluster.world.crash(cluster.servers[1]);
    let yesterday = cluster.world.disk_image(cluster.servers[1], DISK);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.write_marked([700]);
    cluster.world.run_for(Duration::from_secs(20));
    cluster.world.crash(cluster.servers[1]);
    cluster.world.remove_disk(cluster.servers[1], DISK);
    cluster.world.put_disk(cluster.servers[1], DISK, yesterday);
    cluster.spoil(1, [5], DiskFaults::default().remapping());
    // The others miss the node, and remove it.
    cluster.world.run_for(Duration::from_secs(2));
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    let told = cluster.told_of(1, &["read_failed"]);
    let places: Vec<_> = told.iter().map(|event| event.range.as_ref().unwrap().lba).collect();
    assert_eq!(places, [5]);
    assert_eq!(cluster.read_faults(1).len(), 1);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

/// A repair races with a host's write.
///
/// The first node reads a bad block and the next one from the second node, while a host of the third node
/// writes both, of which the first node learns late. Once its host has read a new value in the good block,
/// which its own disk has, too, the old one must not come back.
pub(super) fn shown_and_gone(seed: u64) {
    const ROUNDS: u64 = 10;
    const HEARS_AFTER: Duration = Duration::from_millis(100);
    let (ms, mut rng) = (Duration::from_millis, Rng::new(seed));
    let cluster = Cluster::new(seed, 3, 1);
    cluster.add_volume(VolumeKind::Thick, 3);
    cluster.write_marked([0, 1]);
    let bad = cluster.place_of(0, marked(0));
    let slow = DiskLatency { read: ms(5)..ms(30), ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
    let logged_in = |name: &'static str, index: usize| {
        let (client, portal) = (cluster.client(name), cluster.portal(index));
        (client, cluster.world.block_on(client, CoreId(0), move || log_in(portal, name)).unwrap())
    };
    let ((reader, reads), (writer, writes)) = (logged_in("reader", 0), logged_in("writer", 2));
    for round in 1..=ROUNDS {
        let value = marked(1) + round;
        let faults = DiskFaults::default().remapping().with_unreadable(bad..bad + 512);
        cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
        cluster.world.cut_one_way(cluster.servers[2], cluster.servers[0]);
        let done = Rc::new(Cell::new(0));
        let (written, session, begins) = (Rc::clone(&done), Rc::clone(&writes), ms(rng.below(20)));
        drop(cluster.world.spawn_on(writer, CoreId(0), move || async move {
            rt::sleep(begins).await;
            let mut data = block(value);
            data.append(block(value));
            // The first node receives nothing for so long that the host may hear that the result of its write
            // is unknown.
            while session.write(LUN, Lba(0), data.clone(), SIZE).await.is_err() {}
            written.set(written.get() + 1);
        }));
        let (looked, session) = (Rc::clone(&done), Rc::clone(&reads));
        drop(cluster.world.spawn_on(reader, CoreId(0), move || async move {
            // A unit attention for a path's state, which changes when leases are late, may come instead of a
            // response.
            let last_of = async |lba, count| {
                loop {
                    if let Ok(data) = session.read(LUN, Lba(lba), BlockCount(count), SIZE).await {
                        let last = &data[data.len() - SIZE.bytes() as usize..];
                        return u64::from_le_bytes(last[..8].try_into().unwrap());
                    }
                }
            };
            let shown = last_of(0, 2).await;
            let again = last_of(1, 1).await;
            assert!(again >= shown, "{shown:x} was shown, and then {again:x}");
            looked.set(looked.get() + 1);
        }));
        cluster.world.run_for(HEARS_AFTER);
        cluster.world.heal_all();
        assert!(cluster.world.run_until(|| done.get() == 2, Duration::from_secs(5)), "both are answered");
    }
    assert_eq!(cluster.in_sync(0), 3);
}

/// Two hosts write to another block of the same physical block: at any time one of these writes is under way.
#[test]
fn a_block_is_repaired_though_hosts_write_beside_it_all_the_time() {
    const WRITES: Duration = Duration::from_millis(40);
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 1);
        cluster.add_volume(VolumeKind::Thick, 3);
        cluster.write_marked([3]);
        let slow = DiskLatency { write: WRITES..WRITES * 2, spike_one_in: 0, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[2], DISK, slow);
        let written = Rc::new(Cell::new(0));
        for (index, name) in [(0, "one"), (1, "two"), (2, "three"), (0, "four")] {
            let (client, portal) = (cluster.client(name), cluster.portal(index));
            let count = Rc::clone(&written);
            drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
                let session = log_in(portal, name).await.unwrap();
                for value in 0.. {
                    write(&session, 5, value).await.unwrap();
                    count.set(count.get() + 1);
                }
            }));
        }
        cluster.world.run_for(Duration::from_millis(200));
        cluster.spoil(0, [3], DiskFaults::default().remapping());
        let before = written.get();
        let is_good = || {
            cluster.assert_reads(0, [3]);
            // Hosts do not wait for the disk's rewrite.
            cluster.world.run_for(Duration::from_secs(1));
            cluster.world.disk_faults(cluster.servers[0], DISK).unreadable.is_empty()
        };
        assert!((0..5).any(|_| is_good()), "seed {seed}: the block is still bad");
        cluster.world.run_for(Duration::from_secs(1));
        assert!(written.get() > before + 5, "hosts' writes continue");
        assert_eq!(cluster.in_sync(1), 3);
    });
}

#[test]
fn a_block_fetched_from_another_copy_stays_readable() {
    each_seed(3, shown_and_gone);
}

/// The data for the repair of a bad block comes late from another copy: a host of a third node has written
/// the block by then.
#[test]
fn a_block_is_not_repaired_with_what_was_there_before_a_write() {
    const READS: Duration = Duration::from_millis(100);
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 3, 1);
        cluster.add_volume(VolumeKind::Thick, 3);
        cluster.write_marked([3]);
        cluster.spoil(0, [3], DiskFaults::default().remapping());
        let read = READS..READS + Duration::from_millis(1);
        let slow = DiskLatency { read, spike_one_in: 0, ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
        let (client, portal) = (cluster.client("late-writer"), cluster.portal(2));
        let session =
            cluster.world.block_on(client, CoreId(0), move || log_in(portal, "late-writer")).unwrap();
        // The host has it from the second node, which is asked once more for the repair.
        cluster.assert_reads(0, [3]);
        cluster.world.run_for(READS / 2);
        cluster.world.cut_one_way(cluster.servers[1], cluster.servers[0]);
        cluster.world.run_for(READS);
        cluster.world.block_on(
            client,
            CoreId(0),
            move || async move { write(&session, 3, 7).await.unwrap() },
        );
        // All nodes know that all copies have it.
        cluster.world.run_for(Duration::from_millis(100));
        cluster.world.heal_all();
        cluster.world.run_for(Duration::from_secs(1));
        // The first node may have taken the second one for silent.
        assert!(cluster.world.run_until(|| cluster.in_sync(1) == 3, Duration::from_secs(10)));
        assert_eq!(cluster.read_block(0, 3), 7, "seed {seed}");
        assert_eq!(cluster.checksum(0), cluster.checksum(1), "seed {seed}");
    });
}

#[test]
fn a_disk_with_too_many_bad_blocks_leaves() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.write_marked(0..200);
    cluster.spoil(0, 0..200, DiskFaults::default().remapping());
    let (client, portal) = (cluster.client("reader"), cluster.portal(0));
    let read_before = cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "reader").await.unwrap();
        for lba in 0..200 {
            match read(&session, lba).await {
                Ok(value) => assert_eq!(value, marked(lba)),
                Err(_) => return lba,
            }
        }
        200
    });
    assert!((64..200).contains(&read_before), "{read_before} blocks were read before it left");
    // Its node reports so with a heartbeat, and the record is changed.
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.in_sync(1), 1);
    cluster.assert_reads(1, 0..200);
}

/// A host reads a block through a node whose disk does not answer reads, and waits only a moment longer.
fn read_past_hanging_disk(cluster: &Cluster) {
    let hangs = Duration::from_secs(20)..Duration::from_secs(21);
    let latency = DiskLatency { read: hangs, ..DiskLatency::default() };
    cluster.world.set_disk_latency(cluster.servers[0], DISK, latency);
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    let session = cluster.world.block_on(client, CoreId(0), move || log_in(portal, "host")).unwrap();
    let began = cluster.world.now();
    let found = cluster.world.block_on(client, CoreId(0), move || async move { read(&session, 3).await });
    assert_eq!(found.unwrap(), marked(3));
    let took = cluster.world.now() - began;
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

/// Found by the simulator: each such read was repeated, and each time after a second, because writes to other
/// blocks had been forgotten meanwhile (R15).
#[test]
fn writes_elsewhere_do_not_hold_up_a_read_that_the_disk_does_not_answer() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked([3]);
        let (client, portal) = (cluster.client("elsewhere"), cluster.portal(1));
        drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "elsewhere").await.unwrap();
            for value in 0.. {
                write(&session, 8 + value % 16, value).await.unwrap();
                rt::sleep(Duration::from_millis(10)).await;
            }
        }));
        read_past_hanging_disk(&cluster);
    });
}

/// A disk that hangs for a while: hosts wait a moment longer.
#[test]
fn reads_that_the_disk_does_not_answer_come_from_the_other_copy() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked([3]);
        read_past_hanging_disk(&cluster);
        // If it keeps hanging, its copy goes out of sync, even if no host reads from it any more.
        cluster.world.run_for(Duration::from_secs(6));
        assert_eq!(cluster.in_sync(1), 1, "a disk that answers nothing is still in sync");
        cluster.assert_reads(1, [3]);
    });
}

/// A disk retries an unreadable block for long, and hosts have the data from the other copy before it gives
/// up. The error is reported and the block repaired all the same.
#[test]
fn a_block_whose_error_comes_late_is_reported_and_rewritten() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_marked([3]);
        cluster.spoil(0, [3], DiskFaults::default().remapping().failing_after(Duration::from_secs(2)));
        let began = cluster.world.now();
        cluster.assert_reads(0, [3]);
        let took = cluster.world.now() - began;
        assert!(took < Duration::from_millis(1500), "{took:?}");
        cluster.world.run_for(Duration::from_secs(8));
        let codes = cluster.told_of(0, &["read_failed", "block_repaired"]);
        let codes: Vec<&str> = codes.iter().map(|event| event.code.as_str()).collect();
        assert_eq!(codes, ["read_failed", "block_repaired"]);
        assert_eq!(cluster.in_sync(0), 2, "a disk that answers is not silent");
        let failed = cluster.failed_reads();
        cluster.assert_reads(0, [3]);
        assert_eq!(cluster.failed_reads(), failed, "it can be read");
    });
}

/// An unreadable page of a dirty map causes a resync of all that it covers, and is a bad block like any
/// other.
#[test]
fn a_bad_page_of_the_dirty_map_is_reported() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.write_marked([3]);
    cluster.world.crash(cluster.servers[0]);
    let pages: Vec<u64> = cluster.places_of(0, *b"URSADMAP").collect();
    assert!(!pages.is_empty(), "what the other copy misses is noted");
    let faults = DiskFaults::default().remapping();
    let faults = pages.into_iter().fold(faults, |faults, at| faults.with_unreadable(at..at + 512));
    cluster.world.set_disk_faults(cluster.servers[0], DISK, faults);
    cluster.start(0);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    assert!(!cluster.told_of(0, &["read_failed"]).is_empty());
    cluster.assert_reads(1, [3]);
}

/// The only copy in sync returns, and its disk cannot read what one of its slices needs to be opened.
///
/// The others do not speak for that slice: a copy that misses something there is not in sync before the pool
/// is reopened.
pub(super) fn part_of_a_copy(seed: u64) {
    let cluster = Cluster::new(seed, 2, 2);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(2));
    cluster.write_marked([3]);
    cluster.world.crash(cluster.servers[0]);
    cluster.world.set_disk_faults(cluster.servers[0], DISK, without_list(&cluster));
    cluster.start(0);
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(20));
    assert_resyncs_when_reopened(&cluster, 0);
}

/// Neither node's disk can read the list of lost blocks of the slice that was written.
///
/// The list is one page per slice, for two slices, before the dirty map. Both pools were created alike.
pub(super) fn without_list(cluster: &Cluster) -> DiskFaults {
    let page = cluster.places_of(0, *b"URSADMAP").next().expect("what the other copy misses is noted");
    let list = page - 2 * 4096;
    DiskFaults::default().with_unreadable(list..list + 512)
}

/// Ends the faults of the node's disk, and reopens its pool.
fn assert_resyncs_when_reopened(cluster: &Cluster, index: usize) {
    cluster.world.set_disk_faults(cluster.servers[index], DISK, DiskFaults::default());
    cluster.control(index, |control| async move { control.reopen_pool(POOL).await.unwrap() });
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.assert_reads(1, [3]);
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

#[test]
fn a_copy_of_which_a_slice_cannot_be_opened_takes_no_part() {
    each_seed(3, part_of_a_copy);
}

/// The copy that returns is not the only one: it stays out of sync, and does not come and go again and again.
#[test]
fn a_copy_with_a_slice_that_cannot_be_opened_is_not_admitted() {
    each_seed(3, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.write_marked([3]);
        cluster.world.run_for(Duration::from_secs(2));
        cluster.world.set_disk_faults(cluster.servers[1], DISK, without_list(&cluster));
        let epoch = || cluster.shown(0).unwrap().entry.epoch;
        cluster.start(1);
        cluster.world.run_for(Duration::from_secs(10));
        let before = epoch();
        cluster.world.run_for(Duration::from_secs(60));
        assert_eq!(epoch(), before, "the members change all the time");
        assert_resyncs_when_reopened(&cluster, 1);
    });
}
