use std::time::Duration;

use rt::sim::DiskLatency;

use super::*;

const LEAVES: u64 = 600;

/// How long a step of a checkpoint takes at most: it reads some leaves.
const STEP: Duration = Duration::from_millis(110);

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
    let read = Duration::from_millis(100)..STEP;
    world.set_disk_latency(node, path(0), DiskLatency { read, spike_one_in: 0, ..DiskLatency::default() });
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
