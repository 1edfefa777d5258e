//! A session belongs to one initiator: several host groups on one target, and initiators that use each
//! other's names.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use e2e::raw::{Login, Raw, connect_from};
use e2e::{Export, Node, VolumeSpec, pattern};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const ISID: u32 = 0x4000;
const NAME: &str = "iqn.2026-11.e2e:victim";
const OWN: (&str, &str) = ("own", "the secret of own");
const OTHER: (&str, &str) = ("other", "the secret of other");
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A node with a volume for initiators with the secret of "own" that come from 127.0.0.1.
///
/// On the same target there is one for initiators with the secret of "other", and one for all if `open`.
fn node(open: bool) -> (Node, Export) {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("own", 16 * MIB).chap(OWN.0, OWN.1));
    node.ursa(&["host", "set", "own-users", "--address", "127.0.0.1"]).expect_ok();
    let second = match open {
        true => VolumeSpec::new("second", 16 * MIB),
        false => VolumeSpec::new("second", 16 * MIB).chap(OTHER.0, OTHER.1),
    };
    node.create(&second);
    let (host, lun) = if open { ("any", "7") } else { ("second-users", "0") };
    node.ursa(&["map", "create", &export.target, "second", "--host", host, "--lun", lun]).expect_ok();
    (node, export)
}

fn victim(export: &Export) -> Raw {
    let login = Login { initiator: NAME, chap: Some(OWN), connections_max: 4, ..Login::default() };
    let mut raw = Raw::login_with(export, 0, ISID, login).expect("it may log in");
    raw.wait_until_ready().expect("the unit gets ready");
    raw.write(0, 8, &pattern::stamped(1, 1, 0, 4096), false).expect("a write");
    raw
}

/// The status that refuses a login in the victim's name; a login that succeeds returns what it can read.
fn status(export: &Export, login: Login) -> String {
    match Raw::login_with(export, 0, ISID, Login { initiator: NAME, ..login }) {
        Err(error) => error.to_string().chars().take("login: status 0x0000".len()).collect(),
        Ok(mut raw) => {
            let _ = raw.wait_until_ready();
            let read = raw.read(0, 8, 4096);
            panic!("it got in and reads {:?}", read.map(|data| data == pattern::stamped(1, 1, 0, 4096)));
        }
    }
}

/// Waits for `count` events with this code; returns their causes.
fn told(node: &Node, code: &str, count: usize) -> Vec<String> {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let events = node.ursa_json(&["events"]);
        let events = events.as_array().or_else(|| events["items"].as_array()).expect("a list of events");
        let is_meant = |event: &&Value| event["code"] == code;
        let causes: Vec<String> = events
            .iter()
            .filter(is_meant)
            .map(|event| event["cause"].as_str().unwrap_or_default().to_owned())
            .collect();
        if causes.len() >= count {
            return causes;
        }
        assert!(Instant::now() < limit, "{code} was told {} times: {causes:?}", causes.len());
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn another_secret_gives_no_part_in_a_session() {
    let (node, export) = node(false);
    let mut victim = victim(&export);
    let tsih = victim.tsih();
    let with_other = Login { chap: Some(OTHER), ..Login::default() };
    assert_eq!(
        status(&export, Login { tsih, cid: 1, ..with_other }),
        "login: status 0x0201",
        "another connection"
    );
    assert_eq!(
        status(&export, Login { tsih, cid: 0, ..with_other }),
        "login: status 0x0201",
        "its only connection"
    );
    assert_eq!(status(&export, with_other), "login: status 0x0201", "in its place");
    assert_eq!(status(&export, Login { tsih: tsih ^ 1, ..with_other }), "login: status 0x020a", "a guess");
    // The session has not noticed.
    assert!(victim.read(0, 8, 4096).expect("a read") == pattern::stamped(1, 1, 0, 4096));
    assert_eq!(told(&node, "join_refused", 4), ["secret", "secret", "secret", "no_such_session"]);
    // With its own secret it may do all of that.
    let own = Login { initiator: NAME, chap: Some(OWN), ..Login::default() };
    let mut joined = victim.join_with(&export, 0, Login { cid: 1, ..own }).expect("it may join");
    assert!(joined.read(0, 8, 4096).expect("a read") == pattern::stamped(1, 1, 0, 4096));
    let mut again = Raw::login_with(&export, 0, ISID, own).expect("it may log in again");
    again.wait_until_ready().expect("the unit gets ready");
    victim.wait_for_close().expect("its new session has taken its place");
    assert_eq!(told(&node, "connection_added", 1).len(), 1);
    assert!(told(&node, "session_opened", 2).contains(&"reinstated".to_owned()));
}

#[test]
fn another_address_and_no_secret_give_no_part_in_a_session() {
    let (node, export) = node(true);
    let mut victim = victim(&export);
    let tsih = victim.tsih();
    let elsewhere = Login { from: Some(ELSEWHERE), ..Login::default() };
    assert_eq!(
        status(&export, Login { tsih, cid: 1, ..elsewhere }),
        "login: status 0x0202",
        "another connection"
    );
    assert_eq!(
        status(&export, Login { tsih, cid: 0, ..elsewhere }),
        "login: status 0x0202",
        "its only connection"
    );
    assert_eq!(status(&export, elsewhere), "login: status 0x0202", "in its place");
    assert!(victim.read(0, 8, 4096).expect("a read") == pattern::stamped(1, 1, 0, 4096));
    assert_eq!(told(&node, "join_refused", 3), ["address", "address", "address"]);
}

#[test]
fn session_numbers_cannot_be_counted_up() {
    let (_node, export) = node(false);
    let login = |isid| {
        let login = Login { initiator: NAME, chap: Some(OWN), ..Login::default() };
        Raw::login_with(&export, 0, isid, login).expect("it may log in")
    };
    let sessions: Vec<Raw> = (0..6).map(|n| login(ISID + n)).collect();
    let steps = sessions.windows(2).filter(|pair| pair[1].tsih().wrapping_sub(pair[0].tsih()) < 16);
    assert!(steps.count() < 3, "{:?}", sessions.iter().map(Raw::tsih).collect::<Vec<_>>());
}

/// Two addresses of this machine hold as many silent connections as there are places, and more.
#[test]
fn silent_connections_keep_nobody_from_logging_in() {
    let (node, export) = node(false);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the maximum");
    let log_in = || {
        let mut silent = Vec::new();
        for n in 0..4800_u16 {
            let from = Ipv4Addr::new(127, 0, 0, if n % 3 == 0 { 3 } else { 2 });
            silent.push(connect_from(from, export.portals[0]).expect("the portal accepts"));
        }
        let began = Instant::now();
        let mut host = victim(&export);
        let took = began.elapsed();
        println!("the login took {took:?}");
        assert!(host.read(0, 8, 4096).is_ok());
        took
    };
    // A node closes a connection whose login takes 15 seconds; hosts must not wait for that. On a busy
    // machine any login may take longer, so the fastest counts.
    assert!((0..3).any(|_| log_in() < Duration::from_secs(8)), "hosts wait for silent connections");
    assert!(!told(&node, "logins_crowded", 1).is_empty());
}
