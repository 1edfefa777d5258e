//! The adapter to etcd, if Debian's `etcd` is installed (package etcd-server); else a test says that it was skipped.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cluster::etcd::{Etcd, Settings};
use cluster::{Error, Event, Everything, MemberChange, NodeId, Outcome, Revision, Store, Transaction};
use tempfile::TempDir;

use crate::conformance::{SOON, op_id, suite};

/// An etcd of one member, which ends with this.
struct Server {
    child: Child,
    dir: TempDir,
    ports: [u16; 2],
}

impl Server {
    /// `None`, and a line: it is not installed.
    fn start() -> Option<Server> {
        if !Path::new("/usr/bin/etcd").exists() {
            eprintln!("skipped: /usr/bin/etcd is missing (Debian package etcd-server)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (client, peer) = (free(), free());
        let ports = [client, peer].map(|it| it.local_addr().unwrap().port());
        let child = run(&dir, ports);
        let server = Server { child, dir, ports };
        server.wait();
        Some(server)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    fn wait(&self) {
        let deadline = Instant::now() + SOON;
        while std::net::TcpStream::connect(("127.0.0.1", self.ports[0])).is_err() {
            assert!(Instant::now() < deadline, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = run(&self.dir, self.ports);
    }

    /// A node of ours.
    fn node(&self) -> Etcd {
        Etcd::start(&Settings { endpoints: vec![self.url()], prefix: "ursa/test/".to_owned() }).unwrap()
    }

    fn ask(&self, path: &str, body: &str) {
        let answer = ureq::post(format!("{}/v3/{path}", self.url())).send(body).unwrap();
        assert!(answer.status().is_success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(dir: &TempDir, [client, peer]: [u16; 2]) -> Child {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut etcd = Command::new("/usr/bin/etcd");
    etcd.arg("--data-dir").arg(dir.path().join("data"));
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn put(store: &Store, key: &str, value: &str) -> Revision {
    match store.cas(Transaction::new(op_id()).put(key, value), SOON).wait() {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("not committed: {other:?}"),
    }
}

#[test]
fn etcd_conforms() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (server.node(), server.node());
    suite(&one.store(), &two.store(), "etcd");
    let change = MemberChange::Add(NodeId::new(2).unwrap());
    assert_eq!(one.store().change_members(change, SOON).wait(), Err(Error::Foreign));
    let store = one.store();
    drop(one);
    assert_eq!(store.get("a", SOON).wait(), Err(Error::Stopped));
}

#[test]
fn a_conflict_stays_one_though_it_is_sent_again() {
    let Some(server) = Server::start() else { return };
    let node = server.node();
    let store = node.store();
    let first = put(&store, "a", "1");
    let absent = Transaction::new(op_id()).expect("a", None).put("a", "2");
    let conflict = Outcome::Conflict { key: "a".to_owned(), found: Some(first) };
    assert_eq!(store.cas(absent.clone(), SOON).wait(), Ok(conflict));
    store.cas(Transaction::new(op_id()).delete("a"), SOON).wait().unwrap();
    let again = store.cas(absent, SOON).wait();
    assert_eq!(again, Ok(Outcome::Conflict { key: "a".to_owned(), found: None }), "now it would hold");
    assert_eq!(store.get("a", SOON).wait(), Ok(None));
}

#[test]
fn watches_skip_nothing_when_etcd_restarts() {
    let Some(mut server) = Server::start() else { return };
    let (one, two) = (server.node(), server.node());
    let mut known = one.store().list("", SOON).wait().unwrap();
    let mut watch = two.store().watch(known.revision, SOON).wait().unwrap();
    let mut made = vec![put(&one.store(), "a", "1")];
    server.kill();
    let began = Instant::now();
    let unreached = one.store().get("a", Duration::from_millis(500)).wait();
    assert!(matches!(unreached, Err(Error::NoLeader | Error::NoQuorum)), "{unreached:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "at its deadline");
    let waits = one.store().cas(Transaction::new(op_id()).put("a", "2"), SOON);
    server.restart();
    match waits.wait() {
        Ok(Outcome::Committed(revision)) => made.push(revision),
        other => panic!("not committed when etcd was back: {other:?}"),
    }
    made.extend((3..10).map(|number| put(&one.store(), "a", &number.to_string())));
    let mut seen = Vec::new();
    let deadline = Instant::now() + SOON;
    while seen.len() < made.len() {
        assert!(Instant::now() < deadline, "{seen:?} of {made:?}");
        match watch.wait(Duration::from_millis(100)).unwrap() {
            Some(Event::Change(change)) => {
                seen.push(change.revision);
                known.change(&change);
            }
            Some(other) => panic!("nothing was dropped: {other:?}"),
            None => {}
        }
    }
    assert_eq!(seen, made);
    assert_eq!(known.entries["a"].value[..], b"9"[..]);
}

#[test]
fn what_etcd_has_dropped_is_a_new_start() {
    let Some(server) = Server::start() else { return };
    let writer = server.node();
    let revisions: Vec<Revision> =
        (0..5).map(|number| put(&writer.store(), "a", &number.to_string())).collect();
    server.ask("kv/compaction", &format!("{{\"revision\":\"{}\"}}", revisions[3].0));
    let late = server.node();
    let mut watch = late.store().watch(revisions[0], SOON).wait().unwrap();
    let event = watch.wait(SOON).unwrap().unwrap();
    let Event::Everything(all) = event else { panic!("{event:?}") };
    assert_eq!(*all, Everything { revision: revisions[4], ..writer.store().list("", SOON).wait().unwrap() });
    let next = put(&writer.store(), "b", "x");
    assert_eq!(watch.wait(SOON).unwrap().map(|event| event.revision()), Some(next));
}

#[test]
fn settings_that_cannot_be_are_said_at_once() {
    let start = |endpoint: &str, prefix: &str| {
        let endpoints = vec![endpoint.to_owned()];
        Etcd::start(&Settings { endpoints, prefix: prefix.to_owned() }).err().map(|error| error.to_string())
    };
    assert!(start("127.0.0.1:2379", "ursa/").unwrap().contains("endpoints"));
    assert!(start("http://127.0.0.1:2379", "ursa").unwrap().contains("prefix"));
    let nobody =
        Etcd::start(&Settings { endpoints: vec!["http://127.0.0.1:1".to_owned()], prefix: "u/".to_owned() });
    let store = nobody.unwrap();
    let short = Duration::from_millis(300);
    let change = store.store().cas(Transaction::new(1).put("a", "x"), short).wait();
    assert_eq!(change, Err(Error::NoLeader));
    assert!(matches!(store.store().watch(Revision(0), Duration::ZERO).wait(), Err(Error::NoLeader)));
}
