//! Several connections in one session.

use super::*;
use crate::iscsi::target_role::LoginStatus;
use crate::iscsi::wire::{
    LogoutReason, LogoutRequest, LogoutResponse, LogoutResult, NopOut, RejectReason, TaskManagementFunction,
    TaskRequest,
};

fn two() -> Peer {
    let mut peer = Peer::new();
    peer.join(1, negotiated(), 5000);
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
    // A duplicate of a command that waits.
    peer.send_on(0, command(4, FIRST + 2).encode(0), &[]);
    assert!(peer.events().is_empty());
    peer.send_on(0, command(1, FIRST).encode(0), &[]);
    let events = peer.events();
    assert_eq!(tags(&events, &peer.session), [1, 2, 3]);
    let Event::Command(second) = &events[1] else { unreachable!() };
    assert_eq!(second.data_out.to_vec(), [7; 512]);
    // Each command is answered on its own connection, with that connection's StatSN.
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
        [Event::Close { id: LEADING, .. }, Event::Close { id: ConnectionId { cid: 1, .. }, .. }, Event::End]
    ));
}

fn logout(cid: u16, cmd_sn: u32) -> LogoutRequest {
    LogoutRequest {
        immediate: false,
        reason: LogoutReason::CloseConnection,
        initiator_tag: InitiatorTag(9),
        cid,
        cmd_sn: Serial(cmd_sn),
        exp_stat_sn: Serial(0),
    }
}

impl Peer {
    /// The only event, which is the end of a connection.
    fn close_event(&mut self) -> (ConnectionId, CloseReason) {
        match self.events()[..] {
            [Event::Close { id, reason }] => (id, reason),
            ref events => panic!("no connection ends but {events:?}"),
        }
    }

    fn logout_answer_on(&mut self, connection: usize) -> LogoutResponse {
        match self.output_of(connection)[..] {
            [(ResponsePdu::Logout(response), _)] => response,
            ref output => panic!("no answer to a logout but {output:?}"),
        }
    }
}

#[test]
fn one_connection_logs_another_out_and_the_session_continues() {
    let mut peer = two();
    peer.send_on(1, command(1, FIRST).encode(0), &[]);
    let command_id = peer.command().id;
    // A request of this connection that waits for its turn will never be executed.
    let nop = NopOut {
        immediate: false,
        lun: [0; 8],
        initiator_tag: InitiatorTag(8),
        target_tag: TargetTag::RESERVED,
        cmd_sn: Serial(FIRST + 2),
        exp_stat_sn: Serial(0),
    };
    peer.send_on(1, nop.encode(0), &[]);
    peer.send_on(0, logout(1, FIRST + 1).encode(), &[]);
    let id = peer.logout_event(Some(1));
    assert!(!peer.session.wants_bytes(peer.connections[1]), "nothing more is taken in");
    assert!(peer.output().is_empty(), "its command is still at work");
    peer.session.complete(command_id, Outcome::good());
    peer.session.logout_done(id, true);
    assert_eq!(peer.close_event(), (peer.connections[1], CloseReason::LoggedOut));
    let response = peer.logout_answer_on(0);
    assert_eq!(response.result, LogoutResult::Closed);
    assert_eq!(response.numbers.max_cmd_sn, Serial(FIRST + 3 + 7), "everything is free");
    assert!(peer.output_of(1).is_empty());
    peer.session.handle_closed(peer.connections[1], CloseReason::PeerClosed);
    peer.session.remove_connection(peer.connections[1]);
    peer.send_on(0, command(2, FIRST + 3).encode(0), &[]);
    peer.command();
    assert_eq!(peer.session.connections_open(), 1);
}

#[test]
fn connections_log_out_one_by_one() {
    let mut peer = two();
    peer.send_on(1, command(1, FIRST).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::good());
    peer.send_on(1, logout(1, FIRST + 1).encode(), &[]);
    let id = peer.logout_event(Some(1));
    peer.session.logout_done(id, false);
    assert_eq!(peer.close_event(), (peer.connections[1], CloseReason::LoggedOut));
    let output = peer.output_of(1);
    assert_eq!(status_of(&output[0]), 0);
    let ResponsePdu::Logout(response) = output[1].0 else { panic!("{output:?}") };
    assert_eq!(response.result, LogoutResult::CleanupFailed, "as the driver said");
    peer.send_on(0, logout(0, FIRST + 2).encode(), &[]);
    let id = peer.logout_event(Some(0));
    peer.session.logout_done(id, true);
    assert_eq!(peer.logout_answer_on(0).result, LogoutResult::Closed);
    peer.is_over(CloseReason::LoggedOut);
}

/// Two logouts of the same connection are answered when the driver has finished each.
#[test]
fn both_connections_log_the_same_one_out() {
    let mut peer = two();
    peer.send_on(1, logout(1, FIRST).encode(), &[]);
    let first = peer.logout_event(Some(1));
    peer.send_on(0, logout(1, FIRST + 1).encode(), &[]);
    let second = peer.logout_event(Some(1));
    peer.session.logout_done(first, true);
    assert_eq!(peer.logout_answer_on(1).result, LogoutResult::Closed);
    assert_eq!(peer.close_event().1, CloseReason::LoggedOut);
    assert!(peer.output_of(0).is_empty());
    peer.session.logout_done(second, true);
    peer.session.logout_done(second, true);
    assert_eq!(peer.logout_answer_on(0).result, LogoutResult::Closed, "once");
    assert!(peer.events().is_empty());
    peer.send_on(0, logout(1, FIRST + 2).encode(), &[]);
    assert_eq!(peer.logout_answer_on(0).result, LogoutResult::CidNotFound);
}

#[test]
fn a_connection_takes_the_place_of_its_former_self() {
    let mut peer = two();
    peer.send_on(1, command(1, FIRST).encode(0), &[]);
    peer.send_on(1, command(2, FIRST + 1).encode(0), &[]);
    let events = peer.events();
    let [Event::Command(first), Event::Command(second)] = &events[..] else { panic!("{events:?}") };
    peer.session.complete(first.id, Outcome::good());
    let former = peer.connections[1];
    let id = peer.session.expect_connection(1).expect("it may come again");
    assert_eq!(peer.close_event(), (former, CloseReason::Reinstated));
    peer.session.complete(second.id, Outcome::good());
    assert!(peer.session.add_connection(id, negotiated(), 9000, 0, Instant(0)));
    peer.connections[1] = id;
    assert!(peer.output_of(1).is_empty(), "answers of the former connection are gone");
    // Late input and events of the former connection do not affect the new one.
    peer.session.handle_bytes(former, &[0xff; 48], Instant(0));
    peer.session.handle_closed(former, CloseReason::Reset);
    peer.session.remove_connection(former);
    assert_eq!(peer.session.connections_open(), 2);
    peer.send_on(1, command(3, FIRST + 2).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::good());
    let output = peer.output_of(1);
    let [(ResponsePdu::ScsiResponse(response), _)] = &output[..] else { panic!("{output:?}") };
    assert_eq!(response.numbers.stat_sn, Serial(9000));
    assert_eq!(response.numbers.max_cmd_sn, Serial(FIRST + 3 + 7));
    assert_eq!(peer.session.counters().commands, 3, "nothing is forgotten");
}

fn reset(tag: u32, cmd_sn: u32) -> TaskRequest {
    TaskRequest {
        immediate: true,
        function: TaskManagementFunction::LogicalUnitReset,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        referenced_tag: InitiatorTag::RESERVED,
        cmd_sn: Serial(cmd_sn),
        exp_stat_sn: Serial(0),
        referenced_cmd_sn: Serial(0),
        exp_data_sn: 0,
    }
}

/// RFC 7143 4.2.3.3 a: otherwise the data on its way would be taken for the data of a command with the same
/// tag on another connection, and end the session.
#[test]
fn a_tag_whose_data_is_on_its_way_is_in_use_until_that_has_come() {
    let mut peer = two();
    peer.send_on(0, write(1, FIRST, 8192).encode(0), &[]);
    let r2t = peer.r2t();
    peer.send_on(1, reset(2, FIRST + 1).encode(), &[]);
    let events = peer.events();
    let [Event::Task { id, .. }] = events[..] else { panic!("{events:?}") };
    assert!(peer.session.awaits_data(id));
    peer.send_on(1, command(1, FIRST + 1).encode(0), &[]);
    let output = peer.output_of(1);
    let [(ResponsePdu::Reject(reject), _)] = output[..] else { panic!("{output:?}") };
    assert_eq!(reject.reason, RejectReason::TaskInProgress);
    peer.send_on(0, data_out(1, r2t.target_tag, 0, 0, true).encode(8192), &[7; 8192]);
    assert!(!peer.session.awaits_data(id) && peer.events().is_empty());
    peer.session.task_done(id, TaskResponse::Complete);
    assert!(matches!(peer.output_of(1)[..], [(ResponsePdu::Task(_), _)]));
    peer.send_on(1, command(1, FIRST + 2).encode(0), &[]);
    assert!(matches!(peer.events()[..], [Event::Command(_)]));
}

/// A lost connection brings no data.
#[test]
fn data_of_a_connection_that_is_gone_is_not_waited_for() {
    let mut peer = two();
    peer.send_on(1, write(1, FIRST, 8192).encode(0), &[]);
    peer.send_on(0, reset(2, FIRST + 1).encode(), &[]);
    let events = peer.events();
    let [Event::Task { id, .. }] = events[..] else { panic!("{events:?}") };
    assert!(peer.session.awaits_data(id));
    peer.session.expect_connection(1).expect("it replaces the other");
    assert!(!peer.session.awaits_data(id));
    peer.session.task_done(id, TaskResponse::Complete);
    assert!(matches!(peer.output_of(0)[..], [(ResponsePdu::Task(_), _)]));
}

/// A reset ends commands that were sent before it, and none that were sent after it, whatever arrives first.
#[test]
fn a_reset_waits_for_commands_that_were_sent_before_it_on_another_connection() {
    let mut peer = two();
    peer.send_on(0, command(1, FIRST).encode(0), &[]);
    peer.command();
    // The other connection sent two more commands before the reset; this connection sent one after it.
    peer.send_on(0, reset(9, FIRST + 3).encode(), &[]);
    peer.send_on(0, command(4, FIRST + 3).encode(0), &[]);
    assert!(peer.events().is_empty());
    peer.send_on(1, write(2, FIRST + 1, 8192).encode(0), &[]);
    assert!(peer.events().is_empty(), "it waits for its data");
    peer.send_on(1, command(3, FIRST + 2).encode(0), &[]);
    let events = peer.events();
    let [Event::Command(third), Event::Command(fourth), Event::Task { id, abort, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(abort.len() == 2 && abort.contains(&third.id) && !abort.contains(&fourth.id));
    peer.session.complete(fourth.id, Outcome::good());
    peer.session.task_done(*id, TaskResponse::Complete);
    assert_eq!(peer.session.census(), TaskCensus { answering: 1, ..TaskCensus::default() });
    // When a connection ends, its requests are dropped.
    peer.send_on(1, reset(10, FIRST + 6).encode(), &[]);
    peer.session.expect_connection(1).unwrap();
    peer.close_event();
    peer.send_on(0, command(5, FIRST + 4).encode(0), &[]);
    peer.send_on(0, command(6, FIRST + 5).encode(0), &[]);
    assert_eq!(tags(&peer.events(), &peer.session), [5, 6]);
}

/// The former connection asked for these: their responses are dropped.
#[test]
fn the_new_connection_gets_no_answers_to_the_former_one() {
    let mut peer = two();
    peer.send_on(1, reset(7, FIRST).encode(), &[]);
    let [Event::Task { id: reset, .. }] = peer.events()[..] else { panic!("no task management") };
    peer.send_on(1, logout(1, FIRST).encode(), &[]);
    let leaves = peer.logout_event(Some(1));
    let id = peer.session.expect_connection(1).expect("it may come again");
    peer.close_event();
    assert!(peer.session.add_connection(id, negotiated(), 9000, 0, Instant(0)));
    peer.connections[1] = id;
    peer.session.task_done(reset, TaskResponse::Complete);
    peer.session.logout_done(leaves, true);
    assert!(peer.output_of(1).is_empty());
    assert!(peer.events().is_empty());
    assert_eq!(peer.session.connections_open(), 2);
}

#[test]
fn there_are_as_many_connections_as_the_first_login_settled() {
    // What the first login negotiated holds for every connection of the session; different values in a later
    // login are ignored.
    let leading = Negotiated { max_connections: 3, max_burst: 4096, first_burst: 1024, ..negotiated() };
    let mut peer = Peer::with(leading, config());
    peer.join(1, Negotiated { max_transmit: 512, ..Negotiated::default() }, 5000);
    peer.send_on(1, write(1, FIRST, 10_000).encode(0), &[]);
    let output = peer.output_of(1);
    let [(ResponsePdu::R2t(r2t), _)] = &output[..] else { panic!("{output:?}") };
    assert_eq!(r2t.desired_length, 4096);
    peer.send_on(1, read(2, FIRST + 1, 1000).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::data(Chain::copy_of(&[0; 1000])));
    assert_eq!(peer.output_of(1).len(), 2, "in PDUs of 512 bytes, as this connection said");
    // Connections whose login is about to finish count, too.
    let third = peer.session.expect_connection(2).unwrap();
    assert_eq!(peer.session.expect_connection(3), Err(LoginStatus::TooManyConnections));
    let again = peer.session.expect_connection(2).expect("it is the same one");
    assert!(!peer.session.add_connection(third, negotiated(), 1, 1, Instant(0)), "another came in its place");
    peer.session.remove_connection(again);
    peer.join(3, negotiated(), 7000);
    assert_eq!(peer.session.expect_connection(2), Err(LoginStatus::TooManyConnections));
    // A connection that leaves counts until its logout has been answered.
    peer.send_on(0, logout(3, FIRST + 2).encode(), &[]);
    let id = peer.logout_event(Some(3));
    assert_eq!(peer.session.expect_connection(2), Err(LoginStatus::TooManyConnections));
    peer.session.logout_done(id, true);
    peer.close_event();
    peer.join(2, negotiated(), 8000);
    assert_eq!(peer.session.connections_open(), 3);
}

#[test]
fn a_session_whose_only_connection_does_not_return_ends() {
    let mut peer = Peer::new();
    let id = peer.session.expect_connection(0).unwrap();
    assert_eq!(peer.close_event(), (LEADING, CloseReason::Reinstated));
    peer.session.remove_connection(LEADING);
    assert!(peer.events().is_empty(), "another is to come");
    peer.session.remove_connection(id);
    assert!(matches!(peer.events()[..], [Event::End]));
    assert_eq!(peer.session.expect_connection(0), Err(LoginStatus::SessionDoesNotExist));
}

/// Level 0: losing one connection ends the session with all of them.
#[test]
fn a_lost_connection_ends_the_session() {
    let mut peer = two();
    let straggler = peer.session.expect_connection(2).unwrap();
    peer.session.handle_closed(peer.connections[1], CloseReason::PeerClosed);
    let events = peer.events();
    assert!(
        matches!(
            events[..],
            [
                Event::Close { id: LEADING, reason: CloseReason::PeerClosed },
                Event::Close { id: ConnectionId { cid: 1, .. }, .. },
                Event::End
            ]
        ),
        "{events:?}"
    );
    assert!(!peer.session.add_connection(straggler, negotiated(), 1, 1, Instant(0)));
}
