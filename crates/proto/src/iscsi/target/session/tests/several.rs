//! Several connections in one session.

use super::*;
use crate::iscsi::wire::{LogoutReason, LogoutRequest, NopOut};

fn two() -> Peer {
    let mut peer = Peer::new();
    peer.session.add_connection(1, negotiated(), 5000, 0, Instant(0));
    peer
}

fn tags(events: &[Event], session: &Session) -> Vec<u32> {
    events
        .iter()
        .map(|event| match event {
            Event::Command(command) => session.tasks.get(command.id.into()).unwrap().tag.0,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn commands_are_delivered_in_order_over_connections() {
    let mut peer = two();
    peer.send_on(1, command(3, FIRST + 2).encode(0), &[]);
    peer.send_on(1, write(2, FIRST + 1, 512).encode(512), &[7; 512]);
    peer.send_on(1, ScsiCommand { immediate: true, ..command(9, FIRST + 3) }.encode(0), &[]);
    let events = peer.events();
    assert_eq!(tags(&events, &peer.session), [9], "immediate at once, the others wait");
    // A duplicate of one that waits.
    peer.send_on(0, command(4, FIRST + 2).encode(0), &[]);
    assert!(peer.events().is_empty());
    peer.send_on(0, command(1, FIRST).encode(0), &[]);
    let events = peer.events();
    assert_eq!(tags(&events, &peer.session), [1, 2, 3]);
    let Event::Command(second) = &events[1] else { unreachable!() };
    assert_eq!(second.data_out.to_vec(), [7; 512]);
    // Each is answered where it came from, with that connection's StatSN.
    for event in &events {
        let Event::Command(command) = event else { unreachable!() };
        peer.session.complete(command.id, Outcome::good());
    }
    let stat_sns = |output: Vec<(ResponsePdu, Vec<u8>)>| -> Vec<u32> {
        output
            .iter()
            .map(|(pdu, _)| match pdu {
                ResponsePdu::ScsiResponse(pdu) => pdu.numbers.stat_sn.0,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(stat_sns(peer.output_of(0)), [1000]);
    assert_eq!(stat_sns(peer.output_of(1)), [5000, 5001]);
}

#[test]
fn a_write_that_waits_for_its_turn_asks_for_data_then() {
    let mut peer = two();
    peer.send_on(1, write(2, FIRST + 1, 8192).encode(0), &[]);
    assert!(peer.output_of(1).is_empty());
    peer.send_on(0, command(1, FIRST).encode(0), &[]);
    assert_eq!(peer.events().len(), 1);
    assert!(peer.output_of(0).is_empty());
    assert!(matches!(peer.output_of(1)[..], [(ResponsePdu::R2t(_), _)]));
}

#[test]
fn data_belongs_to_the_commands_connection() {
    let mut peer = two();
    peer.send_on(0, write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    peer.send_on(1, data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[0; 8192]);
    let events = peer.events();
    assert!(matches!(
        events[..],
        [Event::Close { cid: 0, .. }, Event::Close { cid: 1, .. }, Event::End { .. }]
    ));
}

#[test]
fn one_connection_logs_out_and_the_session_goes_on() {
    let mut peer = two();
    peer.send_on(1, command(1, FIRST).encode(0), &[]);
    let id = peer.command().id;
    // A request of the connection that waits for its turn will never be carried out.
    let nop = NopOut {
        immediate: false,
        lun: [0; 8],
        initiator_tag: InitiatorTag(8),
        target_tag: TargetTag::RESERVED,
        cmd_sn: Serial(FIRST + 2),
        exp_stat_sn: Serial(0),
    };
    peer.send_on(1, nop.encode(0), &[]);
    let logout = LogoutRequest {
        immediate: false,
        reason: LogoutReason::CloseConnection,
        initiator_tag: InitiatorTag(9),
        cid: 1,
        cmd_sn: Serial(FIRST + 1),
        exp_stat_sn: Serial(0),
    };
    peer.send_on(0, logout.encode(), &[]);
    let events = peer.events();
    let [Event::Close { cid: 1, reason: CloseReason::LoggedOut, abort }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*abort, [id]);
    let (ResponsePdu::Logout(response), _) = peer.answer() else { unreachable!() };
    assert_eq!(response.numbers.max_cmd_sn, Serial(FIRST + 3 + 7), "everything is free");
    peer.session.handle_closed(1, CloseReason::PeerClosed);
    peer.send_on(0, command(2, FIRST + 3).encode(0), &[]);
    peer.command();
    assert_eq!(peer.session.connections_open(), 1);
}

#[test]
fn a_connection_takes_the_place_of_its_former_self() {
    let mut peer = two();
    peer.send_on(1, command(1, FIRST).encode(0), &[]);
    peer.send_on(1, command(2, FIRST + 1).encode(0), &[]);
    let events = peer.events();
    let Event::Command(first) = &events[0] else { unreachable!() };
    peer.session.complete(first.id, Outcome::good());
    peer.session.add_connection(1, negotiated(), 9000, 0, Instant(0));
    let events = peer.events();
    let [Event::Close { cid: 1, reason: CloseReason::Reinstated, abort }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(abort.len(), 1);
    assert!(peer.output_of(1).is_empty(), "answers of the former connection are gone");
    peer.send_on(1, command(3, FIRST + 2).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::good());
    let output = peer.output_of(1);
    let [(ResponsePdu::ScsiResponse(response), _)] = &output[..] else { panic!("{output:?}") };
    assert_eq!(response.numbers.stat_sn, Serial(9000));
    assert_eq!(response.numbers.max_cmd_sn, Serial(FIRST + 3 + 7));
    assert_eq!(peer.session.counters().commands, 3, "nothing is forgotten");
}

/// Level 0: with one connection all are lost.
#[test]
fn a_lost_connection_ends_the_session() {
    let mut peer = two();
    peer.session.handle_closed(1, CloseReason::PeerClosed);
    let events = peer.events();
    assert!(
        matches!(
            events[..],
            [
                Event::Close { cid: 0, reason: CloseReason::PeerClosed, .. },
                Event::Close { cid: 1, .. },
                Event::End { .. }
            ]
        ),
        "{events:?}"
    );
    // A straggler is not taken in.
    peer.session.add_connection(2, negotiated(), 1, 1, Instant(0));
    assert!(!peer.session.wants_bytes(2));
}
