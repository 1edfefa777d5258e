//! Two nodes whose cluster has its record in a site's etcd: Debian's, with one member, on loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use e2e::pattern;
use e2e::{Export, Node, ports};
use tempfile::TempDir;

use crate::cluster::{
    BLOCK, BLOCKS, STALL_MAX, TARGET, first_sector, init, join, ready, token, wait, wait_until_in_sync,
};

/// From Debian's package etcd-server.
const PROGRAM: &str = "/usr/bin/etcd";
/// Between two acknowledged writes, while etcd is away or returns. On an idle machine it is milliseconds.
const HICCUP_MAX: Duration = Duration::from_secs(4);
/// Until a node shows what it detects automatically.
const LIMIT: Duration = Duration::from_secs(20);
/// A call that needs etcd ends after five seconds without it.
const REFUSAL_MAX: Duration = Duration::from_secs(15);

/// An etcd with one member. Dropping it ends the process.
pub struct Etcd {
    child: Child,
    client: SocketAddr,
    peer: SocketAddr,
    data: TempDir,
}

impl Etcd {
    /// Starts an etcd. `None` if it is not installed: `./test` reports that at its end, and fails with
    /// `--all`.
    pub fn start() -> Option<Etcd> {
        if !Path::new(PROGRAM).exists() {
            println!("skipped: {PROGRAM} is missing (Debian package etcd-server)");
            return None;
        }
        let data = TempDir::new().expect("a temporary directory can be made");
        let (client, peer) = (ports::free(), ports::free());
        let child = Etcd::spawn(&data, client, peer);
        let etcd = Etcd { child, client, peer, data };
        etcd.wait();
        Some(etcd)
    }

    fn spawn(data: &TempDir, client: SocketAddr, peer: SocketAddr) -> Child {
        let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
        let mut etcd = Command::new(PROGRAM);
        etcd.arg("--data-dir").arg(data.path().join("data"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}")]);
        let child = etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.expect("etcd can be started")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    fn wait(&self) {
        wait(LIMIT, "etcd", || TcpStream::connect(self.client).is_ok());
    }

    /// Makes it refuse changes, or accept them again, by its alarm CORRUPT.
    ///
    /// It continues to answer reads, as an etcd does whose members differ. The alarm NOSPACE would not affect
    /// our changes: version 3.4 does not count operations in a transaction within a transaction.
    pub fn refuse_changes(&self, refuse: bool) {
        let action = if refuse { "ACTIVATE" } else { "DEACTIVATE" };
        let body = format!(r#"{{"action":"{action}","alarm":"CORRUPT"}}"#);
        let head = format!(
            "POST /v3/maintenance/alarm HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            self.client,
            body.len()
        );
        let mut stream = TcpStream::connect(self.client).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("it can be limited");
        stream.write_all((head + &body).as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer ends");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it can be waited for");
    }

    fn restart(&mut self) {
        self.child = Etcd::spawn(&self.data, self.client, self.peer);
        self.wait();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host that writes one block after the other, until it is told to stop.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Writer {
    fn start(export: Export) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let write = move || {
            let mut raw = ready(&export);
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            for number in 1.. {
                let sector = first_sector(number % BLOCKS);
                let data = pattern::stamped(1, number, sector, BLOCK);
                while raw.write(sector, 8, &data, false).is_err() {
                    raw = ready(&export);
                }
                longest = longest.max(last.elapsed());
                last = Instant::now();
                if told.load(Ordering::Relaxed) {
                    return (number, longest);
                }
            }
            unreachable!("it writes until it is told to stop")
        };
        Writer { stop, thread: thread::spawn(write) }
    }

    /// Stops; returns how many blocks were written, and the longest time between two acknowledgments.
    fn stop(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

fn through(node: &Node) -> Export {
    Export { portals: node.portals().to_vec(), target: TARGET.to_owned(), lun: 0, chap: None }
}

fn says(node: &Node, code: &str) -> bool {
    let events = node.ursa_json(&["events", "--limit", "500"]);
    events.to_string().contains(&format!("\"{code}\""))
}

fn refusal(node: &Node, arguments: &[&str]) -> String {
    let refused = node.ursa(arguments);
    assert!(!refused.ok(), "{arguments:?} is refused");
    refused.output
}

/// Two nodes of a cluster that has its record in etcd from the start.
pub fn cluster_of_two(etcd: &Etcd) -> [Node; 2] {
    let url = etcd.url();
    let start = || Node::start_with(&["--etcd", &url]);
    let nodes = [start(), start()];
    init(&nodes[0]);
    join(&nodes[0], &nodes[1]);
    wait(LIMIT, "two nodes", || nodes.iter().all(both_up));
    nodes
}

/// With etcd no node has a vote.
fn both_up(node: &Node) -> bool {
    let list = node.ursa_json(&["node", "list"]);
    let list = list.as_array().expect("a list");
    list.len() == 2 && list.iter().all(|node| node["up"] == true && node["votes"] == false)
}

#[test]
fn a_cluster_has_its_record_in_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let url = etcd.url();
    let with_etcd = ["--etcd", url.as_str()];
    let mut nodes = [Node::start_with(&with_etcd), Node::start()];
    let listen = [ports::free().to_string(), ports::free().to_string()];
    let made = nodes[0].ursa(&["node", "init", "--listen", &listen[0]]).expect_ok();
    assert!(made.contains(&format!("record is in etcd ({url})")), "{made}");

    // A node that has its record elsewhere cannot join, and the token is still valid once its settings are
    // corrected.
    let token = token(&nodes[0]);
    let join = ["node", "join", &token, "--listen", &listen[1]];
    let elsewhere = refusal(&nodes[1], &join);
    assert!(elsewhere.contains("set `etcd` on the joining node"), "{elsewhere}");
    nodes[1].stop();
    nodes[1].set(&with_etcd);
    nodes[1].restart();
    let witness = refusal(&nodes[1], &[&join[..], &["--witness"]].concat());
    assert!(witness.contains("a witness is not needed"), "{witness}");
    nodes[1].ursa(&join).expect_ok();
    wait(LIMIT, "two nodes", || nodes.iter().all(both_up));
    for (command, said) in [
        (&["node", "prefer", "1"][..], "no preferred node is needed"),
        (&["node", "force-new-cluster", "--yes"], "a node cannot be forced into a new cluster"),
    ] {
        let text = refusal(&nodes[0], command);
        assert!(text.contains(said), "{text}");
    }

    let create = ["volume", "create", "db", "--size", "64M", "--copies", "2", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    let losses = |node: &Node| node.ursa_json(&["volume", "show", "db"])["losses"].to_string();
    assert_eq!(
        losses(&nodes[0]).matches("still available, after a pause of about a second").count(),
        2,
        "{}",
        losses(&nodes[0])
    );
    let shown = nodes[0].ursa(&["volume", "show", "db"]).expect_ok();
    assert!(
        shown.contains("etcd, which keeps the cluster's record, decides which nodes continue"),
        "{shown}"
    );

    etcd_is_away(&mut etcd, &nodes);
    a_node_is_killed(&mut nodes);

    // Settings that do not match the cluster.
    nodes[1].stop();
    nodes[1].set(&[]);
    nodes[1].restart();
    let said = problems(&nodes[1]);
    assert!(said.contains("this node's cluster keeps its record in etcd, but `etcd` is not set"), "{said}");
    nodes[1].stop();
    let mut alone = Node::start();
    init(&alone);
    alone.stop();
    alone.set(&with_etcd);
    alone.restart();
    let said = problems(&alone);
    assert!(said.contains("keeps its record in its nodes, but `etcd` is set"), "{said}");

    nodes[0].ursa(&["volume", "copy", "remove", "db", "--on", "2", "--yes"]).expect_ok();
    nodes[0].ursa(&["node", "remove", "2", "--yes"]).expect_ok();
    assert_eq!(nodes[0].ursa_json(&["node", "list"]).as_array().map(Vec::len), Some(1));
}

/// The output of `ursa status`, whatever its exit code.
fn problems(node: &Node) -> String {
    node.ursa(&["status"]).output
}

/// Hosts notice nothing; changes fail with an error, and the status reports the problem.
fn etcd_is_away(etcd: &mut Etcd, nodes: &[Node; 2]) {
    let writer = Writer::start(through(&nodes[0]));
    thread::sleep(Duration::from_millis(500));
    etcd.kill();
    let status = |node: &Node| node.ursa(&["status"]).stdout;
    wait(LIMIT, "the words about etcd", || nodes.iter().all(|node| status(node).contains("cannot be used")));
    wait(LIMIT, "the event", || says(&nodes[0], "record_lost"));
    assert!(nodes[0].metrics().contains("\nursa_cluster_record_up 0"), "its metrics say so");
    let began = Instant::now();
    let text = refusal(&nodes[0], &["host", "create", "h1", "--initiator", "iqn.2026-11.io.ursa:h1"]);
    assert!(text.contains("etcd, which holds the cluster's record, did not respond"), "{text}");
    assert!(began.elapsed() < REFUSAL_MAX, "after {:?}", began.elapsed());
    let shown = nodes[0].ursa_json(&["volume", "show", "db"]);
    assert!(shown["losses"].to_string().contains("or etcd is available again"), "{shown}");

    etcd.restart();
    let made =
        |node: &Node| node.ursa(&["host", "create", "h2", "--initiator", "iqn.2026-11.io.ursa:h2"]).ok();
    wait(LIMIT, "a change", || made(&nodes[0]));
    wait(LIMIT, "the other node knows", || {
        nodes[1].ursa_json(&["host", "list"]).to_string().contains("\"h2\"")
    });
    wait(LIMIT, "the event", || says(&nodes[0], "record_returned"));
    let (written, longest) = writer.stop();
    println!("etcd away and back: {written} writes, the longest pause was {longest:?}");
    assert!(longest < HICCUP_MAX, "a pause of {longest:?}");
}

/// The other node continues, and a partial resync suffices when this one is back.
fn a_node_is_killed(nodes: &mut [Node; 2]) {
    let writer = Writer::start(through(&nodes[0]));
    thread::sleep(Duration::from_millis(500));
    nodes[1].kill();
    thread::sleep(Duration::from_secs(3));
    let (written, longest) = writer.stop();
    println!("a node was killed: {written} writes, the longest pause was {longest:?}");
    assert!(longest < STALL_MAX, "a pause of {longest:?}");
    nodes[1].restart();
    let back = Instant::now();
    wait_until_in_sync(&nodes[0], "db");
    println!("in sync {:?} after the restart", back.elapsed());
    let metrics = nodes[0].metrics();
    let synced = metrics.lines().find(|line| line.starts_with("ursa_copy_resynced_bytes_total{"));
    let synced = synced.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    let synced = synced.expect("it was synced");
    assert!(synced > 0.0 && synced < f64::from(32 << 20), "{synced} bytes of 64 MiB were given");
    let found = nodes[0].ursa_json(&["volume", "verify", "db"]);
    assert_eq!(found["equal"], true, "{found}");
}
