//! Resolves the names of portals.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// The first address of a name, or the address itself.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut addresses = (host, port).to_socket_addrs()?;
    addresses
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name does not resolve to an address"))
}

/// Whether an address belongs to this machine: only then a socket can be bound to it.
pub(crate) fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_and_documentation_is_not() {
        assert!(is_local(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_local(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(resolve("127.0.0.1", 3260).unwrap(), ([127, 0, 0, 1], 3260).into());
    }
}
