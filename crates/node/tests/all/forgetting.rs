//! A node forgets pools that it cannot use any more, and imports them again.

use std::time::Duration;

use node::control::{ControlError, ImportSpec, LostMap, Muteness, PoolRemains};
use rt::sim::{DiskFaults, DiskLatency};
use store::MetadataState;

use crate::rig::{DISK, MIB, OTHER, POOL, Rig, Shape, TARGET, log_in, new_volume};
use crate::seeds::each_seed;
use crate::silence::silence;

fn remains(rig: &Rig) -> Result<PoolRemains, ControlError> {
    rig.control(|control| async move { control.pool_remains(POOL).await })
}

fn forget(rig: &Rig, unmap: bool) -> Result<(), ControlError> {
    rig.control(move |control| async move { control.forget_pool(POOL, unmap).await })
}

fn import(rig: &Rig) {
    let spec = ImportSpec { paths: vec![DISK.into()], ..ImportSpec::default() };
    rig.control(|control| async move { control.import_pool(spec).await }).unwrap();
}

fn pools(rig: &Rig) -> Vec<String> {
    rig.control(|control| async move { control.pools() }).into_iter().map(|pool| pool.name).collect()
}

/// Number of the volume's maps.
fn maps(rig: &Rig, volume: &'static str) -> usize {
    rig.control(move |control| async move { control.volume(volume) }).unwrap().maps.len()
}

/// Two pools, each with a volume.
fn two_pools(seed: u64) -> Rig {
    let rig = Rig::new(seed, 2);
    rig.add(Shape::thick());
    rig.add_other_pool();
    rig
}

#[test]
fn a_pool_whose_disk_is_dead_is_forgotten_and_returns_with_its_maps() {
    each_seed(2, |seed| {
        for unmap in [false, true] {
            let rig = two_pools(seed);
            assert!(matches!(forget(&rig, unmap), Err(ControlError::PoolOpen(_))));
            assert!(matches!(remains(&rig), Err(ControlError::PoolOpen(_))));
            let volume = rig.control(|control| async move { control.volume("thick") }).unwrap().info.id;
            rig.world.crash(rig.server);
            rig.world.set_disk_dead(rig.server, DISK, true);
            rig.start();
            // It is unknown what is on it, but known which maps lead nowhere.
            let left = remains(&rig).unwrap();
            assert!(matches!(left.disks.as_slice(), [(path, Some(Muteness::Unreadable(_)))] if path == DISK));
            assert!(left.volumes.is_none());
            let map = LostMap { target: TARGET.into(), lun: 0, host: "any".into(), volume };
            assert_eq!(left.maps, [map]);

            forget(&rig, unmap).unwrap();
            assert_eq!(pools(&rig), [OTHER]);
            rig.power_cycle();
            assert_eq!(pools(&rig), [OTHER], "the record does not name it");
            assert_eq!(maps(&rig, OTHER), 1);
            assert!(matches!(forget(&rig, unmap), Err(ControlError::NotFound { .. })));

            rig.world.set_disk_dead(rig.server, DISK, false);
            import(&rig);
            assert_eq!(maps(&rig, "thick"), usize::from(!unmap));
        }
    });
}

#[test]
fn a_readable_disk_shows_what_would_be_lost() {
    let rig = two_pools(1);
    rig.world.crash(rig.server);
    rig.world.set_disk_dead(rig.server, DISK, true);
    rig.start();
    rig.world.set_disk_dead(rig.server, DISK, false);
    let left = remains(&rig).unwrap();
    assert!(matches!(left.disks.as_slice(), [(_, None)]));
    let names: Vec<String> = left.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!((names.as_slice(), left.maps.len()), (["thick".to_owned()].as_slice(), 1));

    // Another pool's disk is at its place.
    rig.control(|control| async move {
        control.unmap(TARGET, 1, None).await.unwrap();
        control.export_pool(OTHER).await.unwrap();
    });
    rig.world.remove_disk(rig.server, DISK);
    rig.world.move_disk(rig.server, crate::rig::OTHER_DISK, rig.server, DISK);
    let left = remains(&rig).unwrap();
    assert!(
        matches!(left.disks.as_slice(), [(_, Some(Muteness::OtherPool(name)))] if name == OTHER),
        "{left:?}"
    );
    assert!(left.volumes.is_none());
}

#[test]
fn a_pool_that_does_not_answer_is_forgotten_at_once() {
    each_seed(2, |seed| {
        let rig = two_pools(seed);
        rig.world.crash(rig.server);
        rig.world.set_disk_latency(rig.server, DISK, silence());
        rig.start();
        let left = remains(&rig).unwrap();
        assert!(matches!(left.disks.as_slice(), [(_, Some(Muteness::Silent))]));
        let began = rig.world.now();
        forget(&rig, false).unwrap();
        assert!(rig.world.now() - began < Duration::from_secs(1));
        assert_eq!(pools(&rig), [OTHER]);
        // When it answers it is closed again, and can be imported.
        rig.world.set_disk_latency(rig.server, DISK, DiskLatency::default());
        rig.world.run_for(Duration::from_secs(2 * 3600));
        assert_eq!(pools(&rig), [OTHER]);
        import(&rig);
        assert_eq!(maps(&rig, "thick"), 1);
    });
}

#[test]
fn a_pool_whose_metadata_write_failed_is_closed_and_reopened() {
    each_seed(2, |seed| {
        let rig = two_pools(seed);
        let client = rig.client("client");
        let session = client.run(|portal| log_in(portal, "client", 0));
        let faults = DiskFaults { write_error_one_in: 1, ..DiskFaults::default() };
        rig.world.set_disk_faults(rig.server, DISK, faults);
        // The record has the new name. The pool cannot follow.
        rig.control(|control| async move { control.rename_volume("thick", "renamed").await }).unwrap();
        rig.world.set_disk_faults(rig.server, DISK, DiskFaults::default());
        let pool = rig.control(|control| async move { control.pool(POOL) }).unwrap();
        assert_eq!(pool.state.unwrap().metadata, MetadataState::Failed);
        let export = rig.control(|control| async move { control.export_pool(POOL).await });
        assert!(matches!(export, Err(ControlError::Store(_))), "{export:?}");

        // Initiators still see its volume.
        assert!(matches!(forget(&rig, false), Err(ControlError::MappedInPool { .. })));
        let left = remains(&rig).unwrap();
        assert_eq!((left.volumes.unwrap().len(), left.maps.len()), (1, 1));
        forget(&rig, true).unwrap();
        client.run(move |_| async move {
            assert!(session.make_ready(initiator::Lun(0)).await.is_err(), "the LUN is gone");
        });
        import(&rig);
        let pool = rig.control(|control| async move { control.pool(POOL) }).unwrap();
        assert_eq!(pool.state.unwrap().metadata, MetadataState::Writable);
        rig.control(|control| async move {
            let name =
                control.volumes().await.into_iter().find(|volume| volume.pool == POOL).unwrap().info.name;
            crate::rig::map(&control, &name, 0).await.unwrap();
        });
        rig.client("again").run(|portal| async move { drop(log_in(portal, "again", 0).await) });
    });
}

/// Creates and exports a pool called "spare".
fn give_away_a_pool(rig: &Rig) {
    rig.world.add_disk(rig.server, "/dev/namesake", 32 * MIB, 512);
    rig.create_pool("spare", "/dev/namesake");
    rig.control(|control| async move {
        let new = new_volume("spare", Shape { name: "theirs", mib: 1, ..Shape::thick() });
        control.create_volume(new).await.unwrap();
        control.export_pool("spare").await.unwrap();
    });
}

#[test]
fn a_pool_that_is_not_open_keeps_its_name() {
    let rig = two_pools(1);
    give_away_a_pool(&rig);
    let import = |rig: &Rig, name: Option<&str>| {
        let paths = vec!["/dev/namesake".into()];
        let spec = ImportSpec { paths, name: name.map(str::to_owned), force: false };
        rig.control(|control| async move { control.import_pool(spec).await })
    };
    rig.world.crash(rig.server);
    rig.world.set_disk_dead(rig.server, DISK, true);
    rig.start();
    // The names of an open pool and of one that is not open.
    assert!(matches!(import(&rig, Some(OTHER)), Err(ControlError::Exists { kind: "pool", .. })));
    let refused = import(&rig, Some(POOL)).unwrap_err();
    assert!(matches!(&refused, ControlError::PoolOfThatName(name) if name == POOL), "{refused}");
    assert!(matches!(import(&rig, Some("no name")), Err(ControlError::Name(_))));
    assert_eq!(pools(&rig), [OTHER, POOL]);
    // After a refusal, the pool keeps its name.
    let pool = import(&rig, None).unwrap();
    assert_eq!((pool.name.as_str(), pool.state.unwrap().volumes), ("spare", 1));
    rig.control(|control| async move { control.export_pool("spare").await }).unwrap();
    import(&rig, Some("third")).unwrap();
    rig.world.crash(rig.server);
    rig.world.set_disk_dead(rig.server, DISK, false);
    rig.start();
    assert_eq!(pools(&rig), [OTHER, POOL, "third"]);
    assert_eq!(maps(&rig, "thick"), 1);
}

/// Cores know the disks of a pool by its identity, which an image of it has, too. All names differ: the pool
/// is imported under another one, and its volume has been renamed.
#[test]
fn an_image_of_a_pool_of_the_node_is_not_imported() {
    const IMAGE: &str = "/dev/image";
    let rig = two_pools(1);
    rig.world.put_disk(rig.server, IMAGE, rig.world.disk_image(rig.server, DISK));
    rig.control(|control| async move { control.rename_volume("thick", "renamed").await }).unwrap();
    let content = || {
        let image = rig.world.disk_image(rig.server, IMAGE);
        let mut all = vec![0; image.size() as usize];
        image.read(0, &mut all);
        all
    };
    let before = content();
    let import = |name: Option<&str>| {
        let spec = ImportSpec { paths: vec![IMAGE.into()], name: name.map(str::to_owned), force: true };
        let same = spec.clone();
        let would = rig.control(|control| async move { control.check_import(same).await.map(drop) });
        let done = rig.control(|control| async move { control.import_pool(spec).await.map(drop) });
        [would, done]
    };
    let is_here = |refused: &Result<(), ControlError>| match refused {
        Err(ControlError::PoolHereAlready(name)) => name == POOL,
        _ => false,
    };
    for name in [None, Some("image")] {
        let refused = import(name);
        assert!(refused.iter().all(is_here), "{refused:?}");
    }
    assert!(content() == before, "nothing was written");
    // Nor if that pool is not open: it may be back at the next start.
    rig.world.crash(rig.server);
    rig.world.set_disk_dead(rig.server, DISK, true);
    rig.start();
    let refused = import(Some("image"));
    assert!(refused.iter().all(is_here), "{refused:?}");
    assert_eq!(pools(&rig), [OTHER, POOL]);
    forget(&rig, false).unwrap();
    let imported = import(Some("image"));
    assert!(imported.iter().all(Result::is_ok), "{imported:?}");
    assert_eq!(pools(&rig), ["image", OTHER]);
    assert_eq!(maps(&rig, "thick"), 1);
}
