//! TransportIDs of iSCSI initiator ports (SPC-4, TransportID identifiers).

use std::sync::Arc;

use crate::scsi::InitiatorPort;

/// FORMAT CODE 01b with the protocol identifier iSCSI: name and ISID.
const PORT_FORMAT: u8 = 0x45;

/// An iSCSI name has at most 223 bytes (RFC 7143 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// Encodes "name,i,0x0123456789ab" as a TransportID.
pub(super) fn encode(port: &InitiatorPort) -> Vec<u8> {
    // Each protocol has a format of its own.
    let InitiatorPort::Iscsi { .. } = port;
    let name = port.to_string();
    let len = (name.len() + 1).next_multiple_of(4).max(20);
    let [high, low] = (len as u16).to_be_bytes();
    let mut bytes = vec![PORT_FORMAT, 0, high, low];
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(4 + len, 0);
    bytes
}

/// Decodes a TransportID at the start of `bytes`; returns it and its length.
///
/// `None` if it is damaged, of another protocol, or of the format without ISID. That format names a device
/// instead of a port, so it cannot be registered.
pub(super) fn decode(bytes: &[u8]) -> Option<(InitiatorPort, usize)> {
    let [PORT_FORMAT, _, high, low, rest @ ..] = bytes else { return None };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    if len < 20 || !len.is_multiple_of(4) {
        return None;
    }
    let text = rest.get(..len)?;
    let end = text.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&text[..end]).ok()?;
    let (name, isid) = text.rsplit_once(",i,0x").or_else(|| text.rsplit_once(",i,0X"))?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || isid.len() != 12 || !isid.is_ascii() {
        return None;
    }
    let value =
        isid.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(isid, 16).ok())??;
    let [_, _, isid @ ..] = value.to_be_bytes();
    // Use the normal form of the name, as in a login (RFC 7143 4.2.7.1): an initiator that was registered
    // with capitals could otherwise never match its registration.
    let name = Arc::from(name.to_ascii_lowercase());
    Some((InitiatorPort::Iscsi { name, isid }, 4 + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_by_its_bytes() {
        let port = InitiatorPort::Iscsi { name: Arc::from("iqn.a"), isid: [0, 2, 0x3d, 0, 0, 1] };
        let mut expected = vec![0x45, 0, 0, 24];
        expected.extend_from_slice(b"iqn.a,i,0x00023d000001\0\0");
        assert_eq!(encode(&port), expected);
        assert_eq!(decode(&expected), Some((port, 28)));
    }

    #[test]
    fn capitals_name_the_same_port() {
        let small = InitiatorPort::Iscsi { name: Arc::from("iqn.a"), isid: [0, 2, 0x3d, 0, 0, 1] };
        let mut capitals = vec![0x45, 0, 0, 24];
        capitals.extend_from_slice(b"IQN.A,i,0X00023D000001\0\0");
        assert_eq!(decode(&capitals), Some((small, 28)));
    }

    #[test]
    fn damage_is_refused() {
        let good = encode(&InitiatorPort::Iscsi { name: Arc::from("iqn.a"), isid: [1; 6] });
        for cut in 0..good.len() {
            assert_eq!(decode(&good[..cut]), None);
        }
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] = 0xff;
            let _ = decode(&bytes);
        }
        assert_eq!(decode(b"\x05\0\0\x14iqn.without-isid\0\0\0\0"), None);
    }
}
