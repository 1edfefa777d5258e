//! Power cuts in the middle of an administrator's changes: each is atomic, and nothing is damaged.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use cluster::memory::Memory;
use node::access::HostGroup;
use node::control::{FaultKind, MapSpec, NewVolume, PoolSpec, TargetSpec};
use node::{Config, RecordDamage, RecordMissing};
use rt::sim::{Cut, DiskFaults, DiskImage, Subsets, for_each_cut};
use store::NewDisk;

use crate::rig::{DISK, MIB, POOL, RECORD, Rig, Shape, TARGET, map, new_volume};
use crate::seeds::each_seed;

/// A disk that is added.
const SECOND: &str = "/dev/second";

fn second() -> NewDisk {
    NewDisk { path: SECOND.into(), create: None, reserve: false }
}

const THIRD: &str = "iqn.2026-01.org.ursa:third";
/// A pool that is created.
const NEW: &str = "new";

/// What an administrator would list.
type Listing = Vec<String>;

fn listing(rig: &Rig) -> Listing {
    rig.control(|control| async move {
        let access = control.access();
        let targets = access.targets().map(|target| format!("{target:?}"));
        let hosts = access.hosts().map(|host| format!("{host:?}"));
        let volumes = control.volumes().await.into_iter().map(|volume| format!("{:?}", volume.info));
        let pools = control.pools().into_iter().map(|pool| format!("{} {}", pool.name, pool.state.is_ok()));
        targets.chain(hosts).chain(volumes).chain(pools).collect()
    })
}

/// The faults that the node reports of itself.
fn own_faults(rig: &Rig) -> Vec<FaultKind> {
    rig.control(|control| async move { control.faults().into_iter().map(|fault| fault.kind).collect() })
}

/// The record, and the disks of a pool of two.
const ALL_DISKS: [&str; 3] = [RECORD, DISK, SECOND];

/// A node with these disks, in a cluster with this record.
fn node_with(seed: u64, record: &Memory, disks: impl IntoIterator<Item = (&'static str, DiskImage)>) -> Rig {
    let rig = Rig::with_record(seed, 2, Config::default(), record.copied());
    for (path, image) in disks {
        match path {
            RECORD => rig.world.put_file(rig.server, path, image),
            _ => rig.world.put_disk(rig.server, path, image),
        }
    }
    rig.start();
    rig
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        let recording = rig.world.record_disks(&[(rig.server, RECORD.as_ref()), (rig.server, DISK.as_ref())]);
        // The listing after each change, and then what the next change may leave half-done.
        let listings = Rc::new(RefCell::new(vec![vec![listing(&rig)]]));
        // The record of the cluster after each change.
        let records = Rc::new(RefCell::new(vec![rig.record.copied()]));
        let changed = |rig: &Rig| {
            listings.borrow_mut().push(vec![listing(rig)]);
            records.borrow_mut().push(rig.record.copied());
            recording.ack(listings.borrow().len() as u64 - 1);
        };
        rig.control(|control| async move {
            control.create_volume(new_volume("pool", Shape { mib: 1, ..Shape::thick() })).await.unwrap();
        });
        changed(&rig);
        let host = HostGroup {
            name: "host".parse().unwrap(),
            initiators: vec!["iqn.2026-01.org.ursa:client".into()],
            addresses: Vec::new(),
            chap: None,
        };
        rig.control(|control| async move { control.set_host(host, true).await }).unwrap();
        changed(&rig);
        rig.control(|control| async move { map(&control, "thick", 3).await }).unwrap();
        changed(&rig);
        rig.control(|control| async move {
            let name = "iqn.2026-01.org.ursa:second".to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await
        })
        .unwrap();
        changed(&rig);
        rig.control(|control| async move { control.rename_volume("thick", "renamed").await }).unwrap();
        changed(&rig);
        rig.control(|control| async move { control.unmap(TARGET, 3, None).await }).unwrap();
        changed(&rig);
        let before = listing(&rig);
        let shape = Shape { name: "mapped", mib: 1, ..Shape::thick() };
        let map = Some(MapSpec { target: THIRD.into(), host: "any".into(), lun: None });
        let new = NewVolume { map, ..new_volume("pool", shape) };
        rig.control(|control| async move { control.create_volume(new).await }).unwrap();
        // The pool has it, and the record has neither its target nor its map.
        let unmapped: Listing = listing(&rig).into_iter().filter(|line| !line.contains(THIRD)).collect();
        listings.borrow_mut().last_mut().unwrap().push(unmapped.clone());
        changed(&rig);
        rig.control(|control| async move { control.delete_volume("mapped", true).await }).unwrap();
        listings.borrow_mut().last_mut().unwrap().push(unmapped);
        changed(&rig);
        assert_eq!(listing(&rig), before);

        let subsets = Subsets { bits: 3, seed };
        let cuts = for_each_cut(&recording, subsets, |cut| {
            let listings = listings.borrow();
            let mut after = listings.iter().skip(cut.acked as usize);
            let acked = after.next().unwrap().iter();
            let allowed: Vec<&Listing> = acked.chain(after.next().map(|next| &next[0])).collect();
            // A change is in the cluster's record before or after it is in the pool.
            let known: Vec<Memory> =
                records.borrow().iter().skip(cut.acked as usize).take(2).cloned().collect();
            let found = known.iter().map(|record| {
                let after = node_with(seed, record, ALL_DISKS.into_iter().zip(cut.images.iter().cloned()));
                // What was left of a change that only one of the two knows is completed or cleaned up.
                after.world.run_for(Duration::from_secs(3));
                // A power cut must not look like damage.
                (listing(&after), own_faults(&after))
            });
            let found: Vec<(Listing, Vec<FaultKind>)> = found.collect();
            let is_right = |(listing, faults): &(Listing, Vec<FaultKind>)| {
                allowed.contains(&listing) && faults.is_empty()
            };
            assert!(found.iter().any(is_right), "{cut}: {found:#?} is none of {allowed:#?}");
        });
        assert!(cuts > 50, "{cuts}");
    });
}

/// How many disks the pool has, and how many volumes. It is served.
fn disks_and_volumes(rig: &Rig, cut: &Cut) -> (usize, usize) {
    let pool = rig.control(|control| async move { control.pool(POOL) }).unwrap();
    let state = pool.state.unwrap_or_else(|error| panic!("{cut}: {error}"));
    assert_eq!(state.usage.disks.len(), pool.paths.len(), "{cut}");
    (pool.paths.len(), state.volumes)
}

/// The node finds the pool after any cut, with or without the new disk, and with it once the change was
/// acknowledged.
#[test]
fn a_power_cut_while_a_disk_is_added_leaves_the_pool_with_it_or_without() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.world.add_disk(rig.server, SECOND, 16 * MIB, 512);
        let recording = rig.world.record_disks(&ALL_DISKS.map(|path| (rig.server, path.as_ref())));
        rig.control(|control| async move { control.add_disk(POOL, second(), false).await }).unwrap();
        recording.ack(1);
        // More than the first disk has left.
        let large = Shape { name: "large", mib: 56, lun: 1, ..Shape::thick() };
        rig.control(move |control| async move { control.create_volume(new_volume(POOL, large)).await })
            .unwrap();
        recording.ack(2);
        let cuts = for_each_cut(&recording, Subsets { bits: 3, seed }, |cut| {
            let after = node_with(seed, &rig.record, ALL_DISKS.into_iter().zip(cut.images.iter().cloned()));
            let (disks, volumes) = disks_and_volumes(&after, cut);
            assert!(disks == 2 || cut.acked == 0, "{cut}");
            assert!(volumes > usize::from(cut.acked == 2), "{cut}");
            // The state is settled: the next start finds the same.
            let again = after.control(move |control| async move {
                match disks {
                    1 => control.add_disk(POOL, second(), true).await.map(|pool| pool.paths.len()),
                    more => Ok(more),
                }
            });
            assert_eq!(again.unwrap(), 2, "{cut}");
            after.power_cycle();
            assert_eq!(disks_and_volumes(&after, cut).0, 2);
        });
        assert!(cuts > 30, "{cuts}");
    });
}

/// The node finds the pool after any cut, with or without the removed disk, and without it once the change
/// was acknowledged.
#[test]
fn a_power_cut_while_a_disk_is_removed_leaves_the_pool_with_it_or_without() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.world.add_disk(rig.server, SECOND, 16 * MIB, 512);
        rig.control(|control| async move { control.add_disk(POOL, second(), false).await }).unwrap();
        let recording = rig.world.record_disks(&ALL_DISKS.map(|path| (rig.server, path.as_ref())));
        rig.control(|control| async move { control.remove_disk(POOL, SECOND.into()).await }).unwrap();
        recording.ack(1);
        let cuts = for_each_cut(&recording, Subsets { bits: 3, seed }, |cut| {
            let after = node_with(seed, &rig.record, ALL_DISKS.into_iter().zip(cut.images.iter().cloned()));
            let (disks, volumes) = disks_and_volumes(&after, cut);
            assert!(disks == 1 || cut.acked == 0, "{cut}");
            assert_eq!(volumes, 1, "{cut}");
            // The state is settled: the next start finds the same.
            let left = after.control(move |control| async move {
                match disks {
                    2 => control.remove_disk(POOL, SECOND.into()).await.map(|pool| pool.paths.len()),
                    fewer => Ok(fewer),
                }
            });
            assert_eq!(left.unwrap(), 1, "{cut}");
            after.power_cycle();
            assert_eq!(disks_and_volumes(&after, cut).0, 1);
        });
        assert!(cuts > 30, "{cuts}");
    });
}

/// Where the second of the two copies is, in bytes.
const COPY_BYTES: u64 = 16 * MIB;

/// The places of the newer and the older copy.
fn copies(rig: &Rig) -> [u64; 2] {
    let image = rig.world.disk_image(rig.server, RECORD);
    let generation = |at| {
        let mut bytes = [0; 8];
        image.read(at + 16, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let (first, second) = (generation(0), generation(COPY_BYTES));
    assert_eq!(first.abs_diff(second), 1, "both copies are there");
    if first > second { [0, COPY_BYTES] } else { [COPY_BYTES, 0] }
}

/// Creates a pool, which the node's record names.
fn add_pool(rig: &Rig, name: &'static str) -> Result<(), String> {
    let disk = format!("/dev/{name}");
    if !rig.world.has_disk(rig.server, &disk) {
        rig.world.add_disk(rig.server, &disk, 32 * MIB, 512);
    }
    let disks = vec![NewDisk { path: disk.into(), create: None, reserve: false }];
    let spec = PoolSpec { name: name.into(), disks, wipe: true };
    let created = rig.control(|control| async move { control.create_pool(spec).await });
    created.map(drop).map_err(|error| error.to_string())
}

fn has_pool(rig: &Rig, name: &'static str) -> bool {
    rig.control(move |control| async move { control.pools().iter().any(|pool| pool.name == name) })
}

/// The copy is damaged in its header or in its payload, or is lost.
#[test]
fn a_damaged_newer_copy_is_reported_and_the_older_one_is_used_and_kept() {
    let damages: [fn(&mut DiskImage, u64); 3] = [
        |image, at| image.write(at + 20, b"decay"),
        |image, at| image.write(at + 4096 + 20, b"decay"),
        |image, at| image.zero(at, COPY_BYTES),
    ];
    for damage in damages {
        let rig = Rig::new(1, 2);
        // It keeps the rules that it has followed.
        rig.world.run_for(Duration::from_secs(10));
        add_pool(&rig, NEW).unwrap();
        rig.world.crash(rig.server);
        let [newer, _] = copies(&rig);
        let mut image = rig.world.disk_image(rig.server, RECORD);
        damage(&mut image, newer);
        rig.world.remove_disk(rig.server, RECORD);
        rig.world.put_file(rig.server, RECORD, image);
        rig.start();
        assert!(!has_pool(&rig, NEW) && has_pool(&rig, POOL));
        let said = own_faults(&rig);
        let [FaultKind::RecordFault(fault)] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!((fault.path.as_path(), &fault.damage), (RECORD.as_ref(), &RecordDamage::Content));
        assert!(matches!(fault.missing, RecordMissing::Change(_) | RecordMissing::Perhaps), "{fault:?}");
        // The next change replaces the damaged copy, not the only good one: the record survives a power cut
        // in the middle of the change.
        let recording = rig.world.record_disk(rig.server, RECORD);
        add_pool(&rig, NEW).unwrap();
        recording.ack(1);
        assert_eq!(own_faults(&rig), said, "what is missing does not come back by that");
        let disk = rig.world.disk_image(rig.server, DISK);
        let cuts = for_each_cut(&recording, Subsets { bits: 3, seed: 1 }, |cut| {
            let after = node_with(1, &rig.record, [(RECORD, cut.images[0].clone()), (DISK, disk.clone())]);
            assert!(has_pool(&after, POOL), "{cut}");
            assert!(cut.acked == 0 || has_pool(&after, NEW), "{cut}");
        });
        assert!(cuts > 3, "{cuts}");
        rig.power_cycle();
        assert_eq!(own_faults(&rig), []);
        assert!(has_pool(&rig, NEW));
    }
}

/// Nor one that cannot be written there, either: the good copy stays as it is.
#[test]
fn a_copy_that_cannot_be_read_does_not_stop_the_node() {
    for older in [false, true] {
        for range in [0..512, 4096..4608] {
            for is_writable in [true, false] {
                let rig = Rig::new(1, 2);
                rig.world.run_for(Duration::from_secs(10));
                add_pool(&rig, NEW).unwrap();
                rig.world.crash(rig.server);
                let at = copies(&rig)[usize::from(older)];
                let range = at + range.start..at + range.end;
                let faults = DiskFaults::default().with_unreadable(range.clone());
                let faults = if is_writable { faults } else { faults.with_unwritable(range) };
                rig.world.set_disk_faults(rig.server, RECORD, faults);
                rig.start();
                assert!(has_pool(&rig, POOL));
                assert_eq!(has_pool(&rig, NEW), older);
                let said = own_faults(&rig);
                let fault = said.iter().find_map(|kind| match kind {
                    FaultKind::RecordFault(fault) => Some(fault),
                    _ => None,
                });
                let fault = fault.unwrap_or_else(|| panic!("{said:?}"));
                assert!(matches!(fault.damage, RecordDamage::Unreadable { errno: 5 }), "{fault:?}");
                if is_writable {
                    continue;
                }
                // The start could not count its life, so the node takes no part in its cluster.
                assert!(said.len() > 1, "{said:?}");
                add_pool(&rig, "fourth").unwrap_err();
                rig.world.run_for(Duration::from_secs(20));
                rig.world.crash(rig.server);
                rig.start();
                assert!(has_pool(&rig, POOL));
                assert_eq!(has_pool(&rig, NEW), older);
            }
        }
    }
}

#[test]
fn a_record_that_could_not_be_written_recovers_automatically() {
    let failing = [
        DiskFaults { write_error_one_in: 1, ..DiskFaults::default() },
        DiskFaults { flush_error_one_in: 1, ..DiskFaults::default() },
        DiskFaults { write_error_one_in: 3, flush_error_one_in: 3, ..DiskFaults::default() },
    ];
    for (at, faults) in failing.into_iter().enumerate() {
        each_seed(3, |seed| {
            let rig = Rig::new(seed, 2);
            rig.world.set_disk_faults(rig.server, RECORD, faults.clone());
            while add_pool(&rig, NEW).is_ok() {
                rig.control(|control| async move { control.export_pool(NEW).await }).ok();
            }
            if at < 2 {
                rig.world.run_for(Duration::from_secs(30));
                assert_eq!(own_faults(&rig).len(), 1);
                assert!(add_pool(&rig, NEW).is_err());
            }
            rig.world.set_disk_faults(rig.server, RECORD, DiskFaults::default());
            rig.world.run_for(Duration::from_secs(20));
            assert_eq!(own_faults(&rig), []);
            // The refused change is absent and the new one is present, whichever copy of the record a start
            // finds.
            let fourth = "fourth";
            add_pool(&rig, fourth).unwrap();
            for _ in 0..2 {
                assert!(has_pool(&rig, POOL) && has_pool(&rig, fourth));
                assert!(at == 2 || !has_pool(&rig, NEW));
                rig.power_cycle();
                assert_eq!(own_faults(&rig), []);
            }
        });
    }
}
