//! Whole connections over sockets.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::answers::chunks;
use super::{Bad, IMAGE, Image, SIZE, export};
use crate::{
    ANSWERED_AT_ONCE, Ended, Extent, Map, Piece, Problem, QUEUED_REQUESTS_MAX, Security, Source, Transport,
    Violation, serve,
};

const ENTER: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
/// The greeting, and the answer to `ENTER`.
const ENTERED_BYTES: usize = 18 + 10;

struct Socket(UnixStream);

impl Transport for Socket {
    fn start_tls(&mut self, _: Instant) -> io::Result<()> {
        // It only pretends to.
        self.0.write_all(b"TLS!")
    }

    fn receive(&self, buffer: &mut [u8], _: Option<Instant>) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0).write_all(bytes)
    }

    fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// What a client does while it is served, and how its connection ends.
fn served<S: Source>(security: Security, source: &S, client: impl FnOnce(UnixStream)) -> Ended {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&mut Socket(theirs), security, &export(), source));
        client(ours);
        server.join().unwrap()
    })
}

fn request(kind: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = b"\x25\x60\x95\x13\0\0".to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

fn take(stream: &mut UnixStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn rest(mut stream: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Cookies and data of simple replies, each with this much data.
fn simple_replies(bytes: &[u8], len: usize) -> Vec<(u64, Vec<u8>)> {
    let whole = bytes.chunks(16 + len).map(|reply| {
        assert_eq!(&reply[..8], b"\x67\x44\x66\x98\0\0\0\0");
        (u64::from_be_bytes(reply[8..16].try_into().unwrap()), reply[16..].to_vec())
    });
    whole.collect()
}

#[test]
fn all_requests_before_a_disconnect_are_answered() {
    let requests = 200;
    let ended = served(Security::Plain, &IMAGE, |mut client| {
        let mut sender = client.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(ENTER).unwrap();
                for number in 0..requests {
                    sender.write_all(&request(0, number, number * 8192, 8192)).unwrap();
                }
                sender.write_all(&request(2, 0, 0, 0)).unwrap();
            });
            take(&mut client, ENTERED_BYTES);
            let mut replies = simple_replies(&rest(client), 8192);
            replies.sort();
            assert_eq!(replies.len(), requests as usize);
            for (number, (cookie, data)) in (0..).zip(replies) {
                assert_eq!(cookie, number);
                let expected = number * 8192..(number + 1) * 8192;
                assert!(data == expected.map(Image::byte).collect::<Vec<_>>(), "{number}");
            }
        });
    });
    assert!(ended.has_used && ended.problem.is_none(), "{ended:?}");
}

#[test]
fn a_client_that_only_asks_has_not_used_the_export() {
    let ended = served(Security::Plain, &IMAGE, |mut client| {
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x03\0\0\0\0IHAVEOPT\0\0\0\x02\0\0\0\0").unwrap();
        assert!(rest(client).len() > 18);
    });
    assert!(!ended.has_used && ended.problem.is_none(), "{ended:?}");
    let ended = served(Security::Plain, &IMAGE, drop);
    assert!(!ended.has_used && matches!(ended.problem, None | Some(Problem::Lost(_))), "{ended:?}");
}

#[test]
fn tls_begins_behind_its_acknowledgement() {
    let ended = served(Security::Tls, &IMAGE, |mut client| {
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
        let acknowledged = take(&mut client, 18 + 20 + 4);
        assert_eq!(&acknowledged[18 + 8..], b"\0\0\0\x05\0\0\0\x01\0\0\0\0TLS!");
        client.write_all(&ENTER[4..]).unwrap();
        take(&mut client, 10);
        client.write_all(&request(2, 0, 0, 0)).unwrap();
        assert!(rest(client).is_empty());
    });
    assert!(ended.has_used && ended.problem.is_none(), "{ended:?}");
}

#[test]
fn a_violation_ends_the_connection_and_what_was_asked_before_is_answered_or_not() {
    let ended = served(Security::Plain, &IMAGE, |mut client| {
        client.write_all(&[ENTER, &request(0, 7, 0, 512), &[0; 28]].concat()).unwrap();
        take(&mut client, ENTERED_BYTES);
        assert!([0, 16 + 512].contains(&rest(client).len()));
    });
    let violation = matches!(ended.problem, Some(Problem::Violation(Violation::RequestMagic(0))));
    assert!(ended.has_used && violation, "{ended:?}");
}

/// A simple reply cannot say it.
#[test]
fn the_connection_ends_if_a_reply_cannot_be_completed() {
    let ended = served(Security::Plain, &Image { bad: 300_000 }, |mut client| {
        client.write_all(&[ENTER, &request(0, 7, 0, 1 << 20)].concat()).unwrap();
        take(&mut client, ENTERED_BYTES);
        assert_eq!(rest(client).len(), 16 + 300_000);
    });
    assert!(matches!(ended.problem, Some(Problem::Truncated(_))), "{ended:?}");
}

/// Reads wait until it is opened.
struct Gate {
    /// How many reads have begun, and whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn new() -> Gate {
        Gate { state: Mutex::new((0, false)), changed: Condvar::new() }
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn begun(&self) -> usize {
        self.state.lock().unwrap().0
    }
}

impl Source for Gate {
    type Error = Bad;

    fn read(&self, offset: u64, len: u64) -> Result<Piece, Bad> {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
        IMAGE.read(offset, len)
    }

    fn extents(&self, map: Map, offset: u64, len: u64) -> Result<Vec<Extent>, Bad> {
        IMAGE.extents(map, offset, len)
    }
}

#[test]
fn a_client_has_a_limited_number_of_requests_under_way() {
    let gate = Gate::new();
    let kept = ANSWERED_AT_ONCE + QUEUED_REQUESTS_MAX;
    let ended = served(Security::Plain, &gate, |mut client| {
        client.write_all(ENTER).unwrap();
        take(&mut client, ENTERED_BYTES);
        client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        // Until the sockets' buffers are full, too.
        let mut sent = 0;
        while client.write_all(&request(0, sent, 0, 1)).is_ok() {
            sent += 1;
            assert!(sent < 1 << 20, "the server takes everything");
        }
        assert!(sent as usize > kept);
        assert_eq!(gate.begun(), ANSWERED_AT_ONCE);
        gate.open();
        let replies = simple_replies(&take(&mut client, sent as usize * 17), 1);
        assert!(replies.iter().all(|(_, data)| *data == [Image::byte(0)]));
    });
    // The last request may have been cut.
    assert!(ended.has_used, "{ended:?}");
}

/// What has not been begun is not answered for a client that has left.
#[test]
fn a_client_that_leaves_is_not_answered() {
    let gate = Gate::new();
    let ended = served(Security::Plain, &gate, |mut client| {
        client.write_all(ENTER).unwrap();
        take(&mut client, ENTERED_BYTES);
        (0..40).for_each(|number| client.write_all(&request(0, number, 0, 512)).unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        while gate.begun() < ANSWERED_AT_ONCE {
            assert!(Instant::now() < end, "they are not begun");
            thread::sleep(Duration::from_millis(1));
        }
        drop(client);
        // Time for the server to notice.
        thread::sleep(Duration::from_millis(200));
        gate.open();
    });
    assert_eq!(gate.begun(), ANSWERED_AT_ONCE);
    assert!(ended.has_used && ended.problem.is_none(), "{ended:?}");
}

/// Chunks of several replies may be mixed, but each chunk is whole.
#[test]
fn structured_replies_of_several_requests_are_whole() {
    let ended = served(Security::Plain, &IMAGE, |mut client| {
        let negotiate = [&ENTER[..4], b"IHAVEOPT\0\0\0\x08\0\0\0\0", &ENTER[4..]].concat();
        client.write_all(&negotiate).unwrap();
        take(&mut client, ENTERED_BYTES + 20);
        for cookie in 0..8 {
            client.write_all(&request(0, cookie, 0, SIZE as u32)).unwrap();
        }
        client.write_all(&request(2, 0, 0, 0)).unwrap();
        let bytes = rest(client);
        let (mut replies, mut left) = (vec![Vec::new(); 8], &bytes[..]);
        while !left.is_empty() {
            let len = 20 + u32::from_be_bytes(left[16..20].try_into().unwrap()) as usize;
            let (chunk, behind) = left.split_at(len);
            // The cookie that `chunks` expects.
            let cookie = usize::from(chunk[15]);
            replies[cookie].extend([&chunk[..15], &[7], &chunk[16..]].concat());
            left = behind;
        }
        for reply in replies {
            let data = chunks(&reply).into_iter().map(|(kind, payload)| match kind {
                1 => payload.len() as u64 - 8,
                _ => u64::from(u32::from_be_bytes(payload[8..].try_into().unwrap())),
            });
            assert_eq!(data.sum::<u64>(), SIZE);
        }
    });
    assert!(ended.problem.is_none(), "{ended:?}");
}
