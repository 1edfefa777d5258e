//! Bytes that a target sends to an initiator.

use arbitrary::Arbitrary;
use base::{Chain, SendBatch};
use proto::iscsi::initiator::{
    Command, Connection, Identity, Login, LoginOptions, LoginOutcome, Transfer, Wish,
};
use proto::iscsi::target_role::Negotiated;
use proto::iscsi::wire::Serial;
use proto::scsi::Cdb;

use crate::fields::{few, many, short};

/// The bytes of a login and of a session, in pieces.
#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    digests: bool,
    commands: [(bool, u16); 2],
    #[arbitrary(with = few)]
    login: Vec<Piece<'a>>,
    #[arbitrary(with = many)]
    connection: Vec<Piece<'a>>,
}

#[derive(Debug, Arbitrary)]
struct Piece<'a>(#[arbitrary(with = short)] &'a [u8]);

/// Logs in, and then continues in a negotiated session.
pub fn run(input: Input<'_>) {
    let mut batch = SendBatch::new();
    let identity = Identity {
        initiator: "iqn.2026-11.fuzz:i".into(),
        target: Some("iqn.2026-11.fuzz:t".into()),
        isid: [1; 6],
        cid: 0,
    };
    let mut login = Login::new(LoginOptions { identity, proof: None, wish: Wish::default() });
    for Piece(bytes) in &input.login {
        login.handle_bytes(bytes);
        login.poll_transmit(&mut batch);
        if login.result().is_some() {
            break;
        }
    }

    batch.clear();
    let mut connection = Connection::new(&logged_in(input.digests), 0);
    for &(write, len) in &input.commands {
        let transfer = match write {
            true => Transfer::Out(Chain::copy_of(&vec![7; usize::from(len)])),
            false => Transfer::In(u32::from(len)),
        };
        connection.submit(Command { lun: [0; 8], cdb: Cdb([0; 16]), transfer });
    }
    connection.ping();
    connection.send_targets();
    for Piece(bytes) in &input.connection {
        connection.handle_bytes(bytes);
        while connection.poll_event().is_some() {}
        connection.poll_transmit(&mut batch);
        batch.clear();
    }
}

fn logged_in(digests: bool) -> LoginOutcome {
    LoginOutcome {
        negotiated: Negotiated {
            header_digest: digests,
            data_digest: digests,
            max_transmit: 8192,
            max_receive: 8192,
            max_connections: 1,
            initial_r2t: false,
            immediate_data: true,
            max_burst: 16384,
            first_burst: 8192,
            max_outstanding_r2t: 1,
            time2wait: 2,
            time2retain: 0,
        },
        tsih: 1,
        portal_group: Some(1),
        cmd_sn: Serial(1),
        max_cmd_sn: Serial(8),
        exp_stat_sn: Serial(1),
        leftover: Vec::new(),
    }
}
