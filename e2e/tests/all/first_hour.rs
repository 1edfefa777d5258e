//! *The first hour* of docs/use/cluster.md: a node has a volume in use, other nodes join, the volume gets a
//! second copy, and the first node is killed, all of it while a host writes.
//!
//! The test runs every command of that section, word for word but for addresses, names and sizes. A command
//! that is on the page and not here fails it, too.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::pattern::{self, SECTOR};
use e2e::raw::in_spite_of_attentions;
use e2e::{Attached, Export, Node, ports};

use crate::cluster::{BLOCK, BLOCKS, first_sector, ready, wait, wait_until_in_sync};
use crate::structure::root;

const TARGET: &str = "iqn.2026-11.io.ursa:demo";
const HOST: &str = "iqn.1993-08.org.debian:01:5ad4e2f0c1";
const WRITER: u32 = 1;

/// The longest time that a write of the host may take.
///
/// It is about a second when a node's process dies on an idle machine; drills check that.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Until nodes have decided on something.
const LIMIT: Duration = Duration::from_secs(60);
/// Until the host uses a path whose copy is in sync: it looks every ten seconds.
const PATH_LIMIT: Duration = Duration::from_secs(60);

/// The commands of the section that the test has not run yet.
struct Page(Vec<String>);

impl Page {
    fn read() -> Page {
        let page = fs::read_to_string(root().join("docs/use/cluster.md")).expect("the page can be read");
        let (_, after) = page.split_once("\n## The first hour\n").expect("the page has the section");
        let section = after.split("\n## ").next().unwrap_or(after);
        let lines = section.lines().map(str::trim).filter(|line| line.starts_with("ursa "));
        let commands = lines.map(|line| line.split(" #").next().unwrap_or(line).trim_end().to_owned());
        Page(commands.collect())
    }

    /// The arguments of a command of the section. `here` are words of the page, and what this machine has
    /// instead.
    #[track_caller]
    fn take(&mut self, command: &str, here: &[(&str, &str)]) -> Vec<String> {
        let Some(at) = self.0.iter().position(|documented| documented == command) else {
            panic!("`{command}` is not on the page: {:?}", self.0)
        };
        self.0.remove(at);
        let word = |word: &str| {
            let known = here.iter().find(|(theirs, _)| *theirs == word);
            known.map_or(word, |(_, ours)| *ours).to_owned()
        };
        command.split(' ').skip(1).map(word).collect()
    }
}

/// What the host writes: block after block, one write at a time.
#[derive(Default)]
struct Load {
    ended: AtomicBool,
    /// The number of the last write that was acknowledged.
    acknowledged: AtomicU64,
}

/// Ends a load when it is dropped, so that a failed test ends, too.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// Writes until it is ended; returns how long the slowest write took.
    fn run(&self, file: &File) -> Duration {
        let mut slowest = Duration::ZERO;
        for number in 1.. {
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            let sector = first_sector(number % BLOCKS);
            let data = pattern::stamped(WRITER, number, sector, BLOCK);
            let began = Instant::now();
            file.write_all_at(&data, sector * SECTOR as u64).expect("the host gets no error");
            slowest = slowest.max(began.elapsed());
            self.acknowledged.store(number, Ordering::Relaxed);
        }
        slowest
    }

    fn last(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Waits until every block has been written again.
    #[track_caller]
    fn wait_for_a_round(&self, when: &str) {
        let until = self.last() + BLOCKS;
        wait(PAUSE_MAX, &format!("the host writes {when}"), || self.last() >= until);
    }
}

/// Bytes that a node has received in its present sessions with the host.
fn received(node: &Node) -> u64 {
    let sessions = node.ursa_json(&["session", "list"]);
    let sessions = sessions.as_array().expect("it is a list");
    let of_host = sessions.iter().filter(|session| session["initiator"] == HOST);
    of_host.filter_map(|session| session["bytes_received"].as_u64()).sum()
}

#[track_caller]
fn run(node: &Node, arguments: &[String]) -> String {
    node.ursa(&words(arguments)).expect_ok()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[test]
fn a_volume_in_use_gets_a_second_copy_and_survives_its_first_node() {
    let mut page = Page::read();
    let small = [("demo=1G", "demo=64M")];
    let serves = page.take("ursa serve --name server1 --volume demo=1G", &small);
    let mut nodes = [
        Node::start_with(&words(&serves[1..])),
        Node::start_with(&words(&page.take("ursa serve --name server2", &[])[1..])),
        Node::start_with(&words(&page.take("ursa serve --name server3", &[])[1..])),
    ];
    run(&nodes[0], &page.take("ursa host create web --initiator IQN", &[("IQN", HOST)]));
    run(&nodes[0], &page.take("ursa map create iqn.2026-11.io.ursa:demo demo --host web", &[]));

    // A path through each of the first two nodes. The host keeps trying the second one.
    let directory = tempfile::tempdir().expect("a directory can be made");
    let url = format!("iscsi://{},{}/{TARGET}/0", nodes[0].portals()[0], nodes[1].portals()[0]);
    let attached = Attached::new(&url, &directory.path().join("unit"), &["--initiator", HOST]);
    let file = File::options().write(true).open(attached.file()).expect("the host has the disk");
    let load = Load::default();
    let slowest = thread::scope(|scope| {
        let writer = scope.spawn(|| load.run(&file));
        let ends = Ends(&load);
        load.wait_for_a_round("through one node");
        grow(&mut page, &nodes);
        wait(PATH_LIMIT, "the host uses the second path", || received(&nodes[1]) > 1 << 20);
        let before = received(&nodes[0]);
        wait(LIMIT, "the host uses the first path", || received(&nodes[0]) > before + (64 << 10));

        nodes[0].kill();
        let killed = Instant::now();
        load.wait_for_a_round("without the first node");
        load.wait_for_a_round("after that, too");
        println!("every block was written twice within {:?} of the kill", killed.elapsed());
        drop(ends);
        writer.join().expect("the host gets no error")
    });
    println!("{} writes, the slowest took {slowest:?}", load.last());
    assert!(slowest < PAUSE_MAX, "the host waited {slowest:?} for a write");

    // Only one write is under way at a time, so the last one of each block is known.
    let export =
        Export { portals: nodes[1].portals().to_vec(), target: TARGET.to_owned(), lun: 0, chap: None };
    let mut through_second = ready(&export);
    for number in load.last() + 1 - BLOCKS..=load.last() {
        let sector = first_sector(number % BLOCKS);
        let blocks = (BLOCK / SECTOR) as u32;
        let data = in_spite_of_attentions(|| through_second.read(sector, blocks, BLOCK));
        for (at, found) in (sector..).zip(data.expect("the second node serves the volume").chunks(SECTOR)) {
            assert_eq!(pattern::stamp(found, WRITER, at), Some(number), "sector {at}");
        }
    }
    let shown = run(&nodes[1], &page.take("ursa volume show demo", &[]));
    assert!(shown.contains("on node 2 (server2, here): in sync"), "{shown}");
    assert!(page.0.is_empty(), "not run by this test: {:?}", page.0);
}

/// The other nodes join, the third one as a witness, and the volume gets a copy on the second one.
fn grow(page: &mut Page, nodes: &[Node; 3]) {
    let [first, second, third] = [(); 3].map(|()| ports::free().to_string());
    run(&nodes[0], &page.take("ursa node init --listen 10.0.0.1", &[("10.0.0.1", first.as_str())]));
    let token = page.take("ursa node token", &[]);
    let join = |node: &Node, arguments: &[String], listen: &str| {
        let token = run(&nodes[0], &token);
        let here = |word: &String| match &word[..] {
            "TOKEN" => token.trim().to_owned(),
            word if word.starts_with("10.0.0.") => listen.to_owned(),
            word => word.to_owned(),
        };
        run(node, &arguments.iter().map(here).collect::<Vec<String>>());
    };
    join(&nodes[1], &page.take("ursa node join TOKEN --listen 10.0.0.2", &[]), &second);
    join(&nodes[2], &page.take("ursa node join TOKEN --listen 10.0.0.3 --witness", &[]), &third);
    let list = page.take("ursa node list", &[]);
    let all_vote = |node: &Node| {
        let list = node.ursa_json(&words(&list));
        let list = list.as_array().expect("it is a list");
        list.len() == 3 && list.iter().all(|node| node["up"] == true && node["votes"] == true)
    };
    wait(LIMIT, "three nodes vote", || nodes.iter().all(all_vote));

    run(&nodes[0], &page.take("ursa volume copy add demo --on 2", &[]));
    wait_until_in_sync(&nodes[0], "demo");
    let show = page.take("ursa volume show demo", &[]);
    let survives = || run(&nodes[0], &show).contains("if node 1 is lost: still available");
    wait(LIMIT, "the volume can lose its first node", survives);
}
