//! A floating portal address on a network device: it moves when its node is killed, and when it is stopped.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{self, Command};
use std::time::Duration;

use e2e::raw::Raw;
use e2e::{Export, Node, pattern, program};

use crate::cluster::{BLOCK, TARGET, cluster_of_three, ready, wait, wait_until_in_sync};

/// Until a node has the address: a node waits for the previous holder for six seconds or so, at most.
const LIMIT: Duration = Duration::from_secs(20);
const IP_LIMIT: Duration = Duration::from_secs(5);

/// Whether addresses can be set on devices here: only root can, with iproute2. Prints so if not.
fn can_float() -> bool {
    let has_ip = Command::new("ip").arg("-V").output().is_ok_and(|output| output.status.success());
    let can = rustix::process::geteuid().is_root() && has_ip;
    if !can {
        println!("skipped: only root can put addresses on network devices, with iproute2");
    }
    can
}

/// An address of loopback that no other test uses.
fn floating() -> IpAddr {
    let [_, _, high, low] = process::id().to_be_bytes();
    Ipv4Addr::new(127, 77, high, low.clamp(1, 254)).into()
}

/// Whether the address is on loopback.
fn is_on(address: IpAddr) -> bool {
    let mut command = Command::new("ip");
    command.args(["-oneline", "address", "show", "dev", "lo"]);
    program::run(&mut command, IP_LIMIT).expect_ok().contains(&format!(" {address}/32 "))
}

/// The volume through the address, at a port of the node that has it.
fn through(address: IpAddr, node: &Node) -> Export {
    let portals = vec![SocketAddr::new(address, node.portals()[0].port())];
    Export { portals, target: TARGET.to_owned(), lun: 0, chap: None }
}

/// The number of the node that has the address and serves through it.
fn holder(nodes: &[Node; 3], asked: usize, address: IpAddr) -> Option<usize> {
    let list = nodes[asked].ursa_json(&["floating-ip", "list"]);
    let holder = usize::try_from(list[0]["holder"].as_u64()?).ok()?;
    let serves = Raw::login(&through(address, &nodes[holder - 1]), 0, 0x4001).is_ok();
    (serves && list[0]["state"] == "held" && is_on(address)).then_some(holder)
}

/// Waits until a node other than `former` has the address; returns its index.
fn wait_for_another(nodes: &[Node; 3], asked: usize, address: IpAddr, former: Option<usize>) -> usize {
    let mut found = None;
    wait(LIMIT, "a node that has the address", || {
        found = holder(nodes, asked, address).map(|number| number - 1).filter(|index| Some(*index) != former);
        found.is_some()
    });
    found.expect("it was waited for")
}

#[test]
fn a_floating_address_moves_with_the_end_of_its_node() {
    if !can_float() {
        return;
    }
    let mut nodes = cluster_of_three();
    let create = ["volume", "create", "db", "--size", "64M", "--copies", "3", "--target", TARGET];
    nodes[0].ursa(&create).expect_ok();
    wait_until_in_sync(&nodes[0], "db");
    let address = floating();
    nodes[0].ursa(&["floating-ip", "add", &format!("{address}/32"), "--device", "lo"]).expect_ok();
    let first = wait_for_another(&nodes, 0, address, None);
    let data = pattern::stamped(1, 7, 0, BLOCK);
    ready(&through(address, &nodes[first])).write(0, 8, &data, false).expect("it is written");

    // Killed: its watcher removes the address, and another node takes it over.
    nodes[first].kill();
    let asked = (first + 1) % 3;
    let second = wait_for_another(&nodes, asked, address, Some(first));
    let read = ready(&through(address, &nodes[second])).read(0, 8, BLOCK).expect("it is read");
    assert!(read == data, "it is what was written through the node that was killed");
    nodes[first].restart();
    wait_until_in_sync(&nodes[second], "db");
    // When the node restarts, it removes the address that its previous process may have left. Since all nodes
    // are on one machine here, for a moment that is the other node's.
    wait(LIMIT, "the address is where it was", || holder(&nodes, asked, address) == Some(second + 1));

    // Stopped: it gives the address up.
    nodes[second].stop();
    let third = wait_for_another(&nodes, first, address, Some(second));
    let read = ready(&through(address, &nodes[third])).read(0, 8, BLOCK).expect("it is read");
    assert!(read == data, "and so it is here");

    let events = nodes[third].ursa_json(&["events"]).to_string();
    assert!(events.contains("floating_ip_moved"), "{events}");
    let dry = nodes[third].ursa(&["floating-ip", "remove", &address.to_string(), "--dry-run"]);
    assert!(dry.ok() && dry.output.contains("releases"), "{dry}");
    nodes[third].ursa(&["floating-ip", "remove", &address.to_string(), "--yes"]).expect_ok();
    wait(LIMIT, "the address is off", || !is_on(address));
}
