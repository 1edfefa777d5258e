//! Invalid requests and settings fail with the reason and what to do.

use std::path::Path;

use crate::node::{Node, free_address, serve, ursa};

#[track_caller]
fn refused(command: &mut std::process::Command, code: i32, says: &[&str]) {
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{message}");
    for part in says {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn one_directory_serves_one_node() {
    let node = Node::start(&[]);
    let data = node.directory.path().join("data");
    let says = ["another ursa is running on", "--data-dir"];
    refused(&mut serve(&data, free_address(), free_address()), 1, &says);
    node.ok(&["status"]);
}

#[test]
fn a_port_in_use_is_named() {
    let node = Node::start(&[]);
    let other = tempfile::TempDir::new().unwrap();
    let says = [&*format!("cannot listen for iSCSI at {}", node.portal), "--iscsi-listen"];
    refused(&mut serve(other.path(), node.portal, free_address()), 1, &says);
    let says = [&*format!("cannot listen for the API at {}", node.api), "--api-listen"];
    refused(&mut serve(other.path(), free_address(), node.api), 1, &says);
}

#[test]
fn a_certificate_has_its_key() {
    let mut half = ursa(&["serve", "--api-certificate", "/nowhere/c.pem"]);
    refused(&mut half, 2, &["--api-key"]);
    // With invalid certificate files, volumes are still served, and programs on this machine still have
    // access.
    let node = Node::start(&["--api-certificate", "/nowhere/c.pem", "--api-key", "/nowhere/k.pem"]);
    node.ok(&["volume", "list"]);
    let found = api::Client::new(&format!("http://{}", node.api)).findings().unwrap();
    assert!(found.iter().any(|finding| finding.cause.contains("/nowhere/c.pem")), "{found:?}");
    let events = node.json(&["events", "--limit", "1000"]).to_string();
    assert!(events.contains("certificate_unavailable"), "{events}");
}

#[test]
fn settings_that_are_none_are_refused() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("ursa.toml");
    let with = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = ursa(&["serve", "--print-config", "--config"]);
        command.arg(&file);
        command
    };
    refused(&mut with("iscsi-lissten = []\n"), 2, &["iscsi-lissten", "iscsi-listen", "line 1"]);
    refused(&mut with("name = 'a'\nram-max = '1X'\n"), 2, &["ram-max", "\"1X\" is not a size", "line 2"]);
    refused(&mut with("api-listen = []\n"), 2, &["api-listen is empty"]);
    let elsewhere = "api-listen = ['10.1.1.5:3281']\n";
    refused(&mut with(elsewhere), 2, &["the command line on this node", "127.0.0.1:3281"]);
    refused(&mut with("api-key = 'k'\n"), 2, &["api-certificate and api-key belong together"]);
    refused(&mut with("iscsi-listen = []\n"), 2, &["iscsi-listen is empty"]);
    refused(&mut with("etcd = ['10.0.0.9:2379']\n"), 2, &["etcd", "http://HOST:PORT"]);
    refused(&mut with("etcd = ['https://10.0.0.9:2379']\n"), 2, &["CA of etcd's certificate", "etcd-ca"]);
    refused(&mut with("etcd-ca = 'ca.pem'\n"), 2, &["etcd-ca is set, but not `etcd`"]);
    let half = "etcd = ['http://10.0.0.9:2379']\netcd-user = 'u'\n";
    refused(&mut with(half), 2, &["etcd-user and etcd-password-file belong together"]);
    refused(&mut with("log = 'info,,=='\n"), 2, &["log filter"]);
    refused(&mut with("read-confirm = 'sometimes'\n"), 2, &["read-confirm", "auto", "always", "never"]);
    refused(
        &mut ursa(&["serve", "--config", "/nowhere/ursa.toml"]),
        2,
        &["/nowhere/ursa.toml", "No such file"],
    );
    refused(&mut ursa(&["serve", "--cores", "0"]), 2, &["neither a number of cores"]);
}

#[test]
fn the_command_line_wins_over_the_file() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("ursa.toml");
    std::fs::write(&file, "name = 'file'\nread-confirm = 'never'\ncores = '1,0'\nram-max = '3G'\nvolume = ['a=1G,ram']\n\
        etcd = ['https://a:1', 'https://b:2']\netcd-ca = '/ca'\netcd-certificate = '/c'\netcd-key = '/k'\netcd-user = 'u'\netcd-password-file = '/p'\n").unwrap();
    let print = |more: &[&str], file: &Path| {
        let output = ursa(&["serve", "--print-config", "--config"]).arg(file).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = print(&["--name", "line", "--data-dir", "/d"], &file);
    for line in [
        "name = \"line\"",
        "cores = \"1,0\"",
        "read-confirm = \"never\"",
        "ram-max = \"3G\"",
        "volume = [\"a=1G,ram\"]",
        "etcd-key = \"/k\"",
    ] {
        assert!(printed.contains(line), "{line} is not in:\n{printed}");
    }
    // The printed text is a settings file with the same meaning.
    std::fs::write(&file, &printed).unwrap();
    assert_eq!(print(&[], &file), printed);
}

/// The detected machine depends on where the test runs.
#[test]
fn a_node_shows_whether_reads_are_confirmed() {
    let shown = |arguments: &[&str]| {
        let node = Node::start(arguments);
        let confirm = node.json(&["node", "show"])["read_confirm"].clone();
        (confirm["setting"].clone(), confirm["on"].as_bool().unwrap(), !confirm["hypervisor"].is_null())
    };
    let (setting, on, is_virtual) = shown(&[]);
    assert_eq!((setting, on), ("auto".into(), is_virtual));
    let (setting, on, _) = shown(&["--read-confirm", "never"]);
    assert_eq!((setting, on), ("never".into(), false));
    let (setting, on, _) = shown(&["--read-confirm", "always"]);
    assert_eq!((setting, on), ("always".into(), true));
}

#[test]
fn a_directory_that_cannot_be_is_named() {
    let mut command = serve(Path::new("/proc/ursa"), free_address(), free_address());
    refused(&mut command, 1, &["/proc/ursa", "--data-dir"]);
}

#[test]
fn no_node_answering_has_its_own_exit_code() {
    let nobody = format!("http://{}", free_address());
    refused(&mut ursa(&["volume", "list", "--api", &nobody]), 3, &["no node answers", "ursa serve", "--api"]);
}
