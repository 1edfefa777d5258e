//! Every node answers for the whole cluster: two real nodes, one of which is killed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{Node, free_address};
use crate::pools::{add_second_pool, lose_file};

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn cluster() -> (Node, Node) {
    let (first, second) = (Node::start(&[]), Node::start(&[]));
    first.ok(&["node", "init", "--listen", &free_address().to_string()]);
    let token = first.json(&["node", "token"])["token"].as_str().unwrap().to_owned();
    second.ok(&["node", "join", &token, "--listen", &free_address().to_string()]);
    until("both hear of each other", || {
        [&first, &second].iter().all(|node| {
            let nodes = node.json(&["node", "list"]);
            let nodes = nodes.as_array().unwrap();
            nodes.len() == 2 && nodes.iter().all(|node| node["up"] == true)
        })
    });
    (first, second)
}

#[test]
fn maps_of_what_another_node_has_have_its_name_though_that_node_is_gone() {
    let (first, second) = cluster();
    let made = first.json(&["volume", "create", "own", "--size", "8M", "--copies", "1"]);
    let target = made["maps"][0]["target"].as_str().unwrap();
    let names = |node: &Node| {
        let maps = node.json(&["map", "list"]);
        maps.as_array().unwrap().iter().map(|map| map["volume"].clone()).collect::<Vec<_>>()
    };
    until("both know it", || [&first, &second].iter().all(|node| names(node) == ["own"]));
    assert!(second.ok(&["target", "show", target]).contains("own"));
    drop(first);
    assert_eq!(names(&second), ["own"]);
}

#[test]
fn a_pool_is_forgotten_without_the_maps_of_what_another_node_has() {
    let (first, second) = cluster();
    first.ok(&["volume", "create", "own", "--size", "8M", "--on", "1"]);
    let file = add_second_pool(&second);
    second.ok(&["volume", "create", "db", "--size", "8M", "--pool", "second", "--on", "2"]);
    let (second, _) = lose_file(second, &file);
    let maps = || {
        let maps = second.json(&["map", "list"]);
        let names = maps.as_array().unwrap().iter().map(|map| map["target"].as_str().unwrap().to_owned());
        names.map(|target| target.rsplit_once(':').unwrap().1.to_owned()).collect::<Vec<String>>()
    };
    until("it hears of the first node again", || maps() == ["db", "own"]);
    let would = second.ok(&["pool", "forget", "second", "--unmap", "--dry-run"]);
    assert!(would.contains(":db for host group") && !would.contains(":own"), "{would}");
    second.ok(&["pool", "forget", "second", "--unmap", "--yes"]);
    assert_eq!(maps(), ["own"]);
}

#[test]
fn a_node_shows_what_others_have_and_says_what_is_missing() {
    let (first, second) = cluster();
    first.ok(&["volume", "create", "db", "--size", "64M", "--on", "1"]);
    until("the second node shows it", || second.json(&["volume", "list"]).as_array().unwrap().len() == 1);
    let (here, there) = (first.json(&["volume", "show", "db"]), second.json(&["volume", "show", "db"]));
    for field in ["id", "size", "kind", "block_size", "slices", "naa", "created", "maps"] {
        assert_eq!(here[field], there[field], "{field}");
    }
    assert_eq!((&here["serving"], &there["serving"]), (&json!(true), &json!(false)));
    assert_eq!((&there["copies"][0]["node"], &there["copies"][0]["here"]), (&json!(1), &json!(false)));
    assert_eq!(
        there["losses"],
        json!([{"node": 1, "outcome": "unavailable", "text": "unavailable until the node returns (only copy in sync)"}])
    );

    // By default a volume has two copies; for a single copy, the command shows the consequences.
    let two = first.json(&["volume", "create", "two", "--size", "8M"]);
    assert_eq!(two["copies"].as_array().unwrap().len(), 2, "{two}");
    assert!(first.ok(&["volume", "show", "two"]).contains("2 copies, 2 in sync"));
    let single = "a single copy: the volume is unavailable while node 1 (";
    assert!(first.ok(&["volume", "show", "db"]).contains(single));
    for one in ["--copies=1", "--on=1"] {
        let would = first.ok(&["volume", "create", "one", "--size", "8M", one, "--dry-run"]);
        assert!(would.contains("ITS DATA IS LOST") && would.contains("Nothing was changed"), "{would}");
        let made = first.ok(&["volume", "create", "one", "--size", "8M", one]);
        assert!(made.contains(single), "{made}");
        first.ok(&["volume", "delete", "one", "--force", "--yes"]);
    }
    first.ok(&["volume", "delete", "two", "--force", "--yes"]);

    // The node that creates a volume need not have a copy of it.
    let far = first.json(&["volume", "create", "far", "--size", "8M", "--on", "2"]);
    assert_eq!(
        (&far["name"], &far["copies"][0]["node"], &far["serving"]),
        (&json!("far"), &json!(2), &json!(false))
    );
    assert_eq!(far["maps"].as_array().unwrap().len(), 1);
    // A volume that cannot be mapped is not kept.
    let lost = ["volume", "create", "lost", "--size", "8M", "--on", "2", "--host", "nobody"];
    assert!(first.refused(1, &lost).contains("nobody"));
    assert!(second.refused(1, &["volume", "show", "lost"]).contains("lost"));

    let refused = second.refused(1, &["volume", "delete", "db", "--yes"]);
    assert!(refused.contains("delete the map first"), "the first node's own answer: {refused}");
    let pools = second.json(&["pool", "list", "--node", "all"]);
    let of: Vec<&Value> = pools["items"].as_array().unwrap().iter().map(|pool| &pool["node"]).collect();
    assert_eq!((of, pools.get("missing")), (vec![&json!(2), &json!(1)], None));
    assert_eq!(second.json(&["pool", "list"])[0]["node"], 2);
    assert_eq!(second.json(&["session", "list", "--node", "1"]), json!({"items": []}));
    assert!(second.refused(1, &["pool", "list", "--node", "7"]).contains("not found"));
    assert!(second.refused(1, &["pool", "list", "--node", "x"]).contains("`all`"));

    let _directory = first.kill();
    until("the first node is missed", || second.json(&["node", "list"])[0]["up"] == false);
    let pools = second.json(&["pool", "list", "--node", "all"]);
    assert_eq!(pools["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&pools["missing"][0]["node"], &pools["missing"][0]["reason"]),
        (&json!(1), &json!("heartbeat timeout"))
    );
    // It is down: there is no second finding that it does not respond.
    let status = second.json(&["status"]);
    let causes = status["findings"].as_array().unwrap().iter().map(|finding| finding["cause"].as_str());
    let of_first: Vec<&str> = causes.flatten().filter(|cause| cause.starts_with("Node 1 (")).collect();
    assert!(matches!(of_first[..], [cause] if cause.ends_with("is down: heartbeat timeout.")), "{status}");
    // What was known of it before is still known.
    assert_eq!(second.json(&["volume", "list"])[0]["name"], "db");
    let listed = second.ursa(&["volume", "list", "-o", "json"]);
    assert!(
        listed.stderr.is_empty(),
        "nothing of it is missing: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    until("it is told", || {
        let events = second.json(&["events", "--limit", "1000"]);
        let events = events["items"].as_array().unwrap().clone();
        events.iter().any(|event| event["code"] == "node_lost" && event["node"] == 1)
    });
}

/// Adds the option that runs a command on node 1.
fn there<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &["--node", "1"]].concat()
}

#[test]
fn pools_and_sessions_of_another_node_are_worked_with_from_here() {
    let (first, second) = cluster();
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (disk, more) = (file("far"), file("more"));

    let made = second.json(&there(&["pool", "create", "far", &disk, "--size", "64M"]));
    assert_eq!((&made["name"], &made["node"]), (&json!("far"), &json!(1)));
    assert!(second.refused(1, &["pool", "show", "far"]).contains("far"));
    assert_eq!(second.json(&there(&["pool", "show", "far"])), made);
    assert_eq!(first.json(&["pool", "show", "far"])["disks"], made["disks"]);
    let refused = second.refused(2, &there(&["pool", "add-disk", "far", "more", "--size", "64M"]));
    assert!(refused.contains("an absolute path on node 1"), "{refused}");
    let grown = second.json(&there(&["pool", "add-disk", "far", &more, "--size", "64M"]));
    assert_eq!(grown["disks"].as_array().unwrap().len(), 2);
    second.refused(1, &there(&["pool", "reopen", "far"]));
    let refused = second.refused(1, &there(&["pool", "forget", "far", "--yes"]));
    assert!(refused.contains("open"), "{refused}");
    let unasked = second.refused(2, &there(&["pool", "export", "far"]));
    assert!(unasked.contains("pool far is closed") && unasked.contains("--yes"), "{unasked}");
    let closed = second.ok(&there(&["pool", "export", "far", "--yes"]));
    assert_eq!(closed, "Pool far on node 1 exported; another server can import it now.\n");
    assert_eq!(first.json(&["pool", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(second.json(&there(&["pool", "import", &disk, &more]))["name"], "far");

    assert!(second.refused(1, &there(&["session", "end", "1"])).contains("session"));
    assert!(second.refused(1, &["session", "end", "1", "--node", "7"]).contains("not found"));
    assert!(second.refused(1, &["pool", "show", "far", "--node", "7"]).contains("not found"));

    let would = second.refused(1, &["node", "remove", "1", "--dry-run"]);
    assert!(would.contains("no quorum"), "node 1 alone votes: {would}");
    let would = first.ok(&["node", "remove", "2", "--dry-run"]);
    assert!(would.contains("- node 2 (") && would.contains("Nothing was changed"), "{would}");
    assert_eq!(first.json(&["node", "list"]).as_array().unwrap().len(), 2);
}

#[test]
fn a_create_without_a_place_lists_what_was_tried() {
    let (first, second) = cluster();
    let client = api::Client::new(&format!("http://{}", first.api));
    let mut new = api::VolumeCreate::new("db", 64 << 30);
    new.copies = Some(2);
    let error = client.create_volume(&new).unwrap_err();
    let problem = error.problem().unwrap();
    let found: Vec<(u16, Option<&str>)> =
        problem.candidates.iter().map(|found| (found.node, found.rule.as_deref())).collect();
    assert_eq!(found, [(1, Some("no_space")), (2, Some("no_space"))], "{problem:?}");
    drop(second);
    new.size = 1 << 20;
    until("the second node is missed", || {
        let problem = client.create_volume(&new).err().and_then(|error| error.problem().cloned());
        problem.is_some_and(|problem| {
            let rules: Vec<_> =
                problem.candidates.iter().map(|found| (found.node, found.rule.clone())).collect();
            rules == [(2, Some("node_down".to_owned()))]
        })
    });
}

/// The event stream of all nodes, from one of them.
struct Stream {
    connection: TcpStream,
    /// What it has sent so far.
    text: String,
}

impl Stream {
    fn of(node: &Node) -> Stream {
        let token = api::LocalCredential::find(&node.api.to_string()).unwrap().token;
        let mut connection = TcpStream::connect(node.api).unwrap();
        // At least every ten seconds something is sent.
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!(
            "GET /v1/events/stream?node=all HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
            node.api
        );
        connection.write_all(head.as_bytes()).unwrap();
        Stream { connection, text: String::new() }
    }

    /// Reads until the stream contains this text.
    fn until(&mut self, what: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        let mut bytes = [0; 4096];
        while !self.text.contains(what) {
            assert!(Instant::now() < end, "{what}: not in time: {}", self.text);
            let count = self.connection.read(&mut bytes).unwrap();
            assert!(count > 0, "it has ended: {}", self.text);
            self.text += &String::from_utf8_lossy(&bytes[..count]);
        }
    }
}

#[test]
fn one_stream_shows_what_all_nodes_see_and_which_are_silent() {
    let (first, second) = cluster();
    let mut stream = Stream::of(&first);
    stream.until("\nid: ");
    second.ok(&["volume", "create", "db", "--size", "64M", "--on", "2"]);
    stream.until("\"volume_created\"");
    let directory = second.kill();
    stream.until("event: missing\ndata: {\"node\":2,");
    stream.until("\"node_lost\"");
    let second = Node::start_in(directory, &[]);
    stream.until("event: back\ndata: {\"node\":2,");
    stream.until("event: gap\ndata: {\"node\":2,");
    second.ok(&["volume", "create", "later", "--size", "64M", "--on", "2"]);
    stream.until("volume later created");
    assert_eq!(stream.text.matches("volume db created").count(), 1, "it is told once: {}", stream.text);
}

#[test]
fn any_node_shows_the_events_and_audit_log_of_all() {
    let (first, second) = cluster();
    second.ok(&["volume", "create", "db", "--size", "64M", "--on", "2"]);
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("far").to_str().unwrap().to_owned();
    second.ok(&["pool", "create", "far", &disk, "--size", "64M"]);

    let told = |node: &Node, code: &str| -> Vec<Value> {
        let all = node.json(&["events", "--node", "all", "--limit", "1000"]);
        let of_code = |event: &&Value| event["code"] == code;
        all["items"].as_array().unwrap().iter().filter(of_code).cloned().collect()
    };
    let both = |code: &str| {
        let events = told(&first, code);
        matches!(events.as_slice(), [one] if one["seen_by"].as_array().is_some_and(|by| by.len() == 2))
    };
    until("both have seen the volume, and it is told once", || both("volume_created"));
    let of_far = || -> Vec<Value> {
        told(&first, "pool_created").into_iter().filter(|event| event["subject"] == "far").collect()
    };
    until("the pool's node has seen it", || !of_far().is_empty());
    assert_eq!(of_far()[0]["seen_by"], json!([2]));
    let of_second = first.json(&["events", "--node", "2", "--after", "0"]);
    assert!(of_second["next"].is_u64() && !of_second["items"].as_array().unwrap().is_empty());
    assert!(first.refused(1, &["events", "--node", "all", "--after", "0"]).contains("`until`"));
    assert!(first.ok(&["events", "--node", "all"]).contains("SEEN BY"));
    let of_db = first.json(&["events", "--node", "all", "--subject", "db", "--severity", "info"]);
    let of_db = of_db["items"].as_array().unwrap();
    assert!(!of_db.is_empty() && of_db.iter().all(|event| event["subject"] == "db"), "{of_db:?}");
    let id = first.json(&["volume", "show", "db"])["id"].as_str().unwrap().to_owned();
    let by_identity = first.json(&["events", "--node", "all", "--subject", &id]);
    let by_identity = by_identity["items"].as_array().unwrap();
    assert!(by_identity.iter().any(|event| event["code"] == "volume_created"), "{by_identity:?}");
    assert!(by_identity.iter().all(|event| event["subject_id"] == id), "{by_identity:?}");
    let grave = first.json(&["events", "--subject", "db", "--severity", "critical"]);
    assert_eq!(grave["items"], json!([]));

    // Requests to the second node are in its audit log, which any node shows.
    let deeds = first.json(&["audit", "--node", "all"]);
    let made = deeds["items"].as_array().unwrap().iter().find(|deed| deed["action"] == "POST /v1/pools");
    let made = made.unwrap();
    assert_eq!((&made["node"], &made["status"], &made["who"]), (&json!(2), &json!(201), &json!("local")));
    let of_second = |node: &Node| node.json(&["audit", "--node", "2"])["items"].clone();
    assert_eq!(of_second(&first), of_second(&second));
    assert!(first.refused(1, &["audit", "--node", "all", "--before", "3"]).contains("`until`"));
    assert!(first.refused(1, &["audit", "--node", "7"]).contains("not found"));

    let _directory = second.kill();
    until("the second node is missed", || first.json(&["node", "list"])[1]["up"] == false);
    for what in ["events", "audit"] {
        let all = first.json(&[what, "--node", "all"]);
        assert_eq!(all["missing"][0]["reason"], "heartbeat timeout", "{what}: {all}");
        assert!(!all["items"].as_array().unwrap().is_empty());
        let told = first.ok(&[what, "--node", "all"]);
        assert!(!told.contains("MISSING"), "that is said on standard error: {told}");
    }
}
