//! Entry points for the fuzz target of the node's record: slots with valid checksums.

use std::path::Path;

use base::crc32c;

use super::VERSION;
use super::slot::{Entries, HEADER_USED, Header, Slot, choose};

/// The size of the checksum behind a header, in bytes.
const CRC_BYTES: usize = 4;

/// Decodes a slot with this header and this payload, and chooses between it and a valid slot of generation
/// `other`.
pub fn record(header: &[u8], payload: &[u8], other: u64) {
    let mut bytes = header.to_vec();
    bytes.resize(HEADER_USED, 0);
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    let Some(header) = Header::decode(&bytes) else { return };
    let mut again = [0; HEADER_USED + CRC_BYTES];
    header.encode(&mut again);
    assert_eq!(again[..], bytes[..], "a header is said in one way only");

    let slot = Slot::behind(Header { payload_crc: crc32c(payload), ..header }, payload);
    let mut generation = other;
    if let Slot::Whole(_, entries) = &slot {
        let text = text_of(entries);
        let again = Slot::behind(Header { payload_crc: crc32c(&text), ..header }, &text);
        assert!(
            matches!(&again, Slot::Whole(_, entries) if text_of(entries) == text),
            "what is written can be read"
        );
        generation = generation.max(header.generation);
    }
    let whole = Header { generation: other, payload_crc: 0, payload_len: 0, ..header };
    let slots = vec![slot, Slot::Whole(whole, Entries::new())];
    let chosen = choose(Path::new("record"), slots).expect("one of them is whole");
    assert_eq!(chosen.generation, generation, "the newest whole record counts");
    if let Some(fault) = chosen.fault {
        assert_eq!(fault.used, generation, "it names the record in force");
    }
}

/// A header and a payload for [`record`]: the record of a node that has just created its first target.
pub fn seed() -> (Vec<u8>, Vec<u8>) {
    let payload = br#"{"node":{"id":"5ca1ab1e"},"target/1":{"name":"iqn.2026-11.a:1","luns":[{"lun":0,"volume":null}]}}"#;
    let mut header = vec![0; HEADER_USED + CRC_BYTES];
    Header { version: VERSION, generation: 7, payload_len: payload.len(), payload_crc: crc32c(payload) }
        .encode(&mut header);
    header.truncate(HEADER_USED);
    (header, payload.to_vec())
}

fn text_of(entries: &Entries) -> Vec<u8> {
    serde_json::to_vec(entries).expect("a map of JSON values is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_a_record() {
        let (mut header, payload) = seed();
        header.extend_from_slice(&crc32c(&header).to_le_bytes());
        let header = Header::decode(&header).unwrap();
        assert!(matches!(Slot::behind(header, &payload), Slot::Whole(_, entries) if entries.len() == 2));
    }
}
