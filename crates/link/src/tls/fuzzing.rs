//! Entry point for the fuzz target of records: a connection whose handshake is done, and anything that its
//! peer could send.

use std::sync::LazyLock;

use base::SendBatch;
use replica::NodeId;
use rustls::ContentType;

use super::records::CONTENT_MAX;
use super::{Configs, Stage, Tls};
use crate::{ClusterAuthority, ClusterId};

const CLUSTER: ClusterId = ClusterId([7; 16]);

/// Node 1, which accepts, and node 2, which connects.
static NODES: LazyLock<[Configs; 2]> = LazyLock::new(|| {
    let authority = ClusterAuthority::create(CLUSTER).expect("an authority can be made");
    [1, 2].map(|node| {
        let credentials = authority.issue(NodeId(node)).expect("a node can be given credentials");
        Configs::new(&credentials).expect("they belong together")
    })
});

/// Feeds one end with records of these types and contents that the other has sealed, followed by `garbage`,
/// in pieces of these sizes.
///
/// Whatever they are, the output is the data that went in, in order, up to the first record that is not
/// allowed.
pub fn records(said: &[(u8, Vec<u8>)], garbage: &[u8], pieces: &[u8]) {
    let [mut sender, mut receiver] = agreed();
    let (mut bytes, mut data) = (SendBatch::new(), Vec::new());
    for (content_type, content) in said {
        let content = &content[..content.len().min(CONTENT_MAX)];
        let Stage::Records(records) = &mut sender.stage else { unreachable!("they have agreed") };
        records.push_record(ContentType::from(*content_type), content, &mut bytes).expect("keys are left");
        match (*content_type, content) {
            (22, [24, 0, 0, 1, 0 | 1]) => records.take_new_key().expect("there is always a new key"),
            (23, _) => data.extend_from_slice(content),
            // A type, followed by padding.
            (0, _) => {
                let end = content.iter().rposition(|byte| *byte != 0).unwrap_or(0);
                if content.get(end) == Some(&23) {
                    data.extend_from_slice(&content[..end]);
                }
            }
            _ => {}
        }
    }
    let mut bytes = [bytes.to_vec(), garbage.to_vec()].concat();
    let (mut rest, mut pieces, mut got) = (&mut bytes[..], pieces.iter().cycle(), Vec::new());
    while !rest.is_empty() {
        let piece = pieces.next().map_or(rest.len(), |piece| 1 + usize::from(*piece) * 97);
        let (piece, after) = rest.split_at_mut(piece.min(rest.len()));
        rest = after;
        let fed = receiver.feed(piece, |plain| {
            got.extend_from_slice(plain);
            Ok::<_, ()>(())
        });
        if fed.is_err() {
            break;
        }
    }
    assert!(data.starts_with(&got), "only what was sent comes out");
    receiver.take_output(&mut SendBatch::new()).expect("it can answer, or say why not");
}

/// Two ends after the handshake.
fn agreed() -> [Tls; 2] {
    let [called, calling] = &*NODES;
    let server = called.server().expect("it can be called");
    let client = calling.client(NodeId(1)).expect("it can call");
    let mut ends = [server, client];
    while ends.iter().any(Tls::has_output) {
        for from in [0, 1] {
            let mut batch = SendBatch::new();
            ends[from].take_output(&mut batch).expect("a handshake is not sealed here");
            let fed = ends[1 - from].feed(&mut batch.to_vec(), |_| Err(()));
            fed.expect("both are as they have to be");
        }
    }
    ends
}
