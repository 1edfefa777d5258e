//! Serial number arithmetic (RFC 1982), which orders CmdSN, StatSN and DataSN across wrap-around.

use std::cmp::Ordering;

/// A 32-bit serial number.
///
/// There is no total order: of two numbers 2^31 apart, neither is before the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Serial(pub u32);

impl Serial {
    /// The number after this one.
    pub const fn next(self) -> Serial {
        self.plus(1)
    }

    pub const fn plus(self, count: u32) -> Serial {
        Serial(self.0.wrapping_add(count))
    }

    pub const fn minus(self, count: u32) -> Serial {
        Serial(self.0.wrapping_sub(count))
    }

    /// The distance from `earlier` to this number. If this number is before `earlier`, the result is huge, so
    /// compare first.
    pub const fn since(self, earlier: Serial) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    pub fn is_before(self, other: Serial) -> bool {
        self.partial_cmp(&other) == Some(Ordering::Less)
    }

    pub fn is_after(self, other: Serial) -> bool {
        other.is_before(self)
    }
}

impl PartialOrd for Serial {
    fn partial_cmp(&self, other: &Serial) -> Option<Ordering> {
        match other.since(*self) {
            0 => Some(Ordering::Equal),
            1..0x8000_0000 => Some(Ordering::Less),
            0x8000_0000 => None,
            _ => Some(Ordering::Greater),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(Serial(0xffff_ffff).is_before(Serial(0)));
        assert!(Serial(5).is_after(Serial(0xffff_fff0)));
        assert!(Serial(1) < Serial(2) && Serial(2) > Serial(1));
        assert_eq!(Serial(0xffff_ffff).next(), Serial(0));
        assert_eq!(Serial(3).since(Serial(0xffff_fffe)), 5);
        assert_eq!(Serial(3).minus(5), Serial(0xffff_fffe));
    }

    #[test]
    fn opposite_numbers_have_no_order() {
        let (near, far) = (Serial(7), Serial(0x8000_0007));
        assert!(!near.is_before(far) && !near.is_after(far) && near != far);
    }
}
