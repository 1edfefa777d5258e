//! Snapshots while a host writes, and nodes are killed.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

use e2e::pattern::{self, SECTOR};
use e2e::raw::{Raw, in_spite_of_attentions};
use e2e::{Export, Node};

use crate::cluster::{TARGET, cluster_of_three, ready, wait, wait_until_in_sync};
use crate::first_copy::{written_after, written_while};
use crate::set_back::{BLOCKS, expect, expect_blocks, put};

/// Until a node that returns has deleted what was deleted meanwhile, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The snapshots that a node lists, with their states.
fn listed(node: &Node) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let list = node.ursa_json(&["snapshot", "list", "demo"]);
    let items = list["items"].as_array().expect("a list").clone();
    items.iter().map(|item| (text(&item["name"]), text(&item["state"]))).collect()
}

/// Three nodes, with a log volume on the first two.
pub fn with_log_volume() -> [Node; 3] {
    let nodes = cluster_of_three();
    let create =
        ["volume", "create", "demo", "--size", "64M", "--kind", "log", "--on", "1,2", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    wait_until_in_sync(&nodes[0], "demo");
    nodes
}

#[test]
fn snapshots_are_taken_while_a_host_writes_and_survive_kills() {
    let mut nodes = with_log_volume();
    let (first, others) = nodes.split_at_mut(1);
    let last = written_while(&first[0], || {
        for (number, node) in [&others[1], &first[0], &others[0]].into_iter().enumerate() {
            let name = format!("s{number}");
            let taken = node.ursa_json(&["snapshot", "create", "demo", "--name", &name]);
            let pause = taken["pause_us"].as_u64().expect("it is measured");
            println!("hosts had to wait for {pause} us");
            assert!(pause < 500_000, "{taken}");
        }
        others[0].kill();
        // It is excluded first.
        wait(LIMIT, "a snapshot without the other node", || {
            first[0].ursa(&["snapshot", "create", "demo", "--name", "alone"]).ok()
        });
        first[0].ursa(&["snapshot", "delete", "s1", "--yes"]).expect_ok();
        thread::sleep(Duration::from_secs(2));
        assert!(listed(&first[0]).contains(&("s1".into(), "deleting".into())));
        others[0].restart();
        wait_until_in_sync(&first[0], "demo");
    });
    let names = |node: &Node| listed(node).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    for node in &nodes {
        wait(LIMIT, "the deleted snapshot is gone", || names(node) == ["s0", "s2", "alone"]);
    }
    let shown = nodes[2].ursa_json(&["snapshot", "show", "alone"]);
    let states: Vec<&str> = shown["volumes"][0]["copies"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|copy| copy["state"].as_str().expect("a text"))
        .collect();
    assert_eq!(states, ["present", "absent"]);
    let removed = nodes[0].ursa(&["volume", "copy", "remove", "demo", "--on", "1", "--yes"]);
    assert!(!removed.ok() && removed.output.contains("alone"), "{}", removed.output);

    // After the power of all nodes has failed, everything is there.
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::restart);
    wait_until_in_sync(&nodes[0], "demo");
    wait(LIMIT, "all snapshots are there", || {
        let shown = nodes[0].ursa_json(&["snapshot", "show", "s0"]);
        let copies = shown["volumes"][0]["copies"].as_array().expect("a list").clone();
        copies.iter().all(|copy| copy["state"] == "present")
    });
    expect(&nodes[1], last);
    nodes[0].ursa(&["snapshot", "delete", "s0", "s2", "alone", "--yes"]).expect_ok();
    wait(LIMIT, "all snapshots are deleted", || listed(&nodes[0]).is_empty());
}

#[test]
fn volumes_are_restored_in_place_and_survive_kills() {
    let mut nodes = with_log_volume();
    let before = written_while(&nodes[0], || ());
    nodes[0].ursa(&["snapshot", "create", "demo", "--name", "first"]).expect_ok();
    let after = written_after(before, &nodes[0], || {
        // A host is logged in.
        let refused = nodes[2].ursa(&["snapshot", "restore", "first", "--yes"]);
        assert!(!refused.ok() && refused.output.contains("in use"), "{}", refused.output);
    });
    expect(&nodes[1], after);
    wait(LIMIT, "the host has logged out", || {
        let shown = nodes[2].ursa(&["snapshot", "restore", "first", "--dry-run"]);
        shown.ok() && shown.output.contains("demo becomes")
    });
    let restored = nodes[2].ursa_json(&["snapshot", "restore", "first", "--yes"]);
    println!("hosts had to wait for {} us", restored["pause_us"]);
    let kept = restored["kept"]["name"].as_str().expect("a text").to_owned();
    expect(&nodes[0], before);
    expect(&nodes[1], before);

    // After the power of all nodes has failed, everything is there.
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::restart);
    wait_until_in_sync(&nodes[0], "demo");
    expect(&nodes[1], before);
    // Back, while a node with a copy is down.
    nodes[1].kill();
    wait(LIMIT, "a restore without the other node", || {
        nodes[0].ursa(&["snapshot", "restore", &kept, "--discard", "--yes", "--force"]).ok()
    });
    expect(&nodes[0], after);
    nodes[1].restart();
    wait_until_in_sync(&nodes[0], "demo");
    expect(&nodes[1], after);
}

/// The numbers that the host's blocks have in an image of the volume.
pub fn numbers(image: &Path) -> Vec<u64> {
    let image = fs::read(image).expect("the image can be read");
    assert_eq!(image.len(), 64 << 20, "it has the size of the volume");
    let number = |block: u64| {
        let start = block as usize * 8 * SECTOR;
        pattern::stamp(&image[start..start + SECTOR], 1, block * 8).expect("a block of the host")
    };
    BLOCKS.map(number).collect()
}

/// A backup through a node without a copy, while a host writes: a full export, an incremental one, and what
/// becomes of them.
#[test]
fn snapshots_are_exported_and_imported_while_a_host_writes() {
    let nodes = with_log_volume();
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = |name: &str| dir.path().join(name).to_str().expect("a text").to_owned();
    let (full, later, whole) = (path("full"), path("later"), path("whole"));
    put(&nodes[0], BLOCKS, 1);
    nodes[0].ursa(&["snapshot", "create", "demo", "--name", "first"]).expect_ok();
    let last = written_while(&nodes[0], || {
        nodes[0].ursa(&["snapshot", "create", "demo", "--name", "second"]).expect_ok();
        nodes[2].ursa(&["snapshot", "export", "demo@first", &full]).expect_ok();
        nodes[2].ursa(&["snapshot", "export", "demo@second", &later, "--since", "demo@first"]).expect_ok();
        nodes[1].ursa(&["snapshot", "export", "demo@second", &whole]).expect_ok();
    });
    let len = |file: &str| fs::metadata(file).expect("it was written").len();
    assert!(len(&full) < 16 << 20, "zeros are left out: {}", len(&full));

    let (image, other) = (path("image"), path("other"));
    let import = |files: &[&str], to: &str| {
        nodes[2].ursa(&[&["snapshot", "import"][..], files, &["--to", to]].concat())
    };
    let refused = import(&[&later], &image);
    assert!(!refused.ok() && refused.output.contains("demo@first"), "{}", refused.output);
    import(&[&full], &image).expect_ok();
    assert!(numbers(Path::new(&image)).iter().all(|number| *number == 1));
    import(&[&later], &image).expect_ok();
    import(&[&whole], &other).expect_ok();
    let second = numbers(Path::new(&image));
    assert!(second.is_sorted_by(|one, next| one >= next), "the host writes block after block: {second:?}");
    let (newest, oldest) = (second[0], second[second.len() - 1]);
    assert!(newest - oldest <= 1 && newest > 1 && newest <= last, "{oldest} to {newest} of {last}");
    let read = |path: &str| fs::read(path).expect("it was written");
    assert!(read(&image) == read(&other), "a full export and an incremental one make the same");

    // As if the command had been interrupted.
    let cut = File::options().write(true).open(&whole).and_then(|file| file.set_len(len(&whole) / 2));
    cut.expect("the file can be cut");
    let refused = import(&[&whole], &path("third"));
    assert!(!refused.ok() && refused.output.contains("incomplete"), "{}", refused.output);
    let exists = nodes[2].ursa(&["snapshot", "export", "demo@second", &whole]);
    assert!(!exists.ok() && exists.output.contains("--resume"), "{}", exists.output);
    nodes[2].ursa(&["snapshot", "export", "demo@second", &whole, "--resume"]).expect_ok();
    let again = nodes[2].ursa(&["snapshot", "export", "demo@second", &whole, "--resume"]).expect_ok();
    assert!(again.contains("already"), "{again}");
    import(&[&whole], &path("third")).expect_ok();
    assert!(read(&path("third")) == read(&image), "what was continued makes the same");
}

/// A session with the clone, which is LUN 1.
fn session_with_clone(node: &Node) -> Raw {
    ready(&Export { portals: node.portals().to_vec(), target: TARGET.to_owned(), lun: 1, chap: None })
}

/// The numbers that the host's blocks have in the clone.
fn numbers_in_clone(node: &Node) -> Vec<u64> {
    let mut raw = session_with_clone(node);
    let number = |block: u64| {
        let read = in_spite_of_attentions(|| raw.read(block * 8, 8, 8 * SECTOR));
        let data = read.unwrap_or_else(|error| panic!("block {block}: {error}"));
        pattern::stamp(&data[..SECTOR], 1, block * 8).expect("a block of the host")
    };
    BLOCKS.map(number).collect()
}

/// A clone is created through a node without a copy while a host writes. It equals the snapshot, and neither
/// volume shows what is written to the other one, whatever is killed.
#[test]
fn clones_are_created_while_a_host_writes_and_survive_kills() {
    let mut nodes = with_log_volume();
    let last = written_while(&nodes[0], || {
        nodes[1].ursa(&["snapshot", "create", "demo", "--name", "first"]).expect_ok();
        let cloned = nodes[2].ursa_json(&["snapshot", "clone", "first", "--name", "test"]);
        println!("it took {} us", cloned["took_us"]);
        assert_eq!(cloned["clones"][0]["name"], "test", "{cloned}");
    });
    nodes[0].ursa(&["map", "create", TARGET, "test", "--host", "local", "--lun", "1"]).expect_ok();
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = |name: &str| dir.path().join(name).to_str().expect("a text").to_owned();
    nodes[2].ursa(&["snapshot", "export", "demo@first", &path("first")]).expect_ok();
    nodes[2].ursa(&["snapshot", "import", &path("first"), "--to", &path("image")]).expect_ok();
    let mut expected = numbers(Path::new(&path("image")));
    assert_eq!(numbers_in_clone(&nodes[0]), expected);
    assert_eq!(numbers_in_clone(&nodes[1]), expected);

    let mut raw = session_with_clone(&nodes[1]);
    for block in 0..8 {
        let data = pattern::stamped(1, last + 7, block * 8, 8 * SECTOR);
        let written = in_spite_of_attentions(|| raw.write(block * 8, 8, &data, true));
        written.unwrap_or_else(|error| panic!("block {block}: {error}"));
        expected[block as usize] = last + 7;
    }
    drop(raw);
    expect(&nodes[0], last);
    put(&nodes[0], 8..16, last + 1);
    let check = |nodes: &[Node; 3]| {
        assert_eq!(numbers_in_clone(&nodes[0]), expected);
        assert_eq!(numbers_in_clone(&nodes[1]), expected);
        expect_blocks(&nodes[1], 0..8, last);
        expect_blocks(&nodes[1], 8..16, last + 1);
    };
    check(&nodes);

    // After the power of all nodes has failed, everything is there.
    nodes.iter_mut().for_each(Node::kill);
    nodes.iter_mut().for_each(Node::restart);
    wait_until_in_sync(&nodes[0], "demo");
    wait_until_in_sync(&nodes[0], "test");
    check(&nodes);

    let list = nodes[2].ursa(&["volume", "list"]).expect_ok();
    assert!(list.contains("demo@first"), "{list}");
    let refused = |nodes: &[Node; 3], arguments: &[&str], why: &str| {
        let refused = nodes[0].ursa(arguments);
        assert!(!refused.ok() && refused.output.contains(why), "{}", refused.output);
    };
    refused(&nodes, &["snapshot", "delete", "first", "--yes"], "has clones");
    refused(&nodes, &["volume", "delete", "demo", "--force", "--yes"], "has snapshots");
    refused(&nodes, &["volume", "copy", "remove", "demo", "--on", "2", "--yes"], "test");

    // A node with a copy is down.
    nodes[1].kill();
    let refused = nodes[0].ursa(&["snapshot", "clone", "first", "--name", "two"]);
    assert!(!refused.ok(), "{}", refused.output);
    wait(LIMIT, "clones without the other node", || {
        nodes[0].ursa(&["snapshot", "clone", "first", "--name", "vm", "--count", "3", "--copies", "1"]).ok()
    });
    nodes[1].restart();
    wait_until_in_sync(&nodes[0], "demo");
    wait_until_in_sync(&nodes[0], "test");
    check(&nodes);
    assert!(!nodes[2].ursa(&["volume", "show", "two"]).ok(), "nothing is left of it");

    for name in ["test", "vm-1", "vm-2", "vm-3"] {
        nodes[2].ursa(&["volume", "delete", name, "--force", "--yes"]).expect_ok();
    }
    nodes[2].ursa(&["snapshot", "delete", "first", "--yes"]).expect_ok();
    wait(LIMIT, "the snapshot is deleted", || listed(&nodes[0]).is_empty());
}
