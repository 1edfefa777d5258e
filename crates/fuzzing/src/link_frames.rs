//! Bytes of another node as frames of a link.
//!
//! The decoder never panics, allocates no memory that the bytes do not justify, and decodes what was sent,
//! wherever the stream is cut.

use base::{SendBatch, crc32c};
use link::{Decoder, HEADER_BYTES, encode};

/// Decodes frames from pieces of these lengths, used in turn.
pub fn run(input: ([u8; 4], &[u8])) {
    let (cuts, bytes) = input;
    let mut bytes = bytes.to_vec();
    hold_checksums(&mut bytes);
    let (mut decoder, mut rest, mut cuts) = (Decoder::default(), &bytes[..], cuts.iter().cycle());
    let mut understood = Vec::new();
    while !rest.is_empty() {
        let cut = 1 + cuts.next().map_or(rest.len(), |cut| usize::from(*cut));
        let (mut piece, after) = rest.split_at(cut.min(rest.len()));
        rest = after;
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(frame)) => understood.push(frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let mut again = SendBatch::new();
    understood.iter().for_each(|frame| encode(frame, &mut again));
    // Keepalive frames are left out.
    assert!(again.len() <= bytes.len());
    let mut whole = Decoder::default();
    let mut encoded = &again.to_vec()[..];
    for frame in understood {
        let once_more = whole.next(&mut encoded).expect("it was encoded").expect("all of it");
        assert_eq!(
            (once_more.channel, once_more.kind, once_more.head),
            (frame.channel, frame.kind, frame.head)
        );
        assert_eq!(once_more.payload.to_vec(), frame.payload.to_vec());
    }
}

/// Sets the checksums of all frames right: otherwise nothing after the first would be decoded.
fn hold_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + HEADER_BYTES) {
        let length = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
        };
        let (head, payload) = (length(4), length(16));
        let Some(end) = bytes.len().checked_sub(at + HEADER_BYTES).filter(|rest| *rest >= head) else {
            return;
        };
        let crc =
            crc32c(&[&bytes[at..at + 20], &bytes[at + HEADER_BYTES..at + HEADER_BYTES + head]].concat());
        bytes[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
        if payload > end - head {
            return;
        }
        at += HEADER_BYTES + head + payload;
    }
}
