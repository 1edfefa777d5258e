//! What the command line changes on a node, and shows of it.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::node::{Node, ursa};

#[test]
fn a_volume_from_creation_to_deletion() {
    let node = Node::start(&[]);
    let text = node.ok(&["volume", "create", "db", "--size", "1G"]);
    for part in [
        "LUN 0 of target iqn.2026-11.io.ursa:db for host group local",
        &format!("iscsiadm -m discovery -t sendtargets -p {}", node.portal),
        &format!("iscsiadm -m node -T iqn.2026-11.io.ursa:db -p {} --login", node.portal),
        "ursa host create HOST --initiator IQN",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(node.refused(1, &["volume", "create", "db", "--size", "1G"]).contains("exists"));
    assert!(node.refused(1, &["volume", "create", "big", "--size", "9T"]).contains("free"));
    assert!(node.refused(1, &["volume", "resize", "db", "512M"]).contains("only grow"));
    assert!(node.ok(&["volume", "resize", "db", "2G"]).contains("resized to 2G"));
    node.ok(&["volume", "rename", "db", "mail"]);
    assert_eq!(node.json(&["volume", "show", "mail"])["size"], json!(2u64 << 30));

    let would = node.ok(&["volume", "delete", "mail", "--force", "--dry-run"]);
    let taken = "  - LUN 0 of target iqn.2026-11.io.ursa:db is unmapped from host group local\n";
    assert!(would.contains(taken) && would.ends_with("Nothing was changed.\n"), "{would}");
    assert!(node.refused(1, &["volume", "delete", "mail", "--dry-run"]).contains("force"));
    let unasked = node.refused(2, &["volume", "delete", "mail", "--force"]);
    assert!(unasked.contains("--yes") && unasked.contains("volume mail is deleted"), "{unasked}");
    assert!(node.refused(1, &["volume", "delete", "mail", "--yes"]).contains("force"));
    node.ok(&["volume", "delete", "mail", "--yes", "--force"]);
    assert_eq!(node.json(&["volume", "list"]), json!([]));
    assert!(node.refused(1, &["volume", "show", "mail"]).contains("not found"));
}

#[test]
fn answers_are_tables_json_or_yaml() {
    let node = Node::start(&["--volume", "demo=1G,ram"]);
    let table = node.ok(&["volume", "list"]);
    assert!(table.starts_with("NAME  STATE    SIZE  USED  KIND  BLOCK  NODES  POOL"), "{table}");
    assert!(table.contains("demo  healthy  1G    1G    ram   512    1      default"), "{table}");
    let list = node.json(&["volume", "list"]);
    assert_eq!((&list[0]["size"], &list[0]["block_size"]), (&json!(1 << 30), &json!(512)));
    let yaml = node.ok(&["-o", "yaml", "volume", "list"]);
    assert!(yaml.contains("name: demo\n") && yaml.contains("size: 1073741824\n"), "{yaml}");
    let status = node.json(&["status"]);
    assert_eq!(
        (&status["volumes"], &status["node"]["portals"][0]),
        (&json!(1), &json!(node.portal.to_string()))
    );
    assert!(node.ok(&["status"]).contains("1 volume, 1 target, 0 sessions\n"));
}

#[test]
fn how_to_set_up_hosts_is_printed_without_a_node() {
    for (system, says) in [
        ("linux", "sudo iscsiadm -m discovery -t sendtargets -p 10.1.1.5:3260"),
        ("esxi", "--address=10.1.1.5:3260"),
        ("windows", "-TargetPortalAddress 10.1.1.5 -TargetPortalPortNumber 3260"),
        ("proxmox", "pvesm add lvm ursa-db"),
    ] {
        let arguments = ["host-setup", system, "--target", "iqn.2026-11.io.ursa:db", "--portal", "10.1.1.5"];
        let output = ursa(&arguments).args(["--chap-user", "O'Neil"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(says), "{system}: {text}");
        assert!(text.contains("'O'\\''Neil'") || text.contains("'O''Neil'"), "{system}: {text}");
    }
    let bad = ursa(&["host-setup", "linux", "--portal", "10.1.1.5;reboot"]).output().unwrap();
    let message = String::from_utf8(bad.stderr).unwrap();
    assert!(bad.status.code() == Some(2) && message.contains("is not a name or an address"), "{message}");
}

#[test]
fn pool_forecast_and_whoami_print() {
    let node = Node::start(&[]);
    let text = node.ok(&["pool", "forecast"]);
    assert!(text.contains("No data on pools") || text.contains("No forecast yet"), "{text}");
    assert!(node.json(&["pool", "forecast", "--node", "all"])["items"].is_array());
    assert!(node.refused(1, &["pool", "forecast", "--node", "2"]).contains("not found"));
    let me = node.json(&["user", "whoami"]);
    assert_eq!((&me["role"], &me["by"]), (&json!("admin"), &json!("local")));
    assert!(node.ok(&["user", "whoami"]).contains("Login by  local"));
}

#[test]
fn snapshots_of_several_volumes() {
    let node = Node::start(&[]);
    for name in ["db", "logs"] {
        node.ok(&["volume", "create", name, "--size", "16M", "--kind", "log", "--no-map"]);
    }
    let text = node.ok(&["snapshot", "create", "db,logs", "--name", "before-upgrade"]);
    assert!(text.contains("Snapshot before-upgrade of ") && text.contains("I/O pause: "), "{text}");
    let table = node.ok(&["snapshot", "list", "db"]);
    assert!(table.starts_with("NUMBER  NAME            STATE     CREATED"), "{table}");
    assert!(table.contains("1       before-upgrade  complete"), "{table}");
    assert!(node.ok(&["snapshot", "show", "1"]).contains("present"));
    // Named after the time.
    let second = node.json(&["snapshot", "create", "logs"]);
    assert!(second["name"].as_str().unwrap().starts_with("20"), "{second}");
    assert_eq!(node.json(&["snapshot", "list"])["items"].as_array().unwrap().len(), 2);
    assert!(node.refused(1, &["snapshot", "create", "none"]).contains("not found"));
    let later = format!("logs@{}", second["name"].as_str().unwrap());
    assert!(node.ok(&["snapshot", "diff", "logs@before-upgrade", &later]).contains("the same"));
    let page = node.json(&["snapshot", "diff", "logs@1", "logs@2"]);
    assert_eq!(
        (&page["since"], &page["size"], &page["ranges"]),
        (&json!("before-upgrade"), &json!(16 << 20), &json!([]))
    );
    assert!(node.refused(2, &["snapshot", "diff", "logs@1"]).contains("ursa snapshot create logs"));
    assert!(node.refused(2, &["snapshot", "diff", "logs", "logs@2"]).contains("write VOLUME@SNAPSHOT"));
    assert!(node.refused(2, &["snapshot", "diff", "db@1", &later]).contains("the same volume"));
    assert!(node.refused(1, &["snapshot", "diff", "db@1", "db@2"]).contains("has nothing of volume"));
    assert!(node.ok(&["snapshot", "hold", "before-upgrade"]).contains("cannot be deleted"));
    assert!(node.refused(1, &["snapshot", "delete", "1", "2", "--yes"]).contains("ursa snapshot release"));
    assert!(node.ok(&["snapshot", "release", "before-upgrade"]).contains("released"));
    let would = node.ok(&["snapshot", "delete", "before-upgrade", "2", "--dry-run"]);
    assert!(would.contains("snapshot before-upgrade of volume db is deleted"), "{would}");
    node.ok(&["snapshot", "delete", "before-upgrade", "2", "--yes"]);
}

#[test]
fn snapshots_with_labels_that_expire() {
    let node = Node::start(&[]);
    node.ok(&["volume", "create", "db", "--size", "16M", "--kind", "log", "--no-map"]);
    let labels = ["--label", "app=shop", "--label", "ticket=4711"];
    node.ok(&[&["snapshot", "create", "db", "--name", "first", "--expires", "7d"][..], &labels].concat());
    node.ok(&["snapshot", "create", "db", "--name", "second"]);
    let names = |label: &str| {
        let list = node.json(&["snapshot", "list", "db", "--label", label]);
        list["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed: [Vec<String>; 3] = ["app", "app=shop,ticket", "app=mail"].map(names);
    assert_eq!(listed, [vec!["first".to_owned()], vec!["first".to_owned()], Vec::new()]);
    let shown = node.json(&["snapshot", "show", "first"]);
    let week = 7 * 86_400;
    assert_eq!(shown["expires"].as_u64().unwrap(), shown["created"].as_u64().unwrap() + week);
    assert!(node.ok(&["snapshot", "list"]).contains("app=shop, ticket=4711"));

    let change = |more: &[&'static str]| [&["snapshot", "change", "first"][..], more].concat();
    let text = node.ok(&change(&["--no-expiry", "--remove-label", "ticket", "--label", "app=mail"]));
    assert!(text.contains("never") && text.contains("app=mail") && !text.contains("4711"), "{text}");
    assert!(node.json(&change(&["--expires", "1d"]))["expires"].is_u64());
    assert!(node.refused(1, &change(&["--expires", "30s"])).contains("from one minute to ten years"));
    assert!(node.refused(2, &change(&["--label", "app"])).contains("KEY=VALUE"));
    assert!(node.refused(2, &change(&["--expires", "1d", "--no-expiry"])).contains("cannot be used with"));
    assert!(node.refused(1, &["snapshot", "create", "db", "--label", "a b=c"]).contains("1 to 63 letters"));
}

#[test]
fn commands_before_and_after_a_snapshot() {
    let node = Node::start(&[]);
    node.ok(&["volume", "create", "db", "--size", "16M", "--kind", "log", "--no-map"]);
    let log = node.directory.path().join("hooks");
    let write = |word: &str| format!("echo \"{word} $URSA_SNAPSHOT $URSA_VOLUMES\" >> {}", log.display());
    let (before, after) = (write("before"), write("after"));
    let create = |name: &str, before: &str, after: &str| {
        let hooks = ["--before", before, "--after", after, "--hook-timeout", "20s"];
        node.ursa(&[&["snapshot", "create", "db", "--name", name][..], &hooks].concat())
    };
    let logged = || std::fs::read_to_string(&log).unwrap();
    let taken = create("first", &before, &format!("{after}; echo not a part of the answer"));
    assert!(taken.status.success(), "{taken:?}");
    let text = String::from_utf8(taken.stdout).unwrap();
    assert!(text.starts_with("Snapshot first of db taken.") && !text.contains("not a part"), "{text}");
    assert_eq!(logged(), "before first db\nafter first db\n");

    // Nothing is taken, and what was frozen continues.
    let failed = create("second", &format!("{before}; echo no guest agent >&2; exit 5"), &after);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let text = String::from_utf8(failed.stderr).unwrap();
    let why = "no snapshot was taken: the command before it failed with exit code 5: no guest agent";
    assert!(text.contains(why), "{text}");
    assert!(logged().ends_with("before second db\nafter second db\n"), "{}", logged());
    let refused = create("first", &before, &after);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("first"), "its name is taken");
    assert!(logged().ends_with("before first db\nafter first db\n"), "{}", logged());
    assert_eq!(node.json(&["snapshot", "list"])["items"].as_array().unwrap().len(), 1);

    let thawed_not = create("third", &before, "echo guest is gone >&2; exit 6");
    assert_eq!(thawed_not.status.code(), Some(1), "{thawed_not:?}");
    let text = String::from_utf8(thawed_not.stderr).unwrap();
    assert!(
        text.contains("snapshot third was taken, but the command after it failed with exit code 6"),
        "{text}"
    );
    node.ok(&["snapshot", "show", "third"]);
}

#[test]
fn schedules_of_snapshots() {
    let node = Node::start(&[]);
    for name in ["db", "logs"] {
        node.ok(&["volume", "create", name, "--size", "16M", "--kind", "log", "--no-map"]);
    }
    let schedule = |arguments: &[&'static str]| [&["snapshot", "schedule"][..], arguments].concat();
    assert!(node.ok(&schedule(&["list"])).contains("ursa snapshot schedule create"));
    let create =
        ["create", "hourly", "--volumes", "db,logs", "--every", "1h", "--keep", "24", "--daily", "7"];
    let text = node.ok(&schedule(&create));
    assert!(text.contains("Schedule hourly created. Next snapshot of "), "{text}");
    assert!(node.refused(1, &schedule(&create)).contains("already exists"));
    let without = ["create", "other", "--volumes", "db", "--every", "1h"];
    assert!(node.refused(1, &schedule(&without)).contains("nothing would be kept"));
    assert!(node.ok(&schedule(&["list"])).contains("24 latest, 7 daily"));
    let change = ["change", "hourly", "--volumes", "db", "--every", "15m", "--keep", "96", "--weekly", "4"];
    node.ok(&schedule(&change));
    assert!(node.ok(&schedule(&["pause", "hourly"])).contains("is paused"));
    let shown = node.json(&schedule(&["show", "hourly"]));
    assert_eq!((&shown["volumes"], &shown["every"]), (&json!(["db"]), &json!(900)));
    assert_eq!((&shown["keep"], &shown["daily"], &shown["weekly"]), (&json!(96), &json!(7), &json!(4)));
    assert!(node.ok(&schedule(&["resume", "hourly"])).contains("Next snapshot of db"));
    assert!(node.ok(&schedule(&["show", "hourly"])).contains("96 latest, 7 daily, 4 weekly"));
    let would = node.ok(&schedule(&["delete", "hourly", "--dry-run"]));
    assert!(would.contains("no more snapshots of db are taken"), "{would}");
    assert!(node.ok(&schedule(&["delete", "hourly", "--yes"])).contains("Its snapshots stay"));
    assert!(node.refused(1, &schedule(&["show", "hourly"])).contains("ursa snapshot schedule list"));
}

#[test]
fn targets_maps_and_pools() {
    let node = Node::start(&[]);
    let target = "iqn.2026-11.example:shared";
    node.ok(&["target", "create", target, "--alias", "shared"]);
    for name in ["a", "b"] {
        node.ok(&["volume", "create", name, "--size", "16M", "--block-size", "4096", "--target", target]);
    }
    let maps = node.json(&["map", "list"]);
    let luns: Vec<_> = maps.as_array().unwrap().iter().map(|map| (&map["volume"], &map["lun"])).collect();
    assert_eq!(luns, [(&json!("a"), &json!(0)), (&json!("b"), &json!(1))]);
    assert!(node.ok(&["map", "list"]).contains("iqn.2026-11.example:shared  1    b       local"));
    node.ok(&["map", "delete", target, "1", "--yes"]);
    assert!(node.refused(1, &["target", "delete", target, "--yes"]).contains("force"));
    node.ok(&["target", "delete", target, "--yes", "--force"]);

    let path = node.directory.path().join("second.img");
    let path = path.to_str().unwrap();
    let pool = node.json(&["pool", "create", "second", path, "--size", "1G"]);
    assert_eq!((&pool["state"], &pool["disks"][0]["path"]), (&json!("online"), &json!(path)));
    node.ok(&["volume", "create", "c", "--size", "16M", "--pool", "second", "--no-map"]);
    node.ok(&["pool", "export", "second", "--yes"]);
    assert_eq!(node.json(&["pool", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(node.json(&["pool", "import", path])["volumes"], json!(1));
    assert_eq!(node.json(&["volume", "show", "c"])["pool"], json!("second"));
}

#[test]
fn destructive_commands_show_the_nodes_preview_and_ask() {
    let node = Node::start(&[]);
    node.ok(&["volume", "create", "db", "--size", "16M"]);
    node.ok(&["host", "create", "web", "--address", "10.1.0.0/16"]);
    node.ok(&["token", "create", "backup", "--role", "viewer"]);
    let id = node.json(&["token", "list"])[0]["id"].as_str().unwrap().to_owned();
    let target = "iqn.2026-11.io.ursa:db";
    let commands: [(&[&str], &str); 5] = [
        (&["map", "delete", target, "0"], "host group local loses access to volume db, LUN 0"),
        (&["target", "delete", target, "--force"], "target iqn.2026-11.io.ursa:db is deleted"),
        (&["volume", "delete", "db", "--force"], "volume db is deleted"),
        (&["host", "delete", "web"], "host group web is deleted"),
        (&["token", "delete", &id], "programs that use it lose access"),
    ];
    for (command, step) in commands {
        let unasked = node.refused(2, command);
        assert!(unasked.contains(step) && unasked.contains("--yes"), "{command:?}: {unasked}");
        let would = node.ok(&[command, &["--dry-run"]].concat());
        assert!(would.contains(step) && would.ends_with("Nothing was changed.\n"), "{command:?}: {would}");
        let told = node.json(&[command, &["--dry-run"]].concat());
        assert!(told["would"].to_string().contains(step), "{command:?}: {told}");
    }
    let would = node.ok(&["host", "set", "web", "--address", "10.2.0.0/16", "--dry-run"]);
    let changes_nothing = would.ends_with("Nothing was changed.\n");
    assert!(would.contains("10.2.0.0/16 matches") && changes_nothing, "{would}");
    assert_eq!(node.json(&["host", "show", "web"])["addresses"][0], "10.1.0.0/16");
    let nothing: [(&[&str], &str); 3] = [
        (&["user", "delete", "eva"], "not found"),
        (&["session", "end", "9"], "not found"),
        (&["job", "cancel", "change.9"], "not found"),
    ];
    for (command, why) in nothing {
        let refused = node.refused(1, command);
        assert!(refused.contains(why), "{command:?}: {refused}");
        assert_eq!(refused, node.refused(1, &[command, &["--yes"]].concat()), "{command:?}");
    }
    // Nothing was changed.
    assert_eq!(node.json(&["volume", "show", "db"])["maps"][0]["lun"], 0);
    assert_eq!(node.json(&["host", "show", "web"])["addresses"], json!(["10.1.0.0/16"]));
    // The first two are removed with the volume.
    for (command, _) in &commands[2..] {
        node.ok(&[*command, &["--yes"]].concat());
    }
    assert_eq!(node.json(&["volume", "list"]), json!([]));
    assert_eq!(node.json(&["token", "list"]), json!([]));
    node.refused(1, &["host", "show", "web"]);
}

#[test]
fn secrets_go_in_and_never_come_out() {
    let node = Node::start(&[]);
    let secret = "correct horse";
    let mut child = ursa(&["host", "create", "web", "--chap-user", "alice", "-o", "json"])
        .env("URSA_API", format!("http://{}", node.api))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{secret}").unwrap();
    let output = child.wait_with_output().unwrap();
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["chap_user"], "alice");

    let file = node.directory.path().join("secret");
    std::fs::write(&file, "another secret\n").unwrap();
    let file = file.to_str().unwrap();
    node.ok(&["host", "create", "db", "--chap-user", "bob", "--chap-secret-file", file]);
    node.ok(&["host", "set", "db", "--address", "10.1.0.0/16"]);
    let db = node.json(&["host", "show", "db"]);
    assert_eq!((&db["chap_user"], &db["addresses"]), (&json!("bob"), &json!(["10.1.0.0/16"])));
    node.ok(&["host", "set", "db", "--no-chap"]);
    let db = node.json(&["host", "show", "db"]);
    assert_eq!((&db["chap_user"], &db["addresses"]), (&json!(null), &json!(["10.1.0.0/16"])));

    let all = node.ok(&["host", "list", "-o", "json"]) + &node.ok(&["host", "list"]);
    let log = std::fs::read_to_string(node.directory.path().join("log")).unwrap();
    for shown in [&all, &log] {
        assert!(!shown.contains(secret) && !shown.contains("another secret"), "{shown}");
    }
}

#[test]
fn the_exit_code_says_how_it_is() {
    let node = Node::start(&["--volume", "demo=64M,ram"]);
    assert_eq!(node.ok(&["status", "--check"]), "healthy\n");
    assert_eq!(node.json(&["status", "--check"])["health"], "healthy");
    let status = node.json(&["status"]);
    assert_eq!(
        (&status["findings"], &status["losses"][0]),
        (&json!([]), &json!("if node 1 is lost: demo: DATA LOST (the only copy in sync is in memory)"))
    );

    // The pool of a single node is missing.
    let path = node.directory.path().join("second.img");
    node.ok(&["pool", "create", "second", path.to_str().unwrap(), "--size", "1G"]);
    let directory = node.stop().0;
    std::fs::remove_file(directory.path().join("second.img")).unwrap();
    let node = Node::start_in(directory, &[]);
    let output = node.ursa(&["status", "--check"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("CRITICAL: Pool second on node 1 (") && said.contains("is unavailable: "),
        "{said}"
    );
    let output = node.ursa(&["status"]);
    assert!(output.status.success(), "without --check it was asked, and has answered");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("Bring its disks back, then reopen it: ursa pool reopen second --node 1\n"),
        "{said}"
    );

    // One of two nodes is down.
    let listen = crate::node::free_address().to_string();
    let second = Node::start(&[]);
    second.ok(&["node", "init", "--listen", &listen]);
    assert_eq!(second.ok(&["status", "--check"]), "healthy\n");
    let third = Node::start(&[]);
    let token = second.ok(&["node", "token"]);
    third.ok(&["node", "join", token.trim(), "--listen", &crate::node::free_address().to_string()]);
    third.kill();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let output = loop {
        let output = second.ursa(&["status", "--check"]);
        // It may be found silent (3) before it counts as down.
        if output.status.code() == Some(2) || std::time::Instant::now() > end {
            break output;
        }
    };
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("CRITICAL: Node 2 (") && said.contains(" is down"), "{said}");

    let nobody = format!("http://{}", crate::node::free_address());
    let output = ursa(&["status", "--check"]).env("URSA_API", &nobody).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = ursa(&["status"]).env("URSA_API", &nobody).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn manual_pages_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let output = ursa(&["man", directory.path().join("man1").to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(directory.path().join("man1/ursa-status.1")).unwrap();
    assert!(page.contains("2: critical, 3: warning"), "{page}");
    let output = ursa(&["man", "/dev/null/man1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn shells_can_complete() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ursa(&["completion", shell]).output().unwrap();
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
}
