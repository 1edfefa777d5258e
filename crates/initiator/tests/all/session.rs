use std::net::SocketAddr;

use base::{BlockCount, BlockSize, Chain, Lba};
use initiator::{
    Capacity, Chap, Credentials, Error, LoginError, Lun, Options, Session, TaskFunction, Wish, discover,
};

use crate::ram_target::{NAME, RamTarget};
use crate::{real, simulated};

/// Everything that a session can do, once.
async fn tour(portal: SocketAddr) {
    let options = Options::default();
    let targets = discover(portal, &options).await.unwrap();
    assert_eq!(targets.len(), 1);
    assert_eq!((targets[0].name.as_str(), targets[0].addresses[0].as_str()), (NAME, "10.0.0.1:3260,1"));

    let wish = Wish { header_digest: true, data_digest: true, ..Wish::default() };
    let options = Options { wish, ..options };
    let session = Session::connect(portal, NAME, &options).await.unwrap();
    assert!(session.negotiated().header_digest && session.negotiated().data_digest);
    let lun = Lun(0);
    session.make_ready(lun).await.unwrap();
    assert_eq!(session.inquiry(lun, None, 96).await.unwrap(), b"inquiry data");
    assert_eq!(
        session.read_capacity(lun).await.unwrap(),
        Capacity { blocks: BlockCount(16384), block_size: BlockSize::B512 }
    );
    for blocks in [1, 8, 2048, 4096] {
        let data: Vec<u8> = (0..blocks * 512).map(|i| (i * 7 / 512 + i) as u8).collect();
        let size = BlockSize::B512;
        session.write(lun, Lba(5), Chain::copy_of(&data), size).await.unwrap();
        let read = session.read(lun, Lba(5), BlockCount(blocks as u64), size).await.unwrap();
        assert!(*read == data);
    }
    session.flush(lun).await.unwrap();
    session.ping().await.unwrap();
    let outside = session.read(lun, Lba(16384), BlockCount(1), BlockSize::B512).await;
    assert!(matches!(outside, Err(Error::Status { status: 0x08, .. })));
    assert_eq!(session.manage(TaskFunction::LogicalUnitReset, lun).await.unwrap(), 0);
    session.logout().await.unwrap();
}

#[test]
fn everything_once_in_the_simulator() {
    for seed in 0..5 {
        simulated(seed, RamTarget::default(), tour);
    }
}

#[test]
fn everything_once_on_io_uring() {
    real(RamTarget::default(), tour);
}

#[test]
fn authentication() {
    let credentials = |name: &str, secret: &str| Credentials { name: name.into(), secret: secret.into() };
    let target = RamTarget {
        chap: Some(proto::iscsi::target_role::Chap {
            initiator: vec![credentials("alice", "alice's secret")],
            target: Some(credentials("ursa", "the target's secret")),
            challenge: vec![1; 16],
            identifier: 1,
        }),
        ..RamTarget::default()
    };
    simulated(1, target, move |portal| async move {
        let chap = |secret: &str| Options {
            chap: Some(Chap {
                initiator: credentials("alice", secret),
                target: Some(credentials("ursa", "the target's secret")),
            }),
            ..Options::default()
        };
        let session = Session::connect(portal, NAME, &chap("alice's secret")).await.unwrap();
        session.make_ready(Lun(0)).await.unwrap();
        let wrong = Session::connect(portal, NAME, &chap("bob's secret")).await.err().unwrap();
        assert!(
            matches!(wrong, Error::Login { source: LoginError::Refused { status: 0x0201 }, .. }),
            "{wrong}"
        );
        let none = Session::connect(portal, NAME, &Options::default()).await.err().unwrap();
        assert!(
            matches!(none, Error::Login { source: LoginError::Refused { status: 0x0201 }, .. }),
            "{none}"
        );
        let unknown = Session::connect(portal, "iqn.2026-01.org.ursa:no", &chap("alice's secret")).await;
        let unknown = unknown.err().unwrap();
        assert!(
            matches!(unknown, Error::Login { source: LoginError::Refused { status: 0x0203 }, .. }),
            "{unknown}"
        );
    });
}
