//! Negotiations, byte by byte.

use super::export;
use crate::{Negotiated, Negotiation, NegotiationEvent, OPTION_BYTES_MAX, Security, Violation};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
const FLAGS: &[u8] = b"\0\0\0\x03";
const ACK: u32 = 1;
const UNSUP: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const TLS_REQD: u32 = 0x8000_0005;
const UNKNOWN: u32 = 0x8000_0006;
const TOO_BIG: u32 = 0x8000_0009;

fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let head = [&b"IHAVEOPT"[..], &code.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
    [&head, data].concat()
}

/// A name, types of information.
fn info(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|wanted| wanted.to_be_bytes()));
    data
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    let string = |data: &mut Vec<u8>, text: &str| {
        data.extend((text.len() as u32).to_be_bytes());
        data.extend(text.as_bytes());
    };
    string(&mut data, name);
    data.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| string(&mut data, query));
    data
}

/// Option, type and data of each reply.
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<20>() {
        let field = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!(&head[..8], b"\0\x03\xe8\x89\x04\x55\x65\xa9", "the magic number of replies");
        let (data, rest) = rest.split_at(field(16) as usize);
        replies.push((field(8), field(12), data.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    replies
}

/// A negotiation behind the greeting and the flags.
struct Client<'a>(Negotiation<'a>);

impl<'a> Client<'a> {
    fn new(export: &'a crate::Export, security: Security) -> Client<'a> {
        let mut negotiation = Negotiation::new(export, security);
        assert_eq!(negotiation.take_output(), GREETING);
        negotiation.handle_bytes(FLAGS);
        assert_eq!(negotiation.poll_event(), None);
        Client(negotiation)
    }

    /// Sends an option. Returns the event, and types and data of the replies.
    fn send(&mut self, code: u32, data: &[u8]) -> (Option<NegotiationEvent>, Vec<(u32, Vec<u8>)>) {
        self.0.handle_bytes(&option(code, data));
        let event = self.0.poll_event();
        let replies = replies(&self.0.take_output()).into_iter();
        let replies = replies.inspect(|(of, ..)| assert_eq!(*of, code)).map(|(_, kind, data)| (kind, data));
        (event, replies.collect())
    }

    /// Sends an option after which the negotiation continues. Returns the types of the replies.
    fn kinds(&mut self, code: u32, data: &[u8]) -> Vec<u32> {
        let (event, replies) = self.send(code, data);
        assert_eq!(event, None);
        replies.into_iter().map(|(kind, _)| kind).collect()
    }

    fn violation(&mut self, code: u32, data: &[u8]) -> Violation {
        match self.send(code, data) {
            (Some(NegotiationEvent::Violation(violation)), replies) if replies.is_empty() => violation,
            other => panic!("{other:?}"),
        }
    }
}

fn agreed(event: Option<NegotiationEvent>) -> Negotiated {
    match event {
        Some(NegotiationEvent::Transmit(negotiated)) => negotiated,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_learns_about_the_export_and_enters_it() {
    let export = export();
    let mut client = Client::new(&export, Security::Plain);
    let (_, listed) = client.send(3, b"");
    assert_eq!(listed, [(2, b"\0\0\0\x04db@bvolume db".to_vec()), (ACK, vec![])]);
    // 3 MiB and 512 bytes; blocks of 1 byte, better 4096 bytes; at most 32 MiB at once.
    let size = b"\0\0\0\0\0\0\0\x30\x02\0";
    let expected = |flags: &[u8]| {
        let sizes = b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec();
        [(3, [&size[..], flags].concat()), (3, sizes)]
    };
    // Flags: read-only, several connections.
    let (event, replies) = client.send(6, &info("db@b", &[]));
    assert_eq!((event, &replies[..2]), (None, &expected(b"\x01\x03")[..]));
    assert_eq!(replies[2..], [(ACK, vec![])]);
    assert_eq!(client.kinds(8, b""), [ACK]);
    // And unfragmented replies. What is wanted and unknown is ignored.
    let (event, replies) = client.send(7, &info("", &[1, 2, 77]));
    assert_eq!(replies[..2], expected(b"\x01\x83"));
    let named = [(3, b"\0\x01db@b".to_vec()), (3, b"\0\x02volume db".to_vec()), (ACK, vec![])];
    assert_eq!(replies[2..], named);
    let negotiated = agreed(event);
    assert!(negotiated.is_structured && negotiated.contexts.is_empty());
    assert_eq!(client.0.poll_event(), None);
}

#[test]
fn requests_behind_the_negotiation_are_kept() {
    let export = export();
    for cut in 0..60 {
        let mut negotiation = Negotiation::new(&export, Security::Plain);
        let bytes = [FLAGS, &option(7, &info("db@b", &[])), b"request"].concat();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        negotiation.handle_bytes(first);
        let event = negotiation.poll_event();
        negotiation.handle_bytes(second);
        agreed(event.or_else(|| negotiation.poll_event()));
        assert_eq!(negotiation.into_rest(), b"request", "cut at {cut}");
    }
}

#[test]
fn an_export_is_entered_by_its_name_alone() {
    let export = export();
    let enter = |flags: &[u8], name: &[u8]| {
        let mut negotiation = Negotiation::new(&export, Security::Plain);
        negotiation.take_output();
        negotiation.handle_bytes(&[flags, &option(1, name)].concat());
        (negotiation.poll_event(), negotiation.take_output())
    };
    let head = b"\0\0\0\0\0\x30\x02\0\x01\x03";
    let (event, output) = enter(b"\0\0\0\x03", b"db@b");
    assert!(!agreed(event).is_structured);
    assert_eq!(output, head);
    let (event, output) = enter(b"\0\0\0\0", b"");
    agreed(event);
    assert_eq!(output, [&head[..], &[0; 124]].concat());
    let (event, output) = enter(FLAGS, b"db@c");
    assert_eq!(event, Some(NegotiationEvent::Violation(Violation::UnknownExport)));
    assert!(output.is_empty());
}

#[test]
fn contexts_are_those_of_the_last_selection() {
    let export = export();
    let mut client = Client::new(&export, Security::Plain);
    let both = contexts("db@b", &["base:allocation", "qemu:dirty-bitmap:a", "x-other:thing"]);
    assert_eq!(client.kinds(10, &both), [INVALID], "structured replies first");
    assert_eq!(client.kinds(9, &both), [INVALID]);
    assert_eq!(client.kinds(8, b""), [ACK]);
    let (_, listed) = client.send(9, &contexts("db@b", &[]));
    let name = |id: &[u8; 4], name: &str| (4, [&id[..], name.as_bytes()].concat());
    let of = |allocation, bitmap| {
        vec![name(allocation, "base:allocation"), name(bitmap, "qemu:dirty-bitmap:a"), (ACK, vec![])]
    };
    assert_eq!(listed, of(&[0; 4], &[0; 4]));
    let (_, selected) = client.send(10, &both);
    assert_eq!(selected, of(&[0, 0, 0, 1], &[0, 0, 0, 2]));
    let selecting = || {
        let mut client = Client::new(&export, Security::Plain);
        assert_eq!(client.kinds(8, b""), [ACK]);
        client
    };
    let entered = |mut client: Client| {
        let (event, _) = client.send(7, &info("db@b", &[]));
        agreed(event).contexts.iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(entered(client), [1, 2]);
    // One that fails selects nothing.
    for failed in [contexts("db@c", &["base:allocation"]), vec![1, 2, 3], vec![0; OPTION_BYTES_MAX + 1]] {
        let mut client = selecting();
        client.send(10, &both);
        let (_, replies) = client.send(10, &failed);
        assert!([INVALID, UNKNOWN, TOO_BIG].contains(&replies[0].0) && replies.len() == 1, "{replies:?}");
        assert_eq!(entered(client), Vec::<u32>::new());
    }
    let mut client = selecting();
    client.send(10, &both);
    assert_eq!(client.kinds(10, &contexts("", &["qemu:dirty-bitmap:a"])), [4, ACK]);
    assert_eq!(entered(client), [2]);
}

#[test]
fn options_are_refused_with_the_right_error() {
    let export = export();
    let mut client = Client::new(&export, Security::Plain);
    for (code, data, expected) in [
        (4, vec![], UNSUP),  // PEEK_EXPORT
        (11, vec![], UNSUP), // EXTENDED_HEADERS
        (0xffff_ffff, vec![1; 100], UNSUP),
        (0xffff_ffff, vec![1; OPTION_BYTES_MAX + 1], UNSUP),
        (5, vec![], POLICY),
        (5, vec![0], INVALID),
        (3, vec![0], INVALID),
        (3, vec![0; OPTION_BYTES_MAX + 1], TOO_BIG),
        (8, vec![0], INVALID),
        (6, info("db@c", &[]), UNKNOWN),
        (7, info("db@c", &[]), UNKNOWN),
        (7, vec![], INVALID),
        (7, vec![0; 200_000], TOO_BIG),
    ] {
        assert_eq!(client.kinds(code, &data), [expected], "option {code}");
    }
    // An abort is acknowledged, whatever it has.
    for data in [vec![], vec![7; 100], vec![7; OPTION_BYTES_MAX + 1]] {
        let mut client = Client::new(&export, Security::Plain);
        assert_eq!(client.send(2, &data), (Some(NegotiationEvent::Abort), vec![(ACK, vec![])]));
    }
}

#[test]
fn a_long_option_is_skipped_in_little_memory() {
    let export = export();
    let mut client = Client::new(&export, Security::Plain);
    let head = [&b"IHAVEOPT"[..], &7_u32.to_be_bytes(), &(100_u32 << 20).to_be_bytes()].concat();
    client.0.handle_bytes(&head);
    assert_eq!(client.0.poll_event(), None);
    assert_eq!(replies(&client.0.take_output())[0].1, TOO_BIG);
    for _ in 0..100 << 8 {
        client.0.handle_bytes(&[0x49; 4096]);
        assert_eq!(client.0.poll_event(), None);
        assert!(client.0.take_output().is_empty() && client.0.kept_bytes() == 0);
    }
    assert_eq!(client.kinds(8, b""), [ACK]);
}

#[test]
fn nothing_is_said_before_tls() {
    let export = export();
    let mut client = Client::new(&export, Security::Tls);
    for code in [3, 4, 6, 7, 8, 9, 10, 11, 12345] {
        for data in [vec![], info("db@b", &[]), vec![0; OPTION_BYTES_MAX + 1]] {
            assert_eq!(client.kinds(code, &data), [TLS_REQD], "option {code}");
        }
    }
    assert_eq!(client.kinds(5, b"x"), [INVALID]);
    let (event, replies) = client.send(5, b"");
    assert_eq!((event, replies), (Some(NegotiationEvent::StartTls), vec![(ACK, vec![])]));
    client.0.tls_has_begun();
    assert_eq!(client.kinds(5, b""), [INVALID], "it has begun");
    assert_eq!(client.kinds(8, b""), [ACK]);
    let (event, _) = client.send(7, &info("db@b", &[]));
    assert!(agreed(event).is_structured);

    assert_eq!(Client::new(&export, Security::Tls).violation(1, b"db@b"), Violation::NotEncrypted);
    let long = vec![0; OPTION_BYTES_MAX + 1];
    assert_eq!(Client::new(&export, Security::Tls).violation(1, &long), Violation::NotEncrypted);
    let mut old = Negotiation::new(&export, Security::Tls);
    old.handle_bytes(&[0; 4]);
    assert_eq!(old.poll_event(), Some(NegotiationEvent::Violation(Violation::NotFixedNewstyle)));
}

/// Otherwise what somebody in between has sent would count as sent by the client.
#[test]
fn nothing_may_follow_the_request_for_tls() {
    let export = export();
    let mut client = Client::new(&export, Security::Tls);
    client.0.handle_bytes(&[option(5, b""), option(8, b"")].concat());
    let behind = Some(NegotiationEvent::Violation(Violation::BehindStartTls));
    assert_eq!(client.0.poll_event(), behind);
    assert!(client.0.take_output().is_empty());
}

#[test]
fn what_does_not_speak_nbd_ends_the_connection() {
    let export = export();
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], Violation::ClientFlags(0x4745_5420)),
        (b"\0\0\0\x04", Violation::ClientFlags(4)),
        (b"\0\0\0\x01IHAVEOPS\0\0\0\x03\0\0\0\0", Violation::OptionMagic(0x4948_4156_454f_5053)),
    ] {
        let mut negotiation = Negotiation::new(&export, Security::Plain);
        negotiation.take_output();
        negotiation.handle_bytes(bytes);
        assert_eq!(negotiation.poll_event(), Some(NegotiationEvent::Violation(expected)));
        assert!(negotiation.poll_event().is_none() && negotiation.take_output().is_empty());
    }
}
