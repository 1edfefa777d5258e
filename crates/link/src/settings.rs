//! The settings of a node's links.

use std::net::SocketAddr;
use std::time::Duration;

use replica::{Incarnation, NodeId};

use crate::tls::Configs;
use crate::{ClusterId, NodeCredentials, Protocol, Role, StartError};

/// The identity of a node, and where it listens.
#[derive(Debug)]
pub struct Settings {
    /// The number of this node.
    pub me: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The generation of the cluster's record: nodes of different generations have no links with each other.
    pub generation: u64,
    /// The life of this node.
    pub incarnation: Incarnation,
    /// Where the node listens; port 0 selects a free port.
    pub listen: Vec<SocketAddr>,
    /// The credentials by which the node proves its identity. `None`, for simulated worlds: links are not
    /// encrypted, and anyone who reaches the address can claim to be a member.
    pub tls: Option<NodeCredentials>,
    /// The protocol that the node speaks; only tests change it.
    pub protocol: Protocol,
    /// Time limits and sizes.
    pub limits: Limits,
}

impl Settings {
    /// Whether links can be started with these settings.
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

/// The default of [`Limits::silence`].
///
/// It is not shorter than a lease (`node` asserts that): ending a control link that was only slow does no
/// harm then, since what it would have brought later could not have saved anything. And it is not longer for
/// links with data: while one of them is dead and counts as up, a node whose control link is up again seems
/// reachable, and hosts wait for it.
pub const SILENCE: Duration = Duration::from_secs(1);

/// The default of [`Limits::doubt`].
///
/// It is longer than the interval between signs of life (asserted where they are sent), and short enough that
/// the link moves to another network before the node is missed (`node` asserts that): see
/// `docs/why/replication.md`, *When a network falls silent*.
pub const DOUBT: Duration = Duration::from_millis(150);

const _: () = assert!(DOUBT.as_millis() < SILENCE.as_millis(), "a link is doubted before it is given up");

/// Time limits and sizes of links.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long connecting may take.
    pub connect: Duration,
    /// How long the handshake may take after that.
    pub handshake: Duration,
    /// A link whose peer is silent for longer than this is ended, within another tenth of it; without the
    /// control link a node counts as lost. Each side that has nothing to send sends at least six signs of
    /// life in this time over a control link (thirteen if the peer may know several of its addresses), and
    /// three over one for data. Must be the same on all nodes.
    pub silence: Duration,
    /// When nothing has come over the control link for this long, the node that connects tries the peer's
    /// other addresses beside it. The link stays unless the peer answers at one of them before it is heard
    /// again. So a false alarm, because one of the two nodes was busy, costs only an unused connection.
    pub doubt: Duration,
    /// The wait before the second attempt to connect; it doubles with each attempt.
    pub backoff_min: Duration,
    /// The maximum wait between two attempts.
    pub backoff_max: Duration,
    /// How often a link that uses an address for everything, because those for its role did not answer, tries
    /// these again.
    pub fail_back: Duration,
    /// How many bytes may be queued on a link when a frame is added. A link with more is ended: its peer does
    /// not take the data.
    pub queued_bytes: usize,
    /// How many connections may be in the handshake at once; further ones wait in the kernel.
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
            // A few from each core of the other nodes at once, and room for strangers.
            handshakes: 256,
        }
    }
}

/// Another member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub id: NodeId,
    /// Where the peer listens, and for which role; `None`: for everything.
    ///
    /// A link tries the addresses for its role first, then those for everything, and returns from one of
    /// these when one of its own answers again. The control link carries little, and without it a node counts
    /// as lost: so it tries the addresses for data last. Data never uses an address that is only for the
    /// control link.
    pub addresses: Vec<(Option<Role>, SocketAddr)>,
}

impl Peer {
    /// The addresses to try for a link, in order.
    pub(crate) fn addresses_of(&self, role: Role, number: u16) -> Vec<SocketAddr> {
        let mut addresses = self.belonging(role, number);
        if role == Role::Control {
            addresses.extend(self.spread(Some(Role::Replication), number));
        }
        addresses
    }

    /// The same without those for another role.
    fn belonging(&self, role: Role, number: u16) -> Vec<SocketAddr> {
        let mut addresses = self.spread(Some(role), number);
        addresses.extend(self.spread(None, number));
        addresses
    }

    /// The addresses where a link of the role belongs, in order, if not at the one that it uses; empty if it
    /// is where it belongs.
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

    /// The addresses for the role. The links of a role with several addresses are spread over them.
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
