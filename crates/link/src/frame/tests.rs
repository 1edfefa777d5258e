use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, prop_oneof};

use super::*;

fn frame(channel: u64, kind: u8, head: &[u8], payload: &[u8]) -> Frame {
    Frame { channel, kind, head: head.to_vec(), payload: Chain::copy_of(payload) }
}

fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let mut batch = SendBatch::new();
    frames.iter().for_each(|frame| encode(frame, &mut batch));
    batch.to_vec()
}

/// Field by field, as on the format's page.
#[test]
fn the_bytes_are_those_of_the_page() {
    let bytes = bytes_of(&[frame(0x0807_0605_0403_0201, 9, b"head", b"data!")]);
    #[rustfmt::skip]
    let expected = [
        b'U', b'F', 0, 9,
        4, 0, 0, 0,
        1, 2, 3, 4, 5, 6, 7, 8,
        5, 0, 0, 0,
    ];
    assert_eq!(bytes[..20], expected);
    let crc = base::crc32c(&[&expected[..], b"head"].concat());
    assert_eq!(bytes[20..24], crc.to_le_bytes());
    assert_eq!(&bytes[24..], b"headdata!");
    let mut batch = SendBatch::new();
    encode_keep_alive(&mut batch);
    assert_eq!(batch.to_vec()[..20], *b"UF\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(batch.len(), 24);
}

#[test]
fn frames_that_arrive_in_pieces_are_reassembled() {
    let sent = [frame(1, 2, b"abc", &[7; 5000]), frame(3, 4, b"", b""), frame(5, 6, b"", b"x")];
    let mut bytes = bytes_of(&sent[..1]);
    let mut keep_alive = SendBatch::new();
    encode_keep_alive(&mut keep_alive);
    bytes.extend(keep_alive.to_vec());
    bytes.extend(bytes_of(&sent[1..]));
    for piece in [1, 2, 23, 24, 25, 100, 5000, bytes.len()] {
        let (mut decoder, mut got) = (Decoder::default(), Vec::new());
        for mut piece in bytes.chunks(piece) {
            while let Some(frame) = decoder.next(&mut piece).unwrap() {
                got.push(frame);
            }
            assert!(piece.is_empty());
        }
        assert_eq!(bytes_of(&got), bytes_of(&sent));
        assert!(got[0].payload.parts().len() == 1 && got[0].payload.parts()[0].is_aligned(8));
        assert_eq!(got[0].payload.parts()[0].as_ptr().addr() % base::ALIGNMENT, 0);
    }
}

#[test]
fn a_payload_can_be_received_in_place() {
    let bytes = bytes_of(&[frame(1, 2, b"abc", b"0123456789"), frame(2, 2, b"", b"")]);
    let mut decoder = Decoder::default();
    assert_eq!(decoder.payload_missing(), 0);
    assert!(decoder.take_payload().is_none());
    let mut begin = &bytes[..24 + 3 + 4];
    assert!(decoder.next(&mut begin).unwrap().is_none());
    assert_eq!(decoder.payload_missing(), 6);
    let (mut buf, filled) = decoder.take_payload().unwrap();
    assert_eq!((buf.len(), filled), (10, 4));
    buf[4..].copy_from_slice(b"456789");
    let got = decoder.give_payload(buf);
    assert_eq!((&got.head[..], &*got.payload.to_vec()), (&b"abc"[..], &b"0123456789"[..]));
    let mut rest = &bytes[24 + 3 + 10..];
    assert_eq!(decoder.next(&mut rest).unwrap().unwrap().channel, 2);
}

#[test]
fn a_malformed_frame_breaks_the_link_for_good_with_a_reason() {
    let good = bytes_of(&[frame(1, 2, b"abc", b"")]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, why) in [
        (with(0, b'u'), Malformed::Magic),
        (with(2, 7), Malformed::Type(7)),
        // 512 MiB of head; 128 MiB of payload; a keep-alive with a head.
        (with(7, 0x20), Malformed::Length),
        (with(19, 0x08), Malformed::Length),
        (with(2, 1), Malformed::Length),
        (with(3, 3), Malformed::Checksum),
        (with(26, b'C'), Malformed::Checksum),
    ] {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.next(&mut &bytes[..]).unwrap_err(), why);
        assert_eq!(decoder.next(&mut &good[..]).unwrap_err(), why);
    }
}

#[test]
#[should_panic(expected = "is too long")]
fn a_user_may_not_send_more_than_can_be_received() {
    encode(&frame(0, 0, &[], &vec![0; PAYLOAD_MAX + 1]), &mut SendBatch::new());
}

fn frames() -> impl Strategy<Value = Vec<(u64, u8, Vec<u8>, Vec<u8>)>> {
    let bytes = || prop_oneof![Just(Vec::new()), collection::vec(any::<u8>(), 0..200)];
    collection::vec((any::<u64>(), any::<u8>(), bytes(), bytes()), 0..6)
}

proptest! {
    /// Frames are decoded however the bytes are split. A change is either detected or only in a payload,
    /// which its user checks.
    #[test]
    fn frames_are_what_was_sent(
        sent in frames(),
        cuts in collection::vec(1..300usize, 1..20),
        change in proptest::option::of((any::<proptest::sample::Index>(), 1..=255u8)),
    ) {
        let sent: Vec<Frame> = sent.iter().map(|(c, k, head, payload)| frame(*c, *k, head, payload)).collect();
        let mut bytes = bytes_of(&sent);
        if let Some((at, flip)) = change && !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
        }
        let (mut decoder, mut got, mut failed) = (Decoder::default(), Vec::new(), false);
        let (mut rest, mut cut) = (&bytes[..], cuts.iter().cycle());
        'all: while !rest.is_empty() {
            let (mut piece, after) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
            rest = after;
            loop {
                match decoder.next(&mut piece) {
                    Ok(Some(frame)) => got.push(frame),
                    Ok(None) => break,
                    Err(_) => { failed = true; break 'all }
                }
            }
        }
        if change.is_none() {
            prop_assert!(!failed);
            prop_assert_eq!(bytes_of(&got), bytes_of(&sent));
        }
        prop_assert!(got.len() <= sent.len());
        for (got, sent) in got.iter().zip(&sent) {
            prop_assert_eq!((got.channel, got.kind, &got.head), (sent.channel, sent.kind, &sent.head));
        }
    }

    /// For any bytes, the decoder answers, and never allocates more memory than they justify.
    #[test]
    fn any_bytes_are_answered(bytes in collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 4 {
            bytes[..3].copy_from_slice(b"UF\0");
        }
        let mut decoder = Decoder::default();
        let mut rest = &bytes[..];
        while let Ok(Some(_)) = decoder.next(&mut rest) {}
    }
}
