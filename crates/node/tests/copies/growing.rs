//! Volumes with copies that grow or get another name, on all of their nodes.

use node::control::ControlError;
use rt::sim::DiskLatency;

use super::moving::the_volume;
use super::*;

impl Cluster {
    fn grow(&self, asked: usize, mib: u64) -> Result<(), ControlError> {
        self.control(asked, move |control| async move {
            control.grow_volume(&the_volume(&control), base::ByteLen(mib * MIB)).await.map(drop)
        })
    }

    fn size(&self, by: usize) -> u64 {
        self.control(by, |control| async move { control.volumes().await[0].info.capacity.0 })
    }
}

/// The last block of this many MiB, and one far beyond the first 8.
fn new_blocks(mib: u64) -> [u64; 2] {
    [mib * 256 - 1, 8 * 256 + 77]
}

#[test]
fn a_volume_grows_with_all_of_its_copies() {
    each_seed(3, |seed| {
        for kind in [VolumeKind::Thick, VolumeKind::Ram, VolumeKind::Log] {
            let cluster = Cluster::new(seed, 3, 2);
            cluster.add_volume(kind, 2);
            cluster.write_all(0, 1);
            let (client, portals) = (cluster.client("client"), [cluster.portal(0), cluster.portal(1)]);
            let sessions = cluster.world.block_on(client, CoreId(0), move || async move {
                [log_in(portals[0], "client").await.unwrap(), log_in(portals[1], "client").await.unwrap()]
            });
            cluster.grow(0, 13).unwrap();
            cluster.world.run_for(Duration::from_secs(1));
            assert_eq!((cluster.size(0), cluster.size(1)), (13 * MIB, 13 * MIB));
            cluster.world.block_on(client, CoreId(0), move || async move {
                for (session, lba) in sessions.iter().zip(new_blocks(13)) {
                    let told = session.read(LUN, Lba(lba), BlockCount(1), SIZE).await;
                    assert!(
                        told.as_ref().is_err_and(initiator::Error::is_unit_attention),
                        "hosts are told: {told:?}"
                    );
                }
                for (at, lba) in new_blocks(13).into_iter().enumerate() {
                    write(&sessions[at], lba, 100 + lba).await.unwrap();
                    for session in &sessions {
                        assert_eq!(read(session, lba).await.unwrap(), 100 + lba);
                    }
                }
            });
            assert!(matches!(cluster.grow(1, 12), Err(ControlError::WouldShrink { .. })));
            // An added copy has the present size, and one that was away grows to it when it returns.
            cluster.add_copy(0, 3);
            cluster.world.crash(cluster.servers[1]);
            cluster.world.run_for(Duration::from_secs(3));
            assert!(cluster.grow(0, 14).is_err(), "a copy that is not there cannot grow");
            assert_eq!(cluster.size(0), 13 * MIB);
            cluster.start(1);
            cluster.world.run_for(Duration::from_secs(3));
            cluster.wait_until_in_sync(0, 3);
            assert_eq!(cluster.checksum(0), cluster.checksum(1));
            assert_eq!(cluster.checksum(0), cluster.checksum(2));
            cluster.assert_all(2, 1);
            // The failed growth has left one copy longer: the comparison ignores what is beyond the volume's
            // end.
            for by in 0..3 {
                let found = cluster.verify(by);
                assert!(found.is_equal() && found.total == 13 * MIB, "{found:?}");
            }
        }
    });
}

/// Nodes crash while the volume grows, again and again: it has one size or the other, works, and can grow
/// afterwards.
#[test]
fn a_crash_while_a_volume_grows_leaves_it_with_one_size_or_the_other() {
    each_seed(8, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        cluster.write_all(0, 1);
        for mib in [9, 11, 12] {
            let (victim, asked) = (rng.below(2) as usize, rng.below(2) as usize);
            drop(cluster.world.spawn_on(cluster.servers[asked], CoreId(0), move || async move {
                let control = Control::current();
                drop(control.grow_volume(&the_volume(&control), base::ByteLen(mib * MIB)).await);
            }));
            cluster.world.run_for(Duration::from_micros(rng.below(20_000)));
            cluster.world.crash(cluster.servers[victim]);
            cluster.world.run_for(Duration::from_millis(rng.below(3000)));
            cluster.start(victim);
            cluster.world.run_for(Duration::from_secs(4));
            cluster.wait_until_in_sync(0, 2);
            assert_eq!(cluster.size(0), cluster.size(1), "seed {seed}");
            cluster.assert_all(0, 1);
            cluster.assert_all(1, 1);
            cluster.grow(victim, mib).unwrap();
            cluster.world.run_for(Duration::from_millis(200));
            assert_eq!((cluster.size(0), cluster.size(1)), (mib * MIB, mib * MIB));
            let (client, portal) = (cluster.client(&format!("client-{mib}")), cluster.portal(asked));
            cluster.world.block_on(client, CoreId(0), move || async move {
                let session = log_in(portal, &format!("client-{mib}")).await.unwrap();
                for lba in new_blocks(mib) {
                    write(&session, lba, mib).await.unwrap();
                    assert_eq!(read(&session, lba).await.unwrap(), mib);
                }
            });
            assert_eq!(cluster.checksum(0), cluster.checksum(1), "seed {seed}");
        }
    });
}

/// Found by the simulator: a copy that was being opened while its volume grew kept its old size until the
/// next start of its node.
#[test]
fn a_volume_grows_while_a_copy_is_being_opened() {
    const MIBS: u64 = 11;
    each_seed(6, |seed| {
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Thick, 2);
        let ms = Duration::from_millis;
        let slow = DiskLatency { read: ms(50)..ms(60), ..DiskLatency::default() };
        cluster.world.set_disk_latency(cluster.servers[1], DISK, slow);
        cluster.world.crash(cluster.servers[1]);
        let grown = Rc::new(Cell::new(false));
        let told = Rc::clone(&grown);
        drop(cluster.world.spawn_on(cluster.servers[0], CoreId(0), move || async move {
            let control = Control::current();
            while control.grow_volume(&the_volume(&control), base::ByteLen(MIBS * MIB)).await.is_err() {
                rt::sleep(ms(1)).await;
            }
            told.set(true);
        }));
        cluster.start(1);
        assert!(cluster.world.run_until(|| grown.get(), Duration::from_secs(20)));
        cluster.world.set_disk_latency(cluster.servers[1], DISK, DiskLatency::default());
        cluster.wait_until_in_sync(0, 2);
        cluster.wait_until_all_serve();
        let (client, portal) = (cluster.client("client"), cluster.portal(1));
        cluster.world.block_on(client, CoreId(0), move || async move {
            let session = log_in(portal, "client").await.unwrap();
            for lba in new_blocks(MIBS) {
                write(&session, lba, lba).await.unwrap();
                assert_eq!(read(&session, lba).await.unwrap(), lba);
            }
        });
        assert_eq!((cluster.size(0), cluster.size(1)), (MIBS * MIB, MIBS * MIB));
        assert_eq!(cluster.checksum(0), cluster.checksum(1));
    });
}

#[test]
fn a_volume_with_copies_gets_another_name_on_all_nodes() {
    let cluster = Cluster::new(1, 2, 1);
    cluster.add_volume(VolumeKind::Thick, 2);
    cluster.control(0, |control| async move {
        let other = node::control::NewVolume {
            name: "taken".into(),
            ..new_volume(POOL, Shape { kind: VolumeKind::Ram, ..Shape::thick() })
        };
        control.create_volume(other).await.unwrap();
        let before = Shape::thick().name;
        let taken = control.rename_volume(before, "taken").await;
        assert!(matches!(taken, Err(ControlError::Exists { .. })), "{taken:?}");
        let renamed = control.rename_volume(before, "mail").await.unwrap();
        assert_eq!(renamed.info.name, "mail");
        assert!(matches!(control.volume(before), Err(ControlError::NotFound { .. })));
    });
    cluster.world.run_for(Duration::from_secs(3));
    for index in 0..2 {
        cluster.control(index, |control| async move {
            assert_eq!(control.volume("mail").unwrap().info.name, "mail");
        });
    }
    // The old name is free again, on all nodes.
    cluster.control(1, |control| async move {
        let shape = Shape::thick();
        control
            .create_volume(node::control::NewVolume {
                name: shape.name.into(),
                copies: Some(Placement::Count(2)),
                ..new_volume(POOL, shape)
            })
            .await
            .unwrap();
    });
}
