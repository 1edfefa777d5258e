//! Copies of volumes that other nodes have, too: their identities, states and dirty maps.

use base::{ByteLen, ByteOffset, Chain};
use replica::{Damaged, DirtyMap, Geometry, Slots};
use rt::Durability;
use rt::sim::{DiskFaults, DiskImage, NodeId, World};
use store::{
    ClusterId, CopyOf, CopyState, CreateOptions, OpenPool, Pool, RamBudget, ReadFailure, Slice, SliceError,
    StoreError, VolumeId, VolumeKind, VolumeSpec,
};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, path, paths, thick};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const ID: VolumeId = VolumeId([0x42; 16]);

fn blank(slot: u8) -> CopyOf {
    CopyOf { cluster: ClusterId([7; 16]), slot, state: CopyState::Blank }
}

fn copy(name: &str, capacity: u64) -> VolumeSpec {
    VolumeSpec { id: Some(ID), copy: Some(blank(3)), ..thick(name, capacity) }
}

/// A machine with one disk that only takes memory where it is written.
fn large(world: &World, bytes: u64) -> NodeId {
    let node = world.add_node("node", 1, |_| std::future::pending());
    world.put_disk(node, path(0), DiskImage::new(bytes, 512));
    node
}

/// Both crates have the same numbers, because neither depends on the other.
#[test]
fn pages_are_those_of_the_dirty_map() {
    assert_eq!(store::MAP_PAGE_BYTES, replica::PAGE_BYTES);
    assert_eq!(store::MAP_PAGE_REGIONS, replica::PAGE_REGIONS);
    assert_eq!(store::MAP_REGION_BYTES, u64::from(Geometry::REGION_BYTES));
    assert_eq!(usize::from(store::COPIES_MAX), replica::Slot::MAX);
}

fn map_of(slice: &Slice) -> DirtyMap {
    DirtyMap::new(Geometry::new(slice.len().0 / 4096, 4096).regions())
}

/// Loads the map of a slice from the disk.
async fn load(slice: &Slice) -> Result<DirtyMap, Damaged> {
    let mut map = map_of(slice);
    for page in 0..slice.map_pages() {
        map.load(page, &slice.read_map_page(page).await.unwrap())?;
    }
    Ok(map)
}

/// A dirty map as a copy keeps it.
///
/// Bits that were acknowledged as durable survive a power cut. A page whose write was interrupted is intact,
/// as before, or known to be damaged.
#[test]
fn bits_that_are_durable_survive_a_power_cut() {
    let others = Slots::from_bits(0b0101);
    let (mut before, mut after, mut damaged) = (0, 0, 0);
    for seed in 0..40 {
        let world = World::new(seed);
        let node = large(&world, 4 * GIB);
        let last = world.block_on(node, CORE, move || async move {
            let pool = Pool::create(existing(1), creating()).await.unwrap();
            pool.create_volume(VolumeSpec { slices: Some(1), ..copy("mail", 2 * GIB) }).await.unwrap();
            let slice = Volume::open(&pool, ID).slices.remove(0);
            let mut map = load(&slice).await.unwrap();
            assert_eq!((map.pages(), map.next_dirty(0, others)), (slice.map_pages(), None));
            // The first page, and the last region of all.
            let last = slice.len().0 / store::MAP_REGION_BYTES - 1;
            map.mark(3..5, others);
            map.mark(last..last + 1, others);
            while let Some(write) = map.poll_write(false) {
                slice.write_map_page(write.page, &write.image).await.unwrap();
                map.handle_written(write.page);
            }
            assert!(map.is_durable(3..5, others) && map.is_durable(last..last + 1, others));
            // One more write, which the power cut interrupts.
            map.mark(7..8, others);
            let write = map.poll_write(false).unwrap();
            rt::spawn(async move {
                let _ = slice.write_map_page(write.page, &write.image).await;
                std::future::pending::<()>().await;
            })
            .detach();
            last
        });
        world.run_for(std::time::Duration::from_micros(seed * 3));
        world.crash(node);
        world.restart(node, |_| std::future::pending());
        let found = world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            load(&Volume::open(&pool, ID).slices[0]).await
        });
        match found {
            Ok(map) => {
                let dirty: Vec<u64> = map.dirty(others).collect();
                let with = dirty.contains(&7);
                assert!(dirty == [3, 4, last] || dirty == [3, 4, 7, last], "{dirty:?}");
                *(if with { &mut after } else { &mut before }) += 1;
            }
            Err(Damaged) => damaged += 1,
        }
    }
    assert!(before > 0 && after > 0, "{before} before, {after} after, {damaged} damaged");
}

/// A page that differs from every other page of every slice.
fn page_of(slice: u16, page: usize) -> [u8; 4096] {
    let number = (u64::from(slice) << 32) + page as u64 + 1;
    number.to_le_bytes().repeat(512).try_into().unwrap()
}

async fn write_pages(volume: &Volume) {
    for slice in &volume.slices {
        for page in 0..slice.map_pages() {
            slice.write_map_page(page, &page_of(slice.index(), page)).await.unwrap();
        }
    }
}

/// Checks that the first `written` pages of each slice are those of [`write_pages`], and the others zeros.
async fn check_pages(volume: &Volume, written: usize) {
    for slice in &volume.slices {
        for page in 0..slice.map_pages() {
            let expected = if page < written { page_of(slice.index(), page) } else { [0; 4096] };
            assert_eq!(slice.read_map_page(page).await.unwrap(), expected, "{page} of {}", slice.index());
        }
    }
}

#[test]
fn a_copy_keeps_the_identity_that_it_was_created_with() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let other = pool.create_volume(thick("other", 4096)).await.unwrap();
        assert_eq!(other.copy, None);
        let free = pool.usage().free;
        let info = pool.create_volume(copy("mail", MIB)).await.unwrap();
        assert_eq!((info.id, info.copy), (ID, Some(blank(3))));
        // Sixteen extents of 64 KiB, and one for the map.
        assert_eq!((info.reserved.0, free.0 - pool.usage().free.0), (17 << 16, 17 << 16));

        let free = pool.usage().free;
        let again = pool.create_volume(copy("again", 4096)).await;
        assert!(matches!(again, Err(StoreError::VolumeExists(ID))), "{again:?}");
        let fifth = VolumeSpec { copy: Some(blank(4)), ..thick("fifth", 4096) };
        assert!(matches!(pool.create_volume(fifth).await, Err(StoreError::SlotInvalid(4))));
        let none = pool.set_copy(other.id, 0, CopyState::Blank).await;
        assert!(matches!(none, Err(StoreError::NotACopy(id)) if id == other.id), "{none:?}");
        assert_eq!(pool.usage().free, free, "refusals take nothing");

        let state = CopyState::Trusted { epoch: 12 };
        let fifth = pool.set_copy(ID, 4, state).await;
        assert!(matches!(fifth, Err(StoreError::SlotInvalid(4))), "{fifth:?}");
        assert_eq!(pool.volume(ID).unwrap().copy, Some(blank(3)));
        assert_eq!(pool.set_copy(ID, 2, state).await.unwrap().copy, Some(CopyOf { state, ..blank(2) }));
        drop(pool);
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        assert_eq!(pool.volume(ID).unwrap().copy, Some(CopyOf { state, ..blank(2) }));
        assert!(pool.blank_copies().is_empty());
        pool.set_copy(ID, 3, CopyState::Blank).await.unwrap();
        drop(pool);
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        assert_eq!(pool.volume(ID).unwrap().copy, Some(blank(3)));
        assert_eq!(pool.blank_copies(), [ID]);
        assert_eq!(Volume::open(&pool, other.id).slices[0].map_pages(), 0);

        // A volume that is not a copy becomes one while it is open, and keeps its data.
        let open = Volume::open(&pool, other.id);
        let slice = &open.slices[0];
        slice.write(ByteOffset(512), Chain::copy_of(&[7; 512]), Durability::Cached).await.unwrap();
        let free = pool.usage().free;
        let state = CopyState::Trusted { epoch: 1 };
        let second = CopyOf { state, ..blank(1) };
        assert!(matches!(pool.make_copy(other.id, blank(4)).await, Err(StoreError::SlotInvalid(4))));
        pool.check_make_copy(other.id, second).unwrap();
        assert_eq!(pool.usage().free, free, "that takes nothing");
        // The sole copy of a volume has no map until there are others.
        let sole = CopyOf { state: CopyState::Sole, ..blank(0) };
        let info = pool.make_copy(other.id, sole).await.unwrap();
        assert_eq!((info.copy, info.is_sole(), pool.usage().free), (Some(sole), true, free));
        assert_eq!(pool.sole_volumes(), [other.id]);
        let none = pool.set_copy(other.id, 0, state).await;
        assert!(matches!(none, Err(StoreError::NotACopy(id)) if id == other.id), "{none:?}");
        assert_eq!(slice.map_pages(), 0);
        // A copy that was created as a sole one, and that perhaps no record contains, is not a sole copy yet.
        let info = pool.make_copy(other.id, CopyOf { state: CopyState::New, ..sole }).await.unwrap();
        assert_eq!((info.is_sole(), pool.usage().free), (false, free));
        assert!(pool.sole_volumes().is_empty());
        let info = pool.make_copy(other.id, second).await.unwrap();
        assert_eq!((info.copy, free.0 - pool.usage().free.0), (Some(second), 1 << 16));
        assert!(!info.is_sole());
        let back = pool.set_copy(other.id, 1, CopyState::Sole).await;
        assert!(matches!(back, Err(StoreError::NotACopy(id)) if id == other.id), "{back:?}");
        let again = pool.make_copy(other.id, second).await;
        assert!(matches!(again, Err(StoreError::AlreadyACopy(id)) if id == other.id), "{again:?}");
        let disks = pool.share_disks().attach();
        slice.grow(pool.volume_slices(other.id, CORE, 1).unwrap().remove(0), &disks);
        assert_eq!(slice.map_pages(), 1);
        assert_eq!(slice.read_map_page(0).await.unwrap(), [0; store::MAP_PAGE_BYTES]);
        let held = slice.read(ByteOffset(0), ByteLen(1024)).await.unwrap().to_vec();
        assert_eq!((&held[..512], &held[512..]), (&[0; 512][..], &[7; 512][..]));
        drop(open);

        // The same again after the first was deleted.
        pool.delete_volume(ID).await.unwrap();
        pool.delete_volume(other.id).await.unwrap();
        assert_eq!(pool.usage().free, pool.usage().total);
        assert_eq!(pool.create_volume(copy("again", 4096)).await.unwrap().id, ID);
    });
}

/// Of two volumes that are created with the same identity at the same time, one is refused.
#[test]
fn one_of_two_creations_with_one_identity_succeeds() {
    let world = World::new(1);
    let node = machine(&world, &[(4 << 20, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let makes = ["one", "two"].map(|name| {
            let pool = pool.clone();
            rt::spawn(async move { pool.create_volume(copy(name, MIB)).await })
        });
        let mut made = Vec::new();
        for make in makes {
            made.push(make.await);
        }
        assert!(
            matches!(&made[..], [Ok(info), Err(StoreError::VolumeExists(ID))] if info.name == "one"),
            "{made:?}"
        );
        pool.delete_volume(ID).await.unwrap();
        assert_eq!(pool.usage().free, pool.usage().total, "who was refused has given back what it took");
    });
}

#[test]
fn pages_stay_where_they_are_while_a_volume_grows() {
    let world = World::new(1);
    let node = large(&world, 12 * GIB);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        // Each slice has three times 508 MiB and some more.
        pool.create_volume(copy("mail", 3 * GIB)).await.unwrap();
        // A volume in between, so that the map cannot stay in one run.
        pool.create_volume(thick("between", 64 << 10)).await.unwrap();
        let mut volume = Volume::open(&pool, ID);
        assert_eq!(volume.slices.iter().map(store::Slice::map_pages).collect::<Vec<_>>(), [4, 4]);
        check_pages(&volume, 0).await;
        write_pages(&volume).await;
        let last = volume.slices[1].len().0 - 512;
        let data = Chain::copy_of(&[9; 512]);
        volume.slices[1].write(ByteOffset(last), data, Durability::Durable).await.unwrap();

        pool.grow_volume(ID, ByteLen(10 * GIB)).await.unwrap();
        volume.grow(&pool);
        assert_eq!(volume.slices.iter().map(store::Slice::map_pages).collect::<Vec<_>>(), [11, 11]);
        check_pages(&volume, 4).await;
        write_pages(&volume).await;
        drop((pool, volume));

        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        let volume = Volume::open(&pool, ID);
        check_pages(&volume, 11).await;
        let read = volume.slices[1].read(ByteOffset(last), ByteLen(512)).await.unwrap();
        assert_eq!(read.to_vec(), [9; 512]);
    });
}

#[test]
fn a_copy_in_memory_has_its_map_there() {
    let world = World::new(1);
    let node = large(&world, 16 * MIB);
    world.block_on(node, CORE, || async {
        let budget = RamBudget::new(ByteLen(4 * GIB));
        let options = CreateOptions { ram: budget.clone(), ..creating() };
        let pool = Pool::create(existing(1), options).await.unwrap();
        let spec = |capacity| VolumeSpec { kind: VolumeKind::Ram, ..copy("mail", capacity) };
        let info = pool.create_volume(spec(GIB)).await.unwrap();
        // Two slices of two pages.
        assert_eq!(info.reserved.0, GIB + 4 * 4096);
        assert_eq!(budget.free().0, 3 * GIB - 4 * 4096);
        let mut volume = Volume::open(&pool, ID);
        assert!(volume.slices.iter().all(store::Slice::is_volatile));
        write_pages(&volume).await;
        pool.grow_volume(ID, ByteLen(3 * GIB)).await.unwrap();
        volume.grow(&pool);
        assert_eq!(volume.slices[0].map_pages(), 4);
        assert_eq!(budget.free().0, GIB - 8 * 4096);
        check_pages(&volume, 2).await;
        let whole = pool.create_volume(VolumeSpec { id: None, name: "rest".into(), ..spec(GIB) }).await;
        assert!(matches!(whole, Err(StoreError::NoMemory { .. })), "{whole:?}");
        drop((pool, volume));

        let pool = Pool::open(&paths(1), OpenPool { ram: budget.clone(), ..opening(1) }).await.unwrap();
        let volume = Volume::open(&pool, ID);
        assert_eq!(budget.free().0, GIB - 8 * 4096);
        check_pages(&volume, 0).await;
    });
}

#[test]
fn an_unreadable_page_is_reported_by_the_first_byte_it_maps() {
    let world = World::new(1);
    let node = large(&world, 4 * GIB);
    let volume = world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        pool.create_volume(VolumeSpec { slices: Some(1), ..copy("mail", 2 * GIB) }).await.unwrap();
        let volume = Volume::open(&pool, ID);
        write_pages(&volume).await;
        volume
    });
    // Find the second page.
    let image = world.disk_image(node, path(0));
    let mut chunk = vec![0; 4096];
    let at = (0..4 * GIB).step_by(4096).find(|at| {
        image.read(*at, &mut chunk);
        chunk == page_of(0, 1)
    });
    let at = at.expect("it is on the disk");
    let unreadable = std::iter::once(at + 512..at + 1024).collect();
    world.set_disk_faults(node, path(0), DiskFaults { unreadable, ..DiskFaults::default() });
    world.block_on(node, CORE, move || async move {
        let slice = &volume.slices[0];
        let failed = slice.read_map_page(1).await.unwrap_err();
        let SliceError::Unreadable(bad) = failed else { panic!("{failed}") };
        assert_eq!((bad.offset, bad.disk_offset), (ByteOffset(508 * MIB), at));
        assert_eq!(slice.read_map_page(0).await.unwrap(), page_of(0, 0));
        assert_eq!(slice.read_map_page(2).await.unwrap(), page_of(0, 2));
    });
}

async fn write(slice: &Slice, offset: u64, byte: u8, len: usize) -> Result<(), SliceError> {
    slice.write(ByteOffset(offset), Chain::copy_of(&vec![byte; len]), Durability::Cached).await
}

/// The byte that fills the range, or the first lost offset in it.
async fn found(slice: &Slice, offset: u64, len: u64) -> Result<u8, u64> {
    match slice.read(ByteOffset(offset), ByteLen(len)).await {
        Ok(data) => {
            let data = data.to_vec();
            assert!(data.iter().all(|byte| *byte == data[0]));
            Ok(data[0])
        }
        Err(SliceError::Unreadable(bad)) if bad.cause == ReadFailure::Lost => Err(bad.offset.0),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn lost_blocks_cannot_be_read_until_written() {
    for (kind, block) in [(VolumeKind::Thick, 512), (VolumeKind::Thick, 4096), (VolumeKind::Log, 4096)] {
        let world = World::new(1);
        let node = machine(&world, &[(64 << 20, block)]);
        let slice = |mut volume: Volume| volume.slices.remove(0);
        world.block_on(node, CORE, move || async move {
            let pool = Pool::create(existing(1), creating()).await.unwrap();
            pool.create_volume(VolumeSpec { kind, slices: Some(1), ..copy("mail", MIB) }).await.unwrap();
            let slice = slice(Volume::open(&pool, ID));
            assert_eq!(slice.read_map_page(0).await.unwrap(), [0; 4096]);
            write(&slice, 0, 7, 64 << 10).await.unwrap();
            slice.flush().await.unwrap();
            assert!(slice.lose(ByteOffset(8192), ByteLen(4096), 0, false).await.unwrap().is_some());
            assert!(slice.lose(ByteOffset(20480 + 512), ByteLen(512), 0, false).await.unwrap().is_some());
            assert!(slice.lose(ByteOffset(512 << 10), ByteLen(8192), 0, false).await.unwrap().is_some());
            slice.write_map_page(0, &page_of(0, 0)).await.unwrap();
        });
        world.crash(node);
        world.restart(node, |_| std::future::pending());
        world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            let slice = slice(Volume::open(&pool, ID));
            assert_eq!(found(&slice, 0, 64 << 10).await, Err(8192));
            assert_eq!(found(&slice, 8192 + 1024, 512).await, Err(8192 + 1024));
            assert_eq!(found(&slice, 20480, 4096).await, Err(20480 + 512));
            for (offset, len) in [(0, 8192), (12288, 8192), (20480, 512), (20480 + 1024, 3072)] {
                assert_eq!(found(&slice, offset, len).await, Ok(7), "{offset}");
            }
            assert_eq!(slice.read_map_page(0).await.unwrap(), page_of(0, 0), "that is another page");
            // It is not reported as zeros, even where nothing was ever written.
            let parts = slice.allocated(ByteOffset(256 << 10), ByteLen(512 << 10), 9).await.unwrap();
            let (start, len) = parts.last().copied().unwrap();
            assert!(start.0 <= 512 << 10 && start.0 + len.0 == 768 << 10, "{parts:?}");

            // A partial write of a block that is lost as a whole cannot read the rest of it.
            let torn = slice.read_edges(ByteOffset(4096), ByteLen(4096 + 512)).await;
            let Err(SliceError::Unreadable(bad)) = torn else { panic!("{torn:?}") };
            assert_eq!((bad.cause, bad.offset.0), (ReadFailure::Lost, 8192 + 512));
            slice.read_edges(ByteOffset(20480), ByteLen(512)).await.unwrap();
            write(&slice, 8192, 8, 512).await.unwrap();
            assert_eq!(found(&slice, 8192, 512).await, Ok(8));
            assert_eq!(found(&slice, 8192, 4096).await, Err(8192 + 512));
            write(&slice, 8192, 8, 4096).await.unwrap();
            assert_eq!(found(&slice, 8192, 4096).await, Ok(8));
            write(&slice, 20480, 8, 512).await.unwrap();
            assert_eq!(found(&slice, 20480, 4096).await, Err(20480 + 512), "it was beside that");
            write(&slice, 20480 + 512, 7, 512).await.unwrap();
            assert_eq!(found(&slice, 20480 + 512, 3584).await, Ok(7));
            slice.zero(ByteOffset(512 << 10), ByteLen(4096)).await.unwrap();
            assert_eq!(found(&slice, 512 << 10, 8192).await, Err((512 << 10) + 4096));
            let again = Chain::copy_of(&[9; 4096]);
            slice.rewrite(ByteOffset((512 << 10) + 4096), again).await.unwrap();
            assert!(!slice.has_lost());
        });
        // The end of the loss is as durable as the data that was written.
        world.crash(node);
        world.restart(node, |_| std::future::pending());
        world.block_on(node, CORE, move || async move {
            let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
            let slice = slice(Volume::open(&pool, ID));
            slice.know_lost().await.unwrap();
            assert!(!slice.has_lost());
            let at = [(8192, 4096, 8), (20480 + 512, 512, 7), (512 << 10, 4096, 0)];
            for (offset, len, byte) in at.into_iter().chain([((512 << 10) + 4096, 4096, 9)]) {
                assert_eq!(found(&slice, offset, len).await, Ok(byte), "{offset}");
            }
        });
    }
}

#[test]
fn a_damaged_list_of_lost_blocks_keeps_all_from_being_read() {
    let world = World::new(1);
    let node = large(&world, 64 * MIB);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        pool.create_volume(VolumeSpec { slices: Some(1), ..copy("mail", MIB) }).await.unwrap();
        let volume = Volume::open(&pool, ID);
        assert!(volume.slices[0].lose(ByteOffset(8192), ByteLen(4096), 0, false).await.unwrap().is_some());
    });
    let mut image = world.disk_image(node, path(0));
    let mut start = [0; 8];
    let list = (0..image.size()).step_by(4096).find(|at| {
        image.read(*at, &mut start);
        start == *b"URSALOST"
    });
    image.write(list.expect("it is on the disk") + 20, &[1]);
    world.crash(node);
    world.remove_disk(node, path(0));
    world.put_disk(node, path(0), image);
    world.restart(node, |_| std::future::pending());
    world.block_on(node, CORE, || async {
        let pool = Pool::open(&paths(1), opening(1)).await.unwrap();
        let volume = Volume::open(&pool, ID);
        let slice = &volume.slices[0];
        let read = slice.read(ByteOffset(0), ByteLen(4096)).await;
        assert!(matches!(&read, Err(SliceError::Unreadable(_))), "{read:?}");
    });
}
