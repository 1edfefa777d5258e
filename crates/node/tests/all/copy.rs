//! EXTENDED COPY between volumes.

use base::{BlockCount, BlockSize, Lba};
use initiator::Lun;

use crate::commands::{Copy, extended_copy, naa};
use crate::content::{Stamp, stamped};
use crate::rig::{POOL, Rig, Shape, log_in, new_volume};
use crate::seeds::each_seed;
use crate::workload::volume_number;

/// COPY ABORTED, COPY TARGET DEVICE NOT REACHABLE (SPC-4 6.4.5 and table 44).
const NOT_REACHABLE: (u8, u16) = (0x0a, 0x0d02);

#[test]
fn a_copy_moves_blocks_from_one_volume_to_another() {
    each_seed(3, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        rig.client("client").run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            session.make_ready(Lun(1)).await.unwrap();
            let data = stamped(volume_number(0), 100 * 8, 700 * 8, Stamp { client: 1, sequence: 1 });
            session.write(Lun(0), Lba(100), data.clone(), BlockSize::B4096).await.unwrap();
            let copy = Copy {
                source: naa(&session, 0).await,
                source_lba: 100,
                target: naa(&session, 1).await,
                target_lba: 900,
                blocks: 700,
            };
            extended_copy(&session, 0, copy).await.unwrap();
            let found = session.read(Lun(1), Lba(899), BlockCount(702), BlockSize::B4096).await.unwrap();
            assert!(found[4096..found.len() - 4096] == data.to_vec()[..]);
            assert!(found[..4096].iter().chain(&found[found.len() - 4096..]).all(|byte| *byte == 0));
        });
    });
}

#[test]
fn a_copy_is_no_way_around_lun_maps() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        let hidden = Shape { name: "hidden", ..Shape::ram() };
        let id = rig.control(move |control| async move {
            control.create_volume(new_volume(POOL, hidden)).await.unwrap().info.id
        });
        rig.client("client").run(move |portal| async move {
            let session = log_in(portal, "client", 0).await;
            let seen = naa(&session, 0).await;
            // The last 100 bits of the name are those of the volume's identity.
            let mut hidden = seen;
            hidden[4..].copy_from_slice(&id.0[4..]);
            hidden[3] = seen[3] & 0xf0 | id.0[3] & 0x0f;
            for (source, target) in [(hidden, seen), (seen, hidden)] {
                let copy = Copy { source, source_lba: 0, target, target_lba: 0, blocks: 1 };
                let refused = extended_copy(&session, 0, copy).await.unwrap_err();
                assert_eq!(refused.sense(), Some(NOT_REACHABLE), "{refused}");
            }
        });
    });
}
