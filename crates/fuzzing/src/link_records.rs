//! Bytes of another node after the TLS handshake.
//!
//! The receiver never panics, and returns only data that was sealed, in order, wherever the stream is cut.

use arbitrary::Arbitrary;

use crate::fields::{many, short};

/// The records of the sender, and how they are cut.
#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    /// Follows the records.
    #[arbitrary(with = short)]
    garbage: &'a [u8],
    #[arbitrary(with = short)]
    pieces: &'a [u8],
    #[arbitrary(with = many)]
    records: Vec<Record<'a>>,
}

#[derive(Debug, Arbitrary)]
struct Record<'a> {
    kind: u8,
    #[arbitrary(with = short)]
    content: &'a [u8],
}

/// Seals the records, and lets the other end open them.
pub fn run(input: Input<'_>) {
    // Most are of a defined type.
    let said = |record: &Record<'_>| (kind_of(record.kind), record.content.to_vec());
    let said: Vec<_> = input.records.iter().map(said).collect();
    link::fuzzing::records(&said, input.garbage, input.pieces);
}

/// The type of a record: padding, an alert, a handshake message, data, or anything.
fn kind_of(byte: u8) -> u8 {
    match byte {
        ..32 => 0,
        32..64 => 21,
        64..128 => 22,
        128..224 => 23,
        any => any,
    }
}
