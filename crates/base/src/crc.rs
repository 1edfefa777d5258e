//! CRC32C (Castagnoli), the checksum of iSCSI digests and of everything that Ursa writes to a disk. The
//! `crc32c` crate uses the processor's instruction if it has one.

/// The CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// A CRC32C that is computed piece by piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The checksum of no bytes.
    pub fn new() -> Crc32c {
        Crc32c(0)
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The checksum of all bytes added so far.
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7143 appendix A.4 (as RFC 3720 B.4): 32 bytes of zeros, of ones, and 0x00 to 0x1f. The RFC shows
    /// the digest in the order it is sent, least significant byte first.
    #[test]
    fn examples_of_the_rfc() {
        assert_eq!(crc32c(&[0; 32]), u32::from_le_bytes([0xaa, 0x36, 0x91, 0x8a]));
        assert_eq!(crc32c(&[0xff; 32]), u32::from_le_bytes([0x43, 0xab, 0xa8, 0x62]));
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), u32::from_le_bytes([0x4e, 0x79, 0xdd, 0x46]));
    }

    #[test]
    fn pieces_equal_the_whole() {
        let mut crc = Crc32c::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(crc.value(), 0xe306_9283);
    }
}
