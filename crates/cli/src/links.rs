//! `ursa node links`.

use api::{Link, LinkState, RoleLinks};

use super::table::{Table, age, list};

/// A table of links, and why some could not be established.
pub fn text(links: &[Link]) -> String {
    let mut table =
        Table::new(&["NODE", "PEER", "STATE", "CONTROL", "REPLICATION", "ADDRESSES", "ENCRYPTED"]);
    let mut items: Vec<&Link> = links.iter().collect();
    // In the response, the node that was asked comes first.
    items.sort_by_key(|link| (link.node, link.peer));
    for link in &items {
        let addresses: Vec<&String> =
            link.control.addresses.iter().chain(&link.replication.addresses).collect();
        table.row([
            end(link.node, &link.node_name),
            end(link.peer, &link.peer_name),
            match link.state {
                LinkState::Up => "up".into(),
                LinkState::Partly => "PARTIAL".into(),
                LinkState::Down => "DOWN".into(),
            },
            of_role(&link.control),
            of_role(&link.replication),
            list(without_repeats(addresses), "-"),
            if link.encrypted { "yes" } else { "NO" }.into(),
        ]);
    }
    let trouble = |link: &Link| {
        let reason = link.trouble.as_deref().filter(|_| link.state != LinkState::Up)?;
        let (node, peer) = (end(link.node, &link.node_name), end(link.peer, &link.peer_name));
        Some(format!("\n{node} to {peer}: the last attempt failed: {reason}\n"))
    };
    let troubles: String = items.iter().copied().filter_map(trouble).collect();
    let silent: Vec<String> = items.iter().copied().filter_map(silent_cores).collect();
    table.text("No links: there is no other node in the cluster.")
        + &troubles
        + &without_repeats(silent.iter().collect()).into_iter().map(String::as_str).collect::<String>()
}

/// The cores of the link's node that have not reported; the text is the same for all links of that node.
fn silent_cores(link: &Link) -> Option<String> {
    let cores: Vec<String> = link.silent_cores.iter().map(u16::to_string).collect();
    let (word, have) = match cores.len() {
        0 => return None,
        1 => ("core", "has"),
        _ => ("cores", "have"),
    };
    let node = end(link.node, &link.node_name);
    Some(format!(
        "\n{node}: {word} {} {have} not reported: more links may be up than shown\n",
        cores.join(", ")
    ))
}

fn end(number: u16, name: &str) -> String {
    format!("{number} {name}").trim_end().to_owned()
}

/// The addresses in order, each once.
fn without_repeats(addresses: Vec<&String>) -> Vec<&String> {
    let mut seen = Vec::new();
    for address in addresses {
        if !seen.contains(&address) {
            seen.push(address);
        }
    }
    seen
}

/// `1 of 1, 3h04m`: how long all of those that are up have been; `0 of 4, last contact 12s ago`.
fn of_role(links: &RoleLinks) -> String {
    let RoleLinks { up, of, addresses: _, age: up_for, silence } = links;
    let count = if *of == 0 { format!("{up}") } else { format!("{up} of {of}") };
    match (up_for, silence) {
        (Some(seconds), _) => format!("{count}, {}", age(*seconds)),
        (None, Some(seconds)) => format!("{count}, last contact {} ago", age(*seconds)),
        (None, None) => format!("{count}, no contact"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_down_is_obvious() {
        let role = |up, of, age, silence| RoleLinks {
            up,
            of,
            addresses: if up > 0 { vec!["10.0.0.2".into()] } else { Vec::new() },
            age,
            silence,
        };
        let link = |node: u16, peer: u16, state, control, replication| Link {
            node,
            node_name: format!("server{node}"),
            peer,
            peer_name: format!("server{peer}"),
            state,
            control,
            replication,
            encrypted: true,
            trouble: (state != LinkState::Up).then(|| "no route to host".to_owned()),
            silent_cores: if node == 1 { vec![2] } else { Vec::new() },
        };
        let whole = role(4, 4, Some(11_040), Some(0));
        let control = role(1, 1, Some(11_045), Some(0));
        let items = vec![
            link(1, 2, LinkState::Up, control.clone(), whole),
            link(1, 3, LinkState::Partly, control, role(0, 0, None, None)),
            link(2, 3, LinkState::Down, role(0, 1, None, Some(12)), role(0, 4, None, Some(61))),
        ];
        assert_eq!(
            text(&items),
            "\
NODE       PEER       STATE    CONTROL                       REPLICATION                     ADDRESSES  ENCRYPTED
1 server1  2 server2  up       1 of 1, 3h04m                 4 of 4, 3h04m                   10.0.0.2   yes
1 server1  3 server3  PARTIAL  1 of 1, 3h04m                 0, no contact                   10.0.0.2   yes
2 server2  3 server3  DOWN     0 of 1, last contact 12s ago  0 of 4, last contact 1m01s ago  -          yes

1 server1 to 3 server3: the last attempt failed: no route to host

2 server2 to 3 server3: the last attempt failed: no route to host

1 server1: core 2 has not reported: more links may be up than shown
"
        );
        let none = text(&[]);
        assert_eq!(none, "No links: there is no other node in the cluster.\n");
    }
}
