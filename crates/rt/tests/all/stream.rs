//! TCP on loopback.

use std::time::Duration;

use base::{Buf, SendBatch};
use rt::{Listener, Stream};

use crate::run;

const DEADLINE: Duration = Duration::from_secs(10);

/// Two ends of a connection.
async fn pair() -> (Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let connect = rt::spawn({
        let address = listener.local_address();
        async move { Stream::connect(address, DEADLINE).await.unwrap() }
    });
    let (accepted, _) = listener.accept().await.unwrap();
    (connect.await, accepted.attach())
}

fn batch(bytes: &[u8]) -> SendBatch {
    let mut batch = SendBatch::new();
    batch.push(bytes);
    batch
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
fn in_place_and_in_pieces() {
    run(|| async {
        let (a, b) = pair().await;
        let data: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
        let sent = data.clone();
        let sender = rt::spawn(async move {
            a.send(batch(b"head")).await.unwrap();
            a.send(batch(&sent)).await.unwrap();
            a
        });
        assert_eq!(receive_all(&b, 4).await, b"head");
        let got = b.receive_exact(Buf::zeroed(300_000), 0).await.unwrap();
        assert_eq!(&*got, data);
        drop(sender.await);
    });
}
