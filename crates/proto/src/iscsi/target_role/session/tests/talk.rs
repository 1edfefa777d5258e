//! Pings, texts, logout, async messages.

use super::*;
use crate::iscsi::wire::{
    AsyncEvent, LogoutReason, LogoutRequest, LogoutResult, NopOut, RejectReason, TextRequest,
};

fn nop(tag: u32, target_tag: TargetTag) -> NopOut {
    NopOut {
        immediate: true,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        target_tag,
        cmd_sn: Serial(FIRST),
        exp_stat_sn: Serial(1000),
    }
}

fn text(tag: u32, cmd_sn: u32) -> TextRequest {
    TextRequest {
        immediate: false,
        is_final: true,
        more: false,
        lun: [0; 8],
        initiator_tag: InitiatorTag(tag),
        target_tag: TargetTag::RESERVED,
        cmd_sn: Serial(cmd_sn),
        exp_stat_sn: Serial(1000),
    }
}

fn logout(reason: LogoutReason, cid: u16) -> LogoutRequest {
    LogoutRequest {
        immediate: false,
        reason,
        initiator_tag: InitiatorTag(9),
        cid,
        cmd_sn: Serial(FIRST),
        exp_stat_sn: Serial(1000),
    }
}

impl Peer {
    fn text_answer(&mut self) -> (String, bool, TargetTag) {
        match self.answer() {
            (ResponsePdu::Text(pdu), data) => {
                assert_ne!(pdu.is_final, pdu.target_tag != TargetTag::RESERVED);
                (String::from_utf8(data).unwrap(), pdu.more, pdu.target_tag)
            }
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, request: &TextRequest, question: &[u8]) {
        self.send(request.encode(question.len() as u32), question);
    }

    fn asked_for(&mut self) -> (CommandId, Option<String>) {
        match self.events().as_mut_slice() {
            [Event::SendTargets { id, target }] => (*id, target.take()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_ping_is_answered_with_its_data() {
    let mut peer = Peer::new();
    peer.send(nop(5, TargetTag::RESERVED).encode(5), b"hello");
    match peer.answer() {
        (ResponsePdu::NopIn(pong), data) => {
            assert_eq!((pong.initiator_tag, pong.target_tag), (InitiatorTag(5), TargetTag::RESERVED));
            assert_eq!((pong.numbers.stat_sn, &data[..]), (Serial(1000), &b"hello"[..]));
        }
        other => panic!("{other:?}"),
    }
    // Not immediate: it advances CmdSN.
    peer.send(NopOut { immediate: false, ..nop(6, TargetTag::RESERVED) }.encode(0), &[]);
    let (ResponsePdu::NopIn(pong), _) = peer.answer() else { unreachable!() };
    assert_eq!((pong.numbers.exp_cmd_sn, pong.numbers.max_cmd_sn), (Serial(101), Serial(108)));
    // No answer is wanted.
    peer.send(nop(u32::MAX, TargetTag::RESERVED).encode(0), &[]);
    assert!(peer.output().is_empty());
}

#[test]
fn silence_is_pinged_and_then_fatal() {
    let second = |seconds: u64| Instant(seconds * 1_000_000_000);
    let mut peer = Peer::new();
    assert_eq!(peer.session.deadline(), Some(second(5)));
    peer.session.handle_timeout(second(4));
    assert!(peer.output().is_empty());
    peer.session.handle_timeout(second(5));
    let (ResponsePdu::NopIn(ping), _) = peer.answer() else { unreachable!() };
    assert_eq!((ping.initiator_tag, ping.numbers.stat_sn), (InitiatorTag::RESERVED, Serial(1000)));
    assert_ne!(ping.target_tag, TargetTag::RESERVED);
    peer.now = second(6);
    peer.send(nop(u32::MAX, ping.target_tag).encode(0), &[]);
    assert!(peer.output().is_empty());
    assert_eq!(peer.session.deadline(), Some(second(11)));
    peer.session.handle_timeout(second(11));
    assert_eq!(peer.output().len(), 1);
    // A sent ping counts as a sign of life of the connection, once.
    peer.session.handle_timeout(second(16));
    assert_eq!(peer.session.deadline(), Some(second(21)));
    peer.session.handle_timeout(second(21));
    peer.is_over(CloseReason::NopTimeout);
}

#[test]
fn send_targets_in_discovery() {
    let mut peer = Peer::discovery();
    peer.ask(&text(5, FIRST), b"SendTargets=All\0X-unknown=1\0");
    let (id, target) = peer.asked_for();
    assert_eq!(target, None);
    let record = |name: &str| TargetRecord {
        name: name.into(),
        addresses: vec!["10.0.0.1:3260,1".into(), "[fe80::1]:3260,2".into()],
    };
    peer.session.send_targets(id, &[record("iqn.a"), record("iqn.b")]);
    let (answer, more, _) = peer.text_answer();
    assert!(!more);
    assert_eq!(
        answer,
        "X-unknown=NotUnderstood\0\
         TargetName=iqn.a\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[fe80::1]:3260,2\0\
         TargetName=iqn.b\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[fe80::1]:3260,2\0"
    );
    peer.session.send_targets(id, &[record("iqn.a")]);
    assert!(peer.output().is_empty(), "answered once");
    peer.ask(&text(6, FIRST + 1), b"SendTargets=iqn.b\0");
    assert_eq!(peer.asked_for().1.as_deref(), Some("iqn.b"));
}

#[test]
fn a_long_list_is_fetched_in_pieces() {
    let mut peer = Peer::discovery();
    peer.ask(&text(5, FIRST), b"SendTargets=All\0");
    let id = peer.asked_for().0;
    let targets: Vec<_> = (0..1000)
        .map(|i| TargetRecord {
            name: format!("iqn.2026-11.test:{i:04}"),
            addresses: vec!["10.0.0.1:3260,1".into()],
        })
        .collect();
    peer.session.send_targets(id, &targets);
    let (mut all, mut more, mut tag) = peer.text_answer();
    let mut cmd_sn = FIRST;
    while more {
        cmd_sn += 1;
        peer.ask(&TextRequest { target_tag: tag, ..text(5, cmd_sn) }, b"");
        let (piece, rest, next) = peer.text_answer();
        assert!(piece.len() <= 8192);
        (more, tag) = (rest, next);
        all += &piece;
    }
    assert!(cmd_sn > FIRST + 5);
    assert_eq!(all.matches("TargetName=").count(), 1000);
    assert!(all.ends_with("TargetName=iqn.2026-11.test:0999\0TargetAddress=10.0.0.1:3260,1\0"));
}

#[test]
fn texts_in_a_normal_session() {
    let mut peer = Peer::new();
    peer.ask(&text(5, FIRST), b"SendTargets=\0");
    assert_eq!(peer.asked_for().1, None, "its own");
    peer.ask(&text(6, FIRST + 1), b"SendTargets=All\0MaxBurstLength=512\0MaxRecvDataSegmentLength=1024\0");
    assert_eq!(peer.text_answer().0, "SendTargets=Reject\0MaxBurstLength=Reject\0");
    peer.send(read(7, FIRST + 2, 2048).encode(0), &[]);
    let id = peer.command().id;
    peer.session.complete(id, Outcome::data(Chain::copy_of(&[0; 2048])));
    assert_eq!(peer.output().len(), 2, "in PDUs of 1024 bytes from now on");
}

#[test]
fn a_question_may_come_in_pieces_but_not_for_ever() {
    let mut peer = Peer::discovery();
    let part =
        |cmd_sn, target_tag| TextRequest { is_final: false, more: true, target_tag, ..text(5, cmd_sn) };
    peer.ask(&part(FIRST, TargetTag::RESERVED), b"SendTar");
    let (answer, more, tag) = peer.text_answer();
    assert_eq!((answer.as_str(), more), ("", false));
    peer.ask(&TextRequest { target_tag: tag, ..text(5, FIRST + 1) }, b"gets=All\0");
    assert_eq!(peer.asked_for().1, None);
    let mut tag = TargetTag::RESERVED;
    for i in 2.. {
        peer.ask(&part(FIRST + i, tag), &[b'x'; 4096]);
        match peer.answer().0 {
            ResponsePdu::Text(pdu) => tag = pdu.target_tag,
            ResponsePdu::Reject(reject) => {
                assert_eq!((reject.reason, i), (RejectReason::OutOfResources, 4));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    peer.ask(&text(6, FIRST + 5), b"nonsense\0");
    assert!(matches!(peer.answer().0, ResponsePdu::Reject(_)));
}

#[test]
fn logout_ends_the_session_after_what_was_answered() {
    let mut peer = Peer::new();
    peer.send(command(1, FIRST).encode(0), &[]);
    peer.send(command(2, FIRST + 1).encode(0), &[]);
    let ids: Vec<_> = peer
        .events()
        .iter()
        .map(|event| match event {
            Event::Command(command) => command.id,
            other => panic!("{other:?}"),
        })
        .collect();
    peer.session.complete(ids[0], Outcome::good());
    let request = LogoutRequest { cmd_sn: Serial(FIRST + 2), ..logout(LogoutReason::CloseSession, 0) };
    peer.send(request.encode(), &[]);
    let leaves = peer.logout_event(None);
    // The other command is still running, so the logout waits; that command's response is not sent any more.
    let output = peer.output();
    assert_eq!(output.len(), 1);
    assert_eq!(status_of(&output[0]), 0);
    peer.session.complete(ids[1], Outcome::good());
    peer.session.logout_done(leaves, true);
    let (ResponsePdu::Logout(response), _) = peer.answer() else { panic!("no answer to the logout") };
    assert_eq!((response.result, response.time2wait), (LogoutResult::Closed, 2));
    peer.is_over(CloseReason::LoggedOut);
    // Nothing more is processed.
    peer.send(command(3, FIRST + 3).encode(0), &[]);
    peer.session.handle_closed(LEADING, CloseReason::PeerClosed);
    assert!(peer.events().is_empty() && peer.output().is_empty());
}

#[test]
fn logouts_that_fail() {
    let mut peer = Peer::new();
    for (i, (reason, cid, result)) in [
        (LogoutReason::CloseConnection, 5, LogoutResult::CidNotFound),
        (LogoutReason::RemoveForRecovery, 0, LogoutResult::RecoveryNotSupported),
    ]
    .into_iter()
    .enumerate()
    {
        let request = LogoutRequest { cmd_sn: Serial(FIRST + i as u32), ..logout(reason, cid) };
        peer.send(request.encode(), &[]);
        assert!(matches!(peer.answer().0, ResponsePdu::Logout(response) if response.result == result));
    }
}

#[test]
fn a_drain_asks_first() {
    let second = |seconds: u64| Instant(seconds * 1_000_000_000);
    let drain_time = Duration::from_millis(7_500);
    let config = SessionConfig { nop_interval: Duration::ZERO, drain_time, ..config() };
    let mut peer = Peer::with(negotiated(), config);
    peer.session.end(CloseReason::Drained, second(1));
    let (ResponsePdu::Async(message), _) = peer.answer() else { unreachable!() };
    assert_eq!(message.event, AsyncEvent::LogoutRequested { within: 7 });
    let deadline = Instant(8_500_000_000);
    assert_eq!(peer.session.deadline(), Some(deadline));
    // Commands are still served meanwhile.
    peer.send(command(1, FIRST).encode(0), &[]);
    peer.command();
    peer.session.handle_timeout(deadline);
    let (ResponsePdu::Async(message), _) = peer.answer() else { unreachable!() };
    assert_eq!(message.event, AsyncEvent::SessionDropped { time2wait: 2, time2retain: 0 });
    peer.is_over(CloseReason::Drained);
}

#[test]
fn a_drained_initiator_may_log_out() {
    let mut peer = Peer::new();
    peer.session.end(CloseReason::Drained, Instant(0));
    peer.session.end(CloseReason::Drained, Instant(5));
    peer.send(logout(LogoutReason::CloseSession, 0).encode(), &[]);
    let id = peer.logout_event(None);
    peer.session.logout_done(id, true);
    assert_eq!(peer.output().len(), 2);
    peer.is_over(CloseReason::LoggedOut);
}

#[test]
fn a_replaced_session_ends_silently() {
    let mut peer = Peer::new();
    peer.send(command(1, FIRST).encode(0), &[]);
    let id = peer.command().id;
    peer.session.end(CloseReason::Reinstated, Instant(0));
    assert!(peer.output().is_empty());
    peer.is_over(CloseReason::Reinstated);
    peer.session.complete(id, Outcome::good());
    assert!(peer.output().is_empty());
}
