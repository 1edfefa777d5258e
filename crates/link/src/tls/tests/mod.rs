use rustls::{AlertDescription, ContentType, HandshakeType, InvalidMessage, PeerMisbehaved};

use super::records::CONTENT_MAX;
use super::*;
use crate::ClusterAuthority;

mod peer;

const CLUSTER: ClusterId = ClusterId([7; 16]);
/// The overhead of a record.
const AROUND: usize = 5 + 1 + 16;

/// Node 1, which accepts, and node 2, which connects to it.
struct Nodes {
    authority: ClusterAuthority,
    configs: [Configs; 2],
}

impl Nodes {
    fn new() -> Nodes {
        let authority = ClusterAuthority::create(CLUSTER).unwrap();
        let configs = [1, 2].map(|node| Configs::new(&authority.issue(NodeId(node)).unwrap()).unwrap());
        Nodes { authority, configs }
    }

    /// The accepting end and the connecting one, before the handshake.
    fn ends(&self) -> [Tls; 2] {
        [self.configs[0].server().unwrap(), self.configs[1].client(NodeId(1)).unwrap()]
    }

    /// The same ends after the handshake.
    fn agreed(&self) -> [Tls; 2] {
        let mut ends = self.ends();
        agree(&mut ends, 1000);
        assert!(!ends[0].is_handshaking() && !ends[1].is_handshaking());
        ends
    }
}

/// Two ends after the handshake.
fn pair() -> [Tls; 2] {
    Nodes::new().agreed()
}

/// Delivers what the two ends must send besides data, in pieces of this size.
fn agree(ends: &mut [Tls; 2], piece: usize) {
    while ends.iter().any(Tls::has_output) {
        for from in [0, 1] {
            for bytes in output(&mut ends[from]).chunks(piece) {
                assert_eq!(feed(&mut ends[1 - from], bytes), (Vec::new(), None));
            }
        }
    }
}

fn output(end: &mut Tls) -> Vec<u8> {
    let mut batch = SendBatch::new();
    end.take_output(&mut batch).unwrap();
    batch.to_vec()
}

fn seal(end: &mut Tls, content: &[u8]) -> Vec<u8> {
    let mut batch = SendBatch::new();
    end.seal(&[IoSlice::new(content)], &mut batch).unwrap();
    batch.to_vec()
}

fn records(end: &mut Tls) -> &mut Records {
    match &mut end.stage {
        Stage::Records(records) => records,
        Stage::Handshake(_) | Stage::Over => panic!("there are no records yet"),
    }
}

/// One record with this content.
fn record(end: &mut Tls, content_type: u8, content: &[u8]) -> Vec<u8> {
    let mut batch = SendBatch::new();
    records(end).push_record(ContentType::from(content_type), content, &mut batch).unwrap();
    batch.to_vec()
}

/// The data of `bytes`, and the error that ended it, if any.
fn feed(end: &mut Tls, bytes: &[u8]) -> (Vec<u8>, Option<rustls::Error>) {
    let mut got = Vec::new();
    let fed = end.feed(&mut bytes.to_vec(), |plain| {
        got.extend_from_slice(plain);
        Ok::<_, ()>(())
    });
    let error = fed.err().map(|error| match error {
        FeedError::Tls(error) => error,
        FeedError::User(()) => unreachable!("it takes everything"),
    });
    (got, error)
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

/// The lengths of the contents of these records.
fn contents(mut bytes: &[u8]) -> Vec<usize> {
    let mut contents = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..3], [0x17, 0x03, 0x03]);
        let len = 5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        contents.push(len - AROUND);
        bytes = &bytes[len..];
    }
    contents
}

#[test]
fn data_is_unchanged_however_records_are_split() {
    let mut ends = pair();
    let content = content(100_000);
    for piece in [100_000, 20_000, CONTENT_MAX + AROUND, CONTENT_MAX + AROUND - 1, 4096, 17, 5, 1] {
        for from in [0, 1] {
            let parts: Vec<IoSlice<'_>> = content.chunks(7_777).map(IoSlice::new).collect();
            let mut batch = SendBatch::new();
            ends[from].seal(&parts, &mut batch).unwrap();
            let mut all = Vec::new();
            for bytes in batch.to_vec().chunks(piece) {
                let (got, error) = feed(&mut ends[1 - from], bytes);
                assert_eq!(error, None);
                all.extend_from_slice(&got);
            }
            assert!(all == content, "in pieces of {piece}");
        }
    }
    assert!(!ends[0].has_output() && !ends[1].has_output());
}

#[test]
fn content_of_any_size_becomes_as_few_records_as_can_be() {
    let mut ends = pair();
    let around_one = [CONTENT_MAX - 1, CONTENT_MAX, CONTENT_MAX + 1];
    let sizes = [0, 1, 22, 3 * CONTENT_MAX, 3 * CONTENT_MAX + 1];
    for size in around_one.into_iter().chain(sizes) {
        let content = content(size);
        let bytes = seal(&mut ends[0], &content);
        let records = contents(&bytes);
        assert_eq!(records.len(), size.div_ceil(CONTENT_MAX));
        assert!(records.iter().rev().skip(1).all(|len| *len == CONTENT_MAX));
        assert_eq!(feed(&mut ends[1], &bytes), (content, None));
    }
}

#[test]
fn a_handshake_may_come_in_any_pieces() {
    let nodes = Nodes::new();
    for piece in [100_000, 100, 1] {
        let mut ends = nodes.ends();
        agree(&mut ends, piece);
        assert!(!ends[0].is_handshaking() && !ends[1].is_handshaking());
    }
}

#[test]
fn data_in_one_flight_with_the_handshakes_end_is_not_lost() {
    let nodes = Nodes::new();
    for piece in [100_000, 1000, 1] {
        let [mut server, mut client] = nodes.ends();
        feed(&mut server, &output(&mut client));
        feed(&mut client, &output(&mut server));
        assert!(!client.is_handshaking() && server.is_handshaking());
        let mut got = Vec::new();
        for bytes in seal(&mut client, &content(40_000)).chunks(piece) {
            let (more, error) = feed(&mut server, bytes);
            assert_eq!(error, None);
            got.extend_from_slice(&more);
        }
        assert!(!server.is_handshaking() && got == content(40_000));
        let answer = seal(&mut server, b"hello");
        assert_eq!(feed(&mut client, &answer), (b"hello".to_vec(), None));
    }
}

#[test]
fn nothing_is_sealed_before_the_two_have_agreed() {
    let [_, mut client] = Nodes::new().ends();
    let sealed = client.seal(&[IoSlice::new(b"hello")], &mut SendBatch::new());
    assert_eq!(sealed, Err(rustls::Error::HandshakeNotComplete));
}

#[test]
fn each_side_knows_the_other() {
    let ends = pair();
    assert!(ends[0].peer_is(CLUSTER, NodeId(2)) && ends[1].peer_is(CLUSTER, NodeId(1)));
    assert!(!ends[0].peer_is(CLUSTER, NodeId(1)) && !ends[0].peer_is(ClusterId([8; 16]), NodeId(2)));
    assert!(ends[1].is_client() && !ends[0].is_client());
}

#[test]
fn a_caller_that_reaches_another_node_says_so() {
    let nodes = Nodes::new();
    let mut client = nodes.configs[1].client(NodeId(3)).unwrap();
    let mut server = nodes.configs[0].server().unwrap();
    feed(&mut server, &output(&mut client));
    let (_, error) = feed(&mut client, &output(&mut server));
    assert!(matches!(error, Some(rustls::Error::InvalidCertificate(_))));
    assert!(client.is_handshaking());
    let (_, error) = feed(&mut server, &output(&mut client));
    assert!(matches!(error, Some(rustls::Error::AlertReceived(_))));
}

#[test]
fn a_caller_refused_after_its_own_part_of_the_handshake_learns_it() {
    let nodes = Nodes::new();
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(NoClock))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_webpki_verifier(servers_of(nodes.authority.certificate()).unwrap())
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    let mut client = Tls::client(Arc::new(config), server_name(CLUSTER, NodeId(1))).unwrap();
    let mut server = nodes.configs[0].server().unwrap();
    feed(&mut server, &output(&mut client));
    assert_eq!(feed(&mut client, &output(&mut server)).1, None);
    assert!(!client.is_handshaking());
    assert_eq!(feed(&mut server, &output(&mut client)).1, Some(rustls::Error::NoCertificatesPresented));
    let told = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    assert_eq!(feed(&mut client, &output(&mut server)).1, Some(told));
}

#[test]
fn keys_are_renewed_before_their_limit() {
    let mut ends = pair();
    records(&mut ends[0]).renew_at = 5;
    records(&mut ends[1]).renew_at = 3;
    let mut seen = Vec::new();
    for round in 0..400u32 {
        for from in [0, 1] {
            let bytes = seal(&mut ends[from], &round.to_le_bytes().repeat(25));
            if from == 0 {
                seen.extend(contents(&bytes));
            }
            assert_eq!(feed(&mut ends[1 - from], &bytes), (round.to_le_bytes().repeat(25), None));
        }
    }
    let five_and_new_keys = [&[100; 5][..], &[5]].concat();
    assert!(seen.chunks_exact(6).all(|chunk| chunk == five_and_new_keys), "{seen:?}");
    assert_eq!(seen.len(), 400 + 400 / 5 - 1);
}

#[test]
fn a_peer_asked_for_new_keys_uses_them_before_it_sends_more() {
    let mut ends = pair();
    for _ in 0..3 {
        // Requested twice, answered once.
        for _ in 0..2 {
            let asked = record(&mut ends[0], 22, &[24, 0, 0, 1, 1]);
            records(&mut ends[0]).take_new_key().unwrap();
            assert_eq!(feed(&mut ends[1], &asked), (Vec::new(), None));
        }
        assert!(ends[1].has_output());
        let bytes = seal(&mut ends[1], b"hello");
        assert_eq!(contents(&bytes), [5, 5]);
        assert!(!ends[1].has_output());
        assert_eq!(feed(&mut ends[0], &bytes), (b"hello".to_vec(), None));
        let bytes = seal(&mut ends[0], b"you");
        assert_eq!(feed(&mut ends[1], &bytes), (b"you".to_vec(), None));
    }
}

#[test]
fn whatever_is_changed_on_its_way_ends_it() {
    let nodes = Nodes::new();
    let len = AROUND + b"hello".len();
    for bit in 0..len * 8 {
        let mut ends = nodes.agreed();
        let mut bytes = seal(&mut ends[0], b"hello");
        assert_eq!(bytes.len(), len);
        // Enough bytes that even a record whose length was made greater is complete.
        bytes.extend(seal(&mut ends[0], &content(2 * CONTENT_MAX)));
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (got, error) = feed(&mut ends[1], &bytes);
        assert!(got.is_empty() && error.is_some(), "bit {bit}: {error:?}");
        assert!(ends[1].has_output(), "an alert tells the other side");
        // It remains failed, whatever follows.
        let bytes = seal(&mut ends[0], b"hello");
        assert_eq!(feed(&mut ends[1], &bytes), (Vec::new(), error));
        let alert = output(&mut ends[1]);
        let (_, told) = feed(&mut ends[0], &alert);
        assert!(matches!(told, Some(rustls::Error::AlertReceived(_))));
        assert!(ends[1].seal(&[IoSlice::new(b"hello")], &mut SendBatch::new()).is_err());
    }
}

#[test]
fn records_that_come_in_another_order_end_it() {
    let nodes = Nodes::new();
    for order in [&[1][..], &[0, 0], &[0, 2], &[0, 1, 0], &[0, 1, 1]] {
        let mut ends = nodes.agreed();
        let sealed = [b"first", b"again", b"third"].map(|content| seal(&mut ends[0], content));
        let bytes: Vec<u8> = order.iter().flat_map(|at| sealed[*at].clone()).collect();
        let (got, error) = feed(&mut ends[1], &bytes);
        assert_eq!(error, Some(rustls::Error::DecryptError), "{order:?}");
        assert_eq!(got.len(), (order.len() - 1) * 5);
    }
    // A record in the opposite direction is refused as well.
    let mut ends = nodes.agreed();
    let own = seal(&mut ends[0], b"hello");
    assert_eq!(feed(&mut ends[0], &own), (Vec::new(), Some(rustls::Error::DecryptError)));
}

#[test]
fn padding_is_removed() {
    let mut ends = pair();
    let bytes = record(&mut ends[0], 0, b"hello\x17\0\0\0");
    assert_eq!(feed(&mut ends[1], &bytes), (b"hello".to_vec(), None));
}

#[test]
fn nothing_is_read_after_a_close_notify() {
    let mut ends = pair();
    let mut bytes = seal(&mut ends[0], b"hello");
    bytes.extend(record(&mut ends[0], 21, &[1, 0]));
    bytes.extend(seal(&mut ends[0], b"more"));
    assert_eq!(feed(&mut ends[1], &bytes), (b"hello".to_vec(), None));
    assert_eq!(feed(&mut ends[1], b"what is no record"), (Vec::new(), None));
    let answer = seal(&mut ends[1], b"I do go on");
    assert_eq!(feed(&mut ends[0], &answer), (b"I do go on".to_vec(), None));
}

/// The error of the connecting end for a record with this content.
fn fate(nodes: &Nodes, content_type: u8, content: &[u8]) -> Option<rustls::Error> {
    let mut ends = nodes.agreed();
    let bytes = record(&mut ends[0], content_type, content);
    let (got, error) = feed(&mut ends[1], &bytes);
    assert!(got.is_empty());
    error
}

#[test]
fn forbidden_messages_end_the_connection() {
    let nodes = Nodes::new();
    let misbehaved = |why: PeerMisbehaved| Some(rustls::Error::PeerMisbehaved(why));
    let invalid = |why: InvalidMessage| Some(rustls::Error::InvalidMessage(why));
    let alert = Some(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure));
    assert_eq!(fate(&nodes, 21, &[2, 40]), alert);
    assert_eq!(fate(&nodes, 21, &[1, 40]), alert);
    assert_eq!(fate(&nodes, 21, &[2]), invalid(InvalidMessage::MissingData("Alert")));
    assert_eq!(fate(&nodes, 0, &[0; 9]), misbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext));
    for content_type in [20, 24, 255] {
        let error = fate(&nodes, content_type, &[1]);
        assert!(matches!(error, Some(rustls::Error::InappropriateMessage { .. })));
    }
    let too_long = [content(CONTENT_MAX + 1), vec![23]].concat();
    assert_eq!(fate(&nodes, 0, &too_long), Some(rustls::Error::PeerSentOversizedRecord));

    assert_eq!(fate(&nodes, 22, &[]), invalid(InvalidMessage::InvalidEmptyPayload));
    assert_eq!(fate(&nodes, 22, &[24, 0, 0]), invalid(InvalidMessage::MessageTooShort));
    assert_eq!(fate(&nodes, 22, &[24, 0, 0, 1]), invalid(InvalidMessage::MessageTooShort));
    assert_eq!(fate(&nodes, 22, &[24, 0, 0, 1, 2]), invalid(InvalidMessage::InvalidKeyUpdate));
    assert_eq!(fate(&nodes, 22, &[24, 0, 0, 2, 0, 0]), invalid(InvalidMessage::InvalidKeyUpdate));
    let behind = misbehaved(PeerMisbehaved::KeyEpochWithPendingFragment);
    assert_eq!(fate(&nodes, 22, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0]), behind);
    let hello = rustls::Error::InappropriateHandshakeMessage {
        expect_types: vec![HandshakeType::KeyUpdate],
        got_type: HandshakeType::ClientHello,
    };
    assert_eq!(fate(&nodes, 22, &[1, 0, 0, 0]), Some(hello));
}

#[test]
fn a_ticket_is_ignored_and_only_servers_give_them() {
    let mut ends = pair();
    let ticket = [4, 0, 0, 2, 1, 2];
    let bytes = record(&mut ends[0], 22, &ticket.repeat(3));
    assert_eq!(feed(&mut ends[1], &bytes), (Vec::new(), None));
    let bytes = record(&mut ends[1], 22, &ticket);
    let (_, error) = feed(&mut ends[0], &bytes);
    assert!(matches!(error, Some(rustls::Error::InappropriateHandshakeMessage { .. })));
}

#[test]
fn headers_that_no_record_has_end_it_before_its_content_comes() {
    let nodes = Nodes::new();
    let plain = |header: &[u8]| feed(&mut nodes.agreed()[1], header).1;
    assert!(matches!(plain(&[0x14, 3, 3, 0, 1]), Some(rustls::Error::InappropriateMessage { .. })));
    assert!(matches!(plain(&[0x15, 3, 3, 0, 2]), Some(rustls::Error::InappropriateMessage { .. })));
    assert_eq!(plain(&[0x17, 3, 3, 0, 16]), Some(rustls::Error::DecryptError));
    assert_eq!(plain(&[0x17, 3, 3, 0x41, 0x01]), Some(rustls::Error::PeerSentOversizedRecord));
    assert_eq!(plain(&[0x17, 3, 3, 0x41, 0x00]), None);
}

#[test]
fn a_peer_that_brings_nothing_for_long_ends_it() {
    let mut ends = pair();
    for _ in 0..3 {
        for _ in 0..32 {
            let bytes = record(&mut ends[0], 23, &[]);
            assert_eq!(feed(&mut ends[1], &bytes), (Vec::new(), None));
        }
        let bytes = seal(&mut ends[0], b"hello");
        assert_eq!(feed(&mut ends[1], &bytes), (b"hello".to_vec(), None));
    }
    let bytes: Vec<u8> = (0..33).flat_map(|_| record(&mut ends[0], 23, &[])).collect();
    let tired = rustls::Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments);
    assert_eq!(feed(&mut ends[1], &bytes), (Vec::new(), Some(tired)));
}

#[test]
fn the_users_verdict_on_the_bytes_is_returned() {
    let mut ends = pair();
    let mut bytes = seal(&mut ends[0], b"hello");
    let fed = ends[1].feed(&mut bytes, |_| Err("no"));
    assert!(matches!(fed, Err(FeedError::User("no"))));
}
