//! The adapter to etcd, if Debian's `etcd` is installed (package etcd-server); otherwise a test reports that
//! it was skipped.

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cluster::etcd::{Access, Etcd, EtcdTrouble, Settings, StartError};
use cluster::{
    Error, Event, Everything, MemberChange, NodeId, Outcome, Revision, Status, Store, Transaction, Watch,
};
use e2e::ports;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::conformance::{SOON, op_id, suite};

/// An etcd of one member, which stops when this is dropped.
struct Server {
    child: Child,
    dir: TempDir,
    ports: [u16; 2],
    /// A record was created in it.
    begun: Cell<bool>,
}

impl Server {
    /// Starts it. `None`, after a message: it is not installed.
    fn start() -> Option<Server> {
        Server::start_with(|_| {})
    }

    /// Starts it with TLS, only for clients whose certificate its CA has signed.
    fn start_with_tls() -> Option<Server> {
        Server::start_with(|dir| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let authority = params.self_signed(&key).unwrap();
            let issuer = Issuer::new(params, key);
            fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
            for name in ["etcd", "node"] {
                let key = KeyPair::generate().unwrap();
                let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
                let certificate = params.signed_by(&key, &issuer).unwrap();
                fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
                fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
            }
        })
    }

    fn start_with(prepare: impl FnOnce(&Path)) -> Option<Server> {
        if !Path::new("/usr/bin/etcd").exists() {
            eprintln!("skipped: /usr/bin/etcd is missing (Debian package etcd-server)");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let ports = free_ports();
        let child = run(&dir, ports);
        let server = Server { child, dir, ports, begun: Cell::new(false) };
        server.wait();
        Some(server)
    }

    fn url(&self) -> String {
        let scheme = if has_tls(self.dir.path()) { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.ports[0])
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

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn settings(&self) -> Settings {
        let file = |name: &str| self.dir.path().join(name);
        let tls = has_tls(self.dir.path());
        let access = Access {
            endpoints: vec![self.url()],
            authorities: tls.then(|| file("ca.pem")),
            identity: tls.then(|| (file("node.pem"), file("node.key"))),
            user: file("password").exists().then(|| ("ursa".to_owned(), file("password"))),
        };
        Settings { access, prefix: "ursa/test/".to_owned() }
    }

    /// Starts one of our nodes; before the first one, the record is created.
    fn node(&self) -> Etcd {
        let settings = self.settings();
        if !self.begun.replace(true) {
            found(&settings).unwrap();
        }
        Etcd::start(&settings).unwrap()
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

/// Two free ports, for clients and for other members.
fn free_ports() -> [u16; 2] {
    [ports::free().port(), ports::free().port()]
}

fn has_tls(dir: &Path) -> bool {
    dir.join("ca.pem").exists()
}

fn run(dir: &TempDir, [client, peer]: [u16; 2]) -> Child {
    let tls = has_tls(dir.path());
    let scheme = if tls { "https" } else { "http" };
    let (client, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut etcd = Command::new("/usr/bin/etcd");
    if tls {
        let file = |name: &str| dir.path().join(name);
        etcd.arg("--client-cert-auth").arg("--trusted-ca-file").arg(file("ca.pem"));
        etcd.arg("--cert-file").arg(file("etcd.pem")).arg("--key-file").arg(file("etcd.key"));
    }
    etcd.arg("--data-dir").arg(dir.path().join("data"));
    etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    etcd.args(["--initial-cluster", &format!("default={peer}")]);
    etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits for a future that other threads complete.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let deadline = Instant::now() + SOON;
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        assert!(Instant::now() < deadline, "it does not end");
        sleep(Duration::from_millis(5));
    }
}

/// Creates a record. An etcd that does not answer in time, on a busy machine, is asked again.
fn found(settings: &Settings) -> Result<(), StartError> {
    let deadline = Instant::now() + SOON;
    loop {
        match wait_for(Etcd::found(settings)) {
            Err(error) if error.to_string().contains("timeout") && Instant::now() < deadline => {}
            done => return done,
        }
    }
}

/// The status, as soon as `is_so` holds.
fn status_when(etcd: &Etcd, is_so: impl Fn(&Status) -> bool) -> Status {
    let deadline = Instant::now() + SOON;
    loop {
        let status = etcd.status();
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        sleep(Duration::from_millis(50));
    }
}

/// Whether etcd has answered, but not as it must.
fn has_answered_wrongly(status: &Status) -> bool {
    let trouble = status.trouble.as_ref();
    trouble.is_some_and(|it| !matches!(it, EtcdTrouble::Silent | EtcdTrouble::Member { .. }))
}

/// Follows the watch until it has seen the revision, possibly in an event with everything.
fn follow_to(watch: &mut Watch, until: Revision) {
    while watch.wait(SOON).unwrap().expect("it is told").revision() < until {}
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
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
    let unreached = one.store().get("a", Duration::from_millis(500)).wait();
    assert_eq!(unreached, Err(Error::Etcd));
    let silent = status_when(&two, |status| !status.quorum);
    let Some(EtcdTrouble::Member { endpoint, .. }) = silent.trouble else { panic!("{silent:?}") };
    assert_eq!(endpoint, server.url());
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
    status_when(&two, |status| status.quorum);
    assert_eq!(known.entries["a"].value[..], b"9"[..]);
}

#[test]
fn a_watch_from_compacted_revisions_starts_over() {
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
fn an_etcd_that_was_emptied_or_set_back_is_not_followed() {
    let Some(mut server) = Server::start() else { return };
    let one = server.node();
    put(&one.store(), "a", "1");
    server.kill();
    let older = server.dir.path().join("older");
    copy(&server.data(), &older);
    server.restart();
    let known = put(&one.store(), "a", "2");
    status_when(&one, |status| status.revision == known);
    let mut watch = one.store().watch(known, SOON).wait().unwrap();
    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    server.restart();
    let emptied = status_when(&one, has_answered_wrongly);
    assert!(!emptied.quorum && emptied.revision == known, "{emptied:?}");
    assert_eq!(one.store().get("a", SOON).wait(), Err(Error::WrongEtcd));
    assert_eq!(one.store().cas(Transaction::new(op_id()).put("a", "3"), SOON).wait(), Err(Error::WrongEtcd));

    // A node that is new to an empty etcd finds that out, too, and nothing else.
    let late = Etcd::start(&server.settings()).unwrap();
    let missing = status_when(&late, has_answered_wrongly);
    assert_eq!(missing.trouble, Some(EtcdTrouble::Missing));
    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    copy(&older, &server.data());
    server.restart();
    status_when(&late, |status| status.quorum);
    let older = one.status();
    assert!(matches!(older.trouble, Some(EtcdTrouble::Older { .. })), "{older:?}");
    // The record grows beyond what was seen, and is still another one.
    for _ in 0..5 {
        put(&late.store(), "a", "4");
    }
    sleep(Duration::from_secs(1));
    assert!(!one.status().quorum && one.status().revision == known);
    assert_eq!(watch.wait(Duration::ZERO), Ok(None), "nobody was told of any of this");
    assert_eq!(one.store().cas(Transaction::new(op_id()).put("b", "1"), SOON).wait(), Err(Error::WrongEtcd));
    assert_eq!(late.store().get("b", SOON).wait(), Ok(None), "who knows better writes nothing there");
}

/// Replaces the content of etcd by an older copy while a node runs; returns what the node reports.
///
/// At other ports the copy first gets `other` writes of a key that is not the record's, then `late` changes
/// by another node.
fn replaced_meanwhile(other: usize, late: usize) -> Option<EtcdTrouble> {
    let mut server = Server::start()?;
    let one = server.node();
    put(&one.store(), "a", "1");
    server.kill();
    let older = server.dir.path().join("older");
    copy(&server.data(), &older);
    server.restart();
    for value in ["2", "3"] {
        put(&one.store(), "a", value);
    }
    let known = put(&one.store(), "a", "4");
    status_when(&one, |status| status.revision == known);
    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    copy(&older, &server.data());

    let here = server.ports;
    server.ports = free_ports();
    server.restart();
    server.wait();
    for number in 0..other {
        server.ask("kv/put", &format!(r#"{{"key":"b3RoZXI=","value":"{number:04}"}}"#));
    }
    let other = server.node();
    for _ in 0..late {
        put(&other.store(), "a", "5");
    }
    drop(other);
    server.kill();
    server.ports = here;
    server.restart();
    let status = status_when(&one, has_answered_wrongly);
    assert_eq!(status.revision, known, "nothing of it was followed");
    assert_eq!(one.store().cas(Transaction::new(op_id()).put("b", "1"), SOON).wait(), Err(Error::WrongEtcd));
    status.trouble
}

#[test]
fn an_older_record_is_not_followed_whatever_became_of_it() {
    // Fewer changes than were seen, as many, and more; at other revisions, and at exactly the node's own.
    for (other, late) in [(20, 0), (20, 3), (20, 8), (0, 3), (0, 8)] {
        let Some(trouble) = replaced_meanwhile(other, late) else { return };
        assert!(matches!(trouble, EtcdTrouble::Older { .. }), "{other} and {late}: {trouble}");
    }
}

#[test]
fn another_etcd_is_not_followed() {
    let Some(mut server) = Server::start() else { return };
    let one = server.node();
    let known = put(&one.store(), "a", "1");
    status_when(&one, |status| status.revision == known);
    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    // The cluster's ID depends on the addresses of its members.
    server.ports[1] = free_ports()[1];
    server.restart();
    server.wait();
    server.begun.set(false);
    let other = server.node();
    for _ in 0..5 {
        put(&other.store(), "a", "2");
    }
    let status = status_when(&one, |status| status.trouble == Some(EtcdTrouble::Another));
    assert_eq!(status.revision, known);
    assert_eq!(one.store().get("a", SOON).wait(), Err(Error::WrongEtcd));
}

/// A proxy that passes requests to `to`, but returns no reports of changes.
fn deaf_proxy(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().map(Result::unwrap) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let deaf = Arc::new(AtomicBool::new(false));
            let pass = |mut from: TcpStream, mut to: TcpStream, asks: bool, deaf: Arc<AtomicBool>| {
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 65536];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        let watches = bytes[..read].windows(9).any(|it| it == b"/v3/watch");
                        deaf.fetch_or(asks && watches, Ordering::Relaxed);
                        if (asks || !deaf.load(Ordering::Relaxed)) && to.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                })
            };
            let copies = (client.try_clone().unwrap(), server.try_clone().unwrap());
            pass(client, server, true, Arc::clone(&deaf));
            pass(copies.1, copies.0, false, deaf);
        }
    });
    port
}

#[test]
fn unreported_changes_are_polled() {
    let Some(server) = Server::start() else { return };
    let writer = server.node();
    put(&writer.store(), "a", "1");
    let mut settings = server.settings();
    settings.access.endpoints = vec![format!("http://127.0.0.1:{}", deaf_proxy(server.ports[0]))];
    let node = Etcd::start(&settings).unwrap();
    let mut watch = node.store().watch(Revision(0), SOON).wait().unwrap();
    for value in ["2", "3"] {
        follow_to(&mut watch, put(&writer.store(), "a", value));
    }
}

#[test]
fn by_tls_both_sides_show_a_certificate() {
    let Some(server) = Server::start_with_tls() else { return };
    let node = server.node();
    let made = put(&node.store(), "a", "1");
    let mut watch = node.store().watch(Revision(0), SOON).wait().unwrap();
    follow_to(&mut watch, made);

    // etcd refuses a client without a certificate, and a client refuses an etcd whose certificate has an
    // unknown CA.
    let mut settings = server.settings();
    settings.access.identity = None;
    let unknown = found(&settings).unwrap_err();
    let StartError::Refused(EtcdTrouble::Member { endpoint, .. }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(endpoint, server.url());
    settings = server.settings();
    settings.access.authorities = Some(server.dir.path().join("node.pem"));
    let stranger = found(&settings).unwrap_err().to_string();
    assert!(stranger.contains("certificate"), "{stranger}");
    settings.access.authorities = Some(server.dir.path().join("node.key"));
    assert!(matches!(Etcd::start(&settings), Err(StartError::Authorities(_))));
}

/// A node deletes the record of a cluster that it could not create after all.
#[test]
fn a_deleted_record_leaves_nothing_and_another_one_stays() {
    let Some(server) = Server::start() else { return };
    let node = server.node();
    put(&node.store(), "a", "1");
    let other = Settings { prefix: "ursa/other/".to_owned(), ..server.settings() };
    found(&other).unwrap();
    drop(node);
    wait_for(Etcd::delete(&server.settings())).unwrap();
    // All keys from "ursa/" to "ursa0".
    let range = r#"{"key":"dXJzYS8=","range_end":"dXJzYTA=","count_only":true}"#;
    let mut answer = ureq::post(format!("{}/v3/kv/range", server.url())).send(range).unwrap();
    let answer = answer.body_mut().read_to_string().unwrap();
    assert!(answer.contains(r#""count":"1""#), "the other record's version: {answer}");
}

#[test]
fn a_user_proves_to_be_it_by_a_password() {
    let Some(mut server) = Server::start() else { return };
    let user = |name: &str, password: &str| format!(r#"{{"name":"{name}","password":"{password}"}}"#);
    server.ask("auth/user/add", &user("root", "r"));
    server.ask("auth/user/add", &user("ursa", "secret"));
    // Permission for the keys from "ursa/" to "ursa0", and no others.
    server.ask("auth/role/add", r#"{"name":"ursa"}"#);
    let keys = r#"{"permType":"READWRITE","key":"dXJzYS8=","range_end":"dXJzYTA="}"#;
    server.ask("auth/role/grant", &format!(r#"{{"name":"ursa","perm":{keys}}}"#));
    server.ask("auth/role/add", r#"{"name":"root"}"#);
    server.ask("auth/user/grant", r#"{"user":"root","role":"root"}"#);
    server.ask("auth/user/grant", r#"{"user":"ursa","role":"ursa"}"#);
    server.ask("auth/enable", "{}");
    let nobody = found(&server.settings()).unwrap_err().to_string();
    assert!(nobody.contains("user name is empty"), "{nobody}");
    fs::write(server.dir.path().join("password"), "wrong\n").unwrap();
    let wrong = found(&server.settings()).unwrap_err().to_string();
    assert!(wrong.contains("authentication failed"), "{wrong}");
    fs::write(server.dir.path().join("password"), "secret\n").unwrap();
    let node = server.node();
    let first = put(&node.store(), "a", "1");
    let mut watch = node.store().watch(Revision(0), SOON).wait().unwrap();
    follow_to(&mut watch, first);
    // After its restart etcd no longer knows the user's token.
    server.kill();
    server.restart();
    let second = put(&node.store(), "a", "2");
    follow_to(&mut watch, second);
}

#[test]
fn invalid_settings_are_reported_at_once() {
    let settings = |endpoint: &str, prefix: &str| {
        let access = Access { endpoints: vec![endpoint.to_owned()], ..Access::default() };
        Settings { access, prefix: prefix.to_owned() }
    };
    let start = |endpoint: &str, prefix: &str| {
        Etcd::start(&settings(endpoint, prefix)).err().map(|error| error.to_string())
    };
    assert!(start("127.0.0.1:2379", "ursa/").unwrap().contains("endpoints"));
    assert!(start("https://127.0.0.1:2379", "ursa/").unwrap().contains("etcd-ca"));
    assert!(start("http://127.0.0.1:2379", "ursa").unwrap().contains("prefix"));
    let store = Etcd::start(&settings("http://127.0.0.1:1", "u/")).unwrap();
    let short = Duration::from_millis(300);
    let change = store.store().cas(Transaction::new(1).put("a", "x"), short).wait();
    assert_eq!(change, Err(Error::Etcd));
    // A watch can start before etcd is available.
    let mut watch = store.store().watch(Revision(0), Duration::ZERO).wait().unwrap();
    assert_eq!(watch.wait(short), Ok(None));
    drop(store);
    assert_eq!(watch.wait(SOON), Err(Error::Stopped));
}
