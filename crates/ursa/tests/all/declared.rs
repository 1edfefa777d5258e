//! Configuration files: applied, compared, exported.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::node::{Node, free_address};

const TARGET: &str = "iqn.2026-11.example:shared";

/// Writes the file and returns its path.
fn file(node: &Node, text: &str) -> String {
    let path = node.directory.path().join("san.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn text(size: &str, more: &str) -> String {
    format!(
        r#"
        [[host]]
        name = "web"
        initiators = ["iqn.2026-11.example:web1"]
        chap-user = "alice"
        chap-secret-file = "SECRET"

        [[target]]
        name = "{TARGET}"
        alias = "shared"

        [[volume]]
        name = "db"
        size = "{size}"
        on = [1]

        [[map]]
        target = "{TARGET}"
        volume = "db"
        host = "web"
        lun = 3
        {more}
        "#
    )
}

const NOTHING: &str = "Nothing to do: the configuration matches the file.\n";

#[test]
fn a_file_is_applied_once_and_changes_only_what_differs() {
    let node = Node::start(&[]);
    node.ok(&["node", "init", "--listen", &free_address().to_string()]);
    let secret = node.directory.path().join("secret");
    std::fs::write(&secret, "correct horse\n").unwrap();
    let text = |size, more| text(size, more).replace("SECRET", secret.to_str().unwrap());

    let path = file(&node, &text("64M", ""));
    let made = "+ host web\n+ target iqn.2026-11.example:shared\n+ volume db: 64M, a single copy on node 1\n\
                + map of volume db: LUN 3 of iqn.2026-11.example:shared for host web\n";
    assert_eq!(node.ok(&["diff", "-f", &path]), made);
    assert_eq!(node.ok(&["apply", "-f", &path, "--dry-run"]), made);
    assert_eq!(node.json(&["volume", "list"]), json!([]), "nothing was changed");
    assert!(node.ok(&["apply", "-f", &path]).ends_with("4 changes applied.\n"));
    assert_eq!(node.ok(&["apply", "-f", &path]), NOTHING);
    assert_eq!(node.ok(&["diff", "-f", &path, "--exit-code"]), NOTHING);
    let volume = node.json(&["volume", "show", "db"]);
    assert_eq!((&volume["maps"][0]["lun"], &volume["copies"][0]["node"]), (&json!(3), &json!(1)));
    assert_eq!(node.json(&["host", "show", "web"])["chap_user"], "alice");

    // The exported file describes the present configuration.
    let exported = node.ok(&["export"]);
    assert!(!exported.contains("correct horse"), "{exported}");
    let other = file(&node, &exported);
    assert_eq!(node.ok(&["apply", "-f", &other, "--prune"]), NOTHING);

    let grown = file(&node, &text("128M", ""));
    let output = node.ursa(&["diff", "-f", &grown, "--exit-code"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "~ volume db: from 64M to 128M\n");
    let answer = node.json(&["apply", "-f", &grown]);
    assert_eq!(answer, json!({"done": ["~ volume db: from 64M to 128M"], "not_done": [], "waiting": []}));
    assert!(
        node.refused(1, &["apply", "-f", &file(&node, &text("64M", ""))]).contains("volumes can only grow")
    );
    assert_eq!(node.json(&["volume", "show", "db"])["size"], json!(128u64 << 20));
}

#[test]
fn a_failed_apply_says_what_was_done_and_what_was_not() {
    let node = Node::start(&[]);
    let path = file(
        &node,
        r#"
        [[volume]]
        name = "a"
        size = "16M"
        [[volume]]
        name = "b"
        size = "9T"
        [[volume]]
        name = "c"
        size = "16M"
        "#,
    );
    let output = node.ursa(&["apply", "-f", &path]);
    let [said, why] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(1), "{said}{why}");
    assert_eq!(said, "+ volume a: 16M\nNot done:\n+ volume c: 16M\n");
    assert!(why.contains("1 of 3 changes applied, then this one failed: + volume b: 9T"), "{why}");
    assert!(why.contains("free"), "the cause is said, too: {why}");
    let left = file(&node, &std::fs::read_to_string(&path).unwrap().replace("9T", "32M"));
    assert_eq!(node.ok(&["apply", "-f", &left]), "+ volume b: 32M\n+ volume c: 16M\n2 changes applied.\n");
}

#[test]
fn nothing_is_destroyed_without_prune_and_a_yes() {
    let node = Node::start(&["--volume", "demo=64M,ram"]);
    node.ok(&["volume", "create", "old", "--size", "16M"]);
    let path = file(&node, "[[volume]]\nname = \"demo\"\nsize = \"64M\"\n");
    let diff = node.ok(&["diff", "-f", &path]);
    assert!(diff.starts_with(NOTHING) && diff.contains("\n  volume old: 16M\n"), "{diff}");
    assert_eq!(node.ok(&["apply", "-f", &path]), NOTHING);
    let question = node.refused(2, &["apply", "-f", &path, "--prune"]);
    assert!(
        question.contains("DELETE VOLUME old (16M) WITH ALL ITS DATA") && question.contains("--yes"),
        "{question}"
    );
    assert_eq!(node.json(&["volume", "list"]).as_array().unwrap().len(), 2);
    let empty = node.directory.path().join("empty.toml");
    std::fs::write(&empty, "# nothing\n").unwrap();
    assert!(
        node.refused(2, &["apply", "-f", empty.to_str().unwrap(), "--prune", "--yes"]).contains("everything")
    );

    let done = node.ok(&["apply", "-f", &path, "--prune", "--yes"]);
    assert!(done.contains("- volume old: 16M with all its data\n"), "{done}");
    assert_eq!(node.json(&["volume", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(node.json(&["target", "list"]), json!([]), "the file names none");
    assert_eq!(node.ok(&["apply", "-f", &path, "--prune", "--yes"]), NOTHING);
    assert!(node.refused(2, &["apply", "-f", "/nowhere.toml"]).contains("/nowhere.toml"));
}

#[test]
fn a_copy_moves_and_nothing_is_done_twice() {
    let nodes = [(); 3].map(|()| Node::start(&[]));
    nodes[0].ok(&["node", "init", "--listen", &free_address().to_string()]);
    for node in &nodes[1..] {
        let token = nodes[0].ok(&["node", "token"]);
        node.ok(&["node", "join", token.trim(), "--listen", &free_address().to_string()]);
    }
    let text = |on| format!("[[volume]]\nname = \"db\"\nsize = \"64M\"\non = {on}\n");
    // New nodes get no copies until the others have heard from them.
    let end = Instant::now() + Duration::from_secs(60);
    let apply = |text: &str, arguments: &[&str]| {
        let path = file(&nodes[0], text);
        loop {
            let output = nodes[0].ursa(&[&["apply", "-f", &path], arguments].concat());
            if output.status.success() || Instant::now() > end {
                assert!(output.status.success(), "{output:?}");
                return String::from_utf8(output.stdout).unwrap();
            }
            thread::sleep(Duration::from_millis(200));
        }
    };
    assert!(apply(&text("[1, 2]"), &[]).contains("+ volume db: 64M on nodes 1, 2\n"));
    assert_eq!(apply(&text("[2, 1]"), &[]), NOTHING);
    let moved = apply(&text("[1, 3]"), &["--prune", "--yes"]);
    assert!(moved.contains("~ copy of volume db: from node 2 to node 3\n"), "{moved}");
    assert_eq!(apply(&text("[1, 3]"), &["--prune", "--yes"]), NOTHING, "it is under way");
    loop {
        let copies = nodes[0].json(&["volume", "show", "db"])["copies"].clone();
        let copies = copies.as_array().unwrap();
        let on: Vec<_> = copies.iter().map(|copy| (&copy["node"], &copy["state"])).collect();
        if on == [(&json!(1), &json!("in_sync")), (&json!(3), &json!("in_sync"))] {
            break;
        }
        assert!(Instant::now() < end, "{copies:?}");
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(apply(&text("[1, 3]"), &["--prune", "--yes"]), NOTHING);
    let check = nodes[0].ursa(&["status", "--check"]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
}
