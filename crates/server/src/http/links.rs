//! The links between nodes.

use std::rc::Rc;

use ::node::Control;
use ::node::control::{ControlError, LinkStatus, LinkTrouble};
use ::node::copies::Linked;
use api::{Link, LinkState, List, RoleLinks};
use serde::{Deserialize, Serialize};

use super::input::Parameters;
use super::peers::{self, PeerQuery, Whose};
use super::refusal::Reply;
use super::state::State;

/// The links of the queried node with each other node; with `node=all`, the links of all nodes, as each of
/// them sees them.
///
/// Two nodes may see the links between them differently. Links of a node that does not answer are reported by
/// the others only: it is in `missing`.
#[utoipa::path(
    get, path = "/v1/links", tag = "cluster", operation_id = "list_links",
    params(Whose),
    responses(
        (status = OK, description = "All of them", body = List<Link>),
    ),
)]
pub(super) async fn list(state: State, Parameters(whose): Parameters<Whose>) -> Reply<List<Link>> {
    let own = |control: Rc<Control>| async move { here(&control).await };
    let List { items, missing } = peers::list(&state, whose.asked()?, PeerQuery::Links, own).await?;
    Ok(axum::Json(List { items: items.into_iter().map(LinkHere::worded).collect(), missing }))
}

/// A link as its node sees it, as nodes report it to each other.
#[derive(Serialize, Deserialize)]
pub(super) struct LinkHere {
    /// Without `trouble`.
    link: Link,
    trouble: Option<LinkTrouble>,
}

impl LinkHere {
    fn worded(self) -> Link {
        Link { trouble: self.trouble.map(|trouble| trouble.to_string()), ..self.link }
    }
}

/// The links of this node.
pub(super) async fn here(control: &Control) -> Result<Vec<LinkHere>, ControlError> {
    let links = control.links().await?;
    let (node, node_name) = control.number_and_name();
    let here = |link: LinkStatus| LinkHere { trouble: link.trouble, link: shown(node, &node_name, link) };
    Ok(links.into_iter().map(here).collect())
}

fn shown(node: u16, node_name: &str, link: LinkStatus) -> Link {
    let LinkStatus { peer, peer_name, control, replication, encrypted, trouble: _, silent_cores } = link;
    Link {
        node,
        node_name: node_name.to_owned(),
        peer,
        peer_name,
        state: state_of(&control, &replication),
        control: of_role(control),
        replication: of_role(replication),
        encrypted,
        trouble: None,
        silent_cores,
    }
}

fn state_of(control: &Linked, replication: &Linked) -> LinkState {
    if control.is_whole() && replication.is_whole() {
        LinkState::Up
    } else if control.up + replication.up > 0 {
        LinkState::Partly
    } else {
        LinkState::Down
    }
}

fn of_role(linked: Linked) -> RoleLinks {
    let Linked { up, of, addresses, age, silence } = linked;
    RoleLinks {
        up: up as u64,
        of: of as u64,
        addresses: addresses.iter().map(ToString::to_string).collect(),
        age: age.map(|age| age.as_secs()),
        silence: silence.map(|silence| silence.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two nodes may run different versions.
    #[test]
    fn the_node_that_shows_a_link_words_why_it_is_down() {
        let status = LinkStatus {
            peer: 2,
            peer_name: "b".into(),
            control: Linked::default(),
            replication: Linked::default(),
            encrypted: true,
            trouble: Some(LinkTrouble::Unreached { errno: 111 }), // ECONNREFUSED
            silent_cores: Vec::new(),
        };
        let here = LinkHere { trouble: status.trouble, link: shown(1, "a", status) };
        let sent = serde_json::to_string(&here).unwrap();
        assert!(sent.contains(r#""trouble":{"unreached":{"errno":111}}"#), "{sent}");
        let shown = serde_json::from_str::<LinkHere>(&sent).unwrap().worded();
        assert_eq!(shown.trouble.unwrap(), "cannot connect: Connection refused (os error 111)");
    }

    #[test]
    fn links_are_up_only_if_all_are() {
        let links = |up, of| Linked { up, of, ..Linked::default() };
        assert_eq!(state_of(&links(1, 1), &links(4, 4)), LinkState::Up);
        assert_eq!(state_of(&links(1, 1), &links(3, 4)), LinkState::Partly);
        assert_eq!(state_of(&links(1, 1), &links(0, 0)), LinkState::Partly, "nobody knows of how many");
        assert_eq!(state_of(&links(0, 1), &links(4, 4)), LinkState::Partly);
        assert_eq!(state_of(&links(0, 1), &links(0, 4)), LinkState::Down);
        assert_eq!(state_of(&links(0, 1), &links(0, 0)), LinkState::Down);
    }
}
