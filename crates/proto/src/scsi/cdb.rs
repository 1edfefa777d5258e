//! A command descriptor block and its fields. All fields are big-endian (SPC-4 4.2).

/// A command descriptor block, padded with zeros to the 16 bytes that an iSCSI header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb(pub [u8; 16]);

impl Cdb {
    /// The operation code.
    pub fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// The service action, for operation codes that have one: byte 1, bits 4 to 0.
    pub fn service_action(&self) -> u8 {
        self.0[1] & 0x1f
    }

    /// One byte.
    pub fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// Whether a bit of a byte is set.
    pub fn bit(&self, at: usize, bit: u8) -> bool {
        self.0[at] & (1 << bit) != 0
    }

    /// Two bytes.
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// Three bytes.
    pub fn u24(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, self.0[at], self.0[at + 1], self.0[at + 2]])
    }

    /// Four bytes.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(std::array::from_fn(|i| self.0[at + i]))
    }

    /// Eight bytes.
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(std::array::from_fn(|i| self.0[at + i]))
    }
}
