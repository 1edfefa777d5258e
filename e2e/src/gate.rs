//! A gate in front of a server: it forwards TCP connections, and refuses, cuts or stalls them on request.
//!
//! What a stalled gate has received is forwarded when it opens again, however late, as in a network.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::ports;

/// How soon a change takes effect on the wait for connections.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes that are forwarded at a time.
const PIECE: usize = 64 << 10;

/// A gate. Dropping it cuts all connections.
pub struct Gate {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    /// Nothing listens, and there are no connections.
    Away,
    /// Connections stay and are accepted, but nothing passes.
    Stalled,
    /// The gate is dropped.
    Gone,
}

struct State {
    server: SocketAddr,
    mode: Mutex<Mode>,
    changed: Condvar,
    /// Both ends of each connection.
    connections: Mutex<Vec<[TcpStream; 2]>>,
    passed: AtomicU64,
}

impl Gate {
    /// Opens a gate in front of a server.
    pub fn new(server: SocketAddr) -> Gate {
        let address = ports::free();
        let state = Arc::new(State {
            server,
            mode: Mutex::new(Mode::Open),
            changed: Condvar::new(),
            connections: Mutex::default(),
            passed: AtomicU64::new(0),
        });
        let listener = TcpListener::bind(address).expect("the port is free");
        let listening = Arc::clone(&state);
        thread::spawn(move || listening.listen(address, listener));
        Gate { address, state }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections and refuses new ones.
    pub fn take_away(&self) {
        self.state.set(Mode::Away);
    }

    /// Lets nothing pass any more, and keeps the connections.
    pub fn stall(&self) {
        self.state.set(Mode::Stalled);
    }

    /// Lets everything pass again.
    pub fn open(&self) {
        self.state.set(Mode::Open);
    }

    /// Bytes that have passed in both directions.
    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }

    /// Waits until this many more bytes have passed.
    #[track_caller]
    pub fn wait_for_traffic(&self, bytes: u64, limit: Duration) {
        let (start, end) = (self.passed(), Instant::now() + limit);
        while self.passed() < start + bytes {
            let passed = self.passed() - start;
            assert!(Instant::now() < end, "{passed} bytes passed {} in {limit:?}", self.address);
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.set(Mode::Gone);
    }
}

impl State {
    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().expect("nobody panics with it")
    }

    fn set(&self, mode: Mode) {
        *self.mode() = mode;
        self.changed.notify_all();
        if matches!(mode, Mode::Away | Mode::Gone) {
            self.cut();
        }
    }

    fn cut(&self) {
        for connection in self.connections.lock().expect("nobody panics with it").drain(..) {
            // The connection may have ended.
            connection.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
    }

    fn listen(self: Arc<State>, address: SocketAddr, first: TcpListener) {
        let mut listener = Some(first);
        loop {
            match *self.mode() {
                Mode::Gone => return,
                Mode::Away => listener = None,
                Mode::Open | Mode::Stalled if listener.is_none() => {
                    listener = Some(TcpListener::bind(address).expect("the port is ours"));
                }
                Mode::Open | Mode::Stalled => {}
            }
            if let Some(listener) = &listener {
                listener.set_nonblocking(true).expect("a socket can be set so");
                if let Ok((client, _)) = listener.accept() {
                    self.pass(client);
                    continue;
                }
            }
            thread::sleep(LOOK);
        }
    }

    fn pass(self: &Arc<State>, client: TcpStream) {
        client.set_nonblocking(false).expect("a socket can be set so");
        // If the server is gone, the client's connection closes, as it would without the gate.
        let Ok(server) = TcpStream::connect(self.server) else { return };
        let both = [&client, &server].map(|end| {
            end.set_nodelay(true).expect("a socket can be set so");
            end.try_clone().expect("a socket has two owners")
        });
        let [to_client, to_server] = [&client, &server].map(|end| end.try_clone().expect("as above"));
        self.connections.lock().expect("nobody panics with it").push(both);
        for (from, to) in [(client, to_server), (server, to_client)] {
            let state = Arc::clone(self);
            thread::spawn(move || state.copy(from, to));
        }
        if *self.mode() == Mode::Away {
            self.cut();
        }
    }

    /// Waits until the gate is not stalled, and returns its mode then.
    fn after_stall(&self) -> Mode {
        let mode = self.changed.wait_while(self.mode(), |mode| *mode == Mode::Stalled);
        *mode.expect("nobody panics with it")
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = vec![0; PIECE];
        while let Ok(len @ 1..) = from.read(&mut piece) {
            if self.after_stall() != Mode::Open || to.write_all(&piece[..len]).is_err() {
                break;
            }
            self.passed.fetch_add(len as u64, Ordering::SeqCst);
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
