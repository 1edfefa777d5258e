//! Little-endian fields. Reading is safe for any bytes: it returns a value or [`Malformed`]. Whatever can be
//! read has only one encoding.

use thiserror::Error;

/// Bytes that are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("malformed bytes")]
pub struct Malformed;

/// Appends fields.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.0.extend(value.to_le_bytes());
    }

    /// A count or a length, of at most 4 GiB.
    pub(crate) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("all our limits are below 4 GiB"));
    }

    /// A length and the bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    /// Appends the CRC32C of everything so far.
    pub(crate) fn seal(mut self) -> Vec<u8> {
        let sum = base::crc32c(&self.0);
        self.u32(sum);
        self.0
    }
}

/// Reads fields from the front.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// A reader of bytes from [`Writer::seal`], whose checksum it verifies.
    pub(crate) fn sealed(bytes: &'a [u8]) -> Result<Reader<'a>, Malformed> {
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(Malformed)?;
        if base::crc32c(content) != u32::from_le_bytes(*sum) {
            return Err(Malformed);
        }
        Ok(Reader(content))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// A byte that is 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A count of items of at least `each` bytes. It is at most what the bytes can hold, so that a caller
    /// never reserves memory for items that do not exist.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        if count.checked_mul(each).is_none_or(|bytes| bytes > self.0.len()) {
            return Err(Malformed);
        }
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.count(1)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        Ok(std::str::from_utf8(bytes).map_err(|_| Malformed)?.to_owned())
    }

    /// All remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Checks that no bytes remain.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
