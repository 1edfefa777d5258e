//! Connections and what can happen to them.

use std::cell::RefCell;
use std::future::pending;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, SendBatch};

use crate::sim::{Fault, NetProfile, NodeId, World};
use crate::{CoreId, Listener, Stream, sleep, spawn, timeout};

const CORE: CoreId = CoreId(0);
const DEADLINE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

fn batch(bytes: &[u8]) -> SendBatch {
    let mut batch = SendBatch::new();
    batch.push(bytes);
    batch
}

/// A world of two nodes with a connection from the second to the first.
struct Pair {
    world: World,
    server: NodeId,
    client: NodeId,
    address: SocketAddr,
    /// Its server's end.
    accepted: Rc<Stream>,
    /// Its client's end.
    connected: Rc<Stream>,
}

fn pair(seed: u64) -> Pair {
    pair_with(seed, NetProfile::default())
}

fn pair_with(seed: u64, profile: NetProfile) -> Pair {
    let world = World::new(seed);
    world.set_net_profile(profile);
    let server = world.add_node("server", 1, |_| pending());
    let client = world.add_node("client", 1, |_| pending());
    let address = SocketAddr::new(world.address(server), 3260);
    let accepted = world.spawn_on(server, CORE, move || async move {
        let listener = Listener::bind(address).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let stream = stream.attach();
        assert_eq!(stream.peer_address(), peer);
        // It continues to listen.
        spawn(async move {
            let _listener = listener;
            pending::<()>().await
        })
        .detach();
        stream
    });
    world.run_for(SECOND);
    let connected = world
        .block_on(client, CORE, move || async move { Stream::connect(address, DEADLINE).await.unwrap() });
    let accepted = world.wait_for(accepted).unwrap();
    assert_eq!(connected.peer_address(), accepted.local_address());
    assert_eq!(connected.local_address(), accepted.peer_address());
    Pair { world, server, client, address, accepted: Rc::new(accepted), connected: Rc::new(connected) }
}

impl Pair {
    /// Sends from the client; returns the result.
    fn send(&self, len: usize) -> Result<(), ErrorKind> {
        let stream = Rc::clone(&self.connected);
        self.world.block_on(self.client, CORE, move || async move {
            stream.send(batch(&vec![7; len])).await.map(drop).map_err(|error| error.kind())
        })
    }

    /// Receives `len` bytes on the server.
    fn receive(&self, len: usize) -> Result<usize, ErrorKind> {
        let stream = Rc::clone(&self.accepted);
        self.world.block_on(self.server, CORE, move || async move {
            stream.receive_exact(Buf::zeroed(len), 0).await.map(|buf| buf.len()).map_err(|error| error.kind())
        })
    }

    /// The next result of a receive on the client.
    fn client_receives(&self) -> Result<usize, ErrorKind> {
        let stream = Rc::clone(&self.connected);
        self.world.block_on(self.client, CORE, move || async move {
            stream.receive().await.map(|received| received.len()).map_err(|error| error.kind())
        })
    }
}

/// Sends `len` bytes of a pattern from one node to another, with receives that are canceled and repeated, and
/// checks them.
fn transfer(seed: u64, len: usize, profile: NetProfile) -> World {
    let pair = pair_with(seed, profile);
    let pattern = |at: usize| (at * 7 / 3) as u8;
    let (connected, accepted) = (Rc::clone(&pair.connected), Rc::clone(&pair.accepted));
    let sizes = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sizes);
    let sending = pair.world.spawn_on(pair.client, CORE, move || async move {
        let bytes: Vec<u8> = (0..len).map(pattern).collect();
        let mut sent = 0;
        while sent < len {
            let count = (1 + crate::random() as usize % 100_000).min(len - sent);
            connected.send(batch(&bytes[sent..sent + count])).await.unwrap();
            sent += count;
        }
        connected.shutdown();
        assert_eq!(connected.send(batch(b"late")).await.map(drop).unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
    pair.world.block_on(pair.server, CORE, move || async move {
        let mut at = 0;
        loop {
            let patience = Duration::from_micros(crate::random() % 100);
            let Ok(received) = timeout(patience, accepted.receive()).await else { continue };
            let received = received.unwrap();
            if received.is_empty() {
                break;
            }
            for byte in received.iter() {
                assert_eq!(*byte, pattern(at), "at {at}");
                at += 1;
            }
            seen.borrow_mut().push(received.len());
        }
        assert_eq!(at, len);
        assert!(accepted.receive().await.unwrap().is_empty());
    });
    pair.world.wait_for(sending).unwrap();
    if len > 100_000 {
        let sizes = sizes.borrow();
        assert!(sizes.iter().any(|size| *size < 10) && sizes.iter().any(|size| *size > 10_000), "{sizes:?}");
    }
    pair.world
}

#[test]
fn bytes_arrive_in_order_cut_at_will() {
    for seed in 0..5 {
        transfer(seed, 2_000_000, NetProfile::default());
        let spiky = NetProfile { spike_one_in: 5, window: 1..5000, ..NetProfile::default() };
        let world = transfer(seed, 50_000, spiky);
        assert!(world.fault_counts().of(Fault::NetSpike) > 0);
    }
}

#[test]
fn bandwidth_is_as_configured() {
    let slow = NetProfile { bandwidth: 1_000_000, ..NetProfile::default() };
    let passed = transfer(1, 1_000_000, slow).now();
    assert!((SECOND..3 * SECOND).contains(&(passed - SECOND)), "{passed:?}");
}

#[test]
fn a_sender_waits_for_its_receiver() {
    let pair = pair(1);
    let connected = Rc::clone(&pair.connected);
    let sending = pair.world.spawn_on(pair.client, CORE, move || async move {
        connected.send(batch(&vec![7; 10 << 20])).await.unwrap();
    });
    let mut sending = Box::pin(sending);
    pair.world.run_for(60 * SECOND);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert_eq!(pair.receive(10 << 20), Ok(10 << 20));
    pair.world.wait_for(sending).unwrap();
}

#[test]
fn a_connection_travels_to_another_core_with_what_has_arrived() {
    let world = World::new(1);
    let node = world.add_node("a", 2, |_| pending());
    world.block_on(node, CORE, || async {
        let listener = Listener::bind("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_address().port();
        let to = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        let client = Stream::connect(to, DEADLINE).await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.ip().to_string(), "::ffff:127.0.0.1");
        client.send(batch(b"early")).await.unwrap();
        sleep(SECOND).await;
        let server = server.attach().detach().await;
        let echo = crate::call(CoreId(1), move || async move {
            let server = server.attach();
            let buf = server.receive_exact(Buf::zeroed(5), 0).await.unwrap();
            server.send(batch(&buf)).await.unwrap();
        });
        echo.await;
        assert_eq!(&*client.receive_exact(Buf::zeroed(5), 0).await.unwrap(), b"early");
        let ended = client.receive_exact(Buf::zeroed(5), 3).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn ports_and_addresses_are_checked() {
    let world = World::new(1);
    let node = world.add_node("a", 1, |_| pending());
    let other = world.add_node("b", 1, |_| pending());
    world.add_address(node, "192.168.7.1".parse().unwrap());
    world.add_address(other, "192.168.7.2".parse().unwrap());
    world.block_on(node, CORE, || async {
        let bind = async |address: &str| Listener::bind(address.parse().unwrap()).await;
        let listener = bind("10.0.0.1:80").await.unwrap();
        let second = bind("192.168.7.1:80").await.unwrap();
        for (address, kind) in [
            ("10.0.0.1:80", ErrorKind::AddrInUse),
            ("0.0.0.0:80", ErrorKind::AddrInUse),
            ("10.0.0.2:80", ErrorKind::AddrNotAvailable),
        ] {
            assert_eq!(bind(address).await.map(drop).unwrap_err().kind(), kind, "{address}");
        }
        drop((listener, second));
        drop(bind("0.0.0.0:80").await.unwrap());
        let free = Listener::bind("0.0.0.0:80".parse().unwrap()).await.unwrap();
        spawn(async move {
            loop {
                drop(free.accept().await.unwrap());
            }
        })
        .detach();
    });
    world.block_on(other, CORE, || async {
        let connect = async |address: &str| Stream::connect(address.parse().unwrap(), DEADLINE).await;
        assert_eq!(connect("10.0.0.1:80").await.unwrap().local_address().ip().to_string(), "10.0.0.2");
        assert_eq!(connect("192.168.7.1:80").await.unwrap().local_address().ip().to_string(), "192.168.7.2");
        let refused = connect("10.0.0.1:81").await;
        assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let nobody = connect("10.0.0.77:80").await;
        assert_eq!(nobody.map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
    });
    assert_eq!(world.fault_counts().of(Fault::ConnectionRefused), 1);
}

#[test]
fn a_broken_connection_fails_on_both_sides() {
    for seed in 0..20 {
        let pair = pair(seed);
        assert_eq!(pair.send(1000), Ok(()));
        assert_eq!(pair.world.break_connections(pair.server, pair.client), 1);
        pair.world.run_for(SECOND);
        // Data that had arrived before can still be received.
        let received = pair.receive(1000);
        assert!(matches!(received, Ok(1000) | Err(ErrorKind::ConnectionReset)), "{received:?}");
        assert_eq!(pair.receive(1), Err(ErrorKind::ConnectionReset));
        assert_eq!(pair.client_receives(), Err(ErrorKind::ConnectionReset));
        assert_eq!(pair.send(1), Err(ErrorKind::ConnectionReset));
        assert_eq!(pair.world.fault_counts().of(Fault::ConnectionBreak), 1);
    }
}

#[test]
fn connections_break_at_random_if_configured() {
    let pair = pair(1);
    pair.world.set_net_profile(NetProfile { break_one_in: 20, ..NetProfile::default() });
    let accepted = Rc::clone(&pair.accepted);
    drop(pair.world.spawn_on(pair.server, CORE, move || async move {
        while let Ok(received) = accepted.receive().await
            && !received.is_empty()
        {}
    }));
    assert_eq!(pair.send(10 << 20), Err(ErrorKind::ConnectionReset));
    assert_eq!(pair.world.fault_counts().of(Fault::ConnectionBreak), 1);
}

#[test]
fn a_cut_link_holds_bytes_until_it_heals() {
    let pair = pair(1);
    pair.world.cut(pair.server, pair.client);
    assert_eq!(pair.send(1000), Ok(()));
    let accepted = Rc::clone(&pair.accepted);
    let early = pair.world.block_on(pair.server, CORE, move || async move {
        timeout(100 * SECOND, accepted.receive()).await.is_ok()
    });
    assert!(!early);
    pair.world.heal(pair.server, pair.client);
    assert_eq!(pair.receive(1000), Ok(1000));
    assert!(pair.world.now() < 250 * SECOND);
    assert_eq!(pair.world.fault_counts().of(Fault::LinkHold), 1);
}

#[test]
fn a_cancelled_send_never_arrives() {
    for seed in 0..20 {
        let pair = pair(seed);
        pair.world.cut(pair.client, pair.server);
        pair.send(5).unwrap();
        pair.world.run_for(SECOND);
        let stream = Rc::clone(&pair.connected);
        pair.world.block_on(pair.client, CORE, move || async move { stream.abort() });
        assert_eq!(pair.client_receives(), Err(ErrorKind::ConnectionReset));
        pair.world.heal_all();
        // The server was not informed: it finds out when it asks.
        let stream = Rc::clone(&pair.accepted);
        let received = pair.world.spawn_on(pair.server, CORE, move || async move {
            stream.receive().await.map(|received| received.len()).map_err(|error| error.kind())
        });
        pair.world.run_for(NetProfile::default().keep_alive + SECOND);
        assert_eq!(pair.world.wait_for(received), Ok(Err(ErrorKind::ConnectionReset)));
    }
}

#[test]
fn a_link_cut_one_way_carries_the_other_way_until_nothing_is_acknowledged() {
    let pair = pair(1);
    pair.world.cut_one_way(pair.server, pair.client);
    assert_eq!(pair.send(1000), Ok(()));
    assert_eq!(pair.receive(1000), Ok(1000));
    assert_eq!(pair.client_receives(), Err(ErrorKind::TimedOut));
    assert!((900 * SECOND..1000 * SECOND).contains(&pair.world.now()));
    // The server does not know this until it sends after the link has healed: a half-open connection.
    pair.world.heal(pair.server, pair.client);
    let accepted = Rc::clone(&pair.accepted);
    pair.world.block_on(pair.server, CORE, move || async move {
        accepted.send(batch(b"anybody?")).await.unwrap();
        assert_eq!(accepted.receive().await.map(drop).unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
    assert_eq!(pair.world.fault_counts().of(Fault::ConnectionTimeout), 1);
}

#[test]
fn one_of_two_links_can_be_cut() {
    let pair = pair(1);
    let [here, there] = ["192.168.7.1", "192.168.7.2"].map(|address| address.parse().unwrap());
    pair.world.add_address(pair.server, here);
    pair.world.add_address(pair.client, there);
    let port = pair.address.port();
    pair.world.block_on(pair.server, CORE, move || async move {
        let listener = Listener::bind(SocketAddr::new(here, port)).await.unwrap();
        spawn(async move {
            let _streams = (listener.accept().await.unwrap(), listener.accept().await.unwrap());
            pending::<()>().await
        })
        .detach();
    });
    let connects = |address| {
        pair.world.block_on(pair.client, CORE, move || async move {
            Stream::connect(address, DEADLINE).await.map(drop).map_err(|error| error.kind())
        })
    };
    assert_eq!(connects(SocketAddr::new(here, port)), Ok(()));
    pair.world.cut_addresses_one_way(here, there);
    assert_eq!(connects(SocketAddr::new(here, port)), Err(ErrorKind::TimedOut));
    assert_eq!(pair.send(10), Ok(()));
    assert_eq!(pair.receive(10), Ok(10));
    pair.world.heal_addresses_one_way(here, there);
    assert_eq!(connects(SocketAddr::new(here, port)), Ok(()));
}

#[test]
fn a_killed_process_closes_its_connections() {
    let pair = pair(1);
    pair.world.kill(pair.server);
    assert_eq!(pair.client_receives(), Ok(0));
    assert_eq!(pair.send(10), Ok(()));
    pair.world.run_for(SECOND);
    assert_eq!(pair.send(10), Err(ErrorKind::ConnectionReset));
    let address = pair.address;
    let refused = pair.world.block_on(pair.client, CORE, move || async move {
        Stream::connect(address, DEADLINE).await.map(drop).unwrap_err().kind()
    });
    assert_eq!(refused, ErrorKind::ConnectionRefused);
}

#[test]
fn a_crashed_machine_is_silent_and_resets_what_it_forgot_when_it_is_back() {
    let pair = pair(1);
    pair.world.crash(pair.server);
    assert_eq!(pair.send(10), Ok(()));
    let connected = Rc::clone(&pair.connected);
    let silent = pair.world.block_on(pair.client, CORE, move || async move {
        timeout(30 * SECOND, connected.receive()).await.is_err()
    });
    assert!(silent);
    pair.world.restart(pair.server, |_| pending());
    let back = pair.world.now();
    assert_eq!(pair.client_receives(), Err(ErrorKind::ConnectionReset));
    assert!(pair.world.now() - back < 60 * SECOND);
}

#[test]
fn a_paused_process_keeps_its_connections() {
    let pair = pair(1);
    pair.world.pause(pair.server);
    assert_eq!(pair.send(1000), Ok(()));
    pair.world.run_for(1000 * SECOND);
    pair.world.resume(pair.server);
    assert_eq!(pair.receive(1000), Ok(1000));
}

/// Random cuts, heals, breaks and crashes: what arrives is always a prefix of what was sent.
#[test]
fn whatever_happens_a_stream_is_a_beginning_of_what_was_sent() {
    let (mut whole, mut part) = (0, 0);
    for seed in 0..100 {
        let mut rng = base::Rng::new(seed);
        let pair = pair(seed);
        const LEN: usize = 300_000;
        let received = Rc::new(RefCell::new(Vec::new()));
        let (seen, accepted) = (Rc::clone(&received), Rc::clone(&pair.accepted));
        let connected = Rc::clone(&pair.connected);
        let sent = pair.world.spawn_on(pair.client, CORE, move || async move {
            let bytes: Vec<u8> = (0..LEN).map(|at| (at * 7 / 3) as u8).collect();
            for chunk in bytes.chunks(10_000) {
                if connected.send(batch(chunk)).await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        let done = pair.world.spawn_on(pair.server, CORE, move || async move {
            while let Ok(bytes) = accepted.receive().await
                && !bytes.is_empty()
            {
                seen.borrow_mut().extend_from_slice(&bytes);
            }
        });
        for _ in 0..rng.below(8) {
            pair.world.run_for(Duration::from_millis(rng.below(8)));
            match rng.below(12) {
                0..4 => pair.world.cut_one_way(pair.client, pair.server),
                4..7 => pair.world.cut_one_way(pair.server, pair.client),
                7..10 => pair.world.heal(pair.server, pair.client),
                10 => drop(pair.world.break_connections(pair.server, pair.client)),
                _ => pair.world.kill(pair.client),
            }
        }
        pair.world.run_for(Duration::from_secs(rng.below(2000)));
        pair.world.heal_all();
        pair.world.run_for(Duration::from_secs(10_000));
        drop((sent, done));
        let received = received.borrow();
        assert!(received.iter().enumerate().all(|(at, byte)| *byte == (at * 7 / 3) as u8), "seed {seed}");
        *if received.len() == LEN { &mut whole } else { &mut part } += 1;
    }
    assert!(whole > 20 && part > 10, "{whole} whole, {part} in part");
}
