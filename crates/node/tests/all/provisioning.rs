//! What a unit tells of itself, and blocks that are given back.

use base::{BlockCount, BlockSize, ByteLen, Chain, Lba, LbaRange};
use initiator::command::{
    AccessState, LbaStatus, PortGroup, Provisioning, ReadFullStatus, ReservationType, ServiceAction,
    WriteSame,
};
use initiator::{Lun, Session, Transfer};
use node::Config;
use node::control::{PoolSpec, TargetSpec};
use proto::scsi::{Cdb, RelativePort};
use store::NewDisk;

use crate::commands::{register, reserve};
use crate::content::{Stamp, stamped};
use crate::rig::{MIB, POOL, Rig, Shape, TARGET, log_in};
use crate::seeds::each_seed;
use crate::workload::volume_number;

const LUN: Lun = Lun(0);

#[test]
fn who_a_unit_is_and_how_it_is_reached() {
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
fn registrants_are_told_by_name() {
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
            assert_eq!(registrants[0].port, RelativePort(1).0);
            let id = String::from_utf8_lossy(&registrants[1].transport_id).into_owned();
            assert!(id.contains("iqn.2026-01.org.ursa:other,i,0x"), "{id}");
        });
    });
}

/// SBC-3: a unit that gives nothing back is fully provisioned. Its pool says which it is, whatever the file looks like.
#[test]
fn a_volume_of_a_reserved_pool_does_not_promise_to_give_space_back() {
    async fn ask(session: &Session, lun: Lun, fields: &[(usize, u8)], len: u32) -> Vec<u8> {
        let mut cdb = [0; 16];
        fields.iter().for_each(|(at, byte)| cdb[*at] = *byte);
        let result = session.command(lun, Cdb(cdb), Transfer::In(len)).await.unwrap();
        result.data.unwrap().to_vec()
    }
    for reserve in [false, true] {
        let rig = Rig::without_pool(1, 2, Config::default());
        rig.control(move |control| async move {
            let disk = NewDisk { path: "/pool".into(), create: Some(ByteLen(64 * MIB)), reserve };
            let spec = PoolSpec { name: POOL.into(), disks: vec![disk], wipe: false };
            control.create_pool(spec).await.unwrap();
            let name = TARGET.to_owned();
            control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        });
        rig.add(Shape::thick());
        rig.add(Shape { lun: 1, ..Shape::ram() });
        for name in ["before", "after"] {
            if name == "after" {
                rig.world.kill(rig.server);
                rig.start();
            }
            rig.client(name).run(move |portal| async move {
                let session = log_in(portal, "client", 0).await;
                session.make_ready(Lun(1)).await.unwrap();
                // Memory is given back in any case.
                for (lun, gives_back) in [(LUN, !reserve), (Lun(1), true)] {
                    let capacity = ask(&session, lun, &[(0, 0x9e), (1, 0x10), (13, 32)], 32).await;
                    assert_eq!(capacity[14] & 0x80 != 0, gives_back, "LBPME");
                    let page = ask(&session, lun, &[(0, 0x12), (1, 1), (2, 0xb2), (4, 8)], 8).await;
                    let expected = if gives_back { [0xe4, 0x02] } else { [0, 0] };
                    assert_eq!(page[5..7], expected, "LBPU and its like; thin");
                }
            });
        }
    }
}

#[test]
fn blocks_are_given_back_and_read_as_zeros() {
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
