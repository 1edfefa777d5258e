//! A node's API as a script uses it: HTTP with a token, for what the command line does not show.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Node;

/// For a response, or for the next bytes of a stream.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// A client of a node.
pub struct Http {
    address: SocketAddr,
    token: String,
}

impl Http {
    /// A client with its own token, whose role is viewer.
    pub fn viewer(node: &Node) -> Http {
        let made = node.ursa_json(&["token", "create", "looks", "--role", "viewer"]);
        let token = made["secret"].as_str().expect("a token was made").to_owned();
        Http { address: node.api(), token }
    }

    /// The JSON of a response.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let mut answer = String::new();
        self.ask(path).read_to_string(&mut answer).expect("the answer ends");
        let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("not JSON ({error}): {answer}"))
    }

    /// A stream of messages.
    pub fn follow(&self, path: &str) -> Messages {
        Messages { stream: self.ask(path), read: String::new() }
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("the node listens");
        stream.set_read_timeout(Some(READ_LIMIT)).expect("it can be limited");
        let (address, token) = (self.address, &self.token);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        stream
    }
}

/// A stream of server-sent events.
pub struct Messages {
    stream: TcpStream,
    /// Bytes that were read and not parsed yet.
    read: String,
}

impl Messages {
    /// Reads until a message of this kind has data that is wanted; returns the data.
    #[track_caller]
    pub fn until(&mut self, limit: Duration, kind: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + limit;
        loop {
            while let Some((message, rest)) = self.read.split_once("\n\n") {
                let found = parse(message, kind).filter(&wanted);
                self.read = rest.to_owned();
                if let Some(data) = found {
                    return data;
                }
            }
            assert!(Instant::now() < end, "no message {kind:?} that is wanted within {limit:?}");
            let mut bytes = [0; 16 << 10];
            let count = self.stream.read(&mut bytes).expect("the stream goes on");
            assert!(count > 0, "the stream has ended");
            self.read.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
}

/// The data of a message of this kind.
///
/// Bytes between messages (the head, the lengths of chunks) are on lines of their own.
fn parse(message: &str, kind: &str) -> Option<Value> {
    let line = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
    if line("event: ")? != kind {
        return None;
    }
    Some(serde_json::from_str(line("data: ")?).expect("a message's data is JSON"))
}
