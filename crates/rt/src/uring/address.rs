//! Socket addresses in the kernel's format.

use std::net::SocketAddr;

/// An address for a system call.
pub(super) enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Address {
    pub(super) fn family(&self) -> libc::c_int {
        match self {
            Address::V4(_) => libc::AF_INET,
            Address::V6(_) => libc::AF_INET6,
        }
    }

    /// Its address in memory, valid while `self` is neither moved nor dropped.
    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            Address::V4(address) => (&raw const *address).cast(),
            Address::V6(address) => (&raw const *address).cast(),
        }
    }

    pub(super) fn len(&self) -> libc::socklen_t {
        let len = match self {
            Address::V4(_) => size_of::<libc::sockaddr_in>(),
            Address::V6(_) => size_of::<libc::sockaddr_in6>(),
        };
        len as libc::socklen_t
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        match address {
            SocketAddr::V4(address) => Address::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Address::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }
}
