//! A node that starts, with volumes that it is to create.

use std::time::Duration;

use base::{BlockCount, BlockSize, ByteLen, Lba};
use initiator::{Error, Lun, Session};
use node::control::{ControlError, MapSpec, NewVolume};
use node::{Config, DefaultPool, StartError, StartSpec};
use store::StoreError;

use crate::rig::{MIB, Rig, Shape, TARGET, named, new_volume};
use crate::seeds::each_seed;

const POOL_FILE: &str = "/ursa/pool";

/// A default pool, and a thick volume that all hosts see.
fn wanted(mib: u64) -> StartSpec {
    let map = Some(MapSpec { target: TARGET.into(), host: "any".into(), lun: None });
    let volume = NewVolume { map, pool: None, ..new_volume("", Shape { mib, ..Shape::thick() }) };
    let pool = DefaultPool { path: POOL_FILE.into(), size: ByteLen(64 * MIB) };
    StartSpec { pool: Some(pool), volumes: vec![volume] }
}

fn names(rig: &Rig) -> Vec<String> {
    let volumes = rig.control(|control| async move { control.volumes().await });
    volumes.into_iter().map(|volume| volume.info.name).collect()
}

#[test]
fn a_client_that_comes_early_finds_the_volume_once_the_node_listens() {
    each_seed(6, |seed| {
        let rig = Rig::not_started(seed, 2, Config::default());
        let early = rig.client("early").spawn(|portal| async move {
            loop {
                match Session::connect(portal, TARGET, &named("early")).await {
                    Ok(session) => {
                        session.make_ready(Lun(0)).await.unwrap();
                        let read = session.read(Lun(0), Lba(0), BlockCount(1), BlockSize::B4096).await;
                        return assert!(read.unwrap().iter().all(|byte| *byte == 0));
                    }
                    Err(error @ Error::Login { .. }) => panic!("{error:?}"),
                    Err(_) => rt::sleep(Duration::from_micros(100)).await,
                }
            }
        });
        rig.start_with(wanted(8)).unwrap();
        rig.world.wait_for(early).unwrap();
        assert_eq!(names(&rig), ["thick"]);

        // It is created once, even if a larger one is wanted now.
        rig.world.crash(rig.server);
        rig.start_with(wanted(16)).unwrap();
        let volumes = rig.control(|control| async move { control.volumes().await });
        assert_eq!((volumes.len(), volumes[0].info.capacity), (1, ByteLen(8 * MIB)));
        assert_eq!(volumes[0].maps.len(), 1);
    });
}

#[test]
fn a_volume_that_cannot_be_made_is_a_reason_not_to_start() {
    let rig = Rig::not_started(1, 2, Config::default());
    let refused = rig.start_with(wanted(1 << 20));
    assert!(
        matches!(&refused, Err(StartError::Volume(name, ControlError::Store(StoreError::NoSpace { .. }))) if name == "thick"),
        "{refused:?}"
    );
}

#[test]
fn a_volume_that_may_be_in_a_pool_that_cannot_be_opened_is_not_made_again() {
    let rig = Rig::not_started(1, 2, Config::default());
    rig.start_with(wanted(8)).unwrap();
    rig.world.add_disk(rig.server, "/dev/second", 64 * MIB, 512);
    rig.create_pool("second", "/dev/second");
    rig.world.crash(rig.server);
    rig.world.set_disk_dead(rig.server, POOL_FILE, true);
    rig.start_with(wanted(8)).expect("the second pool goes on");
    assert!(names(&rig).is_empty());
    rig.world.crash(rig.server);
    rig.world.set_disk_dead(rig.server, POOL_FILE, false);
    rig.start_with(wanted(8)).unwrap();
    assert_eq!(names(&rig), ["thick"]);
}

#[test]
fn a_volume_whose_reservations_cannot_be_read_is_not_served_and_the_others_are() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { name: "other", lun: 1, ..Shape::thick() });
        rig.control(|control| async move {
            let id = control.volume("thick").unwrap().info.id;
            control.store_lu_state(id, b"written by a version to come".to_vec()).await.unwrap();
        });
        rig.power_cycle();
        let volumes = rig.control(|control| async move { control.volumes().await });
        let served = volumes.iter().filter(|volume| volume.problem.is_none());
        assert_eq!(served.map(|volume| &volume.info.name).collect::<Vec<_>>(), ["other"], "{volumes:?}");
        assert_eq!(volumes.len(), 2);
        rig.client("client").run(|portal| async move {
            let session = Session::connect(portal, TARGET, &named("client")).await.unwrap();
            session.make_ready(Lun(1)).await.unwrap();
            assert_eq!(session.report_luns().await.unwrap(), [Lun(1)]);
        });
        rig.control(|control| async move { control.delete_volume("thick", true).await.unwrap() });
        assert_eq!(names(&rig), ["other"]);
    });
}
