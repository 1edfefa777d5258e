//! The Linux kernel's initiator, dm-multipath and reservations, in a guest, as a host of a volume that two nodes have.

use e2e::{Export, Guest, Node};
use serde_json::Value;

use crate::cluster::{cluster_of_three, wait_until_in_sync};
use crate::guest::script;

const TARGET: &str = "iqn.2026-11.io.ursa:shared";

/// Makes a volume with copies on the first two nodes: what leads to it by one portal of each.
fn create(nodes: &[Node; 3], name: &str) -> Export {
    nodes[0]
        .ursa(&["volume", "create", name, "--size", "128M", "--on", "1,2", "--target", TARGET])
        .expect_ok();
    wait_until_in_sync(&nodes[0], name);
    let portals = nodes[..2].iter().map(|node| node.portals()[0]).collect();
    Export { portals, target: TARGET.to_owned(), lun: 0, chap: None }
}

/// What the product tells its users to type.
fn host_setup(node: &Node, export: &Export) -> String {
    let mut arguments = vec!["host-setup".to_owned(), "linux".into(), "--target".into(), TARGET.into()];
    for portal in Guest::portals(export) {
        arguments.extend(["--portal".to_owned(), portal]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let text = node.ursa(&arguments).expect_ok();
    format!("cat >/run/host-setup <<'PRINTED'\n{text}PRINTED")
}

#[test]
fn multipath_goes_on_without_a_node_and_takes_it_back() {
    let mut nodes = cluster_of_three();
    let export = create(&nodes, "db");
    let Some(guest) = Guest::start("crash") else { return };
    let states =
        |wanted: &str| guest.run(&export, &format!("WANTED='{wanted}'"), script!("paths")).expect_ok();
    guest.run(&export, &host_setup(&nodes[0], &export), script!("host-setup")).expect_ok();
    guest.run(&export, "", script!("write-on")).expect_ok();
    states("active active");
    nodes[1].kill();
    states("active lost");
    // It would be in sync again before an emulated host has looked.
    nodes[0].ursa(&["node", "maintenance", "2", "on"]).expect_ok();
    nodes[1].restart();
    states("active unavailable");
    nodes[0].ursa(&["node", "maintenance", "2", "off"]).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    states("active active");
    guest.run(&export, "", script!("write-end")).expect_ok();
    let found = nodes[0].ursa_json(&["volume", "verify", "db"]);
    assert_eq!(found["equal"], Value::Bool(true), "{found}");
}

#[test]
fn what_one_node_has_promised_the_other_keeps() {
    let mut nodes = cluster_of_three();
    let export = create(&nodes, "db");
    let Some(guest) = Guest::start("promised") else { return };
    guest.run(&export, "", script!("two-hosts")).expect_ok();
    guest.run(&export, "", script!("reservations")).expect_ok();
    guest.run(&export, "", script!("compare-and-write")).expect_ok();
    guest.run(&export, "", script!("reserve-for-good")).expect_ok();
    nodes[0].kill();
    guest.run(&export, "", script!("fence")).expect_ok();
    nodes[0].restart();
    wait_until_in_sync(&nodes[1], "db");
    guest.run(&export, "", script!("fenced")).expect_ok();
}
