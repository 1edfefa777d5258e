//! The secret that a node needs in order to join.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a secret: 128 bits cannot be guessed with one connection per guess.
pub(crate) const SECRET_BYTES: usize = 16;

/// A secret that lets one node join.
///
/// It is never logged, and compared in constant time.
#[derive(Clone)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A new secret, from the system's random numbers.
    pub fn new() -> Secret {
        Secret(rt::secret_bytes())
    }

    pub(crate) fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Secret {
        Secret(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// The digest, which a member keeps to recognize the secret.
    pub fn digest(&self) -> SecretDigest {
        SecretDigest(Sha256::digest(self.0).into())
    }
}

impl Default for Secret {
    fn default() -> Secret {
        Secret::new()
    }
}

base::shows!(Debug for Secret, "Secret(not shown)");

/// The SHA-256 of a secret, which does not let a node join.
#[derive(Clone, Copy, Debug)]
pub struct SecretDigest(pub [u8; 32]);

impl SecretDigest {
    /// Whether this is the digest of the secret.
    pub fn is_of(&self, secret: &Secret) -> bool {
        self.0.ct_eq(&secret.digest().0).into()
    }
}
