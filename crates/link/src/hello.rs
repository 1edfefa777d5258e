//! How two nodes begin: `docs/formats/replication-link.md`.

use base::crc32c;
use replica::{Incarnation, NodeId};

use crate::wire::{Wire, WireError};
use crate::{ClusterId, Role};

/// Of what is said here; both sides must say the same.
pub(crate) const VERSION: u8 = 1;

/// Bytes of a preamble, and of the refusal that may answer one.
pub(crate) const PREAMBLE_BYTES: usize = 8;
/// Bytes of a hello.
pub(crate) const HELLO_BYTES: usize = 64;

/// What a node has at most: each is a connection to every other.
const CORES_MAX: u16 = 1024;

const PREAMBLE_MAGIC: [u8; 4] = *b"URSA";
const HELLO_MAGIC: [u8; 4] = *b"UHEL";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be a link.
    Link,
    /// To let a new node join the cluster.
    Join,
    /// To say that a life of a node is over.
    Obituary,
}

/// The first bytes of a connection, never encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) purpose: Purpose,
    /// Whether TLS follows.
    pub(crate) tls: bool,
}

/// What the first bytes of a connection can turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Preamble(Preamble),
    /// Of another version of ours.
    Version(u8),
    /// The answer to a preamble that was not liked.
    Refused(Refusal),
    /// Nothing of ours.
    Foreign,
}

impl Preamble {
    pub(crate) fn encode(self) -> [u8; PREAMBLE_BYTES] {
        let purpose = match self.purpose {
            Purpose::Link => 1,
            Purpose::Join => 2,
            Purpose::Obituary => 3,
        };
        opening([VERSION, purpose, u8::from(self.tls), 0])
    }
}

impl Opening {
    pub(crate) fn parse(bytes: [u8; PREAMBLE_BYTES]) -> Opening {
        if bytes[..4] != PREAMBLE_MAGIC {
            return Opening::Foreign;
        }
        match bytes[4..] {
            [version, ..] if version != VERSION => Opening::Version(version),
            [_, purpose @ 1..=3, tls @ 0..=1, 0] => {
                let purpose = match purpose {
                    1 => Purpose::Link,
                    2 => Purpose::Join,
                    _ => Purpose::Obituary,
                };
                Opening::Preamble(Preamble { purpose, tls: tls == 1 })
            }
            [_, 0xff, code, 0] => Refusal::from_code(code).map_or(Opening::Foreign, Opening::Refused),
            _ => Opening::Foreign,
        }
    }
}

fn opening(rest: [u8; 4]) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..4].copy_from_slice(&PREAMBLE_MAGIC);
    bytes[4..].copy_from_slice(&rest);
    bytes
}

/// Why one node does not want a link with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The other speaks a version that this node does not know.
    #[error("the two nodes run versions that do not understand each other: update the older one")]
    Version,
    /// The other belongs to another cluster.
    #[error("the other node belongs to another cluster: correct its address, or let it join this cluster")]
    Cluster,
    /// The other is not a member, or no longer.
    #[error("the node that connects is not a member of the cluster, or was removed: let it join again")]
    Membership,
    /// The node that was called is not the one that was meant.
    #[error("another node answers at this address: correct the address of the member")]
    OtherNode,
    /// A later life of the other has been seen.
    #[error(
        "a later start of the same node has been seen: two processes run with one identity, or its record is an old copy"
    )]
    Incarnation,
    /// There is no link of this number, or it is for the other side to connect.
    #[error("there is no such link between the two nodes")]
    Name,
    /// One uses TLS and the other does not.
    #[error("one node uses TLS and the other does not: give both their credentials")]
    Security,
    /// The certificate is not one of the node that it says it is.
    #[error("the certificate belongs to another node: give the node its own credentials")]
    Certificate,
    /// A newer connection of the same link is there.
    #[error("a newer connection has taken its place")]
    Superseded,
    /// One of the two belongs to a cluster that was given up.
    #[error(
        "the cluster was made anew on a survivor, and one of the two nodes is of the one that was given up: it must join again as a new node, without its old cluster directory"
    )]
    Generation,
    /// Nobody may join by this node now.
    #[error("this node lets nobody join: use a token of a member that does")]
    Join,
}

impl Refusal {
    const ALL: [Refusal; 11] = [
        Refusal::Version,
        Refusal::Cluster,
        Refusal::Membership,
        Refusal::OtherNode,
        Refusal::Incarnation,
        Refusal::Name,
        Refusal::Security,
        Refusal::Certificate,
        Refusal::Superseded,
        Refusal::Join,
        Refusal::Generation,
    ];

    /// From 1, in the order of the format's page.
    pub(crate) fn code(self) -> u8 {
        match self {
            Refusal::Version => 1,
            Refusal::Cluster => 2,
            Refusal::Membership => 3,
            Refusal::OtherNode => 4,
            Refusal::Incarnation => 5,
            Refusal::Name => 6,
            Refusal::Security => 7,
            Refusal::Certificate => 8,
            Refusal::Superseded => 9,
            Refusal::Join => 10,
            Refusal::Generation => 11,
        }
    }

    fn from_code(code: u8) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| refusal.code() == code)
    }

    /// As the answer to a preamble.
    pub(crate) fn encode(self) -> [u8; PREAMBLE_BYTES] {
        opening([VERSION, 0xff, self.code(), 0])
    }
}

/// Who one side is, whom it means, which link this is to be, and whether it agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    pub(crate) number: u16,
    /// Why the sender does not want this link.
    pub(crate) refusal: Option<Refusal>,
    pub(crate) cluster: ClusterId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// Of the sender.
    pub(crate) cores: u16,
    /// Of the sender.
    pub(crate) incarnation: Incarnation,
    /// Counts the connections that the dialler has tried: the greater one is the newer.
    pub(crate) attempt: u64,
    /// Of the cluster, as the sender knows it.
    pub(crate) generation: u64,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[0..4].copy_from_slice(&HELLO_MAGIC);
        bytes[4] = match self.role {
            Role::Control => 1,
            Role::Replication => 2,
        };
        bytes[5] = self.refusal.map_or(0, Refusal::code);
        bytes[6..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.cluster.0);
        bytes[24..26].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[26..28].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[28..30].copy_from_slice(&self.cores.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Receives a hello whose first bytes have come; `None` if it is none.
    pub(crate) async fn read(
        wire: &mut Wire,
        first: [u8; PREAMBLE_BYTES],
    ) -> Result<Option<Hello>, WireError> {
        if first[..4] != HELLO_MAGIC {
            return Ok(None);
        }
        let rest: [u8; HELLO_BYTES - PREAMBLE_BYTES] = wire.receive().await?;
        let at = |at: usize| if at < PREAMBLE_BYTES { first[at] } else { rest[at - PREAMBLE_BYTES] };
        Ok(Hello::parse(&std::array::from_fn(at)))
    }

    /// `None` if the bytes are no hello.
    pub(crate) fn parse(bytes: &[u8; HELLO_BYTES]) -> Option<Hello> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u64_at =
            |at: usize| (0..8).fold(0, |value, byte| value | u64::from(bytes[at + byte]) << (8 * byte));
        let crc = crc32c(&bytes[..60]).to_le_bytes();
        if bytes[..4] != HELLO_MAGIC || bytes[60..] != crc || !(1..=CORES_MAX).contains(&u16_at(28)) {
            return None;
        }
        let refusal = match bytes[5] {
            0 => None,
            code => Some(Refusal::from_code(code)?),
        };
        Some(Hello {
            role: match bytes[4] {
                1 => Role::Control,
                2 => Role::Replication,
                _ => return None,
            },
            number: u16_at(6),
            refusal,
            cluster: ClusterId(std::array::from_fn(|at| bytes[8 + at])),
            from: NodeId(u16_at(24)),
            to: NodeId(u16_at(26)),
            cores: u16_at(28),
            incarnation: Incarnation(u64_at(32)),
            attempt: u64_at(40),
            generation: u64_at(48),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preamble_is_eight_bytes() {
        let preamble = Preamble { purpose: Purpose::Link, tls: true };
        assert_eq!(preamble.encode(), *b"URSA\x01\x01\x01\0");
        assert_eq!(Opening::parse(preamble.encode()), Opening::Preamble(preamble));
        let join = Preamble { purpose: Purpose::Join, tls: true };
        assert_eq!(Opening::parse(*b"URSA\x01\x02\x01\0"), Opening::Preamble(join));
        let obituary = Preamble { purpose: Purpose::Obituary, tls: true };
        assert_eq!(obituary.encode(), *b"URSA\x01\x03\x01\0");
        assert_eq!(Opening::parse(obituary.encode()), Opening::Preamble(obituary));
        assert_eq!(Opening::parse(*b"URSA\x02\x01\x01\0"), Opening::Version(2));
        assert_eq!(Opening::parse(*b"URSA\x01\xff\x07\0"), Opening::Refused(Refusal::Security));
        for foreign in [*b"GET / HT", *b"URSA\x01\x04\x01\0", *b"URSA\x01\x01\x02\0", *b"URSA\x01\xff\x63\0"]
        {
            assert_eq!(Opening::parse(foreign), Opening::Foreign);
        }
    }

    #[test]
    fn a_hello_is_sixty_four_bytes() {
        let hello = Hello {
            role: Role::Replication,
            number: 0x0102,
            refusal: Some(Refusal::Incarnation),
            cluster: ClusterId(*b"0123456789abcdef"),
            from: NodeId(7),
            to: NodeId(0x0304),
            cores: 16,
            incarnation: Incarnation(0x1122_3344_5566_7788),
            attempt: 9,
            generation: 5,
        };
        let bytes = hello.encode();
        let expected = b"UHEL\x02\x05\x02\x010123456789abcdef\x07\0\x04\x03\x10\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(bytes[..60], *expected);
        assert_eq!(Hello::parse(&bytes), Some(hello));
        for cores in [0, 1025] {
            assert_eq!(Hello::parse(&Hello { cores, ..hello }.encode()), None);
        }
        assert!(Hello::parse(&Hello { cores: 1024, ..hello }.encode()).is_some());
        for at in 0..HELLO_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(Hello::parse(&changed), None, "byte {at}");
        }
    }

    #[test]
    fn every_refusal_has_its_number() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_code(refusal.code()), Some(refusal));
        }
        assert_eq!((Refusal::from_code(0), Refusal::from_code(12)), (None, None));
    }
}
