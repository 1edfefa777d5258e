//! Reads return what was written.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Lba, Rng};
use initiator::Lun;

use crate::content::{Stamp, single_stamp, stamped};
use crate::rig::{Rig, Shape, log_in};
use crate::seeds::{each_seed, each_seed_twice};
use crate::shadow::Shadow;
use crate::workload::{Worker, read_all, volume_number};

fn shapes() -> [Shape; 3] {
    let sectors = Shape { name: "sectors", block: BlockSize::B512, lun: 1, ..Shape::thick() };
    [Shape::thick(), sectors, Shape { lun: 2, ..Shape::ram() }]
}

#[test]
fn a_client_reads_what_it_wrote() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        shapes().into_iter().for_each(|shape| rig.add(shape));
        rig.client("client").run(|portal| async move {
            for shape in shapes() {
                let session = log_in(portal, "client", shape.lun).await;
                let capacity = session.read_capacity(Lun(shape.lun)).await.unwrap();
                assert_eq!((capacity.blocks.0, capacity.block_size), (shape.blocks(), shape.block));
                // From the middle of one stripe unit, across a whole one, to the middle of the next.
                let (block, stamp) = (u64::from(shape.block.bytes()), Stamp { client: 1, sequence: 1 });
                let (start, len) = ((1 << 20) / 2 + 8192, (2 << 20) + 4096);
                let data = stamped(volume_number(shape.lun), start / 512, len / 512, stamp);
                let (lun, lba) = (Lun(shape.lun), Lba(start / block));
                session.write(lun, lba, data, shape.block).await.unwrap();
                let count = BlockCount(len as u64 / block);
                let found = session.read(lun, lba, count, shape.block).await.unwrap();
                assert_eq!(single_stamp(volume_number(shape.lun), start / 512, &found), Some(stamp));
                let around = read_all(&session, shape).await;
                assert!(around[..start as usize].iter().all(|byte| *byte == 0), "nothing before it");
                assert!(around[start as usize + len..].iter().all(|byte| *byte == 0), "nothing behind it");
            }
        });
    });
}

#[test]
fn several_sessions_on_all_cores_read_what_they_wrote_and_a_seed_gives_one_run() {
    each_seed_twice(3, |seed| {
        let rig = Rig::new(seed, 3);
        shapes().into_iter().for_each(|shape| rig.add(shape));
        let mut rng = Rng::new(seed);
        let mut running = Vec::new();
        let mut shadows = Vec::new();
        for shape in shapes() {
            let shadow = Rc::new(RefCell::new(Shadow::new(volume_number(shape.lun))));
            for worker in Worker::share(shape, 3, &shadow, &mut rng) {
                let name = format!("client-{}-{}", shape.name, worker.blocks.start);
                running.push(rig.client(&name).spawn(move |portal| async move {
                    let session = log_in(portal, &name, shape.lun).await;
                    worker.work(session, 40).await.unwrap();
                }));
            }
            shadows.push((shape, shadow));
        }
        rig.world.run_for(Duration::from_millis(5));
        let sessions = rig.control(|control| async move { control.sessions().await }).unwrap();
        let has_session = |core| sessions.iter().any(|session| session.core == rt::CoreId(core));
        assert!((0..3).all(has_session), "{sessions:?}");
        running.into_iter().for_each(|client| rig.world.wait_for(client).unwrap());
        rig.client("reader").run(|portal| async move {
            for (shape, shadow) in shadows {
                let session = log_in(portal, "reader", shape.lun).await;
                let all = read_all(&session, shape).await;
                shadow.borrow().check_alive(0, &all).unwrap();
            }
        });
        rig.world.log_hash()
    });
}
