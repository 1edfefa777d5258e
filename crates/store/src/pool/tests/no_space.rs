//! File systems without space for a change of a pool: what was refused has not happened.

use super::super::MetadataState;
use super::*;
use crate::log::{Request, Returned};

/// A machine with a pool's files.
fn in_files(images: Vec<DiskImage>) -> (World, NodeId) {
    let world = World::new(1);
    let node = machine(&world, Vec::new());
    images.into_iter().enumerate().for_each(|(number, image)| world.put_file(node, path(number), image));
    (world, node)
}

/// One end of a disk has no space for a generation, the other one has: the pool's file was copied without its
/// zeros, and the file system is full. A deletion that was refused for that must not come true.
///
/// Once, the next opening of the pool took the generation that only one end had.
#[test]
fn a_change_that_found_no_space_for_one_of_its_slots_is_not_made_by_the_next_opening() {
    for end in End::BOTH {
        let (world, node) = in_files(vec![DiskImage::new(2 << 20, 512)]);
        let (geometry, generation) = world.block_on(node, CORE, || async {
            let pool = create(1).await;
            act(&pool, LIFE[0], &mut State::new(), &RefCell::default(), &mut 0).await;
            (pool.0.layout().geometry[0], pool.0.state.borrow().generation)
        });
        // Opening the pool writes the other slot; the deletion is to be written here.
        let mut image = world.disk_image(node, path(0));
        image.zero(geometry.slot_offset(end, generation), geometry.slot_bytes);
        let (world, node) = in_files(vec![image]);
        world.leave_space(node, 0);
        let file = path(0);
        let recording = world.record_disks(&[(node, &file)]);
        let acks = recording.clone();
        let delete = move || async move {
            let pool = open(1).await.unwrap();
            let id = pool.volumes()[0].id;
            let refused = pool.delete_volume(id).await.unwrap_err();
            assert!(matches!(refused, StoreError::Disk { source: rt::DiskError::Full, .. }), "{refused}");
            assert_eq!(pool.metadata_state(), MetadataState::Writable);
            acks.ack(1);
        };
        world.block_on(node, CORE, delete);
        for_each_cut(&recording, Subsets { bits: 2, seed: 3 }, |cut| {
            let world = World::new(2);
            let node = machine(&world, cut.images.clone());
            let volumes = world.block_on(node, CORE, || async { open(1).await.unwrap().volumes().len() });
            // Before the refusal, either is right.
            assert!(volumes == 1 || cut.acked == 0 && volumes == 0, "{cut}: {volumes} volumes");
        });
        // With space again, changes are made.
        world.set_space(node, None);
        world.block_on(node, CORE, || async {
            let pool = open(1).await.unwrap();
            pool.delete_volume(pool.volumes()[0].id).await.unwrap();
        });
    }
}

/// A part moves, and the file system has no space for the catalogue that says so. Nothing was written, so the
/// part is where it was, and hosts go on.
///
/// Once, its volume was offline until the pool was reopened.
#[test]
fn a_part_whose_move_finds_no_space_stays_where_it_is() {
    let (world, node) = in_files(vec![DiskImage::new(2 << 20, 512), DiskImage::new(2 << 20, 512)]);
    let (geometry, generation) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        act(&pool, LIFE[0], &mut State::new(), &RefCell::default(), &mut 0).await;
        let more = NewDisk { path: path(1), create: None, reserve: false };
        pool.add_disk(more, true).await.unwrap();
        pool.leave(&path(0)).await.unwrap();
        (pool.0.layout().geometry[1], pool.0.state.borrow().generation)
    });
    let mut images: Vec<DiskImage> = (0..2).map(|disk| world.disk_image(node, path(disk))).collect();
    // Opening the pool writes the other slot; the move is to be written here.
    images[1].zero(geometry.slot_offset(End::Head, generation), geometry.slot_bytes);
    let (world, node) = in_files(images);
    world.leave_space(node, 0);
    world.block_on(node, CORE, || async {
        let pool = open(2).await.unwrap();
        let moving = pool.next_move().await.unwrap().unwrap();
        let held = slices(&pool, moving.volume);
        for slice in &held {
            slice.hold_part(&moving.part).await.unwrap();
        }
        let (moving, moved) = pool.move_part(moving, held.len()).await;
        let is_full =
            |error: &StoreError| matches!(error, StoreError::Disk { source: rt::DiskError::Full, .. });
        assert!(matches!(&moved, Moved::Not(error) if is_full(error)), "{moved:?}");
        assert_eq!(pool.metadata_state(), MetadataState::Writable);
        held.iter().for_each(Slice::let_go);
        pool.end_move(moving, &moved).await;
        held[0].read(ByteOffset(0), ByteLen(SECTOR)).await.unwrap();
    });
}

/// A log returns a zone, and the file system has no space for the catalogue without it. Nothing was written,
/// so the zone is the log's as before.
///
/// Once, nobody could use it until the pool was reopened.
#[test]
fn a_zone_whose_return_finds_no_space_stays_the_logs() {
    let (world, node) = in_files(vec![DiskImage::new(16 << 20, 512)]);
    let (geometry, generation) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let spec = VolumeSpec {
            name: "v".into(),
            kind: VolumeKind::Log,
            block_size: BlockSize::B512,
            physical_exponent: 3,
            capacity: ByteLen(4 << 20),
            slices: Some(1),
            stripe_unit: None,
            created: 0,
            id: None,
            copy: None,
            space: crate::catalog::SpacePolicy::default(),
            compression: Compression::default(),
            checksums: false,
        };
        pool.create_volume(spec).await.unwrap();
        (pool.0.layout().geometry[0], pool.0.state.borrow().generation)
    });
    // Opening the pool writes the other slot; the catalogue without the zone is to be written here.
    let mut image = world.disk_image(node, path(0));
    image.zero(geometry.slot_offset(End::Tail, generation), geometry.slot_bytes);
    let (world, node) = in_files(vec![image]);
    world.leave_space(node, 0);
    world.block_on(node, CORE, || async {
        let pool = open(1).await.unwrap();
        let log = pool.0.log(0).expect("the volume has one");
        let (reply, answer) = rt::sync::oneshot();
        log.lender.ask(Request::Return { log: 0, identity: log.identity, zone: 0, reply });
        assert_eq!(answer.await, Ok(Returned::Kept));
        assert_eq!(pool.metadata_state(), MetadataState::Writable);
    });
}
