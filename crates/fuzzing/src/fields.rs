//! How fields are generated from bytes, so that random bytes give inputs in which much happens.

use arbitrary::{Arbitrary, Result, Unstructured};

/// The longest list of [`few`].
const FEW_MAX: u8 = 15;
/// One in this many lists of [`seldom`] is not empty.
const SELDOM: u8 = 8;

/// As many elements as the bytes are enough for; by default a list continues after each with probability 1/2.
pub(crate) fn many<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(bytes.arbitrary()?);
    }
    Ok(all)
}

/// At most [`FEW_MAX`] elements.
pub(crate) fn few<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let count = bytes.arbitrary::<u8>()? % (FEW_MAX + 1);
    (0..count).map(|_| bytes.arbitrary()).collect()
}

/// Mostly no elements, otherwise at most three: a header has room for that many additional header segments of
/// any length.
pub(crate) fn seldom<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let byte: u8 = bytes.arbitrary()?;
    let count = if byte.is_multiple_of(SELDOM) { 1 + byte / SELDOM % 3 } else { 0 };
    (0..count).map(|_| bytes.arbitrary()).collect()
}

/// At most 255 bytes; by default it would be half of the remaining bytes.
pub(crate) fn short<'a>(bytes: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let len = usize::from(bytes.arbitrary::<u8>()?).min(bytes.len());
    bytes.bytes(len)
}
