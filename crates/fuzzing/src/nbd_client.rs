//! What an NBD client sends: options, then requests.

use std::convert::Infallible;

use nbd::{
    Answer, Export, Extent, Map, Negotiated, Negotiation, NegotiationEvent, OPTION_BYTES_MAX,
    PIECE_BYTES_MAX, Piece, Requests, Security, Source,
};

/// The size of what is served.
const SIZE: u64 = (1 << 20) + 512;
/// How many bytes come at a time.
const RECEIVED_BYTES: usize = 61;
/// More than the replies to the options in so few bytes.
const OUTPUT_BYTES_MAX: usize = 4096;
/// More than the answers of all that fits into an input take.
const ANSWERED_MAX: usize = 200;

/// Every other 8 KiB are zeros, and have changed.
struct Image;

const UNIT: u64 = 8192;

impl Image {
    fn is_set(offset: u64) -> bool {
        (offset / UNIT).is_multiple_of(2)
    }
}

impl Source for Image {
    type Error = Infallible;

    fn read(&self, offset: u64, len: u64) -> Result<Piece, Infallible> {
        assert!(len > 0 && offset.checked_add(len).is_some_and(|end| end <= SIZE), "{len} at {offset}");
        let len = len.min(UNIT - offset % UNIT);
        let is_set = Image::is_set(offset);
        // Zeros may be returned as data, too.
        Ok(match is_set || offset.is_multiple_of(3) {
            true => Piece::Data(vec![u8::from(is_set); len as usize]),
            false => Piece::Zeros(len),
        })
    }

    fn extents(&self, map: Map, offset: u64, len: u64) -> Result<Vec<Extent>, Infallible> {
        assert!(len > 0 && offset.checked_add(len).is_some_and(|end| end <= SIZE), "{len} at {offset}");
        let is_set = Image::is_set(offset) == (map == Map::Allocation);
        let first = Extent { len: UNIT - offset % UNIT, is_set };
        Ok(vec![first, Extent { len: UNIT, is_set: !is_set }])
    }
}

/// Takes all bytes, with TLS required or without TLS, and answers what they ask for.
pub fn run((tls, bytes): (bool, &[u8])) {
    let export =
        Export { name: "db@b".into(), description: "volume db".into(), size: SIZE, bitmap: Some("a".into()) };
    let security = if tls { Security::Tls } else { Security::Plain };
    let mut negotiation = Negotiation::new(&export, security);
    negotiation.take_output();
    let mut is_encrypted = !tls;
    let mut pieces = bytes.chunks(RECEIVED_BYTES);
    let negotiated = loop {
        let event = negotiation.poll_event();
        assert!(negotiation.take_output().len() <= OUTPUT_BYTES_MAX);
        assert!(negotiation.kept_bytes() <= OPTION_BYTES_MAX + RECEIVED_BYTES + 16);
        match event {
            Some(NegotiationEvent::Transmit(negotiated)) => break negotiated,
            Some(NegotiationEvent::StartTls) => {
                assert!(!is_encrypted, "TLS begins once, where it is required");
                is_encrypted = true;
                negotiation.tls_has_begun();
            }
            Some(NegotiationEvent::Abort | NegotiationEvent::Violation(_)) => return,
            None => match pieces.next() {
                Some(piece) => negotiation.handle_bytes(piece),
                None => return,
            },
        }
    };
    assert!(is_encrypted, "nothing is served before TLS");
    let mut requests = Requests::default();
    requests.handle_bytes(&negotiation.into_rest());
    let mut answered = 0;
    loop {
        match requests.next() {
            Ok(Some(request)) => {
                let Some(answer) = Answer::new(&request, &negotiated, SIZE) else { return };
                check(answer, &negotiated);
                answered += 1;
                if answered == ANSWERED_MAX {
                    return;
                }
            }
            Ok(None) => match pieces.next() {
                Some(piece) => requests.handle_bytes(piece),
                None => return,
            },
            Err(_) => return,
        }
    }
}

/// Each part begins with a head; a structured answer consists of whole chunks, of which only the last one
/// says so.
fn check(mut answer: Answer, negotiated: &Negotiated) {
    let mut is_done = false;
    let mut is_begun = false;
    while let Some(part) = answer.next_part(&Image).expect("everything can be read") {
        // The heads of chunks, if every other block is a hole.
        assert!(!part.is_empty() && part.len() as u64 <= PIECE_BYTES_MAX + PIECE_BYTES_MAX / 64 + 64);
        if !negotiated.is_structured {
            assert!(is_begun || part.starts_with(&[0x67, 0x44, 0x66, 0x98]));
            (is_begun, is_done) = (true, true);
            continue;
        }
        let mut rest = &part[..];
        while let Some((head, behind)) = rest.split_first_chunk::<20>() {
            assert!(head.starts_with(&[0x66, 0x8e, 0x33, 0xef]) && !is_done);
            is_done = head[5] == 1;
            let len = u32::from_be_bytes([head[16], head[17], head[18], head[19]]) as usize;
            rest = behind.get(len..).expect("the chunk is whole");
        }
        assert!(rest.is_empty());
    }
    assert!(is_done, "an answer has an end");
}
