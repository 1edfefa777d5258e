//! A thousand volumes on a node: one volume per virtual machine is normal.

use std::time::{Duration, Instant};

use e2e::Export;
use e2e::raw::Raw;

use crate::node::Node;

const VOLUMES: usize = 1000;
/// The middle eight hundred volumes share targets, with this many each: a target has at most 256 LUNs.
const SHELF: usize = 200;
/// The process's memory limit with a hundred volumes, in bytes, without the pages of its binary.
const RESIDENT_MAX: u64 = 70_000_000;
/// How often the login is measured; the fastest counts.
const LOGINS: u32 = 5;
/// Limit for a login until the initiator knows its LUNs.
const LOGIN_MAX: Duration = Duration::from_secs(1);
/// How long the node gets no requests, and how often.
///
/// The period with the least CPU time counts, since background work may remain.
const IDLE: Duration = Duration::from_secs(2);
const IDLES: usize = 10;
/// An idle node may use this fraction of a processor: 1/20, 5 %.
const IDLE_PART: u32 = 20;
/// How often the list is requested.
const LISTS: u32 = 5;
/// Limit for the node's CPU time of one list from the API, on average; a test build takes 23 to 33 ms.
const LIST_CPU_MAX: Duration = Duration::from_millis(200);
/// Limit for the fastest list. Other programs may slow it down: this only finds a list that waits for
/// something.
const LIST_MAX: Duration = Duration::from_secs(2);

fn timed<T>(what: &str, act: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = act();
    let took = start.elapsed();
    println!("{what}: {took:.2?}");
    (result, took)
}

/// The target of a volume: its own, or a shared one.
fn target_of(number: usize) -> String {
    let tenth = VOLUMES / 10;
    match (tenth..VOLUMES - tenth).contains(&number) {
        true => format!("iqn.2026-11.io.ursa:shelf-{}", (number - tenth) / SHELF),
        false => format!("iqn.2026-11.io.ursa:vm-{number:04}"),
    }
}

/// Logs in to the target of this volume; returns the number of its LUNs.
fn log_in(node: &Node, volume: usize, isid: u32) -> usize {
    const LIST_BYTES: usize = 8 + 256 * 8;
    let export = Export { portals: vec![node.portal], target: target_of(volume), lun: 0, chap: None };
    let mut raw = Raw::login(&export, 0, isid).unwrap();
    let mut report_luns = [0; 16];
    report_luns[0] = 0xa0;
    report_luns[6..10].copy_from_slice(&(LIST_BYTES as u32).to_be_bytes());
    let list = raw.execute(report_luns, LIST_BYTES, &[]).unwrap();
    assert_eq!(raw.logout(None).unwrap(), 0);
    u32::from_be_bytes(*list.first_chunk().unwrap()) as usize / 8
}

/// Creating the thousandth volume costs little more than creating the first, and limits hold with all of
/// them.
///
/// The API lists them with 200 ms of CPU time; a login takes less than a second, for a target with one of
/// them or two hundred; an idle node uses almost no CPU time. All times are printed (`--nocapture`), and are
/// far below the limits.
#[test]
fn a_thousand_volumes() {
    let node = Node::start(&[]);
    let client = api::Client::new(&format!("http://{}", node.api));
    let create = |from: usize, to: usize| {
        for number in from..to {
            let volume = api::VolumeCreate::new(format!("vm-{number:04}"), 4 << 20);
            let volume = api::VolumeCreate { target: Some(target_of(number)), ..volume };
            client.create_volume(&volume).unwrap();
        }
    };
    let tenth = VOLUMES / 10;
    let cpu_of = |what: &str, act: &dyn Fn()| {
        let before = node.cpu();
        timed(what, act);
        node.cpu() - before
    };
    let first = cpu_of("the first hundred", &|| create(0, tenth));
    let resident = node.resident_bytes();
    println!("resident with a hundred: {} MiB", resident >> 20);
    assert!(resident < RESIDENT_MAX, "a hundred volumes take {resident} bytes of memory");
    timed("the next eight hundred", || create(tenth, VOLUMES - tenth));
    let last = cpu_of("the last hundred", &|| create(VOLUMES - tenth, VOLUMES));
    println!("CPU of the first hundred: {first:?}, of the last: {last:?}");
    // Each creation writes all metadata and the whole record to the disk. A scan of all volumes one by one
    // would fail this.
    assert!(last < first * 3 + Duration::from_millis(200), "{first:?}, then {last:?}");

    let (list, took) = timed("list", || node.ok(&["volume", "list"]));
    assert_eq!(list.lines().count(), VOLUMES + 1);
    assert!(took < Duration::from_secs(10));
    let list = |_| {
        let (volumes, took) = timed("list by the API", || client.volumes().unwrap().items);
        assert_eq!(volumes.len(), VOLUMES);
        took
    };
    let before = node.cpu();
    let quickest = (0..LISTS).map(list).min().unwrap();
    let cpu = (node.cpu() - before) / LISTS;
    println!("CPU of a list by the API: {cpu:?}");
    assert!(cpu < LIST_CPU_MAX, "a list takes {cpu:?} of a processor");
    assert!(quickest < LIST_MAX, "the quickest of {LISTS} lists took {quickest:?}");

    for (volume, luns) in [(0, 1), (VOLUMES / 2, SHELF), (VOLUMES - 1, 1)] {
        let login = |isid| {
            let (found, took) = timed("login", || log_in(&node, volume, isid));
            assert_eq!(found, luns, "LUNs of {}", target_of(volume));
            took
        };
        let quickest = (0..LOGINS).map(login).min().unwrap();
        assert!(quickest < LOGIN_MAX, "the quickest of {LOGINS} logins to {luns} LUNs took {quickest:?}");
    }

    println!("resident: {} MiB", node.resident_bytes() >> 20);
    // On a busy machine a sleep takes longer than requested.
    let idle = || {
        let (start, before) = (Instant::now(), node.cpu());
        std::thread::sleep(IDLE);
        let (took, cpu) = (start.elapsed(), node.cpu() - before);
        println!("CPU of {took:.2?} without a request: {cpu:?}");
        cpu <= took / IDLE_PART
    };
    assert!((0..IDLES).any(|_| idle()), "an idle node takes more than 1/{IDLE_PART} of a processor");

    let directory = node.kill();
    let (node, took) = timed("start", || Node::start_in(directory, &[]));
    assert!(took < Duration::from_secs(30));
    assert_eq!(node.json(&["status"])["volumes"], VOLUMES);
    println!("resident after the start: {} MiB", node.resident_bytes() >> 20);
    let (_, took) = timed("stop", || node.stop());
    assert!(took < Duration::from_secs(30));
}
