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
            assert!(alone as u64 > MEMORY.0 / 2, "nobody else wants it: {alone}");
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
