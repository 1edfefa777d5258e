//! Unit attentions that concern all units of a session.

use std::rc::Rc;

use initiator::{Error, Lun, Session, Transfer};
use node::access::HostGroup;
use node::control::{MapSpec, TargetSpec};
use proto::scsi::Cdb;

use crate::rig::{POOL, Rig, Shape, TARGET, log_in, named, new_volume};

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

/// SPC-4, REPORT LUNS: no unit need report a change of the list to an initiator that has read it.
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
        let session = Rc::clone(&session);
        client.run(move |_| async move {
            let luns = report_luns(&session, asked).await;
            assert_eq!(luns, (0..=new as u8).collect::<Vec<_>>());
            for lun in 0..2 {
                test_unit_ready(&session, lun).await.unwrap();
            }
        });
    }
    // To an initiator that has not read it, each unit reports it once.
    rig.control(|control| async move { control.unmap(TARGET, 0, None).await }).unwrap();
    client.run(move |_| async move {
        let error = test_unit_ready(&session, 1).await.unwrap_err();
        assert_eq!(error.sense(), Some(REPORTED_LUNS_CHANGED));
        test_unit_ready(&session, 1).await.unwrap();
    });
}

/// A change is reported only to initiators that see another list.
///
/// Each attention costs an initiator a command, and many rescan for it.
#[test]
fn only_initiators_that_see_a_change_are_notified() {
    const SECOND: &str = "iqn.2026-01.org.ursa:second";
    let rig = Rig::new(1, 2);
    let at = |name, lun| Shape { name, lun, mib: 1, ..Shape::ram() };
    rig.add(at("first", 0));
    rig.add(at("mine", 1));
    rig.control(|control| async move {
        let name = SECOND.to_owned();
        control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
        let spec = MapSpec { target: SECOND.into(), host: "any".into(), lun: Some(0) };
        control.map("first", spec).await.unwrap();
    });
    let client = rig.client("client");
    let connect = |name: &'static str, target: &'static str| {
        client.run(move |portal| async move {
            let session = Session::connect(portal, target, &named(name)).await.unwrap();
            session.make_ready(Lun(0)).await.unwrap();
            Rc::new(session)
        })
    };
    let (owner, other, second) =
        (connect("owner", TARGET), connect("other", TARGET), connect("second", SECOND));
    let told = |session: &Rc<Session>| {
        let session = Rc::clone(session);
        client.run(move |_| async move {
            let mut told = 0;
            while let Err(error) = test_unit_ready(&session, 0).await {
                assert_eq!(error.sense(), Some(REPORTED_LUNS_CHANGED));
                told += 1;
            }
            told
        })
    };
    let map = |target: &'static str, host: &'static str, lun| {
        let spec = MapSpec { target: target.into(), host: host.into(), lun: Some(lun) };
        rig.control(move |control| async move { control.map("unseen", spec).await }).unwrap();
    };
    // A volume that no host sees, a group for one, and a target without maps.
    rig.control(move |control| async move {
        let new = new_volume(POOL, at("unseen", 0));
        control.create_volume(new).await.unwrap();
        let initiators = vec!["iqn.2026-01.org.ursa:owner".to_owned()];
        let name = "owners".parse().unwrap();
        control.set_host(HostGroup { name, initiators, addresses: vec![], chap: None }, true).await.unwrap();
        let name = "iqn.2026-01.org.ursa:third".to_owned();
        control.create_target(TargetSpec { name, alias: None, chap: None }).await.unwrap();
    });
    assert_eq!((told(&owner), told(&other), told(&second)), (0, 0, 0));
    map(TARGET, "owners", 7);
    assert_eq!((told(&owner), told(&other), told(&second)), (1, 0, 0));
    map(SECOND, "any", 3);
    assert_eq!((told(&owner), told(&other), told(&second)), (0, 0, 1));
    rig.control(|control| async move { control.unmap(TARGET, 7, None).await }).unwrap();
    assert_eq!((told(&owner), told(&other), told(&second)), (1, 0, 0));
}
