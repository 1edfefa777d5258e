//! What who wants to join has to know.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a secret: nobody guesses 128 bits, one connection a guess.
pub(crate) const SECRET_BYTES: usize = 16;

/// A secret that lets one node join. It is never logged, and compared without showing by its time where it
/// differs.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A new one, from the system's randomness.
    pub fn new() -> Secret {
        Secret(rt::secret_bytes())
    }

    pub(crate) fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Secret {
        Secret(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// What can be kept to know it again.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(Sha256::digest(self.0).into())
    }
}

impl Default for Secret {
    fn default() -> Secret {
        Secret::new()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// The SHA-256 of a secret: knowing it lets nobody join.
#[derive(Clone, Copy, Debug)]
pub struct SecretDigest(pub [u8; 32]);

impl SecretDigest {
    /// Whether it is the digest of this secret.
    pub fn is_of(&self, secret: &Secret) -> bool {
        self.0.ct_eq(&secret.digest().0).into()
    }
}
