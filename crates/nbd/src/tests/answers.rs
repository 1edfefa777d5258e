//! Answers to requests, and what a client makes of them.

use super::{IMAGE, Image, SIZE, export};
use crate::{
    Answer, Command, EXTENTS_MAX, Extent, Map, Negotiated, Negotiation, NegotiationEvent, PIECE_BYTES_MAX,
    Piece, READ_BYTES_MAX, Request, Security, Source,
};

const READ: Command = Command::Read { is_whole: false };
const WHOLE: Command = Command::Read { is_whole: true };

/// What a client has negotiated that wants all this.
pub fn negotiated(is_structured: bool, contexts: &[&str]) -> Negotiated {
    let export = export();
    let mut negotiation = Negotiation::new(&export, Security::Plain);
    let mut queries = (contexts.len() as u32).to_be_bytes().to_vec();
    for context in contexts {
        queries.extend((context.len() as u32).to_be_bytes());
        queries.extend(context.as_bytes());
    }
    let mut bytes = vec![0, 0, 0, 3];
    let mut add = |code: u32, data: &[u8]| {
        bytes.extend(b"IHAVEOPT");
        bytes.extend(code.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    };
    if is_structured {
        add(8, b"");
        add(10, &[&[0; 4][..], &queries].concat());
    }
    add(1, b"");
    negotiation.handle_bytes(&bytes);
    match negotiation.poll_event() {
        Some(NegotiationEvent::Transmit(negotiated)) => negotiated,
        other => panic!("{other:?}"),
    }
}

fn request(command: Command, offset: u64, len: u64) -> Request {
    Request { command, cookie: 7, offset, len: len as u32 }
}

/// All parts of the answer.
fn parts<S: Source>(source: &S, negotiated: &Negotiated, request: Request) -> Vec<Vec<u8>> {
    let mut answer = Answer::new(&request, negotiated, SIZE).expect("it has an answer");
    let mut parts = Vec::new();
    while let Some(part) = answer.next_part(source).expect("it is not cut") {
        // A hole for every other block.
        assert!(part.len() <= PIECE_BYTES_MAX as usize * 102 / 100 + 100, "{}", part.len());
        parts.push(part);
    }
    parts
}

/// A chunk: its type, and its payload.
pub type Chunk = (u16, Vec<u8>);

/// The chunks of one structured reply with cookie 7.
pub fn chunks(mut bytes: &[u8]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<20>() {
        assert_eq!(&head[..4], b"\x66\x8e\x33\xef");
        assert_eq!(&head[8..16], b"\0\0\0\0\0\0\0\x07");
        let len = u32::from_be_bytes(head[16..].try_into().unwrap()) as usize;
        let (payload, rest) = rest.split_at(len);
        assert_eq!(head[4..6], [0, u8::from(rest.is_empty())], "the last chunk, and no other, says so");
        chunks.push((u16::from_be_bytes([head[6], head[7]]), payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty() && !chunks.is_empty());
    chunks
}

fn structured<S: Source>(source: &S, contexts: &[&str], request: Request) -> Vec<Chunk> {
    chunks(&parts(source, &negotiated(true, contexts), request).concat())
}

/// What a client puts together: all bytes of the range, once.
fn read_back(chunks: &[Chunk], offset: u64, len: u64) -> Vec<u8> {
    let mut data: Vec<Option<u8>> = vec![None; len as usize];
    for (kind, payload) in chunks {
        let at = (u64::from_be_bytes(payload[..8].try_into().unwrap()) - offset) as usize;
        let bytes = match kind {
            1 => payload[8..].to_vec(),
            2 => vec![0; u32::from_be_bytes(payload[8..].try_into().unwrap()) as usize],
            other => panic!("chunk of type {other}"),
        };
        assert!(!bytes.is_empty());
        for (place, byte) in data[at..at + bytes.len()].iter_mut().zip(bytes) {
            assert_eq!(place.replace(byte), None, "no byte comes twice");
        }
    }
    data.into_iter().map(|byte| byte.expect("all bytes have come")).collect()
}

fn expected(offset: u64, len: u64) -> Vec<u8> {
    (offset..offset + len).map(Image::byte).collect()
}

const RANGES: [(u64, u64); 7] = [
    (0, SIZE),
    (0, 1),
    (SIZE - 1, 1),
    (4095, 4098),
    (100_001, 2_000_000),
    (32 << 10, 32 << 10),
    (65_536 - 512, 1024),
];

#[test]
fn ranges_are_read_in_chunks_in_one_chunk_and_in_simple_replies() {
    for (offset, len) in RANGES {
        let expected = expected(offset, len);
        let read = structured(&IMAGE, &[], request(READ, offset, len));
        assert!(read_back(&read, offset, len) == expected, "{len} bytes at {offset}");
        if len <= PIECE_BYTES_MAX {
            let whole = structured(&IMAGE, &[], request(WHOLE, offset, len));
            assert_eq!(whole.len(), 1);
            assert_eq!(whole[0].0, 1, "data, even if it is zeros");
            assert!(read_back(&whole, offset, len) == expected);
        }
        let simple = parts(&IMAGE, &negotiated(false, &[]), request(READ, offset, len)).concat();
        assert_eq!(&simple[..16], b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07");
        assert!(simple[16..] == expected);
    }
}

#[test]
fn zeros_are_sent_as_holes() {
    let read = structured(&IMAGE, &[], request(READ, 0, 128 << 10));
    let kinds: Vec<(u16, usize)> = read.iter().map(|(kind, payload)| (*kind, payload.len())).collect();
    assert_eq!(kinds, [(1, 8 + (32 << 10)), (2, 12), (1, 8 + (32 << 10)), (2, 12)]);
}

fn error(chunk: &Chunk) -> (u16, u32, &str) {
    let (kind, payload) = chunk;
    let len = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
    let message = std::str::from_utf8(&payload[6..6 + len]).unwrap();
    assert_eq!(payload.len() - 6 - len, if *kind == 0x8002 { 8 } else { 0 });
    (*kind, u32::from_be_bytes(payload[..4].try_into().unwrap()), message)
}

#[test]
fn requests_are_refused_with_the_right_error() {
    let status = Command::BlockStatus { is_one: false };
    for (request, expected) in [
        (request(READ, SIZE - 1, 2), 22),
        (request(READ, u64::MAX, 2), 22),
        (request(READ, SIZE, 1), 22),
        (request(WHOLE, 0, PIECE_BYTES_MAX + 1), 75),
        (request(Command::Change, 0, 512), 1),
        (request(Command::Unknown, 0, 512), 22),
        (request(status, 0, 0), 22),
        (request(status, SIZE, 1), 22),
    ] {
        let refused = structured(&IMAGE, &["base:allocation"], request);
        assert_eq!(refused.len(), 1, "{request:?}");
        let (kind, code, message) = error(&refused[0]);
        assert_eq!((kind, code), (0x8001, expected), "{request:?}");
        assert!(!message.is_empty());
        if request.command != WHOLE && !matches!(request.command, Command::BlockStatus { .. }) {
            let simple = parts(&IMAGE, &negotiated(false, &[]), request).concat();
            assert_eq!(
                simple,
                [b"\x67\x44\x66\x98\0\0\0", &[expected as u8][..], b"\0\0\0\0\0\0\0\x07"].concat()
            );
        }
    }
    let unselected = structured(&IMAGE, &[], request(status, 0, 512));
    assert_eq!(error(&unselected[0]).1, 22);
    let simple = parts(&IMAGE, &negotiated(false, &[]), request(WHOLE, 0, 512)).concat();
    assert_eq!(simple[4..8], [0, 0, 0, 22], "it was not offered");
    let long = Request { command: READ, cookie: 7, offset: 0, len: READ_BYTES_MAX + 1 };
    let mut answer = Answer::new(&long, &negotiated(true, &[]), 1 << 40).unwrap();
    assert_eq!(error(&chunks(&answer.next_part(&IMAGE).unwrap().unwrap())[0]).1, 75);
    assert!(Answer::new(&request(Command::Disconnect, 0, 0), &negotiated(true, &[]), SIZE).is_none());
    // Nothing is read, and that succeeds.
    assert_eq!(structured(&IMAGE, &[], request(READ, SIZE, 0)), [(0, vec![])]);
    assert_eq!(parts(&IMAGE, &negotiated(false, &[]), request(READ, 0, 0)).concat().len(), 16);
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_place() {
    let bad = 300_000;
    let image = Image { bad };
    let read = structured(&image, &[], request(READ, 0, 1 << 20));
    let (last, before) = read.split_last().unwrap();
    assert_eq!(error(last), (0x8002, 5, "a bad block"));
    assert_eq!(last.1[last.1.len() - 8..], bad.to_be_bytes());
    assert!(read_back(before, 0, bad) == expected(0, bad));
    for read in [request(WHOLE, 0, 1 << 20), request(WHOLE, bad, 512)] {
        assert_eq!(error(&structured(&image, &[], read)[0]), (0x8001, 5, "a bad block"));
    }
    // A simple reply has no place for an error behind its head.
    let simple = parts(&image, &negotiated(false, &[]), request(READ, bad, 512)).concat();
    assert_eq!(simple, b"\x67\x44\x66\x98\0\0\0\x05\0\0\0\0\0\0\0\x07");
    let cut = request(READ, 0, 1 << 20);
    let mut answer = Answer::new(&cut, &negotiated(false, &[]), SIZE).unwrap();
    let mut sent = 0;
    while let Ok(part) = answer.next_part(&image) {
        sent += part.expect("it does not end well").len();
    }
    assert_eq!(sent, 16 + bad as usize);
    assert_eq!(answer.next_part(&image), Ok(None));
}

/// Lengths and flags of the extents in a chunk of this context.
fn extents(chunk: &Chunk, context: u32) -> Vec<(u32, u32)> {
    assert_eq!((chunk.0, &chunk.1[..4]), (5, &context.to_be_bytes()[..]));
    let field = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    chunk.1[4..].chunks(8).map(|extent| (field(&extent[..4]), field(&extent[4..]))).collect()
}

#[test]
fn the_status_of_a_range_is_told_for_each_context() {
    const CONTEXTS: &[&str] = &["base:allocation", "qemu:dirty-bitmap:a"];
    let status = |is_one, offset, len| {
        structured(&IMAGE, CONTEXTS, request(Command::BlockStatus { is_one }, offset, len))
    };
    let all = status(false, 0, 256 << 10);
    assert_eq!(all.len(), 2);
    let half = 32 << 10;
    assert_eq!(extents(&all[0], 1), [(half, 0), (half, 3)].repeat(4));
    assert_eq!(extents(&all[1], 2), [(2 * half, 1), (6 * half, 0)]);
    let one = status(true, 1000, 100 << 10);
    assert_eq!(extents(&one[0], 1), [(half - 1000, 0)]);
    assert_eq!(extents(&one[1], 2), [(2 * half - 1000, 1)]);
    let end = status(false, SIZE - 1, 1);
    assert_eq!((extents(&end[0], 1), extents(&end[1], 2)), (vec![(1, 0)], vec![(1, 1)]));
    let bitmap = structured(&IMAGE, &CONTEXTS[1..], request(Command::BlockStatus { is_one: false }, 0, SIZE));
    assert_eq!(bitmap.len(), 1);
    let total: u64 = extents(&bitmap[0], 2).iter().map(|(len, _)| u64::from(*len)).sum();
    assert_eq!(total, SIZE);
    let unread = Image { bad: 4096 };
    let failed = structured(&unread, CONTEXTS, request(Command::BlockStatus { is_one: true }, 4096, 512));
    assert_eq!(error(&failed[0]), (0x8001, 5, "a bad block"));
}

/// A source that returns the same whatever it is asked for.
struct Wrong(Piece, Vec<Extent>);

impl Source for Wrong {
    type Error = std::fmt::Error;

    fn read(&self, _: u64, _: u64) -> Result<Piece, Self::Error> {
        Ok(self.0.clone())
    }

    fn extents(&self, _: Map, _: u64, _: u64) -> Result<Vec<Extent>, Self::Error> {
        Ok(self.1.clone())
    }
}

#[test]
fn a_source_that_returns_something_else_makes_no_wrong_reply() {
    for piece in [Piece::Data(vec![]), Piece::Data(vec![1; 513]), Piece::Zeros(0), Piece::Zeros(1 << 40)] {
        let source = Wrong(piece, vec![]);
        for command in [READ, WHOLE, Command::BlockStatus { is_one: false }] {
            let failed = structured(&source, &["base:allocation"], request(command, 0, 512));
            assert_eq!((failed.len(), error(&failed[0]).1), (1, 5));
        }
    }
    let extent = |number: u64| Extent { len: 1, is_set: number.is_multiple_of(2) };
    let many = Wrong(Piece::Zeros(1), (0..10_000).map(extent).collect());
    let status = request(Command::BlockStatus { is_one: false }, 0, SIZE);
    assert_eq!(extents(&structured(&many, &["base:allocation"], status)[0], 1).len(), EXTENTS_MAX);
}
