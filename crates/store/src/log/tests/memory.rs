use super::super::ENTRY_BYTES;
use super::super::leaf::{Era, LEAF_BYTES_MAX, LEAF_GRAIN, Leaf, LeafKey, encode};
use super::super::place::{Spot, Stored};
use super::super::segment::{Kind, words};
use super::super::state::{LeafPlace, encoded_len};
use super::*;

/// Blocks that are this far apart are each the only one of their leaf.
const APART: u64 = 300;

async fn write_apart(slice: &Slice) {
    for number in 0..APART {
        write(slice, number * 512, number + 1, Durability::Durable).await.unwrap();
    }
    check(slice).await;
}

async fn read_apart(slice: &Slice) {
    for number in 0..APART {
        assert_eq!(read(slice, number * 512).await, Ok(number + 1));
    }
    check(slice).await;
}

/// Bytes that the log's leaves take.
fn leaves(slice: &Slice) -> usize {
    log_of(slice).inner.state.borrow().cache.held()
}

#[test]
fn logs_share_memory_whichever_is_used_first() {
    const MEMORY: ByteLen = ByteLen(128 << 10);
    let world = World::new(1);
    let node = machine(&world, 1, 32 << 20, 1);
    world.block_on(node, CORE, || async {
        let pool = create(1).await;
        let memory = LogMemory::new(MEMORY);
        pool.set_log_memory(memory.clone());
        let id = pool.create_volume(spec("v", 2 * APART * 512 * BLOCK, 2)).await.unwrap().id;
        let disks = pool.share_disks().attach();
        {
            let both = slices(&pool, &disks, id);
            let [one, other] = &both[..] else { panic!("two slices") };
            write_apart(one).await;
            read_apart(one).await;
            let alone = leaves(one);
            assert!(alone as u64 > MEMORY.0 / 3, "nobody else wants it: {alone}");
            assert!(memory.used() <= MEMORY);
            write_apart(other).await;
            read_apart(other).await;
            read_apart(one).await;
            read_apart(other).await;
            assert!(leaves(one) < alone * 3 / 4, "{} of {alone}", leaves(one));
            let (least, most) = (leaves(one).min(leaves(other)), leaves(one).max(leaves(other)));
            assert!(least > 0 && most <= 2 * least, "{least} and {most}");
            assert!(memory.used() <= MEMORY, "{:?}", memory.used());
        }
        pool.logs_ended().await;
        assert_eq!(memory.used(), ByteLen(0));
    });
}

/// A log of 1 TiB that is full, and was written at random: 80 % of its segments are live, so there are a
/// quarter more. What it must have in memory leaves room for leaves, of which none are kept beyond the limit.
#[test]
fn a_log_of_a_tebibyte_takes_less_than_a_gigabyte_per_terabyte() {
    const SEGMENT_SHIFT: u8 = 26;
    const SLOTS: u32 = 1 << (SEGMENT_SHIFT - 12);
    const SEGMENTS: u32 = (5u64 << 40 >> 2 >> SEGMENT_SHIFT) as u32;
    const LEAVES: u64 = (1 << 40) / (512 * BLOCK);
    // 1 GB for each TB of a TiB.
    let limit = ByteLen((1 << 40) / 1000);
    for (packed, required_mib_max) in [(false, 160), (true, 400)] {
        let memory = LogMemory::new(limit);
        let mut state = without_pool(SEGMENT_SHIFT, memory.clone());
        for segment in 0..SEGMENTS {
            state.segments.begin(segment, 7, Kind::Data);
            let used = state.segments.used.get_mut(&segment).unwrap();
            (used.packed, used.bits) = (packed, vec![0; words(SLOTS, packed)]);
        }
        let len = (LEAF_BYTES_MAX / LEAF_GRAIN) as u8;
        let place = LeafPlace { segment: 0, at: 0, len, blocks: 512, quarters: 2048 };
        state.leaves = (0..LEAVES).map(|number| ((Era::first(1), number), place)).collect();
        state.segments.live_map = LEAVES * u64::from(len);
        let packed_segments = if packed { SEGMENTS as usize } else { 0 };
        state.state_len = encoded_len(0, SEGMENTS as usize, packed_segments, 64, LEAVES as usize, SLOTS);
        state.account(&LogTuning::default());
        let required = memory.used().0;
        assert!(required >> 20 < required_mib_max, "{} MiB", required >> 20);
        // All leaves are as large as they can be. They share their bytes here.
        let spots = [Spot::At(Stored { place: Place::new(1, 1), crc: 1 }); 512];
        let (era, key) = (Era::first(1), (Era::first(1), 0));
        let leaf = Leaf::check(&encode(key, 7, &spots).unwrap(), key, 7).unwrap();
        for number in 0..LEAVES / 2 {
            state.cache.insert((era, number), leaf.clone());
        }
        assert!(memory.used() <= limit, "{:?}", memory.used());
        assert!(state.cache.held() as u64 > limit.0 / 2, "{} bytes of leaves", state.cache.held());
        memory.check();
    }
    // What an entry of the directory is counted as covers nodes that are half full.
    assert!(size_of::<(LeafKey, LeafPlace)>() * 11 / 6 <= ENTRY_BYTES);
}
