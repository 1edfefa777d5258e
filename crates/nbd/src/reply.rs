//! Replies (sections *Simple reply message* and *Structured reply chunk message*).

use crate::wire::{SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// The longest text of an error. The protocol allows 4096 bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Adds the head of a simple reply. Data follows a read without an error.
pub fn simple(output: &mut Vec<u8>, cookie: u64, error: u32) {
    output.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
    output.extend(error.to_be_bytes());
    output.extend(cookie.to_be_bytes());
}

/// Adds a chunk with this payload.
pub fn chunk(output: &mut Vec<u8>, cookie: u64, (kind, is_last): (u16, bool), payload: &[&[u8]]) {
    let flags = if is_last { chunk::DONE } else { 0 };
    let len: usize = payload.iter().map(|part| part.len()).sum();
    output.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    output.extend(flags.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend(cookie.to_be_bytes());
    output.extend((len as u32).to_be_bytes());
    payload.iter().for_each(|part| output.extend_from_slice(part));
}

/// Adds a chunk with an error, the last one: of the whole request, or of what follows an offset.
pub fn error(output: &mut Vec<u8>, cookie: u64, error: u32, message: &str, offset: Option<u64>) {
    let message = &message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)];
    let len = (message.len() as u16).to_be_bytes();
    let offset_bytes = offset.map(u64::to_be_bytes);
    let (kind, offset) = match &offset_bytes {
        Some(bytes) => (chunk::ERROR_OFFSET, &bytes[..]),
        None => (chunk::ERROR, &[][..]),
    };
    chunk(output, cookie, (kind, true), &[&error.to_be_bytes(), &len, message.as_bytes(), offset]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(make: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut output = Vec::new();
        make(&mut output);
        output
    }

    #[test]
    fn replies_are_as_the_protocol_says() {
        let cookie = 0x0102_0304_0506_0708;
        let expected = b"\x67\x44\x66\x98\0\0\0\x16\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(made(|output| simple(output, cookie, 22)), expected);
        let expected = b"\x66\x8e\x33\xef\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x0a\
                         \0\0\0\0\0\0\x10\0ab";
        let data = made(|output| chunk(output, cookie, (1, true), &[&4096_u64.to_be_bytes(), b"ab"]));
        assert_eq!(data, expected);
        let expected = b"\x66\x8e\x33\xef\0\x01\x80\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x11\
                         \0\0\0\x05\0\x03why\0\0\0\0\0\0\x10\0";
        assert_eq!(made(|output| error(output, cookie, 5, "why", Some(4096))), expected);
        let expected =
            b"\x66\x8e\x33\xef\0\x01\x80\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x06\0\0\0\x16\0\0";
        assert_eq!(made(|output| error(output, cookie, 22, "", None)), expected);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = format!("a{}", "ö".repeat(1000));
        let chunk = made(|output| error(output, 1, 5, &text, None));
        assert_eq!(chunk.len(), 20 + 6 + 1023);
        assert!(std::str::from_utf8(&chunk[26..]).is_ok());
    }
}
