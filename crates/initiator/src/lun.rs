//! Logical unit numbers.

/// A logical unit number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lun(pub u16);

impl Lun {
    /// The number's eight bytes (SAM-5 4.7): peripheral addressing below 256, flat space addressing up to
    /// 16383.
    pub fn bytes(self) -> [u8; 8] {
        let [high, low] = self.0.to_be_bytes();
        match high {
            0 => [0, low, 0, 0, 0, 0, 0, 0],
            _ => [0x40 | high & 0x3f, low, 0, 0, 0, 0, 0, 0],
        }
    }

    /// The number that eight bytes encode; `None` unless they use one of these two methods.
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Lun> {
        let [first, second, rest @ ..] = bytes;
        match (first >> 6, rest == [0; 6]) {
            (0, true) if first == 0 => Some(Lun(u16::from(second))),
            (1, true) => Some(Lun(u16::from_be_bytes([first & 0x3f, second]))),
            _ => None,
        }
    }
}

base::shows!(Display for Lun, |it| "LUN {}", it.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luns() {
        let all = [
            (0, [0; 8]),
            (255, [0, 255, 0, 0, 0, 0, 0, 0]),
            (256, [0x41, 0, 0, 0, 0, 0, 0, 0]),
            (16383, [0x7f, 255, 0, 0, 0, 0, 0, 0]),
        ];
        for (number, bytes) in all {
            assert_eq!(Lun(number).bytes(), bytes);
            assert_eq!(Lun::from_bytes(bytes), Some(Lun(number)));
        }
        assert_eq!(
            Lun::from_bytes([0x40, 7, 0, 0, 0, 0, 0, 0]),
            Some(Lun(7)),
            "flat space goes down to zero"
        );
        for other in [[0xc1, 1, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0], [0, 1, 0, 2, 0, 0, 0, 0]] {
            assert_eq!(Lun::from_bytes(other), None, "another bus, another method, a second level");
        }
    }
}
