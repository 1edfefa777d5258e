//! The key of one direction of a connection.
//!
//! No sequence number is used twice with one key: a [`Cipher`] owns the key and its next number together,
//! takes that number for each record, cannot be copied, and fails before the number would wrap around (RFC
//! 8446, 5.3 and 5.5).

use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, Tag, UnboundKey};
use rustls::ConnectionTrafficSecrets;

/// Bytes of the tag that authenticates a record, in all suites.
pub(super) const TAG_BYTES: usize = 16;
/// Bytes of a record's header, which is authenticated, too.
pub(super) const HEADER_BYTES: usize = 5;

/// Encrypts or decrypts the records of one direction, one after the other.
pub(super) struct Cipher {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    /// The number of the next record.
    next: u64,
}

impl Cipher {
    /// The cipher for these secrets of rustls, starting at their sequence number.
    pub(super) fn new((next, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Cipher, rustls::Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(no_suite_of_ours()),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| no_suite_of_ours())?;
        let iv = <[u8; NONCE_LEN]>::try_from(iv.as_ref()).map_err(|_| no_suite_of_ours())?;
        Ok(Cipher { key: LessSafeKey::new(key), iv, next })
    }

    /// The number of the next record: for how many this key has been used.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Encrypts a record's content, with its type after it, in place. Returns the tag that follows it.
    ///
    /// # Errors
    /// `EncryptError` if the key has no sequence number left.
    pub(super) fn seal(
        &mut self,
        header: [u8; HEADER_BYTES],
        inner: &mut [u8],
    ) -> Result<Tag, rustls::Error> {
        let nonce = self.take_nonce().ok_or(rustls::Error::EncryptError)?;
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        sealed.map_err(|_| rustls::Error::EncryptError)
    }

    /// Decrypts what follows a record's header, including its tag, in place. Returns the content, followed by
    /// its type and padding.
    ///
    /// # Errors
    /// `DecryptError` if it is not the record that the other side sent next.
    pub(super) fn open<'a>(
        &mut self,
        header: [u8; HEADER_BYTES],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], rustls::Error> {
        let nonce = self.take_nonce().ok_or(rustls::Error::DecryptError)?;
        let opened = self.key.open_in_place(nonce, Aad::from(header), sealed);
        opened.map_err(|_| rustls::Error::DecryptError)
    }

    /// The nonce of the next sequence number, which is used only once.
    fn take_nonce(&mut self) -> Option<Nonce> {
        let sequence = self.next;
        self.next = sequence.checked_add(1)?;
        let mut nonce = self.iv;
        let (_, low) = nonce.split_at_mut(NONCE_LEN - size_of::<u64>());
        low.iter_mut().zip(sequence.to_be_bytes()).for_each(|(byte, of_sequence)| *byte ^= of_sequence);
        Some(Nonce::assume_unique_for_key(nonce))
    }
}

fn no_suite_of_ours() -> rustls::Error {
    rustls::Error::General("keys of a cipher suite that was not offered".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8448, 3: the client's application traffic keys.
    const KEY: [u8; 16] =
        [0x17, 0x42, 0x2d, 0xda, 0x59, 0x6e, 0xd5, 0xd9, 0xac, 0xd8, 0x90, 0xe3, 0xc6, 0x3f, 0x50, 0x51];
    const IV: [u8; 12] = [0x5b, 0x78, 0x92, 0x3d, 0xee, 0x08, 0x57, 0x90, 0x33, 0xe5, 0x23, 0xd9];
    /// The first record with them, of the bytes 0 to 49, without its header.
    const DATA: [u8; 67] = [
        0xa2, 0x3f, 0x70, 0x54, 0xb6, 0x2c, 0x94, 0xd0, 0xaf, 0xfa, 0xfe, 0x82, 0x28, 0xba, 0x55, 0xcb, 0xef,
        0xac, 0xea, 0x42, 0xf9, 0x14, 0xaa, 0x66, 0xbc, 0xab, 0x3f, 0x2b, 0x98, 0x19, 0xa8, 0xa5, 0xb4, 0x6b,
        0x39, 0x5b, 0xd5, 0x4a, 0x9a, 0x20, 0x44, 0x1e, 0x2b, 0x62, 0x97, 0x4e, 0x1f, 0x5a, 0x62, 0x92, 0xa2,
        0x97, 0x70, 0x14, 0xbd, 0x1e, 0x3d, 0xea, 0xe6, 0x3a, 0xee, 0xbb, 0x21, 0x69, 0x49, 0x15, 0xe4,
    ];
    /// The second one, an alert that says that the connection is closed.
    const ALERT: [u8; 19] = [
        0xc9, 0x87, 0x27, 0x60, 0x65, 0x56, 0x66, 0xb7, 0x4d, 0x7f, 0xf1, 0x15, 0x3e, 0xfd, 0x6d, 0xb6, 0xd0,
        0xb0, 0xe3,
    ];

    fn cipher(next: u64) -> Cipher {
        let key = UnboundKey::new(&aead::AES_128_GCM, &KEY).unwrap();
        Cipher { key: LessSafeKey::new(key), iv: IV, next }
    }

    #[test]
    fn the_records_of_rfc_8448_are_written_and_read() {
        let (mut sender, mut receiver) = (cipher(0), cipher(0));
        let data: Vec<u8> = (0..50).chain([0x17]).collect();
        for (inner, sealed) in [(&data[..], &DATA[..]), (&[1, 0, 0x15][..], &ALERT[..])] {
            let header = [0x17, 0x03, 0x03, 0x00, sealed.len() as u8];
            let mut bytes = inner.to_vec();
            let tag = sender.seal(header, &mut bytes).unwrap();
            bytes.extend_from_slice(tag.as_ref());
            assert_eq!(bytes, sealed);
            assert_eq!(receiver.open(header, &mut bytes).unwrap(), inner);
        }
        assert_eq!((sender.next(), receiver.next()), (2, 2));
    }

    #[test]
    fn a_sequence_number_is_never_used_again() {
        let mut cipher = cipher(u64::MAX - 1);
        assert!(cipher.seal([0; 5], &mut [1, 2, 3]).is_ok());
        for _ in 0..3 {
            assert_eq!(cipher.seal([0; 5], &mut [1, 2, 3]).err(), Some(rustls::Error::EncryptError));
            assert_eq!(cipher.open([0; 5], &mut [0; 20]).err(), Some(rustls::Error::DecryptError));
        }
    }
}
