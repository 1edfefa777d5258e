use proptest::prelude::*;

use super::*;

const INITIATOR: &str = "iqn.2004-10.com.example:client";
const TARGET: &str = "iqn.2026-01.org.ursa:db";

/// One login: what it has sent, and its last event.
struct Run {
    login: Login,
    chap: Option<Chap>,
    /// Everything that was sent.
    sent: Vec<u8>,
    authorize: Option<LoginRequest>,
    outcome: Option<LoginOutcome>,
    failed: Option<(LoginStatus, &'static str)>,
}

impl Run {
    fn new(chap: Option<Chap>) -> Run {
        Run {
            login: Login::new(Instant(5)),
            chap,
            sent: Vec::new(),
            authorize: None,
            outcome: None,
            failed: None,
        }
    }

    /// Feeds bytes as a driver would; returns the response bytes.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.login.handle_bytes(bytes);
        while let Some(event) = self.login.poll_event() {
            match event {
                LoginEvent::Authorize(request) => {
                    self.authorize = Some(request);
                    self.login.authorize(Authorization::Allow {
                        chap: self.chap.clone(),
                        portal_group: 1,
                        alias: None,
                    });
                }
                LoginEvent::Finish => self.outcome = Some(self.login.accept(0x0102)),
                LoginEvent::Failed(status, reason) => self.failed = Some((status, reason)),
            }
        }
        let mut batch = SendBatch::new();
        self.login.poll_transmit(&mut batch);
        self.sent.extend(batch.to_vec());
        batch.to_vec()
    }

    /// Feeds one request, which must succeed; returns the response's flags and text.
    fn ask(&mut self, flags: u8, text: &str) -> (u8, String) {
        let answer = self.feed(&request(flags, text));
        assert_eq!(self.failed, None);
        if answer.is_empty() {
            return (0, String::new());
        }
        assert_eq!(answer[36..38], [0, 0], "status");
        (answer[1], text_of(&answer))
    }

    /// Feeds requests until one is refused.
    fn refusal(chap: Option<Chap>, requests: &[(u8, &str)]) -> LoginStatus {
        let mut run = Run::new(chap);
        for (flags, text) in requests {
            run.feed(&request(*flags, text));
        }
        let (status, _) = run.failed.expect("it is refused");
        let answer = run.sent.last_chunk::<48>().unwrap();
        assert_eq!(answer[36..38], (status as u16).to_be_bytes(), "the initiator is told");
        assert_eq!(answer[16..20], [0, 0, 0, 7], "in answer to its request");
        status
    }
}

/// A login request: ISID 80:12:34:56:78:9a, tag 7, CID 1, CmdSN 100, ExpStatSN 40. Each `|` in the text
/// becomes a NUL.
fn request(flags: u8, text: &str) -> Vec<u8> {
    let text = text.replace('|', "\0").into_bytes();
    #[rustfmt::skip]
    let mut pdu = vec![
        0x43, flags, 0x00, 0x00, // immediate login, T C CSG NSG, versions
        0x00, 0x00, (text.len() >> 8) as u8, text.len() as u8, // no AHS, data length
        0x80, 0x12, 0x34, 0x56, 0x78, 0x9a, // ISID
        0x00, 0x00, // TSIH
        0x00, 0x00, 0x00, 0x07, // tag
        0x00, 0x01, 0x00, 0x00, // CID
        0x00, 0x00, 0x00, 0x64, // CmdSN
        0x00, 0x00, 0x00, 0x28, // ExpStatSN
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    pdu.extend(&text);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

fn text_of(pdu: &[u8]) -> String {
    let len = usize::from(pdu[6]) << 8 | usize::from(pdu[7]);
    String::from_utf8(pdu[48..48 + len].to_vec()).unwrap().replace('\0', "|")
}

fn names() -> String {
    format!("InitiatorName={INITIATOR}|TargetName={TARGET}|SessionType=Normal|")
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.into(), secret: secret.into() }
}

fn one_way() -> Option<Chap> {
    Some(Chap {
        initiator: vec![credentials("alice", "an older secret"), credentials("alice", "alice's secret")],
        target: None,
        challenge: (0..16).collect(),
        identifier: 0x27,
    })
}

fn mutual() -> Option<Chap> {
    one_way().map(|chap| Chap { target: Some(credentials("ursa", "the target's secret")), ..chap })
}

/// What open-iscsi 2.1 sends for a session without CHAP (see its `fill_op_params_text`), byte for byte.
#[test]
fn open_iscsi() {
    let text = "InitiatorName=iqn.1993-08.org.debian:01:9f4d2c1a7b3e\0InitiatorAlias=host1\0\
        TargetName=iqn.2026-01.org.ursa:db\0SessionType=Normal\0HeaderDigest=None\0DataDigest=None\0\
        DefaultTime2Wait=2\0DefaultTime2Retain=0\0IFMarker=No\0OFMarker=No\0ErrorRecoveryLevel=0\0InitialR2T=No\0\
        ImmediateData=Yes\0MaxBurstLength=16776192\0FirstBurstLength=262144\0MaxOutstandingR2T=1\0MaxConnections=1\0\
        DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0MaxRecvDataSegmentLength=262144\0";
    assert_eq!(text.len(), 0x1b7);
    #[rustfmt::skip]
    let mut bytes = vec![
        0x43, 0x87, 0x00, 0x00, 0x00, 0x00, 0x01, 0xb7,
        0x00, 0x02, 0x3d, 0x01, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ];
    bytes.extend(text.as_bytes());
    bytes.push(0);
    let mut run = Run::new(None);
    let answer = run.feed(&bytes);
    #[rustfmt::skip]
    assert_eq!(answer[..48], [
        0x23, 0x87, 0x00, 0x00, 0x00, 0x00, 0x01, 0x4e, // T, operational to full feature
        0x00, 0x02, 0x3d, 0x01, 0x00, 0x00, 0x01, 0x02, // ISID, and the TSIH that the node chose
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, // StatSN, ExpCmdSN
        0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, // MaxCmdSN, success
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    ]);
    assert_eq!(
        text_of(&answer),
        "TargetPortalGroupTag=1|HeaderDigest=None|DataDigest=None|DefaultTime2Wait=2|DefaultTime2Retain=0|IFMarker=No|\
         OFMarker=No|ErrorRecoveryLevel=0|InitialR2T=No|ImmediateData=Yes|MaxBurstLength=1048576|MaxOutstandingR2T=1|\
         MaxConnections=1|DataPDUInOrder=Yes|DataSequenceInOrder=Yes|FirstBurstLength=131072|\
         MaxRecvDataSegmentLength=1048576|"
    );
    let outcome = run.outcome.unwrap();
    assert_eq!(
        outcome.request,
        LoginRequest {
            initiator: "iqn.1993-08.org.debian:01:9f4d2c1a7b3e".into(),
            alias: Some("host1".into()),
            target: Some(TARGET.into()),
            kind: SessionKind::Normal,
            isid: [0x00, 0x02, 0x3d, 0x01, 0x00, 0x00],
            tsih: 0,
            cid: 0,
        }
    );
    assert_eq!(
        outcome.negotiated,
        Negotiated {
            header_digest: false,
            data_digest: false,
            max_transmit: 262_144,
            max_receive: 1_048_576,
            max_connections: 1,
            initial_r2t: false,
            immediate_data: true,
            max_burst: 1_048_576,
            first_burst: 131_072,
            max_outstanding_r2t: 1,
            time2wait: 2,
            time2retain: 0,
        }
    );
    assert_eq!((outcome.stat_sn, outcome.exp_cmd_sn), (1, 1));
}

/// libiscsi 1.20 with a user and a password (see its `lib/login.c`): it sends the names in both stages. The
/// MD5 of 0x27, the secret and the challenge was computed with Python's hashlib.
#[test]
fn libiscsi_with_chap() {
    let mut run = Run::new(one_way());
    let names = "InitiatorName=iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq|InitiatorAlias=iscsi-inq|\
        TargetName=iqn.2026-01.org.ursa:db|SessionType=Normal|";
    assert_eq!(
        run.ask(0x81, &format!("{names}AuthMethod=CHAP,None|")),
        (0x00, "TargetPortalGroupTag=1|AuthMethod=CHAP|".into())
    );
    assert_eq!(
        run.ask(0x01, "CHAP_A=5|"),
        (0x00, "CHAP_A=5|CHAP_I=39|CHAP_C=0x000102030405060708090a0b0c0d0e0f|".into())
    );
    assert_eq!(
        run.ask(0x81, "CHAP_N=alice|CHAP_R=0xA954E73F187F88EA9EC46F8E08EAEAF7|"),
        (0x81, String::new())
    );
    let (flags, text) = run.ask(
        0x87,
        &format!(
            "{names}HeaderDigest=None|DataDigest=None|InitialR2T=Yes|ImmediateData=Yes|MaxBurstLength=262144|\
             FirstBurstLength=262144|DefaultTime2Wait=2|DefaultTime2Retain=0|MaxOutstandingR2T=1|\
             ErrorRecoveryLevel=0|IFMarker=No|OFMarker=No|MaxConnections=1|MaxRecvDataSegmentLength=262144|\
             DataPDUInOrder=Yes|DataSequenceInOrder=Yes|"
        ),
    );
    assert_eq!(flags, 0x87);
    assert!(text.contains("|InitialR2T=Yes|") && text.contains("|FirstBurstLength=131072|"), "{text}");
    let outcome = run.outcome.unwrap();
    assert_eq!(outcome.stat_sn, 44);
    assert_eq!(outcome.negotiated.max_transmit, 262_144);
}

#[test]
fn all_ways_through_the_stages() {
    let offer = format!("{}AuthMethod=None|", names());
    for (steps, answers) in [
        // security, operational, full feature
        (vec![(0x81, offer.as_str()), (0x87, "")], vec![0x81, 0x87]),
        // security, then directly full feature
        (vec![(0x83, &offer)], vec![0x83]),
        // no security
        (vec![(0x87, &names())], vec![0x87]),
        // waiting in both stages
        (
            vec![(0x00, &offer), (0x81, ""), (0x04, "InitialR2T=No|"), (0x04, ""), (0x87, "")],
            vec![0x00, 0x81, 0x04, 0x04, 0x87],
        ),
        // leaving the security stage without mentioning it
        (vec![(0x81, &names()), (0x87, "")], vec![0x81, 0x87]),
        // NSG means nothing without T
        (vec![(0x01, &offer), (0x83, "")], vec![0x00, 0x83]),
    ] {
        let mut run = Run::new(None);
        let got: Vec<u8> = steps.iter().map(|(flags, text)| run.ask(*flags, text).0).collect();
        assert_eq!(got, answers, "{steps:x?}");
        assert!(run.outcome.is_some());
    }
}

#[test]
fn ways_that_do_not_exist() {
    let first = names();
    for requests in [
        vec![(0x80, first.as_str())],     // T to security
        vec![(0x82, &first)],             // NSG 2
        vec![(0x84, &first)],             // operational to security
        vec![(0x85, &first)],             // operational to itself
        vec![(0x08, &first)],             // CSG 2
        vec![(0x8f, &first)],             // CSG 3
        vec![(0xc7, &first)],             // T and C
        vec![(0x81, &first), (0x81, "")], // security again
        vec![(0x04, &first), (0x00, "")], // back to security
    ] {
        assert_eq!(Run::refusal(None, &requests), LoginStatus::InitiatorError, "{requests:x?}");
    }
}

#[test]
fn a_text_in_pieces() {
    let mut run = Run::new(None);
    let text = format!("{}HeaderDigest=CRC32C,None|DataDigest=CRC32C|", names());
    let (first, rest) = text.split_at(20);
    let (second, third) = rest.split_at(70);
    assert_eq!(run.ask(0x44, first), (0x04, String::new()));
    assert_eq!(run.ask(0x44, second), (0x04, String::new()));
    let (flags, answer) = run.ask(0x87, third);
    assert_eq!(flags, 0x87);
    assert_eq!(
        answer,
        "TargetPortalGroupTag=1|HeaderDigest=CRC32C|DataDigest=CRC32C|MaxRecvDataSegmentLength=1048576|"
    );
    let negotiated = run.outcome.unwrap().negotiated;
    assert!(negotiated.header_digest && negotiated.data_digest);
}

#[test]
fn a_discovery_session() {
    let mut run = Run::new(None);
    let (_, answer) = run.ask(
        0x87,
        &format!(
            "InitiatorName={INITIATOR}|SessionType=Discovery|InitialR2T=No|MaxBurstLength=65536|MaxConnections=4|\
             DataPDUInOrder=Yes|ErrorRecoveryLevel=2|DefaultTime2Wait=5|MaxRecvDataSegmentLength=32768|"
        ),
    );
    assert_eq!(
        answer,
        "InitialR2T=Irrelevant|MaxBurstLength=Irrelevant|MaxConnections=Irrelevant|DataPDUInOrder=Irrelevant|\
         ErrorRecoveryLevel=0|DefaultTime2Wait=5|MaxRecvDataSegmentLength=1048576|"
    );
    assert_eq!(run.authorize.unwrap().target, None);
    assert_eq!(run.outcome.unwrap().negotiated.max_transmit, 32768);
}

#[test]
fn keys_that_have_no_place() {
    let mut run = Run::new(None);
    let (_, answer) = run.ask(
        0x04,
        &format!(
            "{}X-com.example.Colour=red|OFMarkInt=2048~8192|SendTargets=All|TargetAddress=10.0.0.1|\
             TaskReporting=FastAbort,RFC3720|iSCSIProtocolLevel=2|MaxBurstLength=12|ImmediateData=Maybe|\
             TargetPortalGroupTag=NotUnderstood|",
            names()
        ),
    );
    assert_eq!(
        answer,
        "TargetPortalGroupTag=1|X-com.example.Colour=NotUnderstood|OFMarkInt=Reject|SendTargets=Reject|\
         TargetAddress=Reject|TaskReporting=RFC3720|iSCSIProtocolLevel=1|MaxBurstLength=Reject|ImmediateData=Reject|\
         MaxRecvDataSegmentLength=1048576|"
    );
    let (_, answer) = run.ask(0x87, "FirstBurstLength=262144|");
    assert_eq!(answer, "FirstBurstLength=131072|");
    let mut run = Run::new(None);
    let (_, answer) = run.ask(0x81, &format!("{}X-a=b|MaxBurstLength=65536|", names()));
    assert_eq!(answer, "TargetPortalGroupTag=1|X-a=NotUnderstood|MaxBurstLength=Reject|");
}

/// RFC 7143 13.14: FirstBurstLength does not exceed MaxBurstLength, wherever the latter is in the text.
#[test]
fn the_first_burst_is_no_longer_than_a_burst() {
    let mut run = Run::new(None);
    let (_, answer) = run.ask(0x87, &format!("{}FirstBurstLength=65536|MaxBurstLength=4096|", names()));
    assert!(answer.contains("MaxBurstLength=4096|FirstBurstLength=4096|"), "{answer}");
    let mut run = Run::new(None);
    run.ask(0x87, &format!("{}MaxBurstLength=4096|", names()));
    assert_eq!(run.outcome.unwrap().negotiated.first_burst, 4096);
}

#[test]
fn a_connection_that_joins_a_session() {
    let mut run = Run::new(None);
    let mut bytes = request(0x87, &format!("{}HeaderDigest=CRC32C|MaxBurstLength=4096|", names()));
    bytes[14..16].copy_from_slice(&[0x01, 0x02]);
    let answer = run.feed(&bytes);
    assert_eq!(answer[14..16], [0x01, 0x02]);
    assert!(text_of(&answer).contains("HeaderDigest=CRC32C|MaxBurstLength=Irrelevant|"));
    assert_eq!(run.outcome.unwrap().request.tsih, 0x0102);
}

#[test]
fn statuses() {
    let missing = format!("InitiatorName={INITIATOR}|");
    let bad_name = format!("InitiatorName=client|TargetName={TARGET}|");
    let bad_target = format!("InitiatorName={INITIATOR}|TargetName=db|");
    let bad_type = format!("{missing}SessionType=Party|");
    let twice = format!("{}ImmediateData=Yes|ImmediateData=Yes|", names());
    let renamed = format!("{}InitiatorName=iqn.2004-10.com.example:other|", names());
    let tiny = format!("{}MaxRecvDataSegmentLength=100|", names());
    for (text, status) in [
        ("SessionType=Discovery|", LoginStatus::MissingParameter),
        (missing.as_str(), LoginStatus::MissingParameter),
        (&bad_name, LoginStatus::InitiatorError),
        (&bad_target, LoginStatus::NotFound),
        (&bad_type, LoginStatus::SessionTypeNotSupported),
        (&twice, LoginStatus::InitiatorError),
        (&renamed, LoginStatus::InitiatorError),
        (&tiny, LoginStatus::InitiatorError),
        ("InitiatorName|", LoginStatus::InitiatorError),
    ] {
        assert_eq!(Run::refusal(None, &[(0x87, text)]), status, "{text}");
    }
    let again: Vec<(u8, &str)> =
        vec![(0x04, "InitiatorName=iqn.2004-10.com.example:client|SessionType=Discovery|"); 1]
            .into_iter()
            .chain([(0x04, ""); 40])
            .collect();
    assert_eq!(Run::refusal(None, &again), LoginStatus::InitiatorError, "a login without end");
}

#[test]
fn headers_that_are_wrong() {
    let refuse = |change: fn(&mut Vec<u8>), requests: usize| {
        let mut run = Run::new(None);
        for i in 1..=requests {
            let mut bytes = request(
                0x04,
                if i == 1 { "InitiatorName=iqn.2004-10.com.example:a|SessionType=Discovery|" } else { "" },
            );
            if i == requests {
                change(&mut bytes);
            }
            run.feed(&bytes);
        }
        let status = run.failed.unwrap().0;
        assert_eq!(run.sent.last_chunk::<48>().unwrap()[36..38], (status as u16).to_be_bytes());
        status
    };
    assert_eq!(refuse(|bytes| bytes[3] = 1, 1), LoginStatus::UnsupportedVersion);
    assert_eq!(refuse(|bytes| bytes[14] = 1, 1), LoginStatus::CannotIncludeInSession);
    assert_eq!(refuse(|bytes| bytes[0] = 0x01, 2), LoginStatus::InvalidDuringLogin);
    assert_eq!(refuse(|bytes| bytes[8] = 0, 2), LoginStatus::InitiatorError);
    assert_eq!(refuse(|bytes| bytes[15] = 9, 2), LoginStatus::InitiatorError);
    assert_eq!(refuse(|bytes| bytes[19] = 8, 2), LoginStatus::InitiatorError);
    assert_eq!(refuse(|bytes| bytes[21] = 8, 2), LoginStatus::InitiatorError);
    assert_eq!(refuse(|bytes| bytes[5..8].copy_from_slice(&[0, 0x20, 1]), 2), LoginStatus::InitiatorError);
}

/// A peer that does not speak iSCSI gets no response.
#[test]
fn other_protocols() {
    let mut run = Run::new(None);
    run.feed(b"GET / HTTP/1.1\r\nHost: ursa.example.org\r\nAccept: */*\r\n\r\n");
    assert!(run.failed.is_some() && run.sent.is_empty());
    let mut run = Run::new(None);
    run.feed(&[0; 70_000]);
    assert!(run.failed.is_some() && run.sent.is_empty());
}

#[test]
fn the_node_and_the_session_may_refuse() {
    let mut login = Login::new(Instant(5));
    login.handle_bytes(&request(0x87, &names()));
    assert!(matches!(login.poll_event(), Some(LoginEvent::Authorize(_))));
    login.authorize(Authorization::Deny(LoginStatus::NotFound));
    assert!(matches!(login.poll_event(), Some(LoginEvent::Failed(LoginStatus::NotFound, _))));

    let mut login = Login::new(Instant(5));
    login.handle_bytes(&request(0x87, &names()));
    login.poll_event();
    login.authorize(Authorization::Allow { chap: None, portal_group: 1, alias: Some("db".into()) });
    assert!(matches!(login.poll_event(), Some(LoginEvent::Finish)));
    login.refuse(LoginStatus::SessionDoesNotExist);
    assert!(login.poll_event().is_none());
    let mut batch = SendBatch::new();
    login.poll_transmit(&mut batch);
    assert_eq!(batch.to_vec()[36..38], [0x02, 0x0a]);
}

#[test]
fn bytes_behind_the_last_request() {
    let mut run = Run::new(None);
    let mut bytes = request(0x87, &names());
    bytes.extend_from_slice(b"and more");
    run.feed(&bytes);
    assert_eq!(run.outcome.unwrap().leftover, b"and more");
}

#[test]
fn a_login_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Login>();
    assert_eq!(Login::new(Instant(5)).deadline(), Instant(5));
}

mod chap {
    use super::*;
    use crate::iscsi::chap::Algorithm;
    use crate::iscsi::keys::value::binary;

    fn proof(algorithm: Algorithm, secret: &str) -> String {
        binary(&algorithm.response(0x27, secret.as_bytes(), &one_way().unwrap().challenge))
    }

    /// Proceeds to the challenge.
    fn challenged(chap: Option<Chap>, algorithms: &str) -> Run {
        let mut run = Run::new(chap);
        run.ask(0x00, &format!("{}AuthMethod=None,CHAP|", names()));
        run.ask(0x00, &format!("CHAP_A={algorithms}|"));
        run
    }

    fn refusal_of(mut run: Run, text: &str) -> &'static str {
        run.feed(&request(0x81, text));
        let (status, reason) = run.failed.unwrap();
        assert!(matches!(status, LoginStatus::AuthenticationFailure), "{reason}");
        assert!(run.outcome.is_none());
        reason
    }

    #[test]
    fn each_secret_and_each_algorithm_is_good() {
        for secret in ["an older secret", "alice's secret"] {
            for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
                let mut run = challenged(one_way(), algorithm.number());
                let proof = proof(algorithm, secret);
                // First without T, as an initiator may.
                assert_eq!(run.ask(0x00, &format!("CHAP_N=alice|CHAP_R={proof}|")).0, 0x00);
                assert_eq!(run.ask(0x83, "").0, 0x83);
                assert!(run.outcome.is_some());
            }
        }
    }

    /// SHA-256 of 0x05, the target's secret and sixteen bytes of 0xee, computed with Python's hashlib.
    #[test]
    fn the_target_proves_itself() {
        let mut run = challenged(mutual(), "7,5");
        let proof = proof(Algorithm::Sha256, "alice's secret");
        let challenge = format!("0x{}", "ee".repeat(16));
        assert_eq!(
            run.ask(0x81, &format!("CHAP_N=alice|CHAP_R={proof}|CHAP_I=5|CHAP_C={challenge}|")),
            (
                0x81,
                "CHAP_N=ursa|CHAP_R=0xb2eea1b788ac34b5357fea3aaedf821850aa46ac2d6a0a8da4a64994ca988795|"
                    .into()
            )
        );
    }

    #[test]
    fn failed_authentication_is_refused() {
        let good = proof(Algorithm::Md5, "alice's secret");
        let wrong = proof(Algorithm::Md5, "alice's secreT");
        let md5 = |chap| challenged(chap, "5");
        assert_eq!(
            refusal_of(md5(one_way()), &format!("CHAP_N=alice|CHAP_R={wrong}|")),
            "wrong CHAP name or secret"
        );
        assert_eq!(
            refusal_of(md5(one_way()), &format!("CHAP_N=bob|CHAP_R={good}|")),
            "wrong CHAP name or secret"
        );
        assert_eq!(refusal_of(md5(one_way()), "CHAP_N=alice|CHAP_R=0x|"), "CHAP_R is not a binary value");
        assert_eq!(refusal_of(md5(one_way()), ""), "CHAP_N or CHAP_R is missing");
        assert_eq!(
            refusal_of(md5(one_way()), &format!("CHAP_N=alice|CHAP_R={good}|CHAP_I=1|CHAP_C=0x00|")),
            "mutual CHAP requested, but the target has no secret"
        );
        assert_eq!(
            refusal_of(
                md5(mutual()),
                &format!("CHAP_N=alice|CHAP_R={good}|CHAP_I=39|CHAP_C=0x000102030405060708090A0B0C0D0E0F|")
            ),
            "the initiator reflects the target's own challenge"
        );
        // A challenge that was sent on another connection, perhaps by another node.
        let elsewhere = binary(&crate::iscsi::chap::challenge([9; 16]));
        assert_eq!(
            refusal_of(md5(mutual()), &format!("CHAP_N=alice|CHAP_R={good}|CHAP_I=1|CHAP_C={elsewhere}|")),
            "the initiator reflects the target's own challenge"
        );
        let same = mutual().map(|chap| Chap { target: Some(credentials("ursa", "alice's secret")), ..chap });
        assert_eq!(
            refusal_of(md5(same), &format!("CHAP_N=alice|CHAP_R={good}|CHAP_I=1|CHAP_C=0x00|")),
            "the same CHAP secret is set for both directions"
        );
    }

    #[test]
    fn refusal_to_authenticate_is_refused() {
        let offer = |methods: &str| format!("{}AuthMethod={methods}|", names());
        for (chap, requests) in [
            (one_way(), vec![(0x81, offer("None"))]),
            (one_way(), vec![(0x81, names())]),
            (one_way(), vec![(0x83, names())]),
            (one_way(), vec![(0x87, names())]),
            (None, vec![(0x81, offer("CHAP"))]),
            (None, vec![(0x81, offer("KRB5,SRP"))]),
            (one_way(), vec![(0x00, offer("CHAP")), (0x00, "CHAP_A=6,8|".into())]),
        ] {
            let requests: Vec<_> = requests.iter().map(|(flags, text)| (*flags, text.as_str())).collect();
            assert_eq!(Run::refusal(chap, &requests), LoginStatus::AuthenticationFailure, "{requests:x?}");
        }
        // Asking to leave the stage does not leave it.
        let mut run = Run::new(one_way());
        assert_eq!(run.ask(0x83, &offer("CHAP,None")).0, 0x00);
        assert_eq!(run.ask(0x83, "CHAP_A=5|").0, 0x00);
        assert!(run.outcome.is_none());
        // The operational stage is not open yet, either.
        run.feed(&request(0x87, ""));
        assert!(run.failed.is_some() && run.outcome.is_none());
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", Authorization::Allow { chap: mutual(), portal_group: 1, alias: None });
        assert!(!shown.contains("secret\"") && !shown.contains("97, 108"), "{shown}");
        assert!(shown.contains("alice") && shown.contains("ursa"));
    }
}

fn whole_login() -> Vec<u8> {
    let mut bytes = request(0x81, &format!("{}AuthMethod=None|", names()));
    bytes.extend(request(0x44, "HeaderDigest=CRC"));
    bytes.extend(request(0x04, "32C|InitialR2T=No|"));
    bytes.extend(request(0x87, "MaxBurstLength=65536|X-y=z|"));
    bytes.extend(b"leftover");
    bytes
}

proptest! {
    #[test]
    fn cuts_do_not_matter(mut cuts in proptest::collection::vec(0usize..600, 0..12)) {
        let bytes = whole_login();
        let mut whole = Run::new(None);
        whole.feed(&bytes);
        cuts.extend([0, bytes.len()]);
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
        cuts.sort_unstable();
        let mut pieces = Run::new(None);
        let mut leftover = Vec::new();
        for cut in cuts.windows(2) {
            if let Some(outcome) = &mut pieces.outcome {
                outcome.leftover.extend_from_slice(&bytes[cut[0]..cut[1]]);
            } else {
                pieces.feed(&bytes[cut[0]..cut[1]]);
            }
        }
        leftover.extend_from_slice(&pieces.outcome.as_ref().unwrap().leftover);
        prop_assert_eq!(&pieces.sent, &whole.sent);
        prop_assert_eq!(&leftover, b"leftover");
        prop_assert_eq!(&pieces.outcome.unwrap().negotiated, &whole.outcome.unwrap().negotiated);
    }

    #[test]
    fn damaged_logins_never_panic(
        chap in any::<bool>(),
        damage in proptest::collection::vec((0usize..500, any::<u8>()), 0..6),
    ) {
        let mut bytes = whole_login();
        for (at, byte) in damage {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        Run::new(if chap { mutual() } else { None }).feed(&bytes);
    }

    #[test]
    fn garbage_never_panics(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 0..8)) {
        let mut run = Run::new(None);
        pieces.iter().for_each(|piece| drop(run.feed(piece)));
    }

    #[test]
    fn any_keys_never_panic(
        flags in proptest::collection::vec(prop_oneof![Just(0x00u8), Just(0x04), Just(0x81), Just(0x87), Just(0x44)], 1..6),
        keys in proptest::collection::vec((0usize..34, "[A-Za-z0-9,.]{0,12}"), 0..24),
    ) {
        let mut run = Run::new(mutual());
        let mut text = names();
        let mut keys = keys.into_iter();
        for flags in flags {
            for (key, value) in keys.by_ref().take(4) {
                let name = Key::ALL.get(key).map_or(["CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R"][key % 5], |key| key.name());
                text.push_str(&format!("{name}={value}|"));
            }
            run.feed(&request(flags, &text));
            text.clear();
        }
    }
}
