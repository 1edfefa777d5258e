//! Announces to the neighbors on a network where an address is now: by ARP (RFC 826, RFC 5227 2.3), and by
//! neighbor advertisements (RFC 4861 7.2.6).
//!
//! Linux does so on its own only when a device comes up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, ipproto, sendto, socket_with, sockopt,
};

/// `ARPHRD_ETHER`: devices whose neighbors have hardware addresses of six bytes.
const ETHERNET: u16 = 1;
/// `ETH_P_ARP`.
const ARP: u16 = 0x0806;
/// All nodes of a link (RFC 4291 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An Ethernet address.
type Hardware = [u8; 6];

/// Announces to all neighbors on the device's network that the address is here.
///
/// Does nothing on a device without such neighbors (loopback, a tunnel).
pub(super) fn announce(device: &str, address: IpAddr) -> io::Result<()> {
    let of_device = |what: &str| -> io::Result<String> {
        Ok(std::fs::read_to_string(format!("/sys/class/net/{device}/{what}"))?.trim().to_owned())
    };
    let number = |what: &str| -> io::Result<u32> {
        of_device(what)?.parse().map_err(|_| io::ErrorKind::InvalidData.into())
    };
    if number("type")? != u32::from(ETHERNET) {
        return Ok(());
    }
    let hardware = parse_hardware(&of_device("address")?).ok_or(io::ErrorKind::InvalidData)?;
    let index = number("ifindex")?;
    match address {
        IpAddr::V4(address) => {
            // Some neighbors accept only requests, others only replies.
            send_arp(index, &arp(1, hardware, address))?;
            send_arp(index, &arp(2, hardware, address))
        }
        IpAddr::V6(address) => send_advertisement(index, address, &advertisement(hardware, address)),
    }
}

fn parse_hardware(text: &str) -> Option<Hardware> {
    let bytes: Result<Vec<u8>, _> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes.ok()?.try_into().ok()
}

/// A gratuitous ARP message: operation 1, a request; 2, a reply.
///
/// | bytes | |
/// |---|---|
/// | 0 | hardware: 1, Ethernet; protocol: 0x0800, IPv4; lengths of their addresses: 6, 4 |
/// | 6 | operation |
/// | 8 | the sender's hardware address and IPv4 address |
/// | 18 | the target's: hardware address (zeros in a request), and the same IPv4 address |
fn arp(operation: u8, hardware: Hardware, address: Ipv4Addr) -> [u8; 28] {
    let mut message = [0; 28];
    message[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, operation]);
    message[8..14].copy_from_slice(&hardware);
    message[14..18].copy_from_slice(&address.octets());
    if operation == 2 {
        message[18..24].copy_from_slice(&hardware);
    }
    message[24..].copy_from_slice(&address.octets());
    message
}

/// An unsolicited neighbor advertisement, whose checksum the kernel fills in.
///
/// | bytes | |
/// |---|---|
/// | 0 | type 136, code 0, checksum, flags: 0x20, override earlier entries |
/// | 8 | the address |
/// | 24 | option 2, of one unit of 8 bytes: the hardware address |
fn advertisement(hardware: Hardware, address: Ipv6Addr) -> [u8; 32] {
    let mut message = [0; 32];
    message[..8].copy_from_slice(&[136, 0, 0, 0, 0x20, 0, 0, 0]);
    message[8..24].copy_from_slice(&address.octets());
    message[24..26].copy_from_slice(&[2, 1]);
    message[26..].copy_from_slice(&hardware);
    message
}

fn send_arp(index: u32, message: &[u8; 28]) -> io::Result<()> {
    // The socket receives nothing, so it has no protocol.
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let everybody = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ARP.to_be(),
        sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        sll_hatype: ETHERNET,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
    };
    // SAFETY: both pointers point to values that live until the call returns, and each is passed with its own
    // size; `sockaddr_ll` is the address type of AF_PACKET.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
            (&raw const everybody).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn send_advertisement(index: u32, address: Ipv6Addr, message: &[u8; 32]) -> io::Result<()> {
    let socket =
        socket_with(AddressFamily::INET6, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMPV6))?;
    // Receivers ignore advertisements with a lower hop limit: they may come from beyond a router.
    sockopt::set_ipv6_multicast_hops(&socket, 255)?;
    bind(&socket, &SocketAddrV6::new(address, 0, 0, 0))?;
    sendto(&socket, message, SendFlags::empty(), &SocketAddrV6::new(ALL_NODES, 0, 0, index))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARDWARE: Hardware = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];

    #[test]
    fn messages_are_those_of_the_standards() {
        let address = Ipv4Addr::new(192, 0, 2, 10);
        // The messages that `arping -U` and `arping -A` send.
        assert_eq!(
            arp(1, HARDWARE, address),
            [
                0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 192, 0,
                2, 10, 0, 0, 0, 0, 0, 0, 192, 0, 2, 10
            ]
        );
        assert_eq!(
            arp(2, HARDWARE, address),
            [
                0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x02, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 192, 0,
                2, 10, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 192, 0, 2, 10
            ]
        );
        assert_eq!(
            advertisement(HARDWARE, "fd00::a".parse().unwrap()),
            [
                0x88, 0, 0, 0, 0x20, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, 0x02,
                0x01, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56
            ]
        );
    }

    #[test]
    fn hardware_addresses_are_read_as_linux_writes_them() {
        assert_eq!(parse_hardware("52:54:00:12:34:56"), Some(HARDWARE));
        for text in ["", "52:54:00:12:34", "52:54:00:12:34:5g", "00:00:00:00:00:00:00:00"] {
            assert_eq!(parse_hardware(text), None, "{text}");
        }
    }

    #[test]
    fn announcing_on_loopback_does_nothing() {
        announce("lo", IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))).unwrap();
    }
}
