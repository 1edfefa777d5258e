//! Copies whose pools are in files, and a full file system: no copy fails, and all works again when there is
//! room.

use super::failed_disks::{read_from, write_to};
use super::*;

use node::copies::{Awaited, Cause, Copies, KeptOut, NodeId};
use rt::sim::DiskImage;

pub(super) const FILE: &str = "/pool/file";
const IN_FILE: &str = "in-file";

/// DATA PROTECT, SPACE ALLOCATION FAILED WRITE PROTECT.
const FULL: (u8, u16) = (0x07, 0x2707);

/// Sectors of the volume that share no page of the file.
pub(super) fn place(number: u64) -> u64 {
    number * 64
}

/// Nodes with a volume whose copies are in files that take their space as they are written.
fn cluster(seed: u64) -> Cluster {
    of_nodes(seed, 2, 2)
}

pub(super) fn of_nodes(seed: u64, nodes: usize, cores: usize) -> Cluster {
    let cluster = Cluster::new(seed, nodes, cores);
    for index in 0..nodes {
        cluster.world.put_file(cluster.servers[index], FILE, DiskImage::new(64 * MIB, 512));
        cluster.create_pool(index, IN_FILE, FILE);
    }
    cluster.control(0, move |control| async move {
        let new = node::control::NewVolume {
            copies: Some(Placement::Count(nodes as u8)),
            ..new_volume(IN_FILE, Shape::thick())
        };
        control.create_volume(new).await.unwrap();
        map(&control, Shape::thick().name, 0).await.unwrap();
    });
    cluster.wait_until_all_serve();
    write_to(&cluster, 0, place(0), 1).unwrap();
    cluster
}

/// Leaves this much room.
pub(super) fn fill(cluster: &Cluster, index: usize, left: u64) {
    cluster.world.leave_space(cluster.servers[index], left);
    // A node relies for a tenth of a second on having seen ample room.
    cluster.world.run_for(Duration::from_millis(200));
}

pub(super) fn make_room(cluster: &Cluster, index: usize) {
    cluster.world.set_space(cluster.servers[index], None);
}

/// Checks that both come in sync automatically.
fn assert_equal(cluster: &Cluster) {
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.checksum(0), cluster.checksum(1));
}

/// Either of the two may be full, and hosts may write through either.
#[test]
fn the_other_copy_continues_and_the_full_one_returns_automatically() {
    each_seed(4, |seed| {
        let cluster = cluster(seed);
        let (full, by) = (seed as usize % 2, seed as usize / 2 % 2);
        fill(&cluster, full, 16 << 10);
        for number in 1..20 {
            let written = write_to(&cluster, by, place(number), number);
            if written.is_err() {
                // Through the path whose copy is full: hosts use the other one.
                assert_eq!(full, by);
                write_to(&cluster, 1 - by, place(number), number).unwrap();
            }
        }
        let well = 1 - full;
        assert_eq!(cluster.in_sync(well), 1);
        cluster.world.run_for(Duration::from_secs(3));
        let slot = full as u8;
        let (missed, waits_for) = cluster.control(well, move |control| async move {
            let volume = control.reconciler().unwrap().volumes().remove(0);
            (volume.entry.missed[&slot].clone(), volume.syncs[&slot].waits_for.clone())
        });
        assert_eq!(missed, Cause::NoSpace);
        let no_room = KeptOut::NoRoom(NodeId(full as u16 + 1));
        assert_eq!(waits_for, Some(Awaited::KeptOut(no_room).into()));
        // What it took while it was in sync no longer waits for room: a resync may bring zeros that make it.
        for core in 0..2 {
            cluster.world.inspect(cluster.servers[full], CoreId(core), || {
                for copy in Copies::current().slices() {
                    let from = copy.replica().syncs_from();
                    assert!(from.is_some_and(|from| from.source.is_some()), "{from:?} {}", copy.unrest());
                }
            });
        }
        // It does not come and go meanwhile.
        let epoch = |cluster: &Cluster| {
            cluster.control(
                well,
                |control| async move { control.reconciler().unwrap().volumes()[0].entry.epoch },
            )
        };
        let before = epoch(&cluster);
        cluster.world.run_for(Duration::from_secs(20));
        assert_eq!(epoch(&cluster), before);
        make_room(&cluster, full);
        assert_equal(&cluster);
        for number in 1..20 {
            assert_eq!(read_from(&cluster, full, place(number)).unwrap(), number);
        }
    });
}

/// Both nodes are full at the same time: writes that need new space are refused before any copy executes
/// them, and all others succeed.
pub(super) fn both_full(seed: u64) {
    let cluster = cluster(seed);
    (0..2).for_each(|index| fill(&cluster, index, 16 << 10));
    let (mut acknowledged, mut refused) = (vec![0], 0);
    for number in 1..20 {
        let by = (0..2).find(|by| match write_to(&cluster, *by, place(number), number) {
            Ok(()) => true,
            Err(error) => {
                refused += u32::from(error.sense() == Some(FULL));
                false
            }
        });
        acknowledged.extend(by.map(|_| number));
    }
    assert!(refused >= 10, "{refused} were refused for want of space");
    let last = (0..2).find(|by| read_from(&cluster, *by, place(0)).is_ok()).expect("one serves");
    for number in &acknowledged {
        assert_eq!(read_from(&cluster, last, place(*number)).unwrap(), (*number).max(1));
    }
    write_to(&cluster, last, place(0), 7).unwrap();
    (0..2).for_each(|index| make_room(&cluster, index));
    write_to(&cluster, last, place(30), 30).unwrap();
    assert_equal(&cluster);
    for by in 0..2 {
        assert_eq!(read_from(&cluster, by, place(0)).unwrap(), 7);
        assert_eq!(read_from(&cluster, by, place(30)).unwrap(), 30);
    }
}

#[test]
fn with_both_full_reads_and_overwrites_continue_and_allocations_are_refused() {
    each_seed(4, both_full);
}

#[test]
fn the_only_copy_in_sync_accepts_writes_again_when_there_is_space() {
    each_seed(3, |seed| {
        let cluster = cluster(seed);
        cluster.world.crash(cluster.servers[1]);
        cluster.world.run_for(Duration::from_secs(2));
        write_to(&cluster, 0, place(1), 1).unwrap();
        fill(&cluster, 0, 0);
        for number in 2..6 {
            let refused = write_to(&cluster, 0, place(number), number).unwrap_err();
            assert_eq!(refused.sense(), Some(FULL));
            assert_eq!(read_from(&cluster, 0, place(number)).unwrap(), 0, "nothing took it");
        }
        write_to(&cluster, 0, place(1), 9).unwrap();
        make_room(&cluster, 0);
        write_to(&cluster, 0, place(2), 2).unwrap();
        cluster.start(1);
        assert_equal(&cluster);
        assert_eq!(read_from(&cluster, 1, place(1)).unwrap(), 9);
        assert_eq!(read_from(&cluster, 1, place(2)).unwrap(), 2);
    });
}
