//! GET LBA STATUS: which blocks take space.

use base::{BlockSize, ByteLen, Lba, LbaRange};
use initiator::command::{GetLbaStatus, Provisioning};
use initiator::{Lun, Session};
use node::Config;
use node::control::NewVolume;

use crate::content::{Stamp, stamped};
use crate::rig::{POOL, Rig, Shape, log_in, map, new_volume};
use crate::workload::volume_number;

/// What one command examines at most, in bytes.
const LOOK_BYTES_MAX: u64 = 4 << 30;

/// A RAM volume, which takes space only where it was written.
fn add(rig: &Rig, slices: u16, size: ByteLen) {
    let new = NewVolume { slices: Some(slices), size, ..new_volume(POOL, Shape::ram()) };
    rig.control(move |control| async move {
        control.create_volume(new).await.unwrap();
        map(&control, "ram", 0).await.unwrap();
    });
}

/// The mapped ranges of `blocks`, merged, and the number of commands that it took to get them.
async fn mapped(session: &Session, blocks: u64) -> (Vec<LbaRange>, usize) {
    let mut found: Vec<LbaRange> = Vec::new();
    let (mut at, mut commands) = (Lba(0), 0);
    while at.0 < blocks {
        let status = session.send(Lun(0), &GetLbaStatus { lba: at }).await.unwrap();
        commands += 1;
        assert!(!status.is_empty());
        let began = at;
        for extent in status {
            assert_eq!(extent.blocks.start, at, "the next begins where the last ended");
            at = extent.blocks.end();
            if extent.provisioning == Provisioning::Mapped {
                match found.last_mut() {
                    Some(last) if last.end() == extent.blocks.start => last.count.0 += extent.blocks.count.0,
                    _ => found.push(extent.blocks),
                }
            }
        }
        assert!((at.0 - began.0) * 4096 <= LOOK_BYTES_MAX, "one command looks at {} blocks", at.0 - began.0);
    }
    assert_eq!(at.0, blocks);
    (found, commands)
}

#[test]
fn one_command_covers_part_of_a_large_volume() {
    for slices in [1, 2] {
        let size = ByteLen(11 << 30);
        let rig = Rig::with_config(1, 2, Config { ram_bytes_max: size.0, ..Config::default() });
        add(&rig, slices, size);
        rig.client("client").run(move |portal| async move {
            let session = log_in(portal, "client", 0).await;
            let (found, commands) = mapped(&session, size.0 / 4096).await;
            assert_eq!((found, commands), (vec![], 3));
        });
    }
}

#[test]
fn many_extents_are_reported_one_after_the_other() {
    for slices in [1, 2] {
        let rig = Rig::new(1, 2);
        add(&rig, slices, ByteLen(32 << 20));
        rig.client("client").run(move |portal| async move {
            let session = log_in(portal, "client", 0).await;
            // Every third block, and one long run: more ranges than one command returns.
            let lone =
                (0..2000).map(|number| LbaRange { start: Lba(number * 3), count: base::BlockCount(1) });
            let run = LbaRange { start: Lba(6500), count: base::BlockCount(700) };
            let written: Vec<LbaRange> = lone.chain([run]).collect();
            for range in &written {
                let stamp = Stamp { client: 1, sequence: 1 };
                let sectors = range.count.0 as usize * 8;
                let data = stamped(volume_number(0), range.start.0 * 8, sectors, stamp);
                session.write(Lun(0), range.start, data, BlockSize::B4096).await.unwrap();
            }
            let (found, _) = mapped(&session, (32 << 20) / 4096).await;
            assert!(found == written, "{} extents", found.len());
        });
    }
}
