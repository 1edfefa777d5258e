//! TCP on loopback.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, SendBatch};
use rt::{CoreId, Listener, Stream};

use crate::{run, run_on};

const DEADLINE: Duration = Duration::from_secs(10);

async fn listen() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

/// Two ends of a connection.
async fn pair() -> (Stream, Stream) {
    let listener = listen().await;
    let connect = rt::spawn({
        let address = listener.local_address();
        async move { Stream::connect(address, DEADLINE).await.unwrap() }
    });
    let (accepted, _) = listener.accept().await.unwrap();
    (connect.await, accepted.attach())
}

/// A stream whose other end is a plain socket.
async fn with_plain_socket() -> (Stream, TcpStream) {
    let listener = listen().await;
    let socket = TcpStream::connect(listener.local_address()).unwrap();
    let (accepted, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, socket.local_addr().unwrap());
    (accepted.attach(), socket)
}

fn batch(bytes: &[u8]) -> SendBatch {
    let mut batch = SendBatch::new();
    batch.push(bytes);
    batch
}

/// Bytes that show their position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// Receives exactly `len` bytes with `receive`.
async fn receive_all(stream: &Stream, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let received = stream.receive().await.unwrap();
        assert!(!received.is_empty(), "closed after {} of {len} bytes", bytes.len());
        bytes.extend_from_slice(&received);
    }
    assert_eq!(bytes.len(), len);
    bytes
}

#[test]
fn bytes_go_both_ways_and_end() {
    run(|| async {
        let (a, b) = pair().await;
        assert_eq!(a.peer_address(), b.local_address());
        assert_eq!(b.peer_address(), a.local_address());
        assert!(a.send(batch(b"hello")).await.unwrap().is_empty());
        assert_eq!(&*b.receive().await.unwrap(), b"hello");
        b.send(batch(b"world")).await.unwrap();
        assert_eq!(&*a.receive().await.unwrap(), b"world");
        drop(a);
        assert!(b.receive().await.unwrap().is_empty());
        assert!(b.receive().await.unwrap().is_empty());
    });
}

#[test]
fn a_listener_works_on_ipv6() {
    run(|| async {
        let Ok(listener) = Listener::bind("[::1]:0".parse().unwrap()).await else {
            println!("skipped: no IPv6 here");
            return;
        };
        let address = listener.local_address();
        let connect = rt::spawn(async move { Stream::connect(address, DEADLINE).await.unwrap() });
        let (accepted, peer) = listener.accept().await.unwrap();
        let (a, b) = (connect.await, accepted.attach());
        assert_eq!((a.peer_address(), a.local_address()), (address, peer));
        a.send(batch(b"six")).await.unwrap();
        assert_eq!(&*b.receive().await.unwrap(), b"six");
    });
}

#[test]
fn errors_are_reported() {
    run(|| async {
        let listener = listen().await;
        let address = listener.local_address();
        assert_eq!(Listener::bind(address).await.err().unwrap().kind(), ErrorKind::AddrInUse);
        drop(listener);
        rt::sleep(Duration::from_millis(10)).await;
        let refused = Stream::connect(address, DEADLINE).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // A documentation address (RFC 5737) that never answers; without any route it fails at once.
        let start = rt::now();
        let silent = Stream::connect("192.0.2.1:3260".parse().unwrap(), Duration::from_millis(50)).await;
        assert!(silent.is_err() && rt::now().since(start) < Duration::from_secs(5));
    });
}

#[test]
fn a_dropped_receive_loses_nothing() {
    run(|| async {
        let (a, b) = pair().await;
        let data = pattern(200_000);
        let sent = data.clone();
        let sender = rt::spawn(async move {
            for piece in sent.chunks(777) {
                a.send(batch(piece)).await.unwrap();
                if piece[0].is_multiple_of(8) {
                    rt::sleep(Duration::from_micros(50)).await;
                }
            }
            a
        });
        let mut bytes = Vec::new();
        while bytes.len() < data.len() {
            // Some of these give up before anything arrives, some in the very turn in which it arrives.
            match rt::timeout(Duration::from_micros(rt::random() % 40), b.receive()).await {
                Ok(received) => bytes.extend_from_slice(&received.unwrap()),
                Err(_) => rt::yield_now().await,
            }
        }
        assert_eq!(bytes, data);
        drop(sender.await);
    });
}

#[test]
fn receiving_in_place_and_in_pieces_mix() {
    run(|| async {
        let (a, b) = pair().await;
        // Around the size from which data is received in place, and around a buffer of the ring.
        let sizes = [1, 48, 4096, 32 << 10, (32 << 10) + 1, 100_000, 48, 48, 1 << 20, 5, 65_536, 31_999];
        let rounds = 20;
        let sender = rt::spawn(async move {
            for round in 0..rounds {
                for size in sizes {
                    a.send(batch(&pattern(size))).await.unwrap();
                    if round % 3 == 0 {
                        rt::sleep(Duration::from_micros(200)).await;
                    }
                }
            }
            a
        });
        // Data that was received beyond the end of an item.
        let mut over: Vec<u8> = Vec::new();
        for round in 0..rounds {
            for size in sizes {
                while over.is_empty() && round % 2 == 0 {
                    over.extend_from_slice(&b.receive().await.unwrap());
                }
                let filled = over.len().min(size);
                let mut buf = Buf::zeroed(size);
                buf[..filled].copy_from_slice(&over[..filled]);
                over.drain(..filled);
                let buf = b.receive_exact(buf, filled).await.unwrap();
                assert!(*buf == pattern(size), "round {round}, size {size}");
            }
        }
        assert!(over.is_empty());
        drop(sender.await);
        assert_eq!(b.receive_exact(Buf::zeroed(4), 0).await.err().unwrap().kind(), ErrorKind::UnexpectedEof);
    });
}

#[test]
fn the_end_in_the_middle_of_an_exact_receive_is_an_error() {
    for len in [100, 1 << 20] {
        run(move || async move {
            let (stream, mut socket) = with_plain_socket().await;
            socket.write_all(&pattern(len / 2)).unwrap();
            drop(socket);
            let error = stream.receive_exact(Buf::zeroed(len), 0).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        });
    }
}

#[test]
fn many_megabytes_go_out_in_partial_sends() {
    run(|| async {
        let (stream, mut socket) = with_plain_socket().await;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut piece = vec![0; 100_000];
            loop {
                match socket.read(&mut piece).unwrap() {
                    0 => return bytes,
                    count => bytes.extend_from_slice(&piece[..count]),
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        // More pieces than one request takes, and more bytes than the socket's buffers.
        let data = pattern(16 << 20);
        let mut out = SendBatch::new();
        for (n, piece) in data.chunks(4096).enumerate() {
            if n % 2 == 0 { out.push(piece) } else { out.push_shared(Buf::copy_of(piece).share()) }
        }
        assert!(out.pieces() > 2 * 1024);
        assert!(stream.send(out).await.unwrap().is_empty());
        assert!(stream.send(SendBatch::new()).await.unwrap().is_empty());
        drop(stream);
        // The stream is closed in the next turn of the ring; joining the thread would prevent that turn.
        while !reader.is_finished() {
            rt::sleep(Duration::from_millis(1)).await;
        }
        assert!(reader.join().unwrap() == data);
    });
}

#[test]
fn a_cancelled_send_breaks_the_stream() {
    run(|| async {
        let (stream, mut socket) = with_plain_socket().await;
        let data = pattern(32 << 20);
        assert!(rt::timeout(Duration::from_millis(20), stream.send(batch(&data))).await.is_err());
        assert_eq!(stream.send(batch(b"x")).await.err().unwrap().kind(), ErrorKind::BrokenPipe);
        drop(stream);
        rt::sleep(Duration::from_millis(20)).await;
        // The socket was closed although the peer did not read: it receives the sent data, then the end.
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < data.len() && rest[..] == data[..rest.len()]);
    });
}

#[test]
fn a_reader_that_stops_slows_the_sender_down() {
    run(|| async {
        let (a, b) = pair().await;
        assert!(!b.receive_exact(exact_hello(&a).await, 0).await.unwrap().is_empty());
        let sent = Rc::new(Cell::new(0));
        let progress = Rc::clone(&sent);
        let total = 64 << 20;
        let piece = pattern(1 << 16);
        let sender = rt::spawn(async move {
            while progress.get() < total {
                a.send(batch(&piece)).await.unwrap();
                progress.set(progress.get() + piece.len());
            }
            a
        });
        // A canceled receive leaves its request with the kernel, which continues to fill buffers.
        assert!(rt::timeout(Duration::ZERO, b.receive()).await.is_err());
        rt::sleep(Duration::from_millis(300)).await;
        let stalled = sent.get();
        assert!(stalled < 32 << 20, "the sockets' buffers and some turns' receives, not {stalled} bytes");
        rt::sleep(Duration::from_millis(100)).await;
        assert_eq!(sent.get(), stalled);
        let bytes = receive_all(&b, total).await;
        assert!(bytes.chunks(1 << 16).all(|chunk| chunk == pattern(1 << 16)));
        drop(sender.await);
    });
}

async fn exact_hello(a: &Stream) -> Buf {
    a.send(batch(b"hello")).await.unwrap();
    Buf::zeroed(5)
}

/// Streams that do not read, more than there are buffers, must not prevent the others from receiving.
#[test]
fn slow_readers_do_not_take_all_buffers() {
    run(|| async {
        let listener = listen().await;
        let mut slow = Vec::new();
        for n in 0..300usize {
            let mut socket = TcpStream::connect(listener.local_address()).unwrap();
            let stream = listener.accept().await.unwrap().0.attach();
            // The request stays with the kernel.
            assert!(rt::timeout(Duration::ZERO, stream.receive()).await.is_err());
            for piece in pattern(300 + n).chunks(100) {
                socket.write_all(piece).unwrap();
                rt::yield_now().await;
            }
            slow.push((stream, socket));
        }
        rt::sleep(Duration::from_millis(20)).await;
        let (a, b) = pair().await;
        let echo = rt::spawn(async move {
            let bytes = receive_all(&b, 1 << 20).await;
            b.send(batch(&bytes)).await.unwrap();
            b
        });
        a.send(batch(&pattern(1 << 20))).await.unwrap();
        assert!(receive_all(&a, 1 << 20).await == pattern(1 << 20));
        drop(echo.await);
        for (n, (stream, _)) in slow.iter().enumerate() {
            assert_eq!(receive_all(stream, 300 + n).await, pattern(300 + n));
        }
    });
}

/// Data that receivers still hold pins buffers. Before the buffers are used up, data is copied, so no stream
/// has to wait.
#[test]
fn whoever_holds_what_it_received_does_not_stop_the_others() {
    run(|| async {
        let (a, b) = pair().await;
        let data = pattern(40 << 20);
        let sent = data.clone();
        let sender = rt::spawn(async move {
            a.send(batch(&sent)).await.unwrap();
            a
        });
        let (mut held, mut count) = (Vec::new(), 0);
        while count < data.len() {
            let received = b.receive().await.unwrap();
            assert!(!received.is_empty());
            count += received.len();
            held.push(received);
        }
        drop(sender.await);
        let (a, b) = pair().await;
        a.send(batch(b"still")).await.unwrap();
        assert_eq!(&*b.receive().await.unwrap(), b"still");
        assert!(held.iter().flat_map(|received| received.iter()).eq(&data));
    });
}

#[test]
fn a_thousand_connections() {
    run(|| async {
        let listener = listen().await;
        let address = listener.local_address();
        let clients: Vec<_> = (0..1000u32)
            .map(|n| {
                rt::spawn(async move {
                    let stream = Stream::connect(address, DEADLINE).await.unwrap();
                    stream.send(batch(&n.to_le_bytes())).await.unwrap();
                    assert_eq!(receive_all(&stream, 4).await, (n + 1).to_le_bytes());
                })
            })
            .collect();
        for _ in 0..1000 {
            let stream = listener.accept().await.unwrap().0.attach();
            rt::spawn(async move {
                let bytes = receive_all(&stream, 4).await;
                let number = u32::from_le_bytes(bytes.try_into().unwrap());
                stream.send(batch(&(number + 1).to_le_bytes())).await.unwrap();
                assert!(stream.receive().await.unwrap().is_empty());
            })
            .detach();
        }
        for client in clients {
            client.await;
        }
    });
}

#[test]
fn a_stream_moves_to_another_core_with_its_bytes() {
    run_on(2, || async {
        for _ in 0..50 {
            let (stream, mut socket) = with_plain_socket().await;
            socket.write_all(b"abc").unwrap();
            assert_eq!(&*stream.receive().await.unwrap(), b"abc");
            // These arrive at the first core, while the stream is on its way, or afterwards.
            let writer = std::thread::spawn(move || {
                pattern(50_000).chunks(1000).for_each(|piece| socket.write_all(piece).unwrap());
                socket
            });
            if rt::random().is_multiple_of(2) {
                rt::sleep(Duration::from_micros(rt::random() % 300)).await;
            }
            let detached = stream.detach().await;
            let detached = rt::call(CoreId(1), move || async move {
                let stream = detached.attach();
                stream.send(batch(b"there")).await.unwrap();
                let bytes = receive_all(&stream, 50_000).await;
                assert!(bytes == pattern(50_000));
                stream.detach().await
            })
            .await;
            let mut socket = writer.join().unwrap();
            let mut answer = [0; 5];
            socket.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"there");
            drop(socket);
            assert!(detached.attach().receive().await.unwrap().is_empty());
        }
    });
}

#[test]
fn shutdown_ends_what_waits() {
    run(|| async {
        let (stream, socket) = with_plain_socket().await;
        let stream = Rc::new(stream);
        let receiving = rt::spawn({
            let stream = Rc::clone(&stream);
            async move { stream.receive().await.map(|received| received.len()) }
        });
        let sending = rt::spawn({
            let stream = Rc::clone(&stream);
            async move { stream.send(batch(&pattern(32 << 20))).await }
        });
        rt::sleep(Duration::from_millis(20)).await;
        stream.shutdown();
        assert_eq!(receiving.await.unwrap_or(0), 0);
        assert!(sending.await.is_err());
        drop(socket);
    });
}

#[test]
fn a_reset_connection_is_an_error() {
    run(|| async {
        let (stream, socket) = with_plain_socket().await;
        stream.send(batch(b"unread")).await.unwrap();
        // Closing with unread bytes resets the connection.
        drop(socket);
        let error = stream.receive().await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn cancelled_sends_are_not_sent() {
    run(|| async {
        let (stream, mut socket) = with_plain_socket().await;
        let stream = Rc::new(stream);
        // More than the kernel accepts while the peer does not read.
        let sending = rt::spawn({
            let stream = Rc::clone(&stream);
            async move { stream.send(batch(&pattern(64 << 20))).await.map(drop) }
        });
        rt::sleep(Duration::from_millis(50)).await;
        stream.abort();
        assert!(sending.await.is_err());
        drop(stream);
        rt::sleep(Duration::from_millis(50)).await;
        // Data that had left the sender may arrive, then the reset; the rest does not.
        let mut received = Vec::new();
        let end = socket.read_to_end(&mut received);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(received.len() < 64 << 20);
    });
}

#[test]
fn a_node_ends_with_everything_in_flight() {
    run(|| async {
        let listener = listen().await;
        for _ in 0..20 {
            let socket = TcpStream::connect(listener.local_address()).unwrap();
            let stream = Rc::new(listener.accept().await.unwrap().0.attach());
            let other = Rc::clone(&stream);
            rt::spawn(async move {
                let _ = stream.receive_exact(Buf::zeroed(1 << 20), 0).await;
            })
            .detach();
            rt::spawn(async move {
                let _ = other.send(batch(&pattern(16 << 20))).await;
                drop(socket);
            })
            .detach();
        }
        rt::sleep(Duration::from_millis(10)).await;
    });
}
