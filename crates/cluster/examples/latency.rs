//! How long a transaction takes on this machine's disk: one node, and three in one process.
//!
//!     cargo run --release -p cluster --example latency [DIRECTORY]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::embedded::{Embedded, File, Identity, Saved, Settings};
use cluster::{MemberChange, NodeId, Outcome, Store, Transaction};

const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDS: u32 = 500;
const CROWD: u32 = 64;

type Nodes = Arc<Mutex<BTreeMap<NodeId, Embedded>>>;

fn main() {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = parent.join(format!("ursa-record-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the files");
    let nodes = Nodes::default();
    for number in 1..=3 {
        add(&nodes, &directory, number);
        if number != 2 {
            println!("{number} nodes");
            let leader = store(&nodes, number, true);
            measure("  at the leader ", &leader);
            if number == 3 {
                measure("  at another   ", &store(&nodes, number, false));
            }
        }
    }
    nodes.lock().expect("not poisoned").clear();
    std::fs::remove_dir_all(&directory).expect("the files are ours");
}

fn id(number: u16) -> NodeId {
    NodeId::new(number).expect("not zero")
}

fn add(nodes: &Nodes, directory: &Path, number: u16) {
    let path = directory.join(format!("{number}.db"));
    let saved = match number {
        1 => Saved::founding(1, id(1)),
        _ => Saved::joining(Identity { cluster: 1, generation: 1, node: id(number) }),
    };
    drop(File::create(&path, &saved).expect("a new file"));
    let net = Arc::clone(nodes);
    let send = move |to, bytes| {
        if let Some(peer) = net.lock().expect("not poisoned").get(&to) {
            peer.deliver(id(number), bytes);
        }
    };
    let node = Embedded::start(&path, Settings::new(number.into()), send).expect("it starts");
    nodes.lock().expect("not poisoned").insert(id(number), node);
    let first = nodes.lock().expect("not poisoned")[&id(1)].store();
    if number > 1 {
        first.change_members(MemberChange::Add(id(number)), PATIENCE).wait().expect("it is added");
        first.change_members(MemberChange::Promote(id(number)), PATIENCE).wait().expect("it votes");
    }
}

/// The store of the leader, or of another node.
fn store(nodes: &Nodes, count: u16, leads: bool) -> Store {
    let stores: Vec<Store> =
        (1..=count).map(|it| nodes.lock().expect("not poisoned")[&id(it)].store()).collect();
    let until = Instant::now() + PAUSE_MAX;
    while Instant::now() < until {
        for store in &stores {
            let status = store.status(PATIENCE).wait().expect("it runs");
            let is_leader = status.leader == status.node.map(|node| u64::from(node.get()));
            if status.quorum && is_leader == leads {
                return store.clone();
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no leader");
}

const PAUSE_MAX: Duration = Duration::from_secs(10);

fn measure(name: &str, store: &Store) {
    let put = |number: u32| {
        let op_id = u128::from(rand()) << 64 | u128::from(rand());
        Transaction::new(op_id).put(&format!("vol/{}", number % 100), vec![b'x'; 500])
    };
    let timed = |call: &mut dyn FnMut(u32)| {
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|number| {
                let began = Instant::now();
                call(number);
                began.elapsed()
            })
            .collect();
        times.sort();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_micros();
        format!("p50 {} us, p99 {} us", at(0.5), at(0.99))
    };
    let writes = timed(&mut |number| {
        let outcome = store.cas(put(number), PATIENCE).wait();
        assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
    });
    let reads = timed(&mut |number| {
        store.get(&format!("vol/{}", number % 100), PATIENCE).wait().expect("it is read");
    });
    let began = Instant::now();
    for round in 0..20 {
        let calls: Vec<_> =
            (0..CROWD).map(|number| store.cas(put(round * CROWD + number), PATIENCE)).collect();
        calls.into_iter().for_each(|call| drop(call.wait().expect("it is committed")));
    }
    let rate = f64::from(20 * CROWD) / began.elapsed().as_secs_f64();
    println!("{name} transaction {writes}; read {reads}; {CROWD} at a time {rate:.0}/s");
}

fn rand() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
