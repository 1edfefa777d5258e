//! Bytes that an initiator sends to log in, in pieces.

use arbitrary::Arbitrary;
use base::{Instant, SendBatch};
use proto::iscsi::target_role::{Authorization, Chap, Credentials, Login, LoginEvent, LoginStatus};
use proto::iscsi::wire::{InitiatorTag, LoginRequestPdu, Serial, Stage, padding};

use crate::fields::{few, many, short};

/// The bytes, and what the target knows about the initiator.
#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    chap: bool,
    mutual: bool,
    deny: bool,
    refuse: bool,
    #[arbitrary(with = many)]
    pieces: Vec<Piece<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Piece<'a> {
    /// Anything.
    Raw(#[arbitrary(with = short)] &'a [u8]),
    /// A request with any text.
    Request {
        stage: bool,
        transit: u8,
        more: bool,
        isid: u8,
        #[arbitrary(with = short)]
        text: &'a [u8],
    },
    /// A request with existing keys.
    Keys {
        stage: bool,
        transit: u8,
        more: bool,
        #[arbitrary(with = few)]
        keys: Vec<(u8, u8)>,
    },
}

const KEYS: &[&str] = &[
    "InitiatorName",
    "TargetName",
    "SessionType",
    "AuthMethod",
    "HeaderDigest",
    "DataDigest",
    "MaxConnections",
    "InitialR2T",
    "ImmediateData",
    "MaxRecvDataSegmentLength",
    "MaxBurstLength",
    "FirstBurstLength",
    "DefaultTime2Wait",
    "DefaultTime2Retain",
    "MaxOutstandingR2T",
    "DataPDUInOrder",
    "DataSequenceInOrder",
    "ErrorRecoveryLevel",
    "CHAP_A",
    "CHAP_N",
    "CHAP_R",
    "CHAP_I",
    "CHAP_C",
    "TaskReporting",
    "X-unknown",
];
const VALUES: &[&str] = &[
    "iqn.2026-11.fuzz:a",
    "Normal",
    "Discovery",
    "None",
    "CHAP",
    "CHAP,None",
    "CRC32C,None",
    "Yes",
    "No",
    "0",
    "1",
    "8192",
    "262144",
    "16777215",
    "16777216",
    "5",
    "5,7",
    "alice",
    "0x00112233445566778899aabbccddeeff",
    "0bAAAA",
    "",
    "Reject",
    "Irrelevant",
    "NotUnderstood",
];

/// Answers all pieces until the login has ended.
pub fn run(input: Input<'_>) {
    let mut login = Login::new(Instant(1_000_000_000));
    let mut batch = SendBatch::new();
    for piece in &input.pieces {
        login.handle_bytes(&bytes_of(piece));
        // More turns than one piece can contain requests.
        for _ in 0..64 {
            let event = login.poll_event();
            login.poll_transmit(&mut batch);
            match event {
                None => break,
                Some(LoginEvent::Authorize(_)) => login.authorize(authorization(&input)),
                Some(LoginEvent::Finish) if input.refuse => login.refuse(LoginStatus::OutOfResources),
                Some(LoginEvent::Finish) => {
                    let outcome = login.accept(7);
                    let negotiated = outcome.negotiated;
                    assert!(!input.deny && !outcome.request.initiator.is_empty());
                    assert!(negotiated.max_transmit >= 512 && negotiated.first_burst <= negotiated.max_burst);
                    login.poll_transmit(&mut batch);
                    return;
                }
                Some(LoginEvent::Failed(..)) => return,
            }
        }
        assert!(batch.len() < 4 << 20, "{} bytes of answers", batch.len());
    }
}

fn authorization(input: &Input) -> Authorization {
    if input.deny {
        return Authorization::Deny(LoginStatus::AuthorizationFailure);
    }
    let credentials =
        |name: &str| Credentials { name: name.into(), secret: b"twelve bytes or more".to_vec() };
    let chap = Chap {
        initiator: vec![credentials("alice")],
        target: input.mutual.then(|| credentials("target")),
        challenge: proto::iscsi::chap::challenge([3; 16]).to_vec(),
        identifier: 5,
    };
    Authorization::Allow { chap: input.chap.then_some(chap), portal_group: 1, alias: None }
}

fn bytes_of(piece: &Piece) -> Vec<u8> {
    match piece {
        Piece::Raw(bytes) => bytes.to_vec(),
        Piece::Request { stage, transit, more, isid, text } => request(*stage, *transit, *more, *isid, text),
        Piece::Keys { stage, transit, more, keys } => {
            let pair = |&(key, value): &(u8, u8)| {
                format!("{}={}\0", KEYS[key as usize % KEYS.len()], VALUES[value as usize % VALUES.len()])
            };
            let text: String = keys.iter().map(pair).collect();
            request(*stage, *transit, *more, 1, text.as_bytes())
        }
    }
}

fn request(stage: bool, transit: u8, more: bool, isid: u8, text: &[u8]) -> Vec<u8> {
    let pdu = LoginRequestPdu {
        transit: match transit % 3 {
            0 => None,
            1 => Some(Stage::OperationalNegotiation),
            _ => Some(Stage::FullFeaturePhase),
        },
        more,
        stage: if stage { Stage::OperationalNegotiation } else { Stage::SecurityNegotiation },
        version_max: 0,
        version_min: 0,
        isid: [0, 2, 0x3d, 0, 0, isid % 2],
        tsih: 0,
        initiator_tag: InitiatorTag(1),
        cid: 0,
        cmd_sn: Serial(1),
        exp_stat_sn: Serial(0),
    };
    let text = &text[..text.len().min(20_000)];
    let mut bytes = pdu.encode(text.len() as u32).to_vec();
    bytes.extend(text);
    bytes.resize(bytes.len() + padding(text.len()), 0);
    bytes
}
