//! Which of a node's networks its links use.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use e2e::{Node, ports};

use crate::cluster::{join, wait};

/// Links move when the purpose of an address changes; a link that could not then tries again after half a
/// minute.
const LIMIT: Duration = Duration::from_secs(60);
const ESTABLISHED: &str = "01";

/// Number of connections to an address, according to the kernel.
fn connections(to: SocketAddr) -> usize {
    let SocketAddr::V4(to) = to else { panic!("{to} is not IPv4") };
    let wanted = format!("{:08X}:{:04X}", u32::from_le_bytes(to.ip().octets()), to.port());
    let table = fs::read_to_string("/proc/net/tcp").expect("Linux");
    let remote_and_state = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let found = table.lines().filter_map(remote_and_state);
    found.filter(|(remote, state)| *remote == wanted && state == ESTABLISHED).count()
}

#[test]
fn data_and_heartbeats_go_by_networks_of_their_own() {
    let nodes = [Node::start(), Node::start()];
    // The node with the lower number accepts the connections. By default links are spread over its addresses,
    // with the control link at the first one.
    let [beats, data] = [ports::free(), ports::free()];
    nodes[0].ursa(&["node", "init", "--listen", &format!("{beats},{data}")]).expect_ok();
    join(&nodes[0], &nodes[1]);
    let both_up = || {
        let list = nodes[1].ursa_json(&["node", "list"]);
        let list = list.as_array().expect("it is a list");
        list.len() == 2 && list.iter().all(|node| node["up"] == true)
    };
    wait(LIMIT, "the nodes to know each other", both_up);
    let links = || connections(data) + connections(beats);
    wait(LIMIT, "a control link and one for data", || links() >= 2);
    assert!(
        connections(beats) > 1 || connections(data) == 0,
        "they are as they are to be already: nothing is proven"
    );
    for (address, role) in [(data, "replication"), (beats, "heartbeat")] {
        nodes[0].ursa(&["node", "link", "1", &address.to_string(), "--for", role]).expect_ok();
    }
    wait(LIMIT, "links to move", || connections(beats) == 1 && connections(data) >= 1);
    let list = nodes[1].ursa_json(&["node", "list"]);
    assert_eq!(list[0]["link_roles"][beats.to_string()], "heartbeat", "{list}");
    let links_up = || {
        let links = nodes[0].ursa_json(&["node", "links"]);
        let links = links["items"].as_array().expect("it is a list").clone();
        links.len() == 2 && links.iter().all(|link| link["state"] == "up" && link["encrypted"] == true)
    };
    wait(LIMIT, "both nodes to see all links up", links_up);
    let refused = nodes[0].ursa(&["node", "link", "1", &data.to_string(), "--for", "heartbeat"]);
    assert!(!refused.ok() && refused.output.contains("for replication"), "{refused}");
    let stranger = nodes[0].ursa(&["node", "link", "1", "10.9.8.7", "--for", "all"]);
    assert!(!stranger.ok() && stranger.output.contains("see `ursa node list`"), "{stranger}");
}
