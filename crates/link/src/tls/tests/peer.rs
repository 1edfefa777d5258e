//! One end leaves its records to rustls: ours must get along with them.

use std::io::{BufRead, Read, Write};

use rustls::{ClientConnection, Connection, ServerConnection, SupportedCipherSuite};

use super::*;

struct Peer(Connection);

impl Peer {
    /// Node 2, which connects to node 1.
    fn client(authority: &ClusterAuthority, suite: SupportedCipherSuite) -> Peer {
        let credentials = authority.issue(NodeId(2)).unwrap();
        let config = ClientConfig::builder_with_details(only(suite), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_webpki_verifier(servers_of(credentials.authority()).unwrap())
            .with_client_auth_cert(vec![credentials.certificate().clone()], credentials.private_key())
            .unwrap();
        let name = server_name(CLUSTER, NodeId(1));
        Peer::new(ClientConnection::new(Arc::new(config), name).unwrap().into())
    }

    /// Node 1, which accepts.
    fn server(authority: &ClusterAuthority, suite: SupportedCipherSuite) -> Peer {
        let credentials = authority.issue(NodeId(1)).unwrap();
        let trust = trust_in(credentials.authority()).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(trust, provider()).build().unwrap();
        let config = ServerConfig::builder_with_details(only(suite), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![credentials.certificate().clone()], credentials.private_key())
            .unwrap();
        // It also sends tickets, which must be ignored.
        Peer::new(ServerConnection::new(Arc::new(config)).unwrap().into())
    }

    fn new(mut connection: Connection) -> Peer {
        connection.set_buffer_limit(None);
        Peer(connection)
    }

    fn say(&mut self, content: &[u8]) {
        self.0.writer().write_all(content).unwrap();
    }

    fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut output).unwrap();
        }
        output
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut got = Vec::new();
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes as &mut dyn Read).unwrap();
            self.0.process_new_packets()?;
            let mut reader = self.0.reader();
            while let Ok(chunk) = reader.fill_buf()
                && !chunk.is_empty()
            {
                let len = chunk.len();
                got.extend_from_slice(chunk);
                reader.consume(len);
            }
        }
        Ok(got)
    }
}

fn only(suite: SupportedCipherSuite) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: vec![suite], ..Arc::unwrap_or_clone(provider()) })
}

/// Both kinds in either role with each suite, after the handshake.
fn meetings() -> Vec<(Tls, Peer)> {
    let nodes = Nodes::new();
    let mut meetings = Vec::new();
    for suite in provider().cipher_suites.clone() {
        let [server, client] = nodes.ends();
        meetings.push((server, Peer::client(&nodes.authority, suite)));
        meetings.push((client, Peer::server(&nodes.authority, suite)));
    }
    for (ours, peer) in &mut meetings {
        assert_eq!(settle(ours, peer, 1000), (Vec::new(), Vec::new()));
        assert!(!ours.is_handshaking() && !peer.0.is_handshaking());
    }
    meetings
}

/// Delivers everything between the two, in pieces of this size. Returns what our end and the peer received.
fn settle(ours: &mut Tls, peer: &mut Peer, piece: usize) -> (Vec<u8>, Vec<u8>) {
    let mut got = (Vec::new(), Vec::new());
    loop {
        let (out, back) = (output(ours), peer.output());
        if out.is_empty() && back.is_empty() {
            return got;
        }
        for bytes in out.chunks(piece) {
            got.1.extend(peer.feed(bytes).unwrap());
        }
        for bytes in back.chunks(piece) {
            let (more, error) = feed(ours, bytes);
            assert_eq!(error, None);
            got.0.extend(more);
        }
    }
}

#[test]
fn the_two_understand_each_other_in_either_role_and_each_suite() {
    for (mut ours, mut peer) in meetings() {
        for size in [1, CONTENT_MAX - 1, CONTENT_MAX, CONTENT_MAX + 1, 100_000] {
            let content = content(size);
            assert!(peer.feed(&seal(&mut ours, &content)).unwrap() == content);
            peer.say(&content);
            assert!(settle(&mut ours, &mut peer, 4096).0 == content);
        }
    }
}

#[test]
fn data_of_a_peer_in_one_flight_with_the_handshakes_end_is_not_lost() {
    let nodes = Nodes::new();
    let [mut server, _] = nodes.ends();
    let mut client = Peer::client(&nodes.authority, provider().cipher_suites[0]);
    client.say(b"hello");
    assert_eq!(settle(&mut server, &mut client, 100_000).0, b"hello");
}

#[test]
fn either_takes_new_keys_under_way() {
    for (mut ours, mut peer) in meetings() {
        records(&mut ours).renew_at = 7;
        for round in 0..20u8 {
            // The peer requests new keys in turn, and takes its own at once.
            for _ in 0..round % 3 {
                peer.0.refresh_traffic_keys().unwrap();
            }
            peer.say(&[round; 100]);
            let asked = peer.output();
            assert_eq!(feed(&mut ours, &asked), (vec![round; 100], None));
            assert_eq!(ours.has_output(), round % 3 > 0);
            for _ in 0..5 {
                let bytes = seal(&mut ours, &[round; 50]);
                assert_eq!(peer.feed(&bytes).unwrap(), [round; 50]);
            }
        }
    }
}

#[test]
fn each_hears_why_the_other_gives_up_and_that_it_closes() {
    for (mut ours, mut peer) in meetings() {
        peer.0.send_close_notify();
        let bytes = [peer.output(), b"behind it".to_vec()].concat();
        assert_eq!(feed(&mut ours, &bytes), (Vec::new(), None));
        let bytes = seal(&mut ours, b"hello");
        assert_eq!(peer.feed(&bytes).unwrap(), b"hello");
    }
    for (mut ours, mut peer) in meetings() {
        let mut bytes = seal(&mut ours, b"hello");
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(peer.feed(&bytes), Err(rustls::Error::DecryptError));
        let why = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
        assert_eq!(feed(&mut ours, &peer.output()), (Vec::new(), Some(why)));
    }
    for (mut ours, mut peer) in meetings() {
        peer.say(b"hello");
        let mut bytes = peer.output();
        *bytes.last_mut().unwrap() ^= 1;
        assert_eq!(feed(&mut ours, &bytes).1, Some(rustls::Error::DecryptError));
        let why = rustls::Error::AlertReceived(AlertDescription::BadRecordMac);
        assert_eq!(peer.feed(&output(&mut ours)), Err(why));
    }
}
