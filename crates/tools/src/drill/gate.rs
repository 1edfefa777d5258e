//! A gate: a proxy between two nodes that can hold back what they send.
//!
//! Data that is held back is not lost: it continues when the gate opens, as after a network cable was
//! unplugged and plugged in again. A lossy gate drops it, and closes its connection, like a firewall that has
//! lost its connection table.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// How often a direction that is held back checks whether it may continue.
const LOOK: Duration = Duration::from_millis(1);

/// The bytes forwarded at once.
const PIECE: usize = 64 << 10;

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the node that connects.
    There,
    /// To the node that connects.
    Back,
}

/// A listener in front of a server. Its threads end with the process.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    kept: Arc<[AtomicBool; 2]>,
    ways: Arc<AtomicUsize>,
}

/// What the threads of a gate need.
#[derive(Clone)]
struct Rules {
    kept: Arc<[AtomicBool; 2]>,
    lossy: bool,
    /// Directions of its connections: two each.
    ways: Arc<AtomicUsize>,
}

impl Gate {
    /// Creates an open gate in front of a server, on a free loopback port.
    pub fn new(server: SocketAddr, lossy: bool) -> io::Result<Gate> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let kept: Arc<[AtomicBool; 2]> = Arc::default();
        let ways: Arc<AtomicUsize> = Arc::default();
        let rules = Rules { kept: Arc::clone(&kept), lossy, ways: Arc::clone(&ways) };
        thread::Builder::new().name("gate".into()).spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server does not listen, the connection closes, as it would without the gate.
                let _ = pass(client, server, &rules);
            }
        })?;
        Ok(Gate { address, kept, ways })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn connections(&self) -> usize {
        self.ways.load(Ordering::Relaxed).div_ceil(2)
    }

    /// Holds this direction back, or lets it continue.
    pub fn keep(&self, way: Way, keep: bool) {
        self.kept[way as usize].store(keep, Ordering::Relaxed);
    }
}

fn pass(client: TcpStream, server: SocketAddr, rules: &Rules) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
    }
    let ways = [(client.try_clone()?, server.try_clone()?, Way::There), (server, client, Way::Back)];
    for (from, to, way) in ways {
        let rules = rules.clone();
        thread::Builder::new().name("gate-way".into()).spawn(move || {
            rules.ways.fetch_add(1, Ordering::Relaxed);
            copy(from, to, way, &rules);
            rules.ways.fetch_sub(1, Ordering::Relaxed);
        })?;
    }
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, way: Way, rules: &Rules) {
    let kept = &rules.kept[way as usize];
    let mut piece = vec![0; PIECE];
    loop {
        let len = from.read(&mut piece).unwrap_or(0);
        let lost = rules.lossy && kept.load(Ordering::Relaxed);
        while kept.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
        if len == 0 || lost || to.write_all(&piece[..len]).is_err() {
            // One of them may be closed already.
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_traffic_is_released_later_in_each_direction_separately() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let gate = Gate::new(listener.local_addr().unwrap(), false).unwrap();
        let mut client = TcpStream::connect(gate.address()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let short = Some(Duration::from_millis(50));
        let long = Some(Duration::from_secs(10));
        let mut byte = [0];
        gate.keep(Way::There, true);
        client.write_all(b"a").unwrap();
        server.write_all(b"b").unwrap();
        client.set_read_timeout(long).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"b", "the other way is open");
        server.set_read_timeout(short).unwrap();
        assert!(server.read_exact(&mut byte).is_err(), "it is kept");
        gate.keep(Way::There, false);
        server.set_read_timeout(long).unwrap();
        server.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"a");
        assert_eq!(gate.connections(), 1);
        drop(client);
        assert_eq!(server.read(&mut byte).unwrap(), 0, "the end passes, too");
    }
    #[test]
    fn a_lossy_gate_drops_traffic_and_its_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let gate = Gate::new(listener.local_addr().unwrap(), true).unwrap();
        let connect = || {
            let client = TcpStream::connect(gate.address()).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            (client, server)
        };
        let (mut speaks, mut hears) = connect();
        let (mut silent, mut waits) = connect();
        gate.keep(Way::There, true);
        speaks.write_all(b"a").unwrap();
        thread::sleep(Duration::from_millis(50));
        gate.keep(Way::There, false);
        let mut byte = [0];
        assert_eq!(hears.read(&mut byte).unwrap_or(0), 0, "nothing came, and nothing will");
        silent.write_all(b"b").unwrap();
        waits.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"b", "who said nothing meanwhile has lost nothing");
    }
}
