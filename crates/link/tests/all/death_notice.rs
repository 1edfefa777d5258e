//! Which reports that a life of a node is over are believed.

use std::net::SocketAddr;
use std::sync::mpsc;

use link::{DeathNotice, DeathNoticeError, NodeCredentials, Peer, Refusal};
use replica::{Incarnation, NodeId};
use rt::CoreId;

use crate::node::{CLUSTER, CORES, Life, Node, PATIENCE, authority, limits};
use crate::recorder::HandlerCall;

/// Reports it from a thread of `by`: any process could.
fn tell(by: &Node, of: DeathNotice, to: &Node) -> Result<(), DeathNoticeError> {
    let (told, result) = mpsc::channel();
    let (id, address) = (to.id, to.address);
    let call = by.handle.call(CoreId(0), move || async move {
        told.send(of.tell(id, address, &limits()).await).unwrap();
    });
    let result = result.recv_timeout(PATIENCE).unwrap();
    drop(call);
    result
}

fn deaths(node: &Node) -> Vec<(CoreId, HandlerCall)> {
    node.log.all().into_iter().filter(|(_, told)| matches!(told, HandlerCall::Died(..))).collect()
}

#[test]
fn only_the_node_itself_is_believed_and_only_of_its_latest_life() {
    let authority = authority();
    let of = |credentials: &NodeCredentials, life| DeathNotice::new(credentials, Incarnation(life)).unwrap();
    let own = authority.issue(NodeId(1)).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let a = Node::live(
        Life { id: 1, incarnation: 2, cores: CORES, address },
        Some(authority.issue(NodeId(1)).unwrap()),
    );
    let b = Node::start(2, Some(authority.issue(NodeId(2)).unwrap()));
    let peers: Vec<Peer> = vec![a.peer(), b.peer()];
    a.set_peers(peers.clone());
    b.set_peers(peers);
    b.wait_for_links(3);

    // Without credentials.
    let unproven = DeathNotice::unproven(CLUSTER, NodeId(1), Incarnation(2));
    assert!(matches!(tell(&a, unproven, &b), Err(DeathNoticeError::Unreached(..))));
    // From another cluster's authority.
    let foreign = crate::node::authority().issue(NodeId(1)).unwrap();
    assert!(matches!(tell(&a, of(&foreign, 2), &b), Err(DeathNoticeError::Unreached(..))));
    // For a node that is no longer in the cluster.
    let stranger = authority.issue(NodeId(7)).unwrap();
    let refused = tell(&a, of(&stranger, 2), &b);
    assert!(matches!(refused, Err(DeathNoticeError::Refused(Refusal::Membership))), "{refused:?}");
    // For a life that ended long ago.
    let refused = tell(&a, of(&own, 1), &b);
    assert!(matches!(refused, Err(DeathNoticeError::Refused(Refusal::Incarnation))), "{refused:?}");
    assert_eq!(deaths(&b), []);

    // Only the node has its credentials; the link cannot know that this life is still running.
    tell(&a, of(&own, 2), &b).unwrap();
    assert_eq!(deaths(&b), [(CoreId(0), HandlerCall::Died(NodeId(1), Incarnation(2)))]);
    assert_eq!(b.log.up().len(), 3, "links end when their connections do");
}
