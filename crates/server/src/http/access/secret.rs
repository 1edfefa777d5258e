//! Randomly drawn secrets: of sessions, tokens, the setup link and the local token.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// 256 bits: too many to guess, so guesses need not be slowed down.
const SECRET_BYTES: usize = 32;

/// A new secret, in hexadecimal.
pub(in crate::http) fn draw() -> String {
    hexadecimal(&random::<SECRET_BYTES>())
}

/// A new unique ID, in hexadecimal; not a secret.
pub(in crate::http) fn draw_id() -> String {
    hexadecimal(&random::<8>())
}

/// A new random number.
pub(in crate::http) fn draw_number() -> u64 {
    u64::from_ne_bytes(random())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("Linux gives random bytes after its start");
    bytes
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The stored form of a secret, which does not grant access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) struct Digested([u8; 32]);

impl Digested {
    /// The digest of a secret. One SHA-256 is enough, since secrets are random and not chosen by a person.
    pub(in crate::http) fn of(secret: &str) -> Digested {
        Digested(Sha256::digest(secret).into())
    }

    /// Whether this is the digest of `secret`, in constant time.
    pub(in crate::http) fn is_of(&self, secret: &str) -> bool {
        self.0.ct_eq(&Digested::of(secret).0).into()
    }

    /// The digest as text, for storage.
    pub(in crate::http) fn text(&self) -> String {
        hexadecimal(&self.0)
    }

    pub(in crate::http) fn parse(text: &str) -> Option<Digested> {
        let mut digest = [0; 32];
        let digits = text.as_bytes().chunks(2);
        (text.len() == 64).then_some(())?;
        for (byte, digits) in digest.iter_mut().zip(digits) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Digested(digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_known_again() {
        // SHA-256 of "abc", FIPS 180-2 appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digested::of("abc").text(), abc);
        assert!(Digested::parse(abc).unwrap().is_of("abc"));
        assert!(!Digested::parse(abc).unwrap().is_of("abd"));
        for text in ["", "ba", &abc[1..], &abc.replace('b', "x"), &format!("{abc}0")] {
            assert!(Digested::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn no_two_secrets_are_alike() {
        assert_eq!(draw().len(), 64);
        assert_ne!(draw(), draw());
    }
}
