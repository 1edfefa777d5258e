//! Power cuts in the middle of an administrator's changes: each is made or not, and nothing is damaged.

use std::cell::RefCell;
use std::rc::Rc;

use node::Config;
use node::access::HostGroup;
use node::control::{MapSpec, NewVolume, TargetSpec};
use rt::sim::{DiskImage, Subsets, for_each_cut};

use crate::rig::{DISK, RECORD, Rig, Shape, TARGET, map, new_volume};
use crate::seeds::each_seed;

const THIRD: &str = "iqn.2026-01.org.ursa:third";

/// What an administrator would list.
type Listing = Vec<String>;

fn listing(rig: &Rig) -> Listing {
    rig.control(|control| async move {
        let access = control.access();
        let targets = access.targets().map(|target| format!("{target:?}"));
        let hosts = access.hosts().map(|host| format!("{host:?}"));
        let volumes = control.volumes().into_iter().map(|volume| format!("{:?}", volume.info));
        let pools = control.pools().into_iter().map(|pool| format!("{} {}", pool.name, pool.state.is_ok()));
        targets.chain(hosts).chain(volumes).chain(pools).collect()
    })
}

/// A node that finds these disks.
fn node_with(seed: u64, record: DiskImage, disk: DiskImage) -> Rig {
    let rig = Rig::not_started(seed, 2, Config::default());
    rig.world.put_file(rig.server, RECORD, record);
    rig.world.put_disk(rig.server, DISK, disk);
    rig.start();
    rig
}

#[test]
fn a_power_cut_leaves_the_old_or_the_new() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        let recording = rig.world.record_disks(&[(rig.server, RECORD.as_ref()), (rig.server, DISK.as_ref())]);
        // After each change, and then what the next one may leave half-way.
        let listings = Rc::new(RefCell::new(vec![vec![listing(&rig)]]));
        let changed = |rig: &Rig| {
            listings.borrow_mut().push(vec![listing(rig)]);
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
        rig.control(|control| async move { control.delete_volume("mapped", true, Some(THIRD)).await })
            .unwrap();
        listings.borrow_mut().last_mut().unwrap().push(unmapped);
        changed(&rig);
        assert_eq!(listing(&rig), before);

        let subsets = Subsets { bits: 3, seed };
        let cuts = for_each_cut(&recording, subsets, |cut| {
            let after = node_with(seed, cut.images[0].clone(), cut.images[1].clone());
            let found = listing(&after);
            let listings = listings.borrow();
            let mut after = listings.iter().skip(cut.acked as usize);
            let acked = after.next().unwrap().iter();
            let allowed: Vec<&Listing> = acked.chain(after.next().map(|next| &next[0])).collect();
            assert!(allowed.contains(&&found), "{cut}: {found:#?} is none of {allowed:#?}");
        });
        assert!(cuts > 50, "{cuts}");
    });
}
