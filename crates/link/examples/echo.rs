//! Measures what a link costs: 4 KiB frames one way and small answers back, over loopback.
//!
//! `cargo run --release -p link --example echo [SECONDS] [plain|tls]` runs two nodes of one core each and
//! prints the CPU time of each side for a frame and its answer, plain and with TLS, at depths 1 and 32, and
//! for large frames.

#![allow(clippy::unwrap_used, reason = "a measurement ends at the first error")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use base::{Buf, Chain, SharedBuf};
use link::{
    ClusterAuthority, ClusterId, Frame, Handler, Limits, Link, LinkName, Links, NodeCredentials, Peer,
    Protocol, Role, Settings,
};
use replica::{Incarnation, NodeId};
use rt::sync::Notify;
use rt::uring::{Config, Running};
use rt::{CoreId, Handle};

/// As in the binary: where the allocator puts buffers affects what copying them costs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CLUSTER: ClusterId = ClusterId([1; 16]);
/// The length of the head of a write, and of its acknowledgement.
const HEAD: usize = 80;
const ANSWER_HEAD: usize = 40;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|seconds| seconds.parse().ok()).unwrap_or(2);
    let authority = ClusterAuthority::create(CLUSTER).unwrap();
    let which = std::env::args().nth(2);
    for tls in [false, true] {
        if which.as_deref().is_some_and(|which| (which == "tls") != tls) {
            continue;
        }
        let credentials = |node| tls.then(|| authority.issue(NodeId(node)).unwrap());
        let [a, b] = [1, 2].map(|id| Node::start(id, credentials(id)));
        for (node, other) in [(&a, &b), (&b, &a)] {
            let peers = vec![Peer { id: other.id, addresses: vec![(None, other.address)] }];
            drop(node.handle.call(CoreId(0), move || async move {
                rt::local::<Held>().unwrap().links.set_peers(peers);
            }));
        }
        for (bytes, depth) in [(4096, 32), (4096, 1), (65536, 8), (1 << 20, 4)] {
            measure(&a, &b, Load { bytes, depth, tls }, Duration::from_secs(seconds));
        }
        for node in [a, b] {
            drop(node.handle.call(CoreId(0), || async { rt::local::<Held>().unwrap().over.notify() }));
            node.running.join();
        }
    }
}

#[derive(Clone, Copy)]
struct Load {
    bytes: usize,
    depth: usize,
    tls: bool,
}

fn measure(a: &Node, b: &Node, load: Load, time: Duration) {
    let begin = |load: usize, depth: usize| {
        drop(b.handle.call(CoreId(0), move || async move {
            let user = rt::local::<Echo>().unwrap();
            while user.replication.borrow().is_none() {
                rt::sleep(Duration::from_millis(1)).await;
            }
            user.data.replace(Buf::zeroed(load.max(1)).share());
            user.depth.set(depth);
            (0..depth).for_each(|_| user.ask());
        }));
    };
    begin(load.bytes, load.depth);
    std::thread::sleep(Duration::from_millis(300));
    let read = |node: &Node| (node.running.stats()[0], node.done.load(Ordering::Relaxed));
    let (start, before) = (Instant::now(), [read(a), read(b)]);
    std::thread::sleep(time);
    let (elapsed, after) = (start.elapsed(), [read(a), read(b)]);
    drop(b.handle.call(CoreId(0), || async { rt::local::<Echo>().unwrap().depth.set(0) }));
    std::thread::sleep(Duration::from_millis(100));
    let count = (after[1].1 - before[1].1) as f64;
    let cpu = |side: usize| {
        let used = after[side].0.cpu - before[side].0.cpu;
        let polling = after[side].0.polling - before[side].0.polling;
        (used.saturating_sub(polling)).as_secs_f64() * 1e6 / count
    };
    println!(
        "{:5} {:7} bytes x {:2}: {:6.2} us CPU a frame to send, {:6.2} to receive; {:7.0} frames/s, {:5.0} MB/s",
        if load.tls { "TLS" } else { "plain" },
        load.bytes,
        load.depth,
        cpu(1),
        cpu(0),
        count / elapsed.as_secs_f64(),
        count * load.bytes as f64 / elapsed.as_secs_f64() / 1e6,
    );
}

struct Node {
    id: NodeId,
    address: SocketAddr,
    handle: Handle,
    running: Running,
    done: Arc<AtomicU64>,
}

struct Held {
    links: Links,
    over: Notify,
}

impl Node {
    fn start(id: u16, tls: Option<NodeCredentials>) -> Node {
        let (id, done) = (NodeId(id), Arc::new(AtomicU64::new(0)));
        let settings = Settings {
            me: id,
            cluster: CLUSTER,
            generation: 1,
            incarnation: Incarnation(1),
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            tls,
            protocol: Protocol::default(),
            limits: Limits::default(),
        };
        let settings = Arc::new(Mutex::new(Some(settings)));
        let (told, address) = mpsc::channel();
        let config = Config { processors: vec![0], pin: false, poll: Duration::from_micros(20) };
        let its_done = Arc::clone(&done);
        let running = Running::start(config, move |_| {
            let (settings, told, done) = (Arc::clone(&settings), told.clone(), Arc::clone(&its_done));
            async move {
                let settings = settings.lock().unwrap().take().unwrap();
                let install = move || -> Rc<dyn Handler> {
                    let user = Rc::new(Echo {
                        done: Arc::clone(&done),
                        replication: Default::default(),
                        data: std::cell::RefCell::new(Buf::zeroed(1).share()),
                        depth: Cell::new(0),
                    });
                    rt::set_local(Rc::clone(&user));
                    user
                };
                let links = Links::start(settings, install).await.unwrap();
                told.send(links.local_addresses()[0]).unwrap();
                let held = Rc::new(Held { links, over: Notify::new() });
                rt::set_local(Rc::clone(&held));
                held.over.notified().await;
                held.links.stop().await;
            }
        })
        .unwrap();
        Node { id, address: address.recv().unwrap(), handle: running.handle(), running, done }
    }
}

/// Answers frames with data, and sends another frame for each answer.
struct Echo {
    done: Arc<AtomicU64>,
    replication: std::cell::RefCell<Option<Rc<Link>>>,
    data: std::cell::RefCell<SharedBuf>,
    depth: Cell<usize>,
}

impl Echo {
    fn ask(&self) {
        let link = self.replication.borrow();
        let mut payload = Chain::new();
        payload.push(self.data.borrow().clone());
        link.as_ref().unwrap().send(Frame { channel: 1, kind: 1, head: vec![7; HEAD], payload });
    }
}

impl Handler for Echo {
    fn up(&self, link: Rc<Link>) {
        if link.name().role == Role::Replication {
            self.replication.replace(Some(link));
        }
    }

    fn down(&self, _: LinkName) {}

    fn frame(&self, link: &Rc<Link>, frame: Frame) {
        if frame.kind == 1 {
            link.send(Frame { channel: 1, kind: 2, head: vec![7; ANSWER_HEAD], payload: Chain::new() });
            return;
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        if self.depth.get() > 0 {
            self.ask();
        }
    }
}
