//! Unit attentions of a session's units together.

use initiator::{Error, Lun, Session, Transfer};
use proto::scsi::Cdb;

use crate::rig::{Rig, Shape, TARGET, log_in};

/// REPORTED LUNS DATA HAS CHANGED (SPC-4).
const REPORTED_LUNS_CHANGED: (u8, u16) = (0x06, 0x3f0e);

async fn test_unit_ready(session: &Session, lun: u16) -> Result<(), Error> {
    session.command(Lun(lun), Cdb([0; 16]), Transfer::None).await.map(drop)
}

async fn report_luns(session: &Session, lun: u16) -> Vec<u8> {
    let mut cdb = [0; 16];
    cdb[0] = 0xa0;
    cdb[8..10].copy_from_slice(&256_u16.to_be_bytes());
    let result = session.command(Lun(lun), Cdb(cdb), Transfer::In(256)).await.unwrap();
    let data = result.data.unwrap().to_vec();
    data[8..].chunks_exact(8).map(|lun| lun[1]).collect()
}

/// SPC-4, REPORT LUNS: whoever has read the list need not be told of its change by any unit.
#[test]
fn the_list_of_units_is_news_until_it_was_read_anywhere() {
    let rig = Rig::new(1, 2);
    let at = |name, lun| Shape { name, lun, mib: 1, ..Shape::ram() };
    rig.add(at("first", 0));
    rig.add(at("second", 1));
    let client = rig.client("client");
    let session = client.run(|portal| async move {
        let session = log_in(portal, "client", 0).await;
        session.make_ready(Lun(1)).await.unwrap();
        session
    });
    for (asked, new) in [(0, 2), (1, 3), (200, 4)] {
        rig.add(at(["third", "fourth", "fifth"][new - 2], new as u16));
        let session = std::rc::Rc::clone(&session);
        client.run(move |_| async move {
            let luns = report_luns(&session, asked).await;
            assert_eq!(luns, (0..=new as u8).collect::<Vec<_>>());
            for lun in 0..2 {
                test_unit_ready(&session, lun).await.unwrap();
            }
        });
    }
    // Who has not read it is told once by each unit.
    rig.control(|control| async move { control.unmap(TARGET, 0, None).await }).unwrap();
    client.run(move |_| async move {
        let error = test_unit_ready(&session, 1).await.unwrap_err();
        assert_eq!(error.sense(), Some(REPORTED_LUNS_CHANGED));
        test_unit_ready(&session, 1).await.unwrap();
    });
}
