//! Free TCP ports on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below Linux's range for outgoing connections (32768 on), so that a connection of another test cannot take a port
/// between this look and the server's bind.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// An address nobody listens on, and that no other call in this process gives.
pub fn free() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // Two test processes at once start far apart.
        let port = FIRST + (process::id().wrapping_mul(397).wrapping_add(step)) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT);
}
