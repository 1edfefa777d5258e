//! What the links of a node are told.

use std::net::SocketAddr;
use std::time::Duration;

use replica::{Incarnation, NodeId};

use crate::tls::Configs;
use crate::{ClusterId, NodeCredentials, Protocol, Role, StartError};

/// Who a node is and where it listens.
#[derive(Debug)]
pub struct Settings {
    /// This node.
    pub me: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The generation of the cluster's record: nodes of different ones have nothing to do with each other.
    pub generation: u64,
    /// Its life.
    pub incarnation: Incarnation,
    /// Where it listens; port 0 chooses a free one.
    pub listen: Vec<SocketAddr>,
    /// What it proves its identity with. `None`: links are not encrypted, and anybody who reaches the address
    /// can claim to be a member. For simulated worlds.
    pub tls: Option<NodeCredentials>,
    /// What it speaks: all but tests leave it at what this program does.
    pub protocol: Protocol,
    /// Times and bounds.
    pub limits: Limits,
}

impl Settings {
    /// Whether links can be started with these.
    ///
    /// # Errors
    /// [`StartError::Credentials`], [`StartError::Tls`].
    pub fn check(&self) -> Result<(), StartError> {
        self.configs().map(drop)
    }

    pub(crate) fn configs(&self) -> Result<Option<Configs>, StartError> {
        if self.tls.as_ref().is_some_and(|tls| (tls.node(), tls.cluster()) != (self.me, self.cluster)) {
            return Err(StartError::Credentials);
        }
        self.tls.as_ref().map(Configs::new).transpose().map_err(StartError::Tls)
    }
}

/// See [`Limits::silence`]. No shorter than a lease (`node` asserts it): what a control link that was merely
/// slow would have brought later could not save anything any more, so that to end it costs nobody anything.
/// No longer for links with data: while one of them is dead and counts as up, a node whose control link was
/// made anew seems to be reached, and hosts wait for it.
pub const SILENCE: Duration = Duration::from_secs(1);

/// See [`Limits::doubt`]. Longer than signs of life are apart (asserted where they are given), and so short
/// that the link goes by another network before a node is missed (`node` asserts it):
/// `docs/why/replication.md`, *When a network falls silent*.
pub const DOUBT: Duration = Duration::from_millis(150);

const _: () = assert!(DOUBT.as_millis() < SILENCE.as_millis(), "a link is doubted before it is given up");

/// Times and bounds of links.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// How long it may then take until both sides have agreed on it.
    pub handshake: Duration,
    /// A link whose peer says nothing for longer than this is given up, within a tenth more; without the
    /// control link a node counts as lost. Each side that has nothing to say shows at least thirteen times in
    /// this time that it lives. Must be the same on all nodes.
    pub silence: Duration,
    /// When nothing has come over the control link for so long, who connects tries the peer's other addresses
    /// beside it. The link stays unless the peer answers at one of them before it is heard again. So a false
    /// alarm, because one of the two had no time, costs a connection that comes to nothing.
    pub doubt: Duration,
    /// What waits before the second attempt to connect; it doubles with each.
    pub backoff_min: Duration,
    /// What waits between two attempts at most.
    pub backoff_max: Duration,
    /// How often a link that uses an address for everything, because those for its role did not answer, tries
    /// these again.
    pub fail_back: Duration,
    /// Bytes that may be queued on a link when a frame is added; a link on which more are is ended: its peer
    /// does not take what it is sent.
    pub queued_bytes: usize,
    /// Connections that have not yet agreed on what they are, at once; further ones wait in the kernel.
    pub handshakes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connect: Duration::from_secs(2),
            handshake: Duration::from_secs(5),
            silence: SILENCE,
            doubt: DOUBT,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            fail_back: Duration::from_secs(30),
            // Two seconds of a 10 Gbit/s network, shared by sixteen links.
            queued_bytes: 128 << 20,
            // A few of each of the other nodes' cores at once, and room for strangers.
            handshakes: 256,
        }
    }
}

/// Another member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub id: NodeId,
    /// Where it listens, and what for. `None`: for everything. A link is tried at the addresses for its role
    /// first, and at those for everything after that; from one of these it goes back when its own answer
    /// again. The control link, over which little is said and without which a node counts as lost, is tried
    /// at those for data in the end; data never goes where only the control link is to go.
    pub addresses: Vec<(Option<Role>, SocketAddr)>,
}

impl Peer {
    /// Where to try a link, in order.
    pub(crate) fn addresses_of(&self, role: Role, number: u16) -> Vec<SocketAddr> {
        let mut addresses = self.belonging(role, number);
        if role == Role::Control {
            addresses.extend(self.spread(Some(Role::Replication), number));
        }
        addresses
    }

    /// Without those for another role.
    fn belonging(&self, role: Role, number: u16) -> Vec<SocketAddr> {
        let mut addresses = self.spread(Some(role), number);
        addresses.extend(self.spread(None, number));
        addresses
    }

    /// Where a link of the role belongs rather than to the address that it uses, in order; nowhere if it is
    /// where it belongs.
    pub(crate) fn better_than(
        &self,
        address: Option<SocketAddr>,
        role: Role,
        number: u16,
    ) -> Vec<SocketAddr> {
        let is_for = |wanted: Option<Role>| {
            self.addresses.iter().any(|(what, known)| *what == wanted && Some(*known) == address)
        };
        match (is_for(Some(role)), is_for(None)) {
            (true, _) => Vec::new(),
            (false, true) => self.spread(Some(role), number),
            (false, false) => self.belonging(role, number),
        }
    }

    /// Links of a role that has several addresses are spread over them.
    fn spread(&self, wanted: Option<Role>, number: u16) -> Vec<SocketAddr> {
        let all = self.addresses.iter().filter(|(what, _)| *what == wanted);
        let mut all: Vec<SocketAddr> = all.map(|(_, address)| *address).collect();
        let len = all.len().max(1);
        all.rotate_left(usize::from(number) % len);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_spread_over_the_addresses_of_their_role() {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let replication = Some(Role::Replication);
        let addresses = vec![
            (None, address(1)),
            (replication, address(2)),
            (Some(Role::Control), address(3)),
            (replication, address(4)),
        ];
        let peer = Peer { id: NodeId(2), addresses };
        assert_eq!(
            peer.addresses_of(Role::Control, 0),
            [address(3), address(1), address(2), address(4)],
            "rather there than nowhere"
        );
        assert_eq!(peer.addresses_of(Role::Replication, 0), [address(2), address(4), address(1)]);
        assert_eq!(peer.addresses_of(Role::Replication, 3), [address(4), address(2), address(1)]);
        let nowhere = Peer { id: NodeId(2), addresses: Vec::new() };
        let better = |at| peer.better_than(Some(address(at)), Role::Replication, 1);
        assert_eq!(better(1), [address(4), address(2)], "all of its role");
        assert!(better(2).is_empty() && better(4).is_empty());
        assert_eq!(better(3), [address(4), address(2), address(1)], "it is for something else");
        let moved = Peer { id: NodeId(2), addresses: vec![(None, address(1)), (replication, address(3))] };
        assert_eq!(moved.better_than(Some(address(3)), Role::Control, 0), [address(1)]);
        assert!(moved.better_than(Some(address(1)), Role::Control, 0).is_empty());
        let data_only =
            Peer { id: NodeId(2), addresses: vec![(replication, address(3)), (replication, address(4))] };
        assert_eq!(data_only.addresses_of(Role::Control, 0), [address(3), address(4)]);
        assert!(data_only.better_than(Some(address(4)), Role::Control, 0).is_empty(), "there is none");
        assert!(nowhere.addresses_of(Role::Control, 0).is_empty());
    }
}
