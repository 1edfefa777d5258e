//! Bytes of another node's engine of the cluster's record, as a message and as a snapshot of the record.
//!
//! The parsers never panic, and what they accept has only one encoding.

use base::crc32c;
use cluster::NodeId;
use cluster::embedded::{Engine, Refused, Saved, Settings};
use cluster::record::Record;

/// Takes a message, or else a snapshot, without its checksum.
pub fn run(input: (bool, &[u8])) {
    let (message, bytes) = input;
    // The checksum is set right: otherwise nothing after it would be parsed.
    let mut bytes = bytes.to_vec();
    bytes.extend(crc32c(&bytes).to_le_bytes());
    if message {
        // raft-rs judges messages of this cluster. A message of another cluster is parsed all the same.
        let node = NodeId::new(1).expect("not zero");
        let mut engine =
            Engine::new(Saved::founding(0x5ca1_ab1e_0000_0000_c0de_d00d_feed_f00d, node), Settings::new(1));
        let result = engine.handle_message(node, &bytes);
        let refused =
            |it: &Refused| matches!(it, Refused::Malformed | Refused::Unreadable | Refused::OtherCluster);
        assert!(result.as_ref().is_err_and(refused), "{result:?}");
    } else if let Ok(record) = Record::decode(&bytes) {
        record.check();
        assert!(record.encode() == bytes);
    }
}
