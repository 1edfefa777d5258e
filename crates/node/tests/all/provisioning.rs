//! What a unit reports about itself, and blocks that are unmapped.

use base::{BlockCount, BlockSize, Chain, Lba, LbaRange};
use initiator::Lun;
use initiator::command::{
    AccessState, LbaStatus, PortGroup, Provisioning, ReadFullStatus, ReservationType, ServiceAction,
    WriteSame,
};
use proto::scsi::RelativePort;

use crate::commands::{register, reserve};
use crate::content::{Stamp, stamped};
use crate::rig::{Rig, Shape, log_in};
use crate::seeds::each_seed;
use crate::workload::volume_number;

const LUN: Lun = Lun(0);

#[test]
fn identification_and_paths_of_a_unit() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.add(Shape { lun: 200, ..Shape::ram() });
        rig.client("client").run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            assert_eq!(session.report_luns().await.unwrap(), [LUN, Lun(200)]);
            let thick = session.identify(LUN).await.unwrap();
            session.make_ready(Lun(200)).await.unwrap();
            let ram = session.identify(Lun(200)).await.unwrap();
            assert!(thick.unit != ram.unit && thick.unit.to_string().starts_with("naa.6025552"), "{thick:?}");
            assert!(session.identify(Lun(5)).await.is_err(), "there is no such unit");
            let groups = session.target_port_groups(LUN).await.unwrap();
            let own = PortGroup {
                id: thick.port_group.unwrap(),
                state: AccessState::ActiveOptimized,
                preferred: false,
                ports: vec![thick.port.unwrap()],
            };
            assert_eq!(groups, [own]);
        });
    });
}

#[test]
fn registrants_are_listed_by_name() {
    each_seed(1, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::thick());
        rig.client("client").run(|portal| async move {
            let holder = log_in(portal, "holder", 0).await;
            let other = log_in(portal, "other", 0).await;
            register(&holder, 0, 7, false).await.unwrap();
            register(&other, 0, 8, false).await.unwrap();
            reserve(&holder, 0, ServiceAction::Reserve, 7, 0).await.unwrap();
            let mut registrants = other.send(LUN, &ReadFullStatus).await.unwrap();
            registrants.sort_by_key(|registrant| registrant.key);
            assert_eq!(registrants.iter().map(|it| it.key).collect::<Vec<_>>(), [7, 8]);
            assert_eq!(registrants[0].holds, Some(ReservationType::WriteExclusive));
            assert_eq!(registrants[1].holds, None);
            assert_eq!(registrants[0].port, RelativePort(0x0101).0);
            let id = String::from_utf8_lossy(&registrants[1].transport_id).into_owned();
            assert!(id.contains("iqn.2026-01.org.ursa:other,i,0x"), "{id}");
        });
    });
}

#[test]
fn unmapped_blocks_are_released_and_read_as_zeros() {
    each_seed(2, |seed| {
        let rig = Rig::new(seed, 2);
        rig.add(Shape::ram());
        rig.client("client").run(|portal| async move {
            let session = log_in(portal, "client", 0).await;
            let size = BlockSize::B4096;
            let blocks = Shape::ram().blocks();
            let data = stamped(volume_number(0), 0, 1024, Stamp { client: 1, sequence: 1 });
            session.write(LUN, Lba(0), data.clone(), size).await.unwrap();
            let range = |start, count| LbaRange::new(Lba(start), BlockCount(count)).unwrap();
            session.unmap(LUN, &[range(100, 4), range(16, 8)]).await.unwrap();
            let zeros = WriteSame { lba: Lba(64), count: BlockCount(2), block: Chain::new(), unmap: false };
            session.write_same(LUN, zeros).await.unwrap();
            let found = session.read(LUN, Lba(0), BlockCount(128), size).await.unwrap();
            let data = data.to_vec();
            for (number, (found, written)) in found.chunks(4096).zip(data.chunks(4096)).enumerate() {
                let given_back = [16..24, 64..66, 100..104].iter().any(|blocks| blocks.contains(&number));
                let same = found == if given_back { &[0; 4096] } else { written };
                assert!(same, "block {number}");
            }
            let mut at = 0;
            while at < blocks {
                let extents: Vec<LbaStatus> = session.lba_status(LUN, Lba(at)).await.unwrap();
                assert_eq!(extents[0].blocks.start, Lba(at));
                at = extents.last().unwrap().blocks.end().0;
                assert!(extents.iter().any(|extent| extent.provisioning == Provisioning::Mapped));
            }
            assert_eq!(at, blocks);
        });
    });
}
