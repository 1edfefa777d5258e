use base::Instant;
use proptest::prelude::*;

use super::*;
use crate::iscsi::target_role::{self, Authorization, Chap, LoginEvent};

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.into(), secret: secret.into() }
}

fn options(proof: Option<Proof>, wish: Wish) -> LoginOptions {
    LoginOptions {
        identity: Identity {
            initiator: "iqn.2026-01.org.ursa:client".into(),
            target: Some("iqn.2026-01.org.ursa:db".into()),
            isid: [0x80, 1, 2, 3, 4, 5],
            cid: 3,
        },
        proof,
        wish,
    }
}

fn proof(secret: &str, target: Option<Credentials>) -> Option<Proof> {
    Some(Proof { initiator: credentials("alice", secret), target, challenge: [0xee; 16], identifier: 9 })
}

fn chap(target: Option<Credentials>) -> Option<Chap> {
    Some(Chap {
        initiator: vec![credentials("alice", "alice's secret")],
        target,
        challenge: (0..16).collect(),
        identifier: 0x27,
    })
}

type Ends = (Result<LoginOutcome, LoginError>, Option<target_role::LoginOutcome>);

/// Logs in to our own target.
fn log_in(options: LoginOptions, chap: Option<Chap>) -> Ends {
    let mut initiator = Login::new(options);
    let mut target = target_role::Login::new(Instant(0));
    let mut accepted = None;
    for _ in 0..20 {
        let mut batch = SendBatch::new();
        initiator.poll_transmit(&mut batch);
        target.handle_bytes(&batch.to_vec());
        while let Some(event) = target.poll_event() {
            match event {
                LoginEvent::Authorize(_) => {
                    target.authorize(Authorization::Allow {
                        chap: chap.clone(),
                        portal_group: 7,
                        alias: None,
                    });
                }
                LoginEvent::Finish => accepted = Some(target.accept(0x55)),
                LoginEvent::Failed(..) => {}
            }
        }
        let mut batch = SendBatch::new();
        target.poll_transmit(&mut batch);
        initiator.handle_bytes(&batch.to_vec());
        if let Some(result) = initiator.result() {
            return (result, accepted);
        }
    }
    panic!("the login does not end");
}

#[test]
fn the_first_request() {
    let mut login = Login::new(options(None, Wish { header_digest: true, ..Wish::default() }));
    let mut batch = SendBatch::new();
    login.poll_transmit(&mut batch);
    let bytes = batch.to_vec();
    let text = "InitiatorName=iqn.2026-01.org.ursa:client\0TargetName=iqn.2026-01.org.ursa:db\0SessionType=Normal\0\
        HeaderDigest=CRC32C,None\0DataDigest=None\0MaxConnections=1\0InitialR2T=No\0ImmediateData=Yes\0\
        MaxBurstLength=1048576\0FirstBurstLength=262144\0DefaultTime2Wait=0\0DefaultTime2Retain=0\0\
        MaxOutstandingR2T=4\0DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0ErrorRecoveryLevel=0\0\
        MaxRecvDataSegmentLength=1048576\0";
    assert_eq!(text.len(), 0x186);
    #[rustfmt::skip]
    assert_eq!(bytes[..48], [
        0x43, 0x87, 0x00, 0x00, 0x00, 0x00, 0x01, 0x86, // T, operational to full feature
        0x80, 0x01, 0x02, 0x03, 0x04, 0x05, 0x00, 0x00, // ISID, a new session
        0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, // tag, CID
        0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, // CmdSN, ExpStatSN
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    assert_eq!(&bytes[48..], [text.as_bytes(), &[0, 0]].concat());
}

#[test]
fn both_sides_agree() {
    let (outcome, accepted) = log_in(options(None, Wish::default()), None);
    let (outcome, accepted) = (outcome.unwrap(), accepted.unwrap());
    assert_eq!(outcome.tsih, 0x55);
    assert_eq!(outcome.portal_group, Some(7));
    assert_eq!(outcome.exp_stat_sn.0, accepted.stat_sn);
    assert_eq!(outcome.cmd_sn.0, accepted.exp_cmd_sn);
    assert_eq!(accepted.request.cid, 3);
    let discovery = LoginOptions {
        identity: Identity { target: None, ..options(None, Wish::default()).identity },
        ..options(None, Wish::default())
    };
    let (outcome, accepted) = log_in(discovery, None);
    assert!(outcome.is_ok());
    assert_eq!(accepted.unwrap().request.kind, SessionKind::Discovery);
}

#[test]
fn authentication() {
    let target = || Some(credentials("ursa", "the target's secret"));
    assert!(log_in(options(proof("alice's secret", None), Wish::default()), chap(None)).0.is_ok());
    assert!(log_in(options(proof("alice's secret", target()), Wish::default()), chap(target())).0.is_ok());
    assert_eq!(
        log_in(options(proof("alices secret", None), Wish::default()), chap(None)).0.unwrap_err(),
        LoginError::Refused { status: 0x0201 }
    );
    assert_eq!(
        log_in(options(None, Wish::default()), chap(None)).0.unwrap_err().to_string(),
        "the target refused the login: AuthenticationFailure (0x0201)"
    );
    let other = Some(credentials("ursa", "not the target's secret"));
    assert_eq!(
        log_in(options(proof("alice's secret", target()), Wish::default()), chap(other)).0.unwrap_err(),
        LoginError::Authentication("wrong CHAP name or secret of the target")
    );
    // A target that does not request CHAP.
    assert!(log_in(options(proof("alice's secret", None), Wish::default()), None).0.is_err());
}

/// As LIO does: the target makes offers itself, and continues when they have been answered.
#[test]
fn offers_of_the_target_are_answered() {
    let mut login = Login::new(options(None, Wish { immediate_data: false, ..Wish::default() }));
    login.poll_transmit(&mut SendBatch::new());
    let respond = |flags: u8, text: &str| {
        let mut pdu = vec![0x23, flags, 0, 0, 0, 0, 0, text.len() as u8, 0x80, 1, 2, 3, 4, 5, 0, 9];
        pdu.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x40]);
        pdu.resize(48, 0);
        pdu.extend(text.as_bytes());
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        pdu
    };
    login.handle_bytes(&respond(
        0x04,
        "MaxBurstLength=65536\0ImmediateData=No\0X-mine=1\0IFMarker=No\0TaskReporting=FastAbort\0",
    ));
    let mut batch = SendBatch::new();
    login.poll_transmit(&mut batch);
    let bytes = batch.to_vec();
    assert_eq!(bytes[1], 0x87);
    assert_eq!(bytes[28..32], [0, 0, 0, 9], "ExpStatSN");
    assert_eq!(&bytes[48..92], b"X-mine=NotUnderstood\0IFMarker=Reject\0TaskRep");
    login.handle_bytes(&respond(0x87, "MaxRecvDataSegmentLength=4096\0"));
    let outcome = login.result().unwrap().unwrap();
    assert_eq!((outcome.tsih, outcome.max_cmd_sn), (9, Serial(0x40)));
    assert_eq!(outcome.negotiated.max_transmit, 4096);
    assert_eq!((outcome.negotiated.max_burst, outcome.negotiated.first_burst), (65536, 65536));
    assert!(!outcome.negotiated.immediate_data);
}

#[test]
fn a_redirection_says_where_to() {
    let mut login = Login::new(options(None, Wish::default()));
    let mut pdu = vec![0x23, 0x04, 0, 0, 0, 0, 0, 28, 0x80, 1, 2, 3, 4, 5, 0, 0];
    pdu.resize(48, 0);
    pdu[36..38].copy_from_slice(&[0x01, 0x01]);
    pdu.extend(b"TargetAddress=10.0.0.2:3260\0");
    login.handle_bytes(&pdu);
    assert_eq!(login.result(), Some(Err(LoginError::Moved { address: "10.0.0.2:3260".into() })));
}

proptest! {
    #[test]
    fn whatever_is_wished_both_sides_agree(
        header_digest in any::<bool>(),
        data_digest in any::<bool>(),
        initial_r2t in any::<bool>(),
        immediate_data in any::<bool>(),
        max_receive in 512u32..3_000_000,
        max_burst in 512u32..3_000_000,
        first_burst in 512u32..3_000_000,
        max_outstanding_r2t in 1u16..100,
    ) {
        let wish = Wish {
            header_digest, data_digest, initial_r2t, immediate_data, max_receive, max_burst, first_burst,
            max_outstanding_r2t,
        };
        let (outcome, accepted) = log_in(options(None, wish), None);
        let mut ours = outcome.unwrap().negotiated;
        let theirs = accepted.unwrap().negotiated;
        prop_assert_eq!((ours.max_transmit, ours.max_receive), (theirs.max_receive, theirs.max_transmit));
        (ours.max_transmit, ours.max_receive) = (theirs.max_transmit, theirs.max_receive);
        prop_assert_eq!(ours, theirs);
    }

    #[test]
    fn damaged_responses_never_panic(flags in any::<u8>(), status in any::<u16>(), bytes in proptest::collection::vec(any::<u8>(), 0..300), with_proof: bool) {
        let mut login = Login::new(options(if with_proof { proof("alice's secret", None) } else { None }, Wish::default()));
        let mut pdu = vec![0x23, flags, 0, 0, 0, 0, 0, 60, 0x80, 1, 2, 3, 4, 5, 0, 0];
        pdu.resize(36, 0);
        pdu.extend(status.to_be_bytes());
        pdu.extend(bytes);
        login.handle_bytes(&pdu);
    }
}
