//! A disk that fails reads and writes under one of two nodes, by device mapper's targets `error`, `flakey`
//! and `snapshot`.
//!
//! The hosts are the Linux kernel's initiator and dm-multipath. Both nodes run in the guest, because the disk
//! needs its kernel. The guest's clock counts instructions, so that timeouts do not depend on how busy the
//! machine is.

use e2e::Guest;
use serde_json::Value;

use crate::guest::script;

/// The addresses. Each portal belongs to another node; the first node has the disk that fails.
const PLACES: &str = "TARGET=iqn.2026-11.io.ursa:shared FIRST=127.0.0.1:3260 SECOND=127.0.0.2:3260 PORTALS='127.0.0.1:3260 127.0.0.2:3260'";

/// The exit code of a script if the program does not run in the guest.
const MISSING: i32 = 77;

/// All blocks, through each path and through multipath.
const ALL: &str = "FROM=0 COUNT=4096 BY=\"$PORTALS disk\"";

/// Two nodes in a guest that uses their volume.
struct Nodes(Guest);

/// The visible state.
struct Seen {
    volume: Value,
    events: Vec<Value>,
}

impl Nodes {
    /// `None`: guests are not wanted, or the program does not run in this one.
    fn start() -> Option<Nodes> {
        let guest = Guest::start_with_own_time("bad-blocks")?;
        guest.bring_program();
        let nodes = Nodes(guest);
        let started = nodes.0.run_alone(&variables(""), script!("nodes-start"));
        if started.status.and_then(|status| status.code()) == Some(MISSING) {
            println!("skipped: {}", started.output.trim());
            return None;
        }
        started.expect_ok();
        nodes.run("", script!("host-setup"));
        nodes.run("", script!("nodes-fill"));
        Some(nodes)
    }

    #[track_caller]
    fn run(&self, more: &str, script: &str) -> String {
        self.0.run_alone(&variables(more), script).expect_ok()
    }

    /// Waits until the first node's copy is in this state, this is the worst finding of `ursa status` apart
    /// from the missing witness, and these events have occurred this many times since the start.
    ///
    /// Checks that hosts have seen no error until then. A path that is NOT READY is no error, since multipath
    /// takes the other one.
    #[track_caller]
    fn look(&self, state: &str, health: &str, events: &[(&str, usize)]) -> Seen {
        let errors = "Sense Key : Not Ready|I/O error, dev sd";
        let wanted: Vec<String> = events.iter().map(|(code, times)| format!("{code}={times}")).collect();
        let wanted = wanted.join(" ");
        let shown = self.run(
            &format!("STATE={state} HEALTH={health} EVENTS='{wanted}' TOLERATED='{errors}'"),
            script!("nodes-look"),
        );
        let mut shown: Value =
            serde_json::from_str(&shown).unwrap_or_else(|error| panic!("not JSON ({error}): {shown}"));
        let seen = Seen {
            volume: shown["volume"].take(),
            events: shown["events"]["items"].as_array().expect("it is a list").clone(),
        };
        assert_eq!(seen.volume["copies"][0]["state"], state, "{}", seen.volume);
        let findings = shown["status"]["findings"].as_array().expect("it is a list").iter();
        let worst = { findings }.find(|finding| finding["code"] != "no-witness");
        let found = worst.map_or("healthy", |worst| worst["severity"].as_str().expect("it is a word"));
        assert_eq!(found, health, "{}", shown["status"]);
        for (code, times) in events {
            assert_eq!(seen.told(code).len(), *times, "{code}: {:#?}", seen.events);
        }
        seen
    }

    /// Reads through one or more paths, as `nodes-read` specifies.
    #[track_caller]
    fn read(&self, what: &str) {
        self.run(what, script!("nodes-read"));
    }

    /// The disk works again, for the nth time. All blocks must be readable through each path then, without an
    /// administrator.
    #[track_caller]
    fn recover(&self, nth: usize) {
        self.run("", script!("nodes-well"));
        self.look("in_sync", "healthy", &[("pool_reopened", nth)]);
        self.run("WANTED='active active'", script!("paths"));
        self.read(ALL);
    }
}

impl Seen {
    /// The causes in the events with this code.
    fn told(&self, code: &str) -> Vec<Option<&str>> {
        let events = self.events.iter().filter(|event| event["code"] == code);
        events.map(|event| event["cause"].as_str()).collect()
    }
}

/// All in one guest, one after the other, because guest, nodes and paths take long to start.
#[test]
#[ignore = "takes ten minutes"]
fn hosts_see_no_error_of_a_disk_that_fails_reads_or_writes() {
    let Some(nodes) = Nodes::start() else { return };
    // Blocks that can be neither read nor written. The first node itself answers the read that finds one.
    nodes.run("", "table 2000 2001 2003 3000 | becomes");
    nodes.read("FROM=2000 COUNT=16 BY=$FIRST");
    let seen = nodes.look("out_of_sync", "warning", &[("copy_out_of_sync", 1)]);
    assert_eq!(seen.told("copy_out_of_sync"), [Some("block_unrepaired")]);
    assert_eq!(seen.told("read_failed"), [Some("medium_error")]);
    nodes.read("FROM=0 COUNT=4096 BY=\"disk $SECOND\"");
    nodes.recover(1);

    // A disk that cannot read: a rewritten block cannot be read back.
    nodes.run("", "echo \"0 $SECTORS flakey $(cat /run/loop1) 0 0 3600 1 error_reads\" | becomes");
    nodes.read("FROM=2000 COUNT=16 BY=$FIRST");
    let seen = nodes.look("out_of_sync", "warning", &[("copy_out_of_sync", 2), ("read_failed", 2)]);
    assert_eq!(seen.told("copy_out_of_sync")[1], Some("block_unrepaired"));
    nodes.read("FROM=0 COUNT=4096 BY=\"disk $SECOND\"");
    nodes.recover(2);

    // A disk that cannot write. Its node answers the first failed write with NOT READY, and multipath sends
    // the write to the other node: only the path has an error.
    nodes.run("", "echo \"0 $SECTORS flakey $(cat /run/loop1) 0 0 3600 1 error_writes\" | becomes");
    nodes.run("FROM=0 COUNT=256", script!("nodes-write"));
    let seen = nodes.look("out_of_sync", "critical", &[("copy_out_of_sync", 3), ("disk_failed", 1)]);
    assert_eq!(seen.told("copy_out_of_sync")[2], Some("disk_failed"));
    nodes.read("FROM=0 COUNT=4096 BY=\"disk $SECOND\"");
    nodes.recover(3);

    // Blocks that cannot be read until they are written: no copy goes out of sync.
    nodes.run("BAD='2000 2001 2003'", script!("nodes-wear"));
    nodes.read("FROM=2000 COUNT=16 BY=\"$FIRST $SECOND disk\"");
    let told = [("block_repaired", 3), ("read_failed", 2 + 3), ("copy_out_of_sync", 3)];
    // The disk needs an administrator's attention.
    nodes.look("in_sync", "warning", &told);
    nodes.run("BAD='2000 2001 2003'", script!("nodes-reread"));
    nodes.read(ALL);
    // The blocks are good again: there are no further events.
    nodes.look("in_sync", "warning", &told);
}

fn variables(more: &str) -> String {
    format!("{PLACES}\n{more}\n{}{}", script!("ways"), script!("nodes"))
}
