//! Bytes that no client should send: mutated conversations, and random ones.

use base::Rng;

use super::{IMAGE, SIZE, export};
use crate::{Answer, Negotiated, Negotiation, NegotiationEvent, OPTION_BYTES_MAX, Requests, Security};

const CONVERSATIONS: u64 = 20_000;
/// A reply to one option, and to one request.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What a client says that does everything.
fn conversation() -> Vec<u8> {
    let mut bytes = b"\0\0\0\x03".to_vec();
    let options: [(u32, &[u8]); 6] = [
        (3, b""),
        (8, b""),
        (9, b"\0\0\0\x04db@b\0\0\0\0"),
        (10, b"\0\0\0\0\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x13qemu:dirty-bitmap:a"),
        (6, b"\0\0\0\x04db@b\0\x02\0\x01\0\x03"),
        (7, b"\0\0\0\0\0\0"),
    ];
    for (code, data) in options {
        bytes.extend(b"IHAVEOPT");
        bytes.extend(code.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    }
    for (flags, kind, offset, len) in
        [(0_u16, 0_u16, 4096_u64, 8192_u32), (4, 0, 0, 512), (0, 7, 0, SIZE as u32)]
    {
        bytes.extend(b"\x25\x60\x95\x13");
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend([7; 8]);
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
    }
    bytes
}

fn changed(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = [0, 1, 0x7f, 0xff][rng.below(4) as usize],
            2 => bytes.insert(at, rng.below(256) as u8),
            _ => bytes[at] ^= 1 << rng.below(8),
        }
    }
    bytes
}

/// How many requests were answered.
fn converse(rng: &mut Rng, security: Security, bytes: &[u8]) -> usize {
    let export = export();
    let mut negotiation = Negotiation::new(&export, security);
    let mut rest = bytes;
    let negotiated = loop {
        match negotiation.poll_event() {
            Some(NegotiationEvent::Transmit(negotiated)) => break negotiated,
            Some(NegotiationEvent::StartTls) => negotiation.tls_has_begun(),
            Some(NegotiationEvent::Abort | NegotiationEvent::Violation(_)) => return 0,
            None if rest.is_empty() => return 0,
            None => {
                let (piece, behind) = rest.split_at((1 + rng.below(100) as usize).min(rest.len()));
                negotiation.handle_bytes(piece);
                rest = behind;
            }
        }
        assert!(negotiation.kept_bytes() <= OPTION_BYTES_MAX + 4096);
        assert!(negotiation.take_output().len() <= OUTPUT_BYTES_MAX);
    };
    let behind = [&negotiation.into_rest()[..], rest].concat();
    answered(&negotiated, &behind)
}

fn answered(negotiated: &Negotiated, bytes: &[u8]) -> usize {
    let mut requests = Requests::default();
    requests.handle_bytes(bytes);
    let mut count = 0;
    while let Ok(Some(request)) = requests.next() {
        let Some(mut answer) = Answer::new(&request, negotiated, SIZE) else { break };
        while let Some(part) = answer.next_part(&IMAGE).expect("the image can be read") {
            assert!(!part.is_empty() && part.len() <= 2 << 20);
        }
        count += 1;
    }
    count
}

#[test]
fn no_bytes_break_a_connection() {
    let valid = conversation();
    let mut rng = Rng::new(1);
    assert_eq!(converse(&mut rng, Security::Plain, &valid), 3);
    let mut count = 0;
    for seed in 0..CONVERSATIONS {
        let mut rng = Rng::new(seed);
        let security = if rng.one_in(8) { Security::Tls } else { Security::Plain };
        let bytes = changed(&mut rng, valid.clone());
        count += converse(&mut rng, security, &bytes);
    }
    assert!(count as u64 > CONVERSATIONS, "too few got that far: {count}");
}

#[test]
fn random_bytes_break_nothing() {
    for seed in 0..CONVERSATIONS {
        let mut rng = Rng::new(seed);
        let mut bytes = vec![0; 1 + rng.below(400) as usize];
        rng.fill(&mut bytes);
        bytes.splice(..0, *b"\0\0\0\x03IHAVEOPT\0\0\0");
        converse(&mut rng, Security::Plain, &bytes);
        assert!(answered(&Negotiated::default(), &bytes) == 0);
    }
}
