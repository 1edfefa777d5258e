//! How fields are made of bytes, so that bytes that nobody chose make inputs in which much happens.

use arbitrary::{Arbitrary, Result, Unstructured};

/// What a list of [`few`] has at most.
const FEW_MAX: u8 = 15;
/// One list of [`seldom`] in so many has something.
const SELDOM: u8 = 8;

/// As many as all bytes give; by itself a list goes on after each with one chance in two.
pub(crate) fn many<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(bytes.arbitrary()?);
    }
    Ok(all)
}

/// At most [`FEW_MAX`].
pub(crate) fn few<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let count = bytes.arbitrary::<u8>()? % (FEW_MAX + 1);
    (0..count).map(|_| bytes.arbitrary()).collect()
}

/// Mostly none, else at most three: as many additional header segments of any length as a header has room
/// for.
pub(crate) fn seldom<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<Vec<T>> {
    let byte: u8 = bytes.arbitrary()?;
    let count = if byte.is_multiple_of(SELDOM) { 1 + byte / SELDOM % 3 } else { 0 };
    (0..count).map(|_| bytes.arbitrary()).collect()
}

/// At most 255 bytes; by themselves they would be half of what is left.
pub(crate) fn short<'a>(bytes: &mut Unstructured<'a>) -> Result<&'a [u8]> {
    let len = usize::from(bytes.arbitrary::<u8>()?).min(bytes.len());
    bytes.bytes(len)
}
