//! Many tasks that create, fill, grow and delete volumes of one pool concurrently.
//!
//! Extents change hands while I/O is under way, and no task ever sees another's data.

use std::rc::Rc;

use base::{BlockSize, ByteLen, Rng};
use rt::Durability;
use rt::sim::World;
use store::{Pool, StoreError, VolumeSpec};

use crate::disk::{CORE, Volume, creating, existing, machine, opening, paths, thick};

/// Rounds of each task.
const ROUNDS: u32 = 6;

async fn one(pool: Rc<Pool>, number: u8, mut rng: Rng) {
    for round in 0..ROUNDS {
        let block = if rng.one_in(2) { BlockSize::B512 } else { BlockSize::B4096 };
        let name = format!("{number}-{round}");
        let capacity = (1 + rng.below(40)) * 8192;
        let spec = VolumeSpec { block_size: block, ..thick(&name, capacity) };
        let info = match pool.create_volume(spec).await {
            Ok(info) => info,
            Err(StoreError::NoSpace { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        let mut volume = Volume::open(&pool, info.id);
        let expect = async |volume: &Volume, filled: u64| {
            let data = volume.read(0, volume.info.capacity.0).await.unwrap();
            let (full, fresh) = data.split_at(filled as usize);
            assert!(full.iter().all(|byte| *byte == number), "{name} has lost its bytes");
            assert!(fresh.iter().all(|byte| *byte == 0), "{name} sees another's bytes");
        };
        expect(&volume, 0).await;
        volume.write(0, &vec![number; capacity as usize], Durability::Cached).await.unwrap();
        pool.set_lu_state(info.id, vec![number; 100]).await.unwrap();
        expect(&volume, capacity).await;
        match pool.grow_volume(info.id, ByteLen(capacity * 2)).await {
            Ok(_) => volume.grow(&pool),
            Err(StoreError::NoSpace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        expect(&volume, capacity).await;
        if rng.one_in(2) {
            volume.zero(0, capacity).await.unwrap();
            expect(&volume, 0).await;
        }
        drop(volume);
        pool.delete_volume(info.id).await.unwrap();
    }
}

#[test]
fn no_volume_shows_anothers_data() {
    for seed in 0..12 {
        let world = World::new(seed);
        let node = machine(&world, &[(3 << 20, 512), (2 << 20, 4096)]);
        world.block_on(node, CORE, move || async move {
            let pool = Rc::new(Pool::create(existing(2), creating()).await.unwrap());
            let mut rng = Rng::new(seed);
            let crowd: Vec<_> =
                (1..9).map(|number| rt::spawn(one(Rc::clone(&pool), number, rng.fork()))).collect();
            for one in crowd {
                one.await;
            }
            assert_eq!(pool.usage().free, pool.usage().total);
            drop(pool);
            let pool = Pool::open(&paths(2), opening(1)).await.unwrap();
            assert!(pool.volumes().is_empty());
        });
    }
}

/// An export waits for changes under way, and no other change may begin.
#[test]
fn an_export_waits_for_changes() {
    let world = World::new(1);
    let node = machine(&world, &[(3 << 20, 512)]);
    world.block_on(node, CORE, || async {
        let pool = Pool::create(existing(1), creating()).await.unwrap();
        let making = pool.clone();
        let making = rt::spawn(async move { making.create_volume(thick("mail", 1 << 20)).await });
        rt::yield_now().await;
        rt::yield_now().await;
        pool.export().await.unwrap();
        assert!(making.await.is_ok());
        assert!(matches!(pool.create_volume(thick("late", 4096)).await, Err(StoreError::Exported(_))));
        drop(pool);
        assert_eq!(Pool::open(&paths(1), opening(2)).await.unwrap().volumes().len(), 1);
    });
}
