//! A page of checksums of a thick volume. Its own checksum is set right, so that the rest is parsed.

/// Parses a page.
pub fn run(bytes: &[u8]) {
    store::fuzzing::checksum_page(bytes);
}
