//! Additional header segments (RFC 7143 11.2.2).

use super::HeaderError;

/// One additional header segment.
///
/// | bytes | field |
/// |---|---|
/// | 0-1 | AHSLength: the bytes from 3 on, without padding |
/// | 2 | AHSType |
/// | 3 | reserved |
/// | 4- | the segment's own bytes, padded to a multiple of four |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahs<'a> {
    /// The bytes of a long CDB after the first 16 (11.2.2.3).
    ExtendedCdb(&'a [u8]),
    /// Expected Bidirectional Read Data Length (11.2.2.4).
    BidirectionalReadLength(u32),
    /// A type that RFC 7143 does not define.
    Unknown(u8),
}

impl Ahs<'_> {
    /// Appends the segment to `bytes`. An unknown type is appended without content.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let length_field: [u8; 4];
        let (number, content): (u8, &[u8]) = match self {
            Ahs::ExtendedCdb(rest) => (1, rest),
            Ahs::BidirectionalReadLength(length) => {
                length_field = length.to_be_bytes();
                (2, &length_field)
            }
            Ahs::Unknown(number) => (*number, &[]),
        };
        // A CDB has at most 260 bytes, 244 of them here.
        let length = u16::try_from(content.len() + 1).expect("a segment's content is shorter than a header");
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[number, 0]);
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
}

/// Iterates over the segments that follow a basic header.
#[derive(Clone, Copy, Debug)]
pub struct AhsSegments<'a>(pub &'a [u8]);

impl<'a> Iterator for AhsSegments<'a> {
    type Item = Result<Ahs<'a>, HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        let [high, low, number, after_type @ ..] = rest else {
            return (!rest.is_empty()).then_some(Err(HeaderError::Field("TotalAHSLength")));
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(content) = after_type.get(..length) else {
            return Some(Err(HeaderError::Field("AHSLength")));
        };
        self.0 = rest.get((3 + length).next_multiple_of(4)..).unwrap_or(&[]);
        Some(match (number & 0x3f, content) {
            (1, [_, cdb @ ..]) => Ok(Ahs::ExtendedCdb(cdb)),
            (2, [_, a, b, c, d]) => Ok(Ahs::BidirectionalReadLength(u32::from_be_bytes([*a, *b, *c, *d]))),
            (1 | 2, _) => Err(HeaderError::Field("AHSLength")),
            (unknown, _) => Ok(Ahs::Unknown(unknown)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_and_written() {
        let bytes = [
            0x00, 0x05, 0x02, 0x00, 0x00, 0x01, 0x00, 0x00, // bidirectional read length 65536
            0x00, 0x03, 0x01, 0x00, 0xaa, 0xbb, 0x00, 0x00, // CDB bytes 16 and 17, padded
            0x00, 0x01, 0x3f, 0x00, // unknown
        ];
        let segments =
            [Ahs::BidirectionalReadLength(65536), Ahs::ExtendedCdb(&[0xaa, 0xbb]), Ahs::Unknown(0x3f)];
        assert_eq!(AhsSegments(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), segments);
        let mut written = Vec::new();
        segments.iter().for_each(|segment| segment.encode(&mut written));
        assert_eq!(written, bytes);
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        for bytes in [
            &[0x00, 0xff, 0x01, 0x00][..], // longer than what is there
            &[0x00, 0x04, 0x02, 0x00, 0, 0, 0, 0],
            &[0x00, 0x00, 0x01, 0x00],
            &[0x00],
        ] {
            assert!(AhsSegments(bytes).any(|segment| segment.is_err()), "{bytes:?}");
            assert!(AhsSegments(bytes).count() <= 2);
        }
    }
}
