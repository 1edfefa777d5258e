//! What another node sends behind the handshake of TLS: never a panic, and only data that was sealed comes out, in order, however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u8, Vec<u8>)>, Vec<u8>, Vec<u8>)| {
    let (said, garbage, pieces) = input;
    // Most are of a type that means something.
    let said: Vec<_> = said.into_iter().map(|(kind, content)| (kind_of(kind), content)).collect();
    link::fuzzing::records(&said, &garbage, &pieces);
});

/// The type of a record: padded, an alert, of the handshake, data, or anything.
fn kind_of(byte: u8) -> u8 {
    match byte {
        ..32 => 0,
        32..64 => 21,
        64..128 => 22,
        128..224 => 23,
        any => any,
    }
}
