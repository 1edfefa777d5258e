//! Volumes whose copies are in logs: every read detects rot, as in thick volumes with checksums, and space
//! runs out and becomes available.

use super::bad_blocks::marked;
use super::pausing::{pause, resume};
use super::*;

use std::ops::Range;

use base::{Buf, ByteLen, LbaRange};
use initiator::command::{Command, Effect, TestUnitReady};
use initiator::{Error, Transfer};
use node::control::{ControlError, SpaceChange, Uncompared};
use proto::scsi::Cdb;
use rt::sim::DiskFaults;
use store::{SpacePolicy, WhenFull};

/// The kinds of volumes that have checksums: always, or if they are to have them.
const VERIFIED: [VolumeKind; 2] = [VolumeKind::Log, VolumeKind::Thick];

/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
const FULL: (u8, u16) = (0x07, 0x2707);

/// UNIT ATTENTION, THIN PROVISIONING SOFT THRESHOLD REACHED.
const SOFT_THRESHOLD: (u8, u16) = (0x06, 0x3807);

/// LOG SENSE, Logical Block Provisioning.
struct ProvisioningLog;

/// Its answer: counts of 32 MiB, and a percentage.
#[derive(Debug)]
struct Provisioned {
    available: u32,
    used: u32,
    available_percent: u16,
}

impl Command for ProvisioningLog {
    type Answer = Provisioned;
    const NAME: &'static str = "LOG SENSE";

    fn cdb(&self) -> Cdb {
        Cdb([0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0])
    }

    fn transfer(&self) -> Transfer {
        Transfer::In(255)
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn answer(&self, data: Option<Buf>) -> Option<Provisioned> {
        let page = data?.to_vec();
        let count = |at: usize| u32::from_be_bytes(page[at..at + 4].try_into().unwrap());
        assert_eq!((page.len(), page[0]), (40, 0x8c));
        let available_percent = u16::from_be_bytes([page[32], page[33]]);
        Some(Provisioned { available: count(8), used: count(20), available_percent })
    }
}

impl Cluster {
    /// Changes the bytes of these blocks, which hold [`marked`] values, on a node's disk.
    pub(super) fn rot(&self, index: usize, lbas: impl IntoIterator<Item = u64>) {
        for lba in lbas {
            let at = self.place_of(index, marked(lba));
            self.world.corrupt_disk(self.servers[index], DISK, at + 1024..at + 1536);
        }
    }

    /// Two nodes that keep no part of a map in memory, with a log volume of two copies. These blocks hold
    /// [`marked`] values, and are in the map of the first node.
    pub(super) fn with_map_on_disk(lbas: impl IntoIterator<Item = u64> + 'static) -> Cluster {
        let config = Config { map_bytes_max: 1, ..Config::default() };
        let cluster = Cluster::with_config(1, 2, 2, &config);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.write_marked(lbas);
        cluster.world.run_for(Duration::from_secs(8));
        // The log is merged when it is opened.
        cluster.world.crash(cluster.servers[0]);
        cluster.start(0);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        cluster
    }

    /// Makes the maps of the logs on a node's disk unreadable.
    pub(super) fn spoil_maps(&self, index: usize) {
        let image = self.world.disk_image(self.servers[index], DISK);
        let is_leaf = |at: &u64| {
            let mut found = [0; 4];
            image.read(*at, &mut found);
            found == *b"ULEF"
        };
        let leaves: Vec<u64> = (0..image.size()).step_by(SIZE.bytes() as usize).filter(is_leaf).collect();
        assert!(!leaves.is_empty());
        let unread = |faults: DiskFaults, at: u64| faults.with_unreadable(at..at + 512);
        let faults = leaves.into_iter().fold(DiskFaults::default().remapping(), unread);
        self.world.set_disk_faults(self.servers[index], DISK, faults);
    }
}

#[test]
fn a_rotten_block_is_read_from_the_other_copy_and_rewritten() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_checked_volume(VERIFIED[seed as usize % 2], 2);
        cluster.write_marked([3, 700]);
        cluster.rot(0, [3, 700]);
        cluster.assert_reads(0, [3, 700]);
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(cluster.in_sync(0), 2, "no copy leaves for that");
        let codes = cluster.told_of(0, &["read_failed", "block_repaired"]);
        let told = |code| codes.iter().any(|event| event.code.as_str() == code);
        assert!(told("read_failed") && told("block_repaired"), "{codes:?}");
        assert!(cluster.told_of(1, &["read_failed"]).is_empty(), "the other node's disk is well");
        // It can be read without the other copy.
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(3));
        cluster.assert_reads(0, [3, 700]);
    });
}

#[test]
fn without_another_copy_a_block_that_has_rotted_is_a_medium_error_until_it_is_written() {
    for kind in VERIFIED {
        let cluster = Cluster::new(1, 2, 2);
        cluster.add_checked_volume(kind, 1);
        cluster.write_marked([3, 4, 700]);
        cluster.rot(0, [3]);
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            let error = read(&session, 3).await.unwrap_err();
            assert_eq!(error.sense(), Some((0x03, 0x1100)), "{kind:?}: {error}");
            assert_eq!(read(&session, 4).await.unwrap(), marked(4));
            write(&session, 3, 5).await.unwrap();
            assert_eq!(read(&session, 3).await.unwrap(), 5);
        });
    }
}

/// What nothing was written to for a while is verified after a crash, too.
#[test]
fn a_block_of_a_thick_volume_that_rots_while_its_node_is_down_is_found() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_checked_volume(VolumeKind::Thick, 1);
    cluster.write_marked([3, 700]);
    cluster.world.run_for(Duration::from_secs(60));
    cluster.world.crash(cluster.servers[0]);
    cluster.rot(0, [3]);
    cluster.start(0);
    cluster.wait_until_in_sync(0, 1);
    cluster.world.run_for(Duration::from_secs(5));
    assert_eq!(cluster.read_all(0, [3, 700]), [Err(Some((0x03, 0x1100))), Ok(marked(700))]);
}

/// One bad sector of a log's map holds the places of 512 blocks. Freeing these blocks needs none of them, and
/// is what makes that part of the map readable again.
///
/// Once, the copy failed each UNMAP there as if its disk had failed a write, and a resync that brought zeros.
#[test]
fn blocks_of_an_unreadable_map_can_be_unmapped() {
    let cluster = Cluster::with_map_on_disk([3, 700]);
    cluster.spoil_maps(0);
    let (client, portal) = (cluster.client("host"), cluster.portal(0));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let session = log_in(portal, "host").await.unwrap();
        let all = [LbaRange { start: Lba(0), count: BlockCount(1024) }];
        attended(async || session.unmap(LUN, &all).await).await.unwrap();
        assert_eq!(read(&session, 3).await.unwrap(), 0);
    });
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.in_sync(0), 2, "no copy leaves for that");
    for by in 0..2 {
        assert_eq!(cluster.read_all(by, [3, 4, 700]), [Ok(0); 3], "by node {by}");
    }
}

/// One bad sector of a map is one bad place of the disk, although up to 512 blocks cannot be read for it: the
/// first of them that is read has all repaired.
///
/// Once, each block counted: the copy went out of sync as if its disk failed everywhere, and did so again
/// when it was back.
#[test]
fn a_part_of_a_map_that_cannot_be_read_is_one_bad_block() {
    let cluster = Cluster::with_map_on_disk(0..200);
    cluster.spoil_maps(0);
    cluster.assert_reads(0, 0..200);
    cluster.world.run_for(Duration::from_secs(2));
    assert_eq!(cluster.in_sync(0), 2, "no copy leaves for that");
    assert_eq!(cluster.told_of(0, &["read_failed"]).len(), 1);
    assert_eq!(cluster.read_faults(0), [(1, 0, None)]);
    // All of it can be read without the other copy.
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.assert_reads(0, 0..200);
}

/// Once, the volume had one copy less, and only a line in the node's log said why.
#[test]
fn a_copy_whose_log_is_damaged_is_reported() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.write_marked([3]);
    cluster.world.crash(cluster.servers[1]);
    for root in cluster.places_of(1, *b"URSALOGR") {
        cluster.world.corrupt_disk(cluster.servers[1], DISK, root + 512..root + 1024);
    }
    cluster.start(1);
    cluster.world.run_for(Duration::from_secs(10));
    let told = cluster.told_of(1, &["volume_unavailable"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].text.contains("cannot be opened"), "{}", told[0].text);
    assert_eq!(cluster.in_sync(0), 1);
    cluster.assert_reads(0, [3]);
}

/// A scrub reads all blocks, and finds rot before a host needs the data.
#[test]
fn verifying_finds_what_has_rotted_and_repairs_what_another_copy_has() {
    for (kind, copies) in VERIFIED.into_iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
        let cluster = Cluster::new(1, 2, 2);
        cluster.add_checked_volume(kind, copies);
        cluster.write_marked([3, 4, 700]);
        assert!(cluster.verify(0).is_equal());
        cluster.rot(0, [3, 700]);
        let found = cluster.verify(0);
        let codes = cluster.told_of(0, &["read_failed", "block_repaired"]);
        let told = |code| codes.iter().filter(|event| event.code.as_str() == code).count();
        match copies {
            1 => {
                assert_eq!((told("read_failed"), told("block_repaired"), found.is_equal()), (2, 0, false));
                let problem = found.problem.unwrap();
                assert!(matches!(problem, Uncompared::Unreadable { .. }), "{problem}");
            }
            _ => {
                assert_eq!((told("read_failed"), told("block_repaired"), found.is_equal()), (2, 2, true));
                cluster.assert_reads(0, [3, 4, 700]);
            }
        }
    }
}

const CHUNK: u64 = 64;

fn chunk(value: u64) -> Chain {
    Chain::copy_of(&value.to_le_bytes().repeat(CHUNK as usize * 512))
}

async fn write_chunk(session: &Session, number: u64, value: u64) -> Result<(), initiator::Error> {
    attended(async || session.write(LUN, Lba(number * CHUNK), chunk(value), SIZE).await).await
}

/// Writes one piece after the other until there is no space; returns the number of pieces.
async fn fill_up(session: &Session) -> u64 {
    for number in 0.. {
        if let Err(error) = write_chunk(session, number, number).await {
            assert_eq!(error.sense(), Some(FULL), "after {number} of 256 KiB: {error}");
            return number;
        }
    }
    unreachable!("the pool is smaller")
}

async fn unmap_chunks(session: &Session, chunks: Range<u64>) {
    let count = BlockCount((chunks.end - chunks.start) * CHUNK);
    let range = [LbaRange { start: Lba(chunks.start * CHUNK), count }];
    attended(async || session.unmap(LUN, &range).await).await.unwrap();
}

/// Writes as soon as there is room: logs free space a moment after an UNMAP.
async fn write_when_there_is_room(session: &Session, number: u64, value: u64) {
    let mut tries = 0;
    while let Err(error) = write_chunk(session, number, value).await {
        assert_eq!(error.sense(), Some(FULL), "{error}");
        tries += 1;
        assert!(tries < 100, "there is no room after an UNMAP");
        rt::sleep(Duration::from_millis(100)).await;
    }
}

/// Writes one piece after the other from `first` on, through whichever node serves, until the last copy in
/// sync has no space. Returns the index of its node, a session with that, and the first piece without space.
async fn fill_all(portals: Vec<SocketAddr>, first: u64) -> (usize, Rc<Session>, u64) {
    let mut sessions = Vec::new();
    for portal in portals {
        sessions.push(log_in(portal, "host").await.unwrap());
    }
    let (mut by, mut number) = (0, first);
    loop {
        match write_chunk(&sessions[by], number, number).await {
            Ok(()) => number += 1,
            Err(error) if error.sense() == Some(FULL) => return (by, sessions.swap_remove(by), number),
            Err(_) => {
                by = (by + 1) % sessions.len();
                rt::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Unmaps half of the blocks, and writes as soon as there is room.
async fn make_room(session: &Session, written: u64) {
    for number in [0, written / 2, written - 1] {
        assert_eq!(read(session, number * CHUNK + 63).await.unwrap(), number);
    }
    unmap_chunks(session, 0..written / 2).await;
    write_when_there_is_room(session, 0, 7).await;
    assert_eq!(read(session, 63).await.unwrap(), 7);
    assert_eq!(read(session, CHUNK).await.unwrap(), 0);
    assert_eq!(read(session, written * CHUNK - 1).await.unwrap(), written - 1);
}

/// A thick volume has its space for itself.
#[test]
fn only_log_volumes_report_the_space_that_they_share() {
    for kind in [VolumeKind::Thick, VolumeKind::Ram, VolumeKind::Log] {
        let cluster = Cluster::new(1, 2, 2);
        cluster.add_volume(kind, 1);
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        let (page, told) = cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            let page = session.inquiry(LUN, Some(0xb2), 8).await.unwrap();
            (page, attended(async || session.send(LUN, &ProvisioningLog).await).await)
        });
        if kind == VolumeKind::Log {
            assert_eq!(page, [0, 0xb2, 0, 4, 13, 0xe4, 0x02, 40]);
            let space = told.unwrap();
            assert!(space.available > 0 && space.available_percent > 90 && space.used <= 1, "{space:?}");
        } else {
            assert_eq!(page, [0, 0xb2, 0, 4, 0, 0xe4, 0x02, 0]);
            assert!(told.unwrap_err().is_illegal_request());
        }
    }
}

/// A volume that is larger than its pool: writes fail for lack of space, and succeed again once blocks have
/// been unmapped.
#[test]
fn a_full_pool_refuses_writes_until_blocks_are_unmapped() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_shaped(Shape { kind: VolumeKind::Log, mib: 256, ..Shape::thick() }, 1);
        let (client, portal) = (cluster.client("host"), cluster.portal(0));
        let codes = ["pool_filling", "pool_nearly_full", "pool_has_space"];
        let told = || cluster.told_of(0, &codes).iter().map(|event| event.code.as_str()).collect::<Vec<_>>();
        assert_eq!(told(), [""; 0]);
        let (session, written) = cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "host").await.unwrap();
            let written = fill_up(&session).await;
            assert!(written > 100, "only {written} of 256 KiB had room");
            (session, written)
        });
        let events = cluster.told_of(0, &codes);
        let told_codes: Vec<&str> = events.iter().map(|event| event.code.as_str()).collect();
        assert_eq!(told_codes, ["pool_filling", "pool_filling", "pool_nearly_full"], "{events:?}");
        assert_eq!(told(), [""; 0], "once");
        let again = Rc::clone(&session);
        cluster.world.block_on(client, CoreId(0), move || async move {
            let told = session.send(LUN, &TestUnitReady).await.unwrap_err();
            assert_eq!(told.sense(), Some(SOFT_THRESHOLD), "{told}");
            // INFORMATION: the third threshold, 5 % available.
            let Error::Status { sense, .. } = told else { panic!("it has a sense") };
            assert_eq!((sense[0], &sense[3..7]), (0xf0, &[0, 0, 0, 32][..]));
            let space = session.send(LUN, &ProvisioningLog).await.unwrap();
            assert!(space.available == 0 && space.available_percent < 10, "{space:?}");
            let sets = (written * CHUNK * u64::from(SIZE.bytes())).div_ceil(32 * MIB) as u32;
            assert!((sets..=sets + 1).contains(&space.used), "{written} of 256 KiB are written: {space:?}");
            make_room(&session, written).await;
        });
        // The logs merge what was unmapped when they have nothing else to do.
        cluster.world.run_for(Duration::from_secs(1));
        assert_eq!(told(), ["pool_has_space"]);
        let space = cluster.world.block_on(client, CoreId(0), move || async move {
            attended(async || again.send(LUN, &ProvisioningLog).await).await.unwrap()
        });
        assert!(space.available_percent > 22, "{space:?}");
    });
}

/// Both pools fill up: one copy goes out of sync for lack of space, and the other one refuses writes. The
/// first comes back automatically when there is room.
#[test]
fn copies_in_full_pools_are_in_sync_again_when_blocks_were_unmapped() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_shaped(Shape { kind: VolumeKind::Log, mib: 256, ..Shape::thick() }, 2);
        let (client, portals) = (cluster.client("host"), cluster.portals());
        cluster.world.block_on(client, CoreId(0), move || async move {
            let (_, session, written) = fill_all(portals, 0).await;
            make_room(&session, written).await;
        });
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        cluster.world.run_for(Duration::from_secs(1));
        let found = cluster.verify(0);
        assert!(found.is_equal(), "{found:?}");
        // A full pool is not a failed disk.
        for index in 0..2 {
            assert!(cluster.told_of(index, &["disk_failed"]).is_empty());
        }
    });
}

/// In the order of a resync, new data comes before what was unmapped, and finds no room before that has come.
/// Hosts write meanwhile.
///
/// Once, such a resync stood still: all regions on their way waited for room.
#[test]
fn a_resync_sends_the_zeros_that_free_space_for_earlier_data() {
    for nodes in [2, 3] {
        each_seed(2, |seed| {
            let cluster = Cluster::new(seed, nodes, 1);
            cluster.add_shaped(Shape { kind: VolumeKind::Log, mib: 256, ..Shape::thick() }, nodes as u8);
            let (client, portals) = (cluster.client("host"), cluster.portals());
            // 6 MiB: more than what all regions on their way, and what was left of a full log, may hold.
            let new = 24_u64;
            let (last, session, end) =
                cluster.world.block_on(client, CoreId(0), move || fill_all(portals, new));
            let middle = new.midpoint(end);
            assert!(middle > 3 * new, "only {} of 256 KiB had room", end - new);
            let full: Vec<u16> = (1..=nodes as u16).filter(|node| usize::from(*node) != last + 1).collect();
            full.iter().for_each(|node| pause(&cluster, last, *node));
            cluster.world.run_for(Duration::from_millis(300));
            cluster.world.block_on(client, CoreId(0), move || async move {
                unmap_chunks(&session, middle..end).await;
                for number in 0..new {
                    write_when_there_is_room(&session, number, 1).await;
                }
            });
            let (writer, portal) = (cluster.client("writer"), cluster.portal(last));
            drop(cluster.world.spawn_on(writer, CoreId(0), move || async move {
                let session = log_in(portal, "writer").await.unwrap();
                for value in 2.. {
                    let _ = write_chunk(&session, value % new, value).await;
                    rt::sleep(Duration::from_millis(20)).await;
                }
            }));
            full.iter().for_each(|node| resume(&cluster, last, *node));
            cluster.wait_until_in_sync(last, nodes);
            cluster.world.kill(writer);
            cluster.wait_until_all_serve();
            cluster.world.run_for(Duration::from_secs(3));
            let found = cluster.verify(last);
            assert!(found.is_equal(), "{found:?}");
            for index in 0..nodes {
                assert_eq!(
                    cluster.read_all(index, [middle * CHUNK - 1, middle * CHUNK]),
                    [Ok(middle - 1), Ok(0)]
                );
                assert!(cluster.told_of(index, &["disk_failed"]).is_empty());
            }
        });
    }
}

/// A larger reserve is set in all pools or in none, and the pools follow the record.
#[test]
fn all_copies_get_the_policy_for_a_full_pool() {
    let cluster = Cluster::new(1, 2, 2);
    let shape = Shape { kind: VolumeKind::Log, mib: 256, ..Shape::thick() };
    cluster.add_shaped(shape, 2);
    cluster.wait_until_in_sync(0, 2);
    let set = |index: usize, change: SpaceChange| {
        cluster.control(index, move |control| async move {
            Ok::<_, ControlError>(control.set_space(shape.name, change).await?.info.space)
        })
    };
    // What a node's record and its pool say.
    let found = |index: usize| {
        cluster.control(index, move |control| async move {
            let state = control.pools().remove(0).state.unwrap();
            let reserved = state.filling.unwrap().space.reserved;
            (control.volume(shape.name).unwrap().info.space, reserved)
        })
    };
    let space = SpacePolicy { when_full: WhenFull::Pause, reserve: ByteLen(4 * MIB) };
    let wanted = SpaceChange { when_full: Some(space.when_full), reserve: Some(space.reserve) };
    assert_eq!(set(1, wanted).unwrap(), space);
    cluster.world.run_for(Duration::from_secs(2));
    for index in 0..2 {
        let (recorded, reserved) = found(index);
        assert!(recorded == space && reserved >= space.reserve.0, "{index}: {recorded:?} {reserved}");
    }
    let too_much = SpaceChange { reserve: Some(ByteLen(200 * MIB)), ..SpaceChange::default() };
    assert!(set(0, too_much).is_err(), "no pool has that much");
    let less = SpaceChange { reserve: Some(ByteLen(0)), ..SpaceChange::default() };
    assert_eq!(set(0, less).unwrap(), SpacePolicy { reserve: ByteLen(0), ..space });
    cluster.world.run_for(Duration::from_secs(3));
    for index in 0..2 {
        let found = found(index);
        assert_eq!(found, (SpacePolicy { reserve: ByteLen(0), ..space }, 0), "{index}");
    }
}

/// The last copy lets a write wait for room, without being out of sync or holding up reads.
#[test]
fn a_write_waits_until_a_copy_has_room() {
    let cluster = Cluster::new(1, 2, 2);
    let shape = Shape { kind: VolumeKind::Log, mib: 256, ..Shape::thick() };
    cluster.add_shaped(shape, 2);
    cluster.control(0, move |control| async move {
        let change = SpaceChange { when_full: Some(WhenFull::Pause), ..SpaceChange::default() };
        control.set_space(shape.name, change).await.unwrap();
    });
    cluster.world.run_for(Duration::from_secs(2));
    let (client, portals) = (cluster.client("host"), [0, 1].map(|index| cluster.portal(index)));
    cluster.world.block_on(client, CoreId(0), move || async move {
        let sessions = [log_in(portals[0], "host").await.unwrap(), log_in(portals[1], "host").await.unwrap()];
        let mut written = 0;
        // Like multipath: a path that does not serve is left for the other one.
        let (mut at, mut refused_at) = (0, None);
        while refused_at.is_none() {
            match write_chunk(&sessions[at], written, written).await {
                Ok(()) => written += 1,
                Err(error) if error.sense() == Some(FULL) => refused_at = Some(at),
                Err(_) => at = 1 - at,
            }
        }
        let session = Rc::clone(&sessions[at]);
        let waiting = Rc::clone(&session);
        let task = rt::spawn(async move { write_chunk(&waiting, written, written).await });
        rt::sleep(Duration::from_secs(3)).await;
        assert_eq!(read(&session, 63).await.unwrap(), 0);
        let range = LbaRange { start: Lba(CHUNK), count: BlockCount(written / 2 * CHUNK) };
        attended(async || session.unmap(LUN, &[range]).await).await.unwrap();
        task.await.unwrap();
        assert_eq!(read(&session, written * CHUNK).await.unwrap(), written);
    });
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(1));
    assert!(cluster.verify(0).is_equal());
}

/// All nodes lose power while hosts write; either copy has all acknowledged writes.
#[test]
fn acknowledged_writes_survive_a_power_loss_of_all_nodes() {
    each_seed(4, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.write_marked(0..200);
        for round in 0..3 {
            let (client, portal) = (cluster.client("writer"), cluster.portal(round % 2));
            drop(cluster.world.spawn_on(client, CoreId(0), move || async move {
                if let Some(session) = log_in(portal, "writer").await {
                    for lba in (0..).step_by(7) {
                        if write(&session, 200 + lba % 1800, lba).await.is_err() {
                            break;
                        }
                    }
                }
            }));
            cluster.world.run_for(Duration::from_millis(20 + 13 * seed));
            cluster.servers.iter().for_each(|server| cluster.world.crash(*server));
            cluster.world.kill(client);
            (0..2).for_each(|index| cluster.start(index));
            cluster.wait_until_in_sync(0, 2);
            cluster.wait_until_all_serve();
            for index in 0..2 {
                cluster.assert_reads(index, 0..200);
            }
            cluster.world.run_for(Duration::from_secs(1));
            assert_eq!(cluster.checksum(0), cluster.checksum(1));
        }
    });
}

impl Cluster {
    /// Sets the compression of the volume through the first node, and waits until all nodes that are up have
    /// followed.
    fn set_compression(&self, compression: store::Compression) {
        self.control(0, move |control| async move {
            control.set_compression(Shape::thick().name, compression).await.unwrap();
        });
        self.world.run_for(Duration::from_secs(3));
    }

    /// The setting, as a node shows it, and what its copy takes.
    fn compressed(&self, index: usize) -> (store::Compression, store::InLogs) {
        self.control(index, |control| async move {
            let info = control.volume(Shape::thick().name).unwrap().info;
            (info.compression, info.in_logs)
        })
    }
}

/// The setting holds on all nodes with a copy. Each node compresses by itself, and the copies are equal.
#[test]
fn each_copy_is_compressed_by_itself() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    let seen = |index: usize| cluster.compressed(index);
    cluster.set_compression(store::Compression::Lz4);
    cluster.write_marked(0..64);
    for index in 0..2 {
        let (compression, taken) = seen(index);
        assert_eq!(compression, store::Compression::Lz4);
        assert!(taken.stored.0 > 0 && taken.stored.0 * 2 <= taken.mapped.0, "node {index}: {taken:?}");
    }
    cluster.set_compression(store::Compression::Off);
    cluster.write_marked(64..128);
    for index in 0..2 {
        assert_eq!(seen(index).0, store::Compression::Off);
        cluster.assert_reads(index, [0, 5, 63, 64, 127]);
    }
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
    // What was compressed is read after a restart, too.
    cluster.world.crash(cluster.servers[1]);
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.assert_reads(1, [0, 5, 63, 64, 127]);
    assert_eq!(seen(1).0, store::Compression::Off);
}

/// The cluster's record has the setting.
#[test]
fn a_node_that_was_down_follows_the_compression() {
    each_seed(2, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        cluster.wait_until_in_sync(0, 2);
        cluster.set_compression(store::Compression::Lz4);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(10));
        cluster.set_compression(store::Compression::Off);
        cluster.start(1);
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        cluster.world.run_for(Duration::from_secs(3));
        cluster.write_marked(0..64);
        for index in 0..2 {
            let (compression, taken) = cluster.compressed(index);
            assert_eq!(compression, store::Compression::Off);
            assert!(taken.mapped.0 > 0 && taken.stored >= taken.mapped, "node {index}: {taken:?}");
        }
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}
