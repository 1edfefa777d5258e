//! Free TCP ports on the loopback interface.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Below Linux's range for outgoing connections (32768 on), so that a connection of another test cannot take
/// a port between the check and the server's bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Ports that a process claims at once.
const BLOCK: u16 = 1_000;

/// Ports of this process.
///
/// Other test processes, which `./test` runs at the same time, have other ports. Otherwise two of them could
/// take the same one between the check and the server's bind.
struct Claimed {
    /// UDP sockets at the first port of each block: only one process can have one there.
    blocks: Vec<UdpSocket>,
    next: u16,
    end: u16,
}

static CLAIMED: Mutex<Claimed> = Mutex::new(Claimed { blocks: Vec::new(), next: 0, end: 0 });

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

impl Claimed {
    fn claim(&mut self) {
        let mut blocks = (FIRST..FIRST + COUNT).step_by(usize::from(BLOCK));
        let free = blocks.find_map(|first| Some((first, UdpSocket::bind(loopback(first)).ok()?)));
        let (first, socket) = free.expect("no other test process has claimed all ports");
        self.blocks.push(socket);
        (self.next, self.end) = (first, first + BLOCK);
    }
}

/// An address that is free, and that no other call returns, in this process or in another one.
pub fn free() -> SocketAddr {
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if claimed.next == claimed.end {
            claimed.claim();
        }
        let address = loopback(claimed.next);
        claimed.next += 1;
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
