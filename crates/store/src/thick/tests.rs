//! How much of its checksums a slice has in memory.

use std::path::PathBuf;
use std::time::Duration;

use base::{BlockSize, ByteLen, ByteOffset, Chain};
use rt::CoreId;
use rt::sim::{DiskImage, World};

use super::checksums::{FORGOTTEN_AFTER, OPEN_MAX, PAGES_MAX};
use super::{PAGE_COVERS, UNIT};
use crate::budget::RamBudget;
use crate::catalog::{Compression, Host, SpacePolicy, VolumeKind};
use crate::id::HostId;
use crate::pool::{CreateOptions, NewDisk, Pool, VolumeSpec};
use crate::slice::{Layout, Slice};

fn spec(pages: u64) -> VolumeSpec {
    VolumeSpec {
        name: "db".into(),
        kind: VolumeKind::Thick,
        block_size: BlockSize::B4096,
        physical_exponent: 0,
        capacity: ByteLen(pages * PAGE_COVERS),
        slices: Some(1),
        stripe_unit: None,
        created: 0,
        id: None,
        copy: None,
        space: SpacePolicy::default(),
        compression: Compression::Off,
        checksums: true,
    }
}

/// Pages in memory, and those of them that are not closed.
fn counts(slice: &Slice) -> (usize, usize) {
    let layout = slice.layout();
    match &*layout {
        Layout::Thick(slice) => slice.checksums.as_ref().expect("it has checksums").counts(),
        Layout::Log(_) | Layout::Ram(_) => panic!("it is thick"),
    }
}

/// Runs `test` with a slice that has this many pages.
fn with_slice<F: Future<Output = ()> + 'static>(pages: u64, test: impl FnOnce(Slice) -> F + 'static) {
    let world = World::new(1);
    let node = world.add_node("node", 1, |_| std::future::pending());
    world.put_disk(node, "/disk", DiskImage::new(4 << 30, 512));
    world.block_on(node, CoreId(0), move || async move {
        let disk = NewDisk { path: PathBuf::from("/disk"), create: None, reserve: false };
        let options = CreateOptions {
            name: "pool".into(),
            host: Host { id: HostId([1; 16]), name: "host".into() },
            extent: None,
            wipe: true,
            ram: RamBudget::new(ByteLen(0)),
        };
        let pool = Pool::create(vec![disk], options).await.unwrap();
        let id = pool.create_volume(spec(pages)).await.unwrap().id;
        let slice = pool.volume_slices(id, CoreId(0), 1).unwrap().remove(0);
        test(slice.open(&pool.share_disks().attach())).await;
    });
}

/// A unit that the page covers.
fn unit(page: u64) -> ByteOffset {
    ByteOffset(page * PAGE_COVERS + page * UNIT)
}

/// What is written there.
fn content(page: u64) -> Chain {
    Chain::copy_of(&(page + 1).to_le_bytes().repeat(UNIT as usize / 8))
}

#[test]
fn few_pages_are_in_memory_and_fewer_are_open() {
    let pages = PAGES_MAX as u64 + 50;
    with_slice(pages, move |slice| async move {
        for page in 0..pages {
            slice.write(unit(page), content(page), rt::Durability::Cached).await.unwrap();
            let (all, open) = counts(&slice);
            assert!(all <= PAGES_MAX && open <= OPEN_MAX, "{all} pages, {open} of them open");
        }
        for page in 0..pages {
            let found = slice.read(unit(page), ByteLen(UNIT)).await.unwrap();
            assert_eq!(found.to_vec(), content(page).to_vec());
        }
        slice.settle(Duration::ZERO).await.unwrap();
        assert_eq!(counts(&slice).1, 0);
        rt::sleep(FORGOTTEN_AFTER).await;
        slice.write(unit(0), content(0), rt::Durability::Cached).await.unwrap();
        slice.settle(Duration::ZERO).await.unwrap();
        assert_eq!(counts(&slice), (1, 0));
    });
}

/// Pages that were read long before: such a page must not be closed again for another one before the write
/// that has opened it.
#[test]
fn more_writes_than_pages_may_be_open_get_on_with_each_other() {
    let pages = 3 * OPEN_MAX as u64;
    with_slice(pages, move |slice| async move {
        for page in 0..pages {
            slice.read(unit(page), ByteLen(UNIT)).await.unwrap();
        }
        rt::sleep(Duration::from_secs(1)).await;
        let began = rt::now();
        let write = |page| slice.write(unit(page), content(page), rt::Durability::Cached);
        for written in rt::join_all((0..pages).map(write)).await {
            written.unwrap();
        }
        assert!(rt::now().since(began) < Duration::from_secs(1));
        for page in 0..pages {
            let found = slice.read(unit(page), ByteLen(UNIT)).await.unwrap();
            assert_eq!(found.to_vec(), content(page).to_vec());
        }
        slice.settle(Duration::ZERO).await.unwrap();
        assert_eq!(counts(&slice).1, 0);
    });
}
