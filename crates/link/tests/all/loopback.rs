//! Nodes in this process, over loopback, with and without TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use link::{Links, Protocol, Settings};
use replica::{Incarnation, NodeId};
use rt::uring::{Config, Running};

use crate::node::{
    CLUSTER, CORES, Held, Life, Node, PATIENCE, authority, control, limits, pair, replication, secure_pair,
};
use crate::recorder::{ANSWER, ASK, HandlerCall, Log, Recorder, SAY, frame, link};

fn frames(log: &Log, wanted: u8) -> Vec<(u64, Vec<u8>)> {
    let frames = log.all().into_iter().filter_map(|(_, told)| match told {
        HandlerCall::Frame { channel, kind, payload, .. } if kind == wanted => Some((channel, payload)),
        _ => None,
    });
    frames.collect()
}

fn carries_everything(a: &Node, b: &Node) {
    a.wait_for_links(3);
    b.wait_for_links(3);
    // Thousands of small frames, with large ones between them.
    let content = |n: u64| match n % 1000 {
        0 => vec![n as u8; 0],
        500 => vec![n as u8; (8 << 20) + (64 << 10)],
        501 => vec![n as u8; 40_000],
        _ => vec![n as u8; (n % 50) as usize],
    };
    const COUNT: u64 = 3_000;
    b.on(1, move || {
        let link = link(replication(1, 1)).unwrap();
        (0..COUNT).for_each(|n| link.send(frame(n, ASK, b"head", content(n))));
    });
    b.wait(|log| log.count(|told| matches!(told, HandlerCall::Frame { kind: ANSWER, .. })) == COUNT as usize);
    for (log, kind) in [(&a.log, ASK), (&b.log, ANSWER)] {
        let frames = frames(log, kind);
        assert_eq!(frames.len() as u64, COUNT);
        for (n, (channel, payload)) in (0..).zip(frames) {
            assert!(channel == n && payload == content(n), "frame {n}");
        }
    }
    let queued = b.on(1, || link(replication(1, 1)).unwrap().queued_bytes());
    assert_eq!(queued, 0);
    assert_eq!(b.log.count(|told| matches!(told, HandlerCall::Down(_))), 0);
}

#[test]
fn a_plain_link_carries_everything() {
    let (a, b) = pair(None, None);
    carries_everything(&a, &b);
}

#[test]
fn an_encrypted_link_carries_everything() {
    let (a, b) = secure_pair();
    carries_everything(&a, &b);
}

#[test]
fn a_closed_link_comes_back() {
    let (a, b) = secure_pair();
    for round in 1..4 {
        a.wait_for_links(3);
        b.wait_for_links(3);
        assert_eq!(a.log.count(|told| matches!(told, HandlerCall::Down(_))), round - 1);
        a.on(0, || link(control(2)).unwrap().close("the test wants it"));
        a.wait(|log| log.count(|told| matches!(told, HandlerCall::Down(_))) == round);
        b.wait(|log| log.count(|told| matches!(told, HandlerCall::Down(_))) == round);
    }
}

#[test]
fn a_peer_may_come_back_with_another_number_of_cores() {
    let (a, b) = pair(None, None);
    b.wait_for_links(3);
    let (address, mut a) = (a.address, Some(a));
    for (incarnation, cores) in [(2, 4), (3, 1), (4, 3)] {
        // Its port is free again when its last connection is closed.
        drop(a.take());
        b.wait_for_links(0);
        let again = Node::live(Life { id: 1, incarnation, cores, address }, None);
        again.set_peers(vec![b.peer()]);
        let links = 1 + usize::from(cores.max(CORES));
        b.wait_for_links(links);
        again.wait_for_links(links);
        // No dialler tries to make links that no longer exist.
        std::thread::sleep(limits().backoff_max + limits().backoff_max);
        assert_eq!(b.log.up().len(), links);
        let [of_a] = &b.on(0, || rt::local::<Held>().unwrap().links.peers())[..] else { panic!("one peer") };
        assert_eq!(
            (of_a.incarnation, of_a.links, &of_a.trouble),
            (Some(Incarnation(incarnation)), links, &None)
        );
        a = Some(again);
    }
}

/// Waits long enough for a few attempts, and checks that none has succeeded.
fn gets_no_link(a: &Node, b: &Node) {
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!((a.ups(), b.ups()), (0, 0));
}

#[test]
fn a_node_of_another_authority_is_refused() {
    let other = authority();
    let (a, b) = pair(Some(authority().issue(NodeId(1)).unwrap()), Some(other.issue(NodeId(2)).unwrap()));
    gets_no_link(&a, &b);
}

#[test]
fn tls_and_no_tls_do_not_mix() {
    let (a, b) = pair(Some(authority().issue(NodeId(1)).unwrap()), None);
    gets_no_link(&a, &b);
    let (a, b) = pair(None, Some(authority().issue(NodeId(2)).unwrap()));
    gets_no_link(&a, &b);
}

#[test]
fn a_node_cannot_be_started_with_the_credentials_of_another() {
    let credentials = authority().issue(NodeId(3)).unwrap();
    let config = Config { processors: vec![0], pin: false, poll: Duration::ZERO };
    let (told, result) = mpsc::channel();
    let credentials = std::sync::Arc::new(std::sync::Mutex::new(Some(credentials)));
    let running = Running::start(config, move |_| {
        let (credentials, told) = (credentials.clone(), told.clone());
        async move {
            let settings = Settings {
                me: NodeId(2),
                cluster: CLUSTER,
                generation: 1,
                incarnation: Incarnation(1),
                listen: Vec::new(),
                tls: credentials.lock().unwrap().take(),
                protocol: Protocol::default(),
                limits: limits(),
            };
            let started = Links::start(settings, Recorder::install(&Log::default())).await;
            told.send(started.err().map(|error| error.to_string())).unwrap();
        }
    });
    running.unwrap().join();
    let error = result.recv().unwrap().unwrap();
    assert!(error.contains("another node"), "{error}");
}

#[test]
fn garbage_and_slow_connections_do_no_harm() {
    let (a, b) = secure_pair();
    a.wait_for_links(3);
    for begin in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"URSA\x01\x01\x01\0\x16\x03\x01\xff\xff",
        b"URSA\x01\x01\x01\0zzzz",
        b"U",
        b"",
    ] {
        let mut stream = TcpStream::connect(a.address).unwrap();
        stream.write_all(begin).unwrap();
        let began = Instant::now();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // The connection ends, cleanly or not.
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{begin:?}");
        }
        assert!(began.elapsed() < limits().handshake * 4, "{begin:?}");
    }
    // One byte at a time does not occupy the node forever.
    let mut slow = TcpStream::connect(a.address).unwrap();
    let began = Instant::now();
    while slow.write_all(b"U").is_ok() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    b.on(0, || link(control(1)).unwrap().send(frame(7, SAY, b"", vec![1; 100])));
    a.wait(|log| frames(log, SAY) == [(7, vec![1; 100])]);
    assert_eq!((a.ups(), b.ups()), (3, 3));
}

#[test]
fn idle_links_stay() {
    let (a, b) = secure_pair();
    a.wait_for_links(3);
    std::thread::sleep(limits().silence + Duration::from_secs(1));
    assert_eq!((a.ups(), b.ups()), (3, 3));
    assert_eq!((a.log.up().len(), b.log.up().len()), (3, 3));
}
