//! CHAP: a side proves that it knows a secret without sending it (RFC 7143 12.1.3, RFC 1994). Either side may
//! challenge the other.

use md5::{Digest, Md5};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// RFC 7143 12.1.3: a challenge or response has at most 1024 bytes.
pub const BINARY_MAX: usize = 1024;

/// The key for the algorithms (RFC 7143 12.1.3).
pub const ALGORITHM: &str = "CHAP_A";
/// The key for the identifier of a challenge.
pub const IDENTIFIER: &str = "CHAP_I";
/// The key for the challenge.
pub const CHALLENGE: &str = "CHAP_C";
/// The key for the name of the side that proves its identity.
pub const NAME: &str = "CHAP_N";
/// The key for the proof.
pub const RESPONSE: &str = "CHAP_R";

/// Random bytes in a target's challenge.
pub const NONCE_BYTES: usize = 16;

/// A target's challenge: the nonce, and a mark that all our targets recognize ([`is_of_a_target`]).
///
/// The mark is not secret and proves nothing. Only the nonce must be unpredictable.
pub fn challenge(nonce: [u8; NONCE_BYTES]) -> [u8; 2 * NONCE_BYTES] {
    let mut challenge = [0; 2 * NONCE_BYTES];
    challenge[..NONCE_BYTES].copy_from_slice(&nonce);
    challenge[NONCE_BYTES..].copy_from_slice(&mark(&nonce));
    challenge
}

/// Whether one of our targets created this challenge, on any connection or node.
///
/// An initiator that sends such a challenge back wants the target to compute the response that the target
/// itself expects. RFC 7143 12.1.3 forbids answering it. Because of the mark, the targets need not remember
/// their challenges.
pub fn is_of_a_target(challenge: &[u8]) -> bool {
    challenge
        .split_at_checked(NONCE_BYTES)
        .and_then(|(nonce, rest)| Some(rest == mark(nonce.try_into().ok()?)))
        .unwrap_or(false)
}

fn mark(nonce: &[u8; NONCE_BYTES]) -> [u8; NONCE_BYTES] {
    let hash = Sha256::new().chain_update(b"ursa target challenge").chain_update(nonce).finalize();
    let mut mark = [0; NONCE_BYTES];
    mark.copy_from_slice(&hash[..NONCE_BYTES]);
    mark
}

/// A hash, by its IANA number (PPP authentication algorithms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// 5: every initiator supports it.
    Md5,
    /// 7.
    Sha256,
}

impl Algorithm {
    /// The algorithms in the order in which we offer them.
    pub const OFFERED: &str = "7,5";

    /// The first offered number that we support.
    pub fn choose(offered: &str) -> Option<Algorithm> {
        offered.split(',').find_map(|number| match number {
            "5" => Some(Algorithm::Md5),
            "7" => Some(Algorithm::Sha256),
            _ => None,
        })
    }

    /// Its number, as sent on the wire.
    pub fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
        }
    }

    /// The proof: the hash of identifier, secret and challenge.
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hash = D::new();
            parts.into_iter().for_each(|part| hash.update(part));
            hash.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Algorithm::Md5 => hash::<Md5>(parts),
            Algorithm::Sha256 => hash::<Sha256>(parts),
        }
    }
}

/// Compares proofs in constant time, so that timing does not reveal where they differ.
pub fn is_same(expected: &[u8], given: &[u8]) -> bool {
    expected.ct_eq(given).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::keys::value::binary;

    /// Computed with Python's hashlib:
    /// `hashlib.md5(bytes([0x27]) + b"thisisasecret" + bytes(range(16))).hexdigest()`.
    #[test]
    fn responses_computed_elsewhere() {
        let challenge: Vec<u8> = (0..16).collect();
        assert_eq!(
            binary(&Algorithm::Md5.response(0x27, b"thisisasecret", &challenge)),
            "0x690f061b8b94eaf9c04a55365a716008"
        );
        assert_eq!(
            binary(&Algorithm::Sha256.response(0x27, b"thisisasecret", &challenge)),
            "0xc18e3a8b9de75b61582e3958b75e74072ec29202bb3ee2752cd73bc8285ae7f8"
        );
    }

    #[test]
    fn a_target_recognizes_the_challenges_of_all_targets() {
        let ours = challenge([7; 16]);
        assert!(is_of_a_target(&ours));
        assert_eq!(ours[..16], [7; 16]);
        let mut other = ours;
        other[0] ^= 1;
        assert!(!is_of_a_target(&other));
        for foreign in [&[][..], &[7; 16], &[7; 32], &ours[..31], &[&ours[..], &[0]].concat()] {
            assert!(!is_of_a_target(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn the_offerer_orders_the_algorithms() {
        assert_eq!(Algorithm::choose("5"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("8,7,5"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("6"), None);
        assert_eq!(Algorithm::choose(""), None);
    }

    #[test]
    fn proofs_are_compared_whole() {
        assert!(is_same(b"abc", b"abc"));
        assert!(!is_same(b"abc", b"abd"));
        assert!(!is_same(b"abc", b"ab"));
        assert!(!is_same(b"abc", b""));
    }
}
