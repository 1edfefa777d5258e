//! Three nodes on one machine: a volume stays available when the node that hosts write through is killed, and
//! all copies are in sync again afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::pattern::{self, SECTOR};
use e2e::raw::{Raw, in_spite_of_attentions};
use e2e::{Export, Node, ports};
use serde_json::Value;

/// Until the nodes know each other and all of them vote.
const CLUSTER_LIMIT: Duration = Duration::from_secs(30);
/// From the loss of a node to the first write through another one: far less than the 20 s after which
/// initiators fail a path.
///
/// On an idle machine it is 2 s, which drills check when no other test runs.
pub const STALL_MAX: Duration = Duration::from_secs(10);
/// Until a node that has just started serves.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// From the return of a node until its copies are in sync.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// Blocks of eight sectors, written over and over.
pub const BLOCKS: u64 = 64;
pub const BLOCK: usize = 8 * SECTOR;

/// The volumes: on disks, and in memory.
const VOLUMES: [(&str, &str, &str); 2] = [("db", "thick", "3"), ("scratch", "ram", "2")];

/// What the test knows of each block.
#[derive(Clone)]
struct Promises {
    /// The latest write that was acknowledged.
    answered: Vec<u64>,
    /// The latest write that was sent.
    sent: Vec<u64>,
}

#[test]
fn a_volume_continues_without_the_node_that_was_killed() {
    let mut nodes = cluster_of_three();
    for (name, kind, copies) in VOLUMES {
        let create = [
            "volume", "create", name, "--size", "64M", "--kind", kind, "--copies", copies, "--target", TARGET,
        ];
        nodes[0].ursa(&create).expect_ok();
    }
    // The RAM volume has its second copy on one of the others.
    let second = usize::from(copy_nodes(&nodes[0], "scratch")[1]) - 1;
    for (lun, (name, ..)) in VOLUMES.into_iter().enumerate() {
        wait_until_in_sync(&nodes[second], name);
        go_on(&mut nodes, second, name, lun as u64);
    }
}

/// During writes to a volume, one of its copies moves, the volume grows, and the copy's new node enters and
/// leaves maintenance.
#[test]
fn a_copy_moves_and_its_node_is_maintained_while_the_volume_is_written_to() {
    let nodes = cluster_of_three();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--on", "1,2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    let through = |node: &Node| Export {
        portals: node.portals().to_vec(),
        target: TARGET.to_owned(),
        lun: 0,
        chap: None,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (export, stop) = (through(&nodes[0]), Arc::clone(&stop));
        thread::spawn(move || write_until_told(&export, &stop))
    };
    nodes[0].ursa(&["volume", "copy", "move", "db", "--from", "2", "--to", "3"]).expect_ok();
    wait(SYNC_LIMIT, "the copy has moved", || copy_nodes(&nodes[0], "db") == [1, 3]);
    nodes[0].ursa(&["volume", "resize", "db", "96M"]).expect_ok();
    nodes[0].ursa(&["node", "maintenance", "3", "on"]).expect_ok();
    assert_ne!(copies(&nodes[0], "db")[1]["state"], "in_sync");
    nodes[0].ursa(&["node", "maintenance", "3", "off"]).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    stop.store(true, Ordering::Relaxed);
    let promises = writer.join().expect("it does not panic");
    assert!(promises.answered.iter().all(|number| *number > 0), "nothing is proven");
    let shown = nodes[2].ursa_json(&["volume", "show", "db"]);
    assert_eq!(shown["size"], 96 << 20, "{shown}");
    let found = nodes[2].ursa_json(&["volume", "verify", "db"]);
    assert_eq!(found["equal"], true, "{found}");
    let export = through(&nodes[2]);
    check(&mut ready(&export), &export, &promises, Instant::now());
}

/// Two of three nodes are lost for good: the last one continues alone, and refuses a node that returns with
/// its old state.
#[test]
fn the_last_survivor_is_forced_into_its_own_cluster() {
    let mut nodes = cluster_of_three();
    nodes[0]
        .ursa(&["volume", "create", "db", "--size", "64M", "--copies", "3", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    assert!(!nodes[0].ursa(&["node", "force-new-cluster", "--yes"]).ok(), "the cluster works");
    nodes[1].kill();
    nodes[2].kill();
    let forced = |node: &Node| node.ursa(&["node", "force-new-cluster", "--yes"]).ok();
    wait(CLUSTER_LIMIT, "the survivor is alone", || forced(&nodes[0]));
    nodes[0].stop();
    nodes[0].restart();
    let served = |node: &Node| node.ursa_json(&["volume", "show", "db"])["serving"] == true;
    wait(CLUSTER_LIMIT, "the survivor serves", || served(&nodes[0]));
    let export =
        Export { portals: nodes[0].portals().to_vec(), target: TARGET.to_owned(), lun: 0, chap: None };
    let data = pattern::stamped(1, 7, 0, BLOCK);
    ready(&export).write(0, 8, &data, false).expect("it is written");

    nodes[1].restart();
    let refused = || nodes[0].log().contains("must join again as a new node");
    wait(CLUSTER_LIMIT, "the words about the node that returns", refused);
    let list = nodes[0].ursa_json(&["node", "list"]);
    assert_eq!((&list[1]["up"], &list[1]["votes"]), (&Value::Bool(false), &Value::Bool(false)), "{list}");
    assert!(!served(&nodes[1]), "it is alone with a cluster that was given up");
    // Its copies are removed, and then the node itself.
    nodes[1].kill();
    for node in ["2", "3"] {
        nodes[0].ursa(&["volume", "copy", "remove", "db", "--on", node, "--yes"]).expect_ok();
        nodes[0].ursa(&["node", "remove", node, "--yes"]).expect_ok();
    }
    assert_eq!(copy_nodes(&nodes[0], "db"), [1]);
}

pub const TARGET: &str = "iqn.2026-11.io.ursa:shared";

/// Kills node 1 during writes through it, and continues through the other one.
fn go_on(nodes: &mut [Node; 3], second: usize, name: &str, lun: u64) {
    let through =
        |node: &Node| Export { portals: node.portals().to_vec(), target: TARGET.to_owned(), lun, chap: None };
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (export, stop) = (through(&nodes[0]), Arc::clone(&stop));
        thread::spawn(move || write_until_cut(&export, &stop))
    };
    let other_way = through(&nodes[second]);
    let mut other = ready(&other_way);
    thread::sleep(Duration::from_secs(1));
    nodes[0].kill();
    let killed = Instant::now();
    stop.store(true, Ordering::Relaxed);
    let promises = writer.join().expect("it does not panic");
    let written: u64 = promises.answered.iter().filter(|number| **number > 0).count() as u64;
    assert!(written > BLOCKS / 2, "only {written} blocks of {name} were written: nothing is proven");

    // All acknowledged writes are readable through the other node at once.
    check(&mut other, &other_way, &promises, killed);
    println!("{name}: the first reads came {:?} after the kill", killed.elapsed());
    let mut longest = Duration::ZERO;
    let mut last = killed;
    let mut number = 1_000_000;
    while killed.elapsed() < Duration::from_secs(5) {
        let block = number % BLOCKS;
        let sector = first_sector(block);
        let data = pattern::stamped(1, number, sector, BLOCK);
        if other.write(sector, 8, &data, false).is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            number += 1;
        } else {
            assert!(last.elapsed() < STALL_MAX, "{name}: no write for {:?}", last.elapsed());
            other = ready(&other_way);
        }
    }
    println!(
        "{name}: {} writes through the other node, the longest stall was {longest:?}",
        number - 1_000_000
    );
    assert!(longest < STALL_MAX, "{name}: a stall of {longest:?}");
    assert!(number > 1_000_000 + BLOCKS, "{name}: every block was written again");

    nodes[0].restart();
    let back = Instant::now();
    wait_until_in_sync(&nodes[second], name);
    println!("{name}: all in sync {:?} after the restart", back.elapsed());
    let found = nodes[second].ursa_json(&["volume", "verify", name]);
    assert_eq!(found["equal"], true, "{found}");
    // The node that was away has the writes from that time.
    let mut first = ready(&through(&nodes[0]));
    for block in 0..BLOCKS {
        let read = in_spite_of_attentions(|| first.read(first_sector(block), 8, BLOCK));
        let data = read.expect("a read");
        let newest = (0..BLOCKS).map(|back| number - 1 - back).find(|number| number % BLOCKS == block);
        assert_eq!(pattern::stamp(&data[..SECTOR], 1, first_sector(block)), newest, "{name}, block {block}");
    }
}

/// Lets other nodes join the node.
#[track_caller]
pub fn init(node: &Node) {
    node.ursa(&["node", "init", "--listen", &ports::free().to_string()]).expect_ok();
}

/// A token for a node that is to join this one.
#[track_caller]
pub fn token(node: &Node) -> String {
    let made = node.ursa_json(&["node", "token"]);
    made["token"].as_str().expect("a token was made").to_owned()
}

#[track_caller]
pub fn join(first: &Node, node: &Node) {
    node.ursa(&["node", "join", &token(first), "--listen", &ports::free().to_string()]).expect_ok();
}

pub fn cluster_of_three() -> [Node; 3] {
    let nodes = [Node::start(), Node::start(), Node::start()];
    init(&nodes[0]);
    nodes[1..].iter().for_each(|node| join(&nodes[0], node));
    let all_vote = |node: &Node| {
        let list = node.ursa_json(&["node", "list"]);
        let list = list.as_array().expect("it is a list").clone();
        list.len() == 3 && list.iter().all(|node| node["up"] == true && node["votes"] == true)
    };
    wait(CLUSTER_LIMIT, "three nodes that vote", || nodes.iter().all(all_vote));
    nodes
}

pub fn copies(node: &Node, volume: &str) -> Vec<Value> {
    let shown = node.ursa_json(&["volume", "show", volume]);
    shown["copies"].as_array().expect("it has copies").clone()
}

fn copy_nodes(node: &Node, volume: &str) -> Vec<u16> {
    copies(node, volume).iter().map(|copy| copy["node"].as_u64().expect("a number") as u16).collect()
}

pub fn wait_until_in_sync(node: &Node, volume: &str) {
    let in_sync = || copies(node, volume).iter().all(|copy| copy["state"] == "in_sync");
    wait(SYNC_LIMIT, &format!("all copies of {volume} in sync"), in_sync);
}

/// The job of a copy that is not in sync and can be paused.
pub fn pausable_job(node: &Node) -> Option<String> {
    let jobs = node.ursa_json(&["job", "list"]);
    let job = jobs.as_array()?.iter().find(|job| job["can_be_paused"] == true)?;
    Some(job["id"].as_str()?.to_owned())
}

#[track_caller]
pub fn wait(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// A session whose unit is ready. The caller judges how long a stall took.
#[track_caller]
pub fn ready(export: &Export) -> Raw {
    let end = Instant::now() + READY_LIMIT;
    loop {
        let found = Raw::login(export, 0, 0x4000).and_then(|mut raw| raw.wait_until_ready().map(|()| raw));
        match found {
            Ok(raw) => return raw,
            Err(error) => assert!(Instant::now() < end, "not ready within {READY_LIMIT:?}: {error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writes one block after the other until it is told to stop, or its session is lost.
fn write_until_cut(export: &Export, stop: &AtomicBool) -> Promises {
    write_blocks(export, stop, false)
}

/// The same through a node that stays: repeats unacknowledged writes, as hosts do after a unit attention.
fn write_until_told(export: &Export, stop: &AtomicBool) -> Promises {
    write_blocks(export, stop, true)
}

fn write_blocks(export: &Export, stop: &AtomicBool, again: bool) -> Promises {
    let mut promises = Promises { answered: vec![0; BLOCKS as usize], sent: vec![0; BLOCKS as usize] };
    let mut raw = ready(export);
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let block = number % BLOCKS;
        let sector = first_sector(block);
        promises.sent[block as usize] = number;
        let data = pattern::stamped(1, number, sector, BLOCK);
        while raw.write(sector, 8, &data, false).is_err() {
            if !again {
                return promises;
            }
            raw = ready(export);
        }
        promises.answered[block as usize] = number;
    }
    promises
}

/// Checks that no acknowledged write is lost. Reads may take as long as a stall.
fn check(raw: &mut Raw, export: &Export, promises: &Promises, since: Instant) {
    for block in 0..BLOCKS {
        let first = first_sector(block);
        let data = loop {
            match raw.read(first, 8, BLOCK) {
                Ok(data) => break data,
                Err(error) => assert!(since.elapsed() < STALL_MAX, "no read for {STALL_MAX:?}: {error}"),
            }
            *raw = ready(export);
        };
        let (answered, sent) = (promises.answered[block as usize], promises.sent[block as usize]);
        for (index, sector) in data.chunks(SECTOR).enumerate() {
            let found = pattern::stamp(sector, 1, first + index as u64).unwrap_or(0);
            assert!(
                (answered..=sent).contains(&found),
                "block {block}, sector {index}: write {found} is there, {answered} was answered, {sent} was the last"
            );
        }
    }
}

pub fn first_sector(block: u64) -> u64 {
    block * (BLOCK / SECTOR) as u64
}
