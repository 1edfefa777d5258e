//! A stream of PDUs from either side.

use proto::iscsi::wire::{Framing, HEADER_LEN, RequestPdu, ResponsePdu, ScsiCommand};

/// Decodes a stream, with or without digests of headers and data.
pub fn run(input: (bool, bool, &[u8])) {
    let (header_digest, data_digest, mut bytes) = input;
    let framing = Framing { header_digest, data_digest, data_max: 4096 };
    // Decode each header, whether or not the digests match.
    for header in bytes.windows(HEADER_LEN).step_by(HEADER_LEN) {
        decode(header.try_into().expect("a window"));
    }
    while let Ok(Some((pdu, len))) = framing.split(bytes) {
        assert!((HEADER_LEN..=bytes.len()).contains(&len));
        assert!(pdu.data.len() <= 4096);
        decode(pdu.header);
        ScsiCommand::ahs(pdu.ahs).for_each(drop);
        bytes = &bytes[len..];
    }
}

fn decode(header: &[u8; HEADER_LEN]) {
    if let Ok(RequestPdu::ScsiCommand(pdu)) = RequestPdu::decode(header) {
        let again = RequestPdu::decode(&pdu.encode(0));
        assert_eq!(again, Ok(RequestPdu::ScsiCommand(pdu)));
    }
    if let Ok(RequestPdu::DataOut(pdu)) = RequestPdu::decode(header) {
        assert_eq!(RequestPdu::decode(&pdu.encode(0)), Ok(RequestPdu::DataOut(pdu)));
    }
    if let Ok(RequestPdu::Login(pdu)) = RequestPdu::decode(header) {
        assert_eq!(RequestPdu::decode(&pdu.encode(0)), Ok(RequestPdu::Login(pdu)));
    }
    if let Ok(ResponsePdu::DataIn(pdu)) = ResponsePdu::decode(header) {
        assert_eq!(ResponsePdu::decode(&pdu.encode(0)), Ok(ResponsePdu::DataIn(pdu)));
    }
    if let Ok(ResponsePdu::R2t(pdu)) = ResponsePdu::decode(header) {
        assert_eq!(ResponsePdu::decode(&pdu.encode()), Ok(ResponsePdu::R2t(pdu)));
    }
}
