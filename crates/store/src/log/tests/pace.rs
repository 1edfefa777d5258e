use super::super::leaf::LeafKey;
use super::super::segment::{Kind, Used};
use super::super::state::LeafPlace;
use super::*;

const LEAVES: u64 = 600;

/// Hosts write faster than a checkpoint lets them: they wait for its steps, and not for all of it.
///
/// Before, they wrote what they might at once, and then waited for the rest of the checkpoint.
#[test]
fn a_write_waits_for_a_few_steps_of_a_checkpoint_at_a_time() {
    let world = World::new(1);
    let node = machine(&world, 1, 64 << 20, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_log_tuning(LogTuning {
            segment: Some(ByteLen(256 << 10)),
            zone_segments: 128,
            changes_min: 4096,
            changes_max: 4096,
            replay_bytes: 16 << 20,
            ..tuning()
        });
        let id = pool.create_volume(spec("v", LEAVES * 512 * BLOCK, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        for leaf in 0..LEAVES {
            write(&slice, leaf * 512, leaf + 1, Durability::Durable).await.unwrap();
        }
        log_of(&slice).inner.merge_all().await.unwrap();
        (pool, disks, slice)
    });
    read_slowly(&world, node);
    world.block_on(node, CORE, move || async move {
        let checkpoints = || log_of(&slice).inner.state.borrow().checkpoints;
        let (first, began) = (checkpoints(), rt::now());
        let (mut number, mut longest) = (0, Duration::ZERO);
        while checkpoints() < first + 3 {
            let began = rt::now();
            write(&slice, number % LEAVES * 512, number + 1, Durability::Durable).await.unwrap();
            longest = longest.max(rt::now() - began);
            number += 1;
        }
        let steps = LEAVES as u32 / 32;
        assert!(rt::now() - began > steps * STEP, "a checkpoint takes many steps");
        assert!(longest < 3 * STEP, "a write took {longest:?}");
        drop((pool, disks));
    });
}

/// What hosts wait for near low water: the cleaner reads a part of a victim while it writes what is live in
/// the one before.
#[test]
fn the_cleaner_reads_while_it_writes() {
    // A segment of 512 slots, which the cleaner reads in three parts: each begins with the record that the
    // one before does not have in full.
    const BLOCKS: u64 = 500;
    let world = World::new(1);
    let node = machine(&world, 1, 64 << 20, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let segment = Some(ByteLen(2 << 20));
        pool.set_log_tuning(LogTuning { segment, zone_segments: 24, replay_bytes: 8 << 20, ..with_room() });
        let id = pool.create_volume(spec("v", BLOCKS * BLOCK, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        let data: Vec<u8> = (1..=BLOCKS).flat_map(block).collect();
        slice.write(ByteOffset(0), Chain::copy_of(&data), Durability::Durable).await.unwrap();
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        (pool, disks, slice)
    });
    let access = || Duration::from_millis(100)..STEP;
    let latency = DiskLatency { read: access(), write: access(), spike_one_in: 0, ..DiskLatency::default() };
    world.set_disk_latency(node, path(0), latency);
    world.block_on(node, CORE, move || async move {
        let inner = Rc::clone(&log_of(&slice).inner);
        let victim = {
            let mut state = inner.state.borrow_mut();
            state.segments.seal_hosts();
            let data = state.segments.used.iter().find(|(_, used)| used.live > 1000);
            *data.expect("it holds all blocks").0
        };
        let (mut gathered, began) = (Vec::new(), rt::now());
        inner.clean(victim, &mut gathered).await.unwrap();
        let took = rt::now() - began;
        // A read, twice both at once, and a write. One after the other, they would be six steps.
        assert!(took < 9 * STEP / 2, "it took {took:?}");
        assert!(inner.state.borrow().written_moved > 0);
        drop((pool, disks));
    });
}

/// Map segments become sparse, and checkpoints empty them. Hosts use up what they may write meanwhile.
///
/// Before, a write waited for hundreds of leaves: there was no pace, because that was little.
#[test]
fn a_write_waits_for_a_few_steps_while_map_segments_are_emptied() {
    const MANY: u64 = 2000;
    let world = World::new(1);
    let node = machine(&world, 1, 64 << 20, 1);
    let (pool, disks, slice) = world.block_on(node, CORE, || async {
        let pool = create(1).await;
        pool.set_log_tuning(LogTuning { replay_bytes: 4 << 20, ..with_room() });
        let id = pool.create_volume(spec("v", MANY * 512 * BLOCK, 1)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        let slice = slices(&pool, &disks, id).remove(0);
        write_leaves(&slice, MANY, 1).await;
        log_of(&slice).inner.merge_all().await.unwrap();
        idle(&slice).await;
        (pool, disks, slice)
    });
    read_slowly(&world, node);
    world.block_on(node, CORE, move || async move {
        let inner = Rc::clone(&log_of(&slice).inner);
        let (gone, kept): (Vec<u64>, Vec<u64>) = (1..MANY).partition(|leaf| leaf % 10 < 7);
        let places = || -> BTreeMap<LeafKey, LeafPlace> {
            let state = inner.state.borrow();
            let kept = state.leaves.iter().filter(|((_, leaf), _)| kept.binary_search(leaf).is_ok());
            kept.map(|(key, place)| (*key, *place)).collect()
        };
        let before = places();
        for some in gone.chunks(100) {
            let zero = |leaf: &u64| slice.zero(ByteOffset(leaf * 512 * BLOCK), ByteLen(BLOCK));
            for zeroed in rt::join_all(some.iter().map(zero)).await {
                zeroed.unwrap();
            }
        }
        let checkpoints = || inner.state.borrow().checkpoints;
        let first = checkpoints();
        let longest = longest_write(&slice, 300, || checkpoints() < first + 4).await;
        assert!(longest < 3 * STEP, "a write took {longest:?}");
        let after = places();
        assert_eq!(after.len(), kept.len());
        let moved = after.iter().filter(|(key, place)| before.get(*key) != Some(*place)).count();
        assert!(moved >= 128, "{moved} leaves were written somewhere else");
        drop((pool, disks));
    });
}

/// Before, what the cleaner had begun to read when it ended was cancelled. Then the log ended, too, and the
/// disk could still be reading when it was opened again.
#[test]
fn a_log_does_not_end_before_what_the_cleaner_reads_ahead() {
    let world = World::new(1);
    let node = machine(&world, 1, 16 << 20, 1);
    read_slowly(&world, node);
    world.block_on(node, CORE, || async {
        let (_pool, _disks, _id, slice) = one_slice(4 << 20).await;
        write(&slice, 1, 7, Durability::Durable).await.unwrap();
        idle(&slice).await;
        let inner = Rc::clone(&log_of(&slice).inner);
        let has_data = |used: &Used| used.kind == Kind::Data && used.live > 0;
        let victims: Vec<u32> = {
            let state = inner.state.borrow();
            let used = state.segments.used.iter().filter(|(_, used)| has_data(used));
            used.map(|(segment, _)| *segment).collect()
        };
        let users = Rc::strong_count(&inner);
        drop(inner.read_window(victims[0], 0));
        for _ in 0..9 {
            rt::yield_now().await;
        }
        assert_eq!(Rc::strong_count(&inner), users + 1);
        rt::sleep(2 * STEP).await;
        assert_eq!(Rc::strong_count(&inner), users);
    });
}
