//! Power cuts: acknowledged durable writes are not lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, Rng};
use store::VolumeKind;

use crate::commands::set_write_cache;
use crate::rig::{Rig, Shape, log_in};
use crate::seeds::each_seed;
use crate::shadow::Shadow;
use crate::workload::{Worker, read_all, volume_number};

/// Cuts the power under load, again and again, and checks all data after each restart.
pub(crate) fn cut_the_power_under_load(seed: u64, write_through: bool) -> u64 {
    let rig = Rig::new(seed, 2);
    let sectors = Shape { name: "sectors", block: BlockSize::B512, mib: 3, lun: 1, ..Shape::thick() };
    let log = Shape { name: "log", kind: VolumeKind::Log, lun: 2, ..Shape::thick() };
    let log_sectors = Shape { name: "log-sectors", kind: VolumeKind::Log, lun: 3, ..sectors };
    let shapes = [Shape::thick(), sectors, log, log_sectors];
    shapes.into_iter().for_each(|shape| rig.add(shape));
    if write_through {
        rig.client("administrator").run(move |portal| async move {
            for shape in shapes {
                let session = log_in(portal, "administrator", shape.lun).await;
                set_write_cache(&session, shape.lun, false).await.unwrap();
            }
        });
    }
    let shadows = shapes.map(|shape| Rc::new(RefCell::new(Shadow::new(volume_number(shape.lun)))));
    let mut rng = Rng::new(seed);
    for round in 0..3 {
        let mut clients = Vec::new();
        for (shape, shadow) in shapes.into_iter().zip(&shadows) {
            for mut worker in Worker::share(shape, 3, shadow, &mut rng) {
                worker.write_through = write_through;
                let name = format!("client-{round}-{}-{}", shape.name, worker.blocks.start);
                let client = rig.client(&name);
                client.spawn(move |portal| async move {
                    let session = log_in(portal, &name, shape.lun).await;
                    // It ends with the power.
                    let _ = worker.work(session, u64::MAX).await;
                });
                clients.push(client);
            }
        }
        rig.world.run_for(Duration::from_micros(5_000 + rng.below(40_000)));
        rig.world.crash(rig.server);
        clients.into_iter().for_each(|client| rig.world.kill(client.node));
        rig.start();
        let shadows = shadows.clone();
        rig.client("reader").run(move |portal| async move {
            for (shape, shadow) in shapes.into_iter().zip(shadows) {
                let session = log_in(portal, "reader", shape.lun).await;
                let all = read_all(&session, shape).await;
                if write_through {
                    // The mode was changed by MODE SELECT without saving: the default is back.
                    set_write_cache(&session, shape.lun, false).await.unwrap();
                }
                shadow.borrow_mut().check_after_cut(0, &all).unwrap();
            }
        });
    }
    rig.world.log_hash()
}

#[test]
fn durable_and_flushed_writes_survive_power_cuts() {
    each_seed(4, |seed| {
        cut_the_power_under_load(seed, false);
    });
}

#[test]
fn without_a_write_cache_every_answered_write_survives_power_cuts() {
    each_seed(3, |seed| {
        cut_the_power_under_load(seed, true);
    });
}
