//! How two nodes begin a connection: `docs/formats/replication-link.md`.

use std::fmt;

use base::crc32c;
use replica::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

use crate::wire::{Wire, WireError};
use crate::{Capabilities, ClusterId, Protocol, Role, Versions};

/// Bytes of a preamble, and of the refusal that may answer one.
pub(crate) const PREAMBLE_BYTES: usize = 8;
/// Bytes of a hello that this version sends.
pub(crate) const HELLO_BYTES: usize = HELLO_FIELDS_END + 4;
/// The maximum length of a hello: later versions append fields, which this one skips.
pub(crate) const HELLO_BYTES_MAX: usize = 1024;

/// Where the fields of this version end. A field is only ever appended here, never moved or removed.
const HELLO_FIELDS_END: usize = 72;
/// How many bytes of a hello must be read to know its length.
const HELLO_HEAD_BYTES: usize = 32;

/// The maximum number of a node's cores: each means a connection to every other node.
const CORES_MAX: u16 = 1024;

const PREAMBLE_MAGIC: [u8; 4] = *b"URSA";
const HELLO_MAGIC: [u8; 4] = *b"UHEL";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The connection becomes a link.
    Link,
    /// A new node joins the cluster.
    Join,
    /// A watcher reports that a life of a node is over.
    DeathNotice,
}

/// The first bytes of a connection, never encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    /// The versions that the sender speaks. Nothing is authenticated yet: the hellos repeat them, and only
    /// those count.
    pub(crate) versions: Versions,
    pub(crate) purpose: Purpose,
    /// Whether TLS follows.
    pub(crate) tls: bool,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Preamble(Preamble),
    /// A preamble of a node that speaks none of our versions.
    NoCommonVersion(Versions),
    /// The other side refuses our preamble; with the versions that it speaks.
    Refused(Refusal, Versions),
    /// The other side is not a node.
    Foreign,
}

impl Preamble {
    pub(crate) fn encode(self) -> [u8; PREAMBLE_BYTES] {
        let purpose = match self.purpose {
            Purpose::Link => 1,
            Purpose::Join => 2,
            Purpose::DeathNotice => 3,
        };
        opening(self.versions, [purpose, u8::from(self.tls)])
    }
}

impl Opening {
    /// `ours` are the versions that this side speaks.
    pub(crate) fn parse(bytes: [u8; PREAMBLE_BYTES], ours: Versions) -> Opening {
        let [_, _, _, _, max, what, detail, min] = bytes;
        let Some(theirs) = Versions::new(min, max).filter(|_| bytes[..4] == PREAMBLE_MAGIC) else {
            return Opening::Foreign;
        };
        if what == REFUSED {
            return Refusal::from_code(detail)
                .map_or(Opening::Foreign, |refusal| Opening::Refused(refusal, theirs));
        }
        if ours.common(theirs).is_none() {
            return Opening::NoCommonVersion(theirs);
        }
        let purpose = match what {
            1 => Purpose::Link,
            2 => Purpose::Join,
            3 => Purpose::DeathNotice,
            _ => return Opening::Foreign,
        };
        match detail {
            tls @ 0..=1 => Opening::Preamble(Preamble { versions: theirs, purpose, tls: tls == 1 }),
            _ => Opening::Foreign,
        }
    }
}

/// In place of a purpose: the preamble is refused.
const REFUSED: u8 = 0xff;

fn opening(versions: Versions, [what, detail]: [u8; 2]) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..4].copy_from_slice(&PREAMBLE_MAGIC);
    bytes[4..].copy_from_slice(&[versions.max(), what, detail, versions.min()]);
    bytes
}

/// Why a node refuses a link with another. Sent as its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(try_from = "u8", into = "u8")]
pub enum Refusal {
    #[error("the two nodes have no protocol version in common: update the older one")]
    Version,
    #[error("the other node belongs to another cluster: correct its address, or let it join this cluster")]
    Cluster,
    #[error("the connecting node is not a member of the cluster, or was removed: let it join again")]
    Membership,
    #[error("another node answers at this address: correct the address of the member")]
    OtherNode,
    #[error(
        "a later start of the same node has been seen: two processes use one identity, or its record is an old copy"
    )]
    Incarnation,
    #[error("the two nodes have no such link")]
    Name,
    #[error("one node uses TLS and the other does not: give both their credentials")]
    Security,
    #[error("the certificate belongs to another node: give the node its own credentials")]
    Certificate,
    #[error("a newer connection has replaced it")]
    Superseded,
    #[error(
        "a surviving node was forced into a new cluster, and one of the two nodes still belongs to the old one: it must join again as a new node, without its old cluster directory"
    )]
    Generation,
    #[error("this node does not admit new nodes: use a token from a member that does")]
    Join,
    #[error(
        "for a reason that only later versions know (code {0}): the log of the node that refused says which"
    )]
    Later(u8),
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
            Refusal::Later(code) => code,
        }
    }

    /// `None` for 0, which is not a refusal.
    fn from_code(code: u8) -> Option<Refusal> {
        let known = Refusal::ALL.into_iter().find(|refusal| refusal.code() == code);
        known.or((code != 0).then_some(Refusal::Later(code)))
    }

    /// The refusal as the answer to a preamble.
    pub(crate) fn encode(self, ours: Versions) -> [u8; PREAMBLE_BYTES] {
        opening(ours, [REFUSED, self.code()])
    }
}

impl From<Refusal> for u8 {
    fn from(refusal: Refusal) -> u8 {
        refusal.code()
    }
}

impl TryFrom<u8> for Refusal {
    type Error = &'static str;

    fn try_from(code: u8) -> Result<Refusal, &'static str> {
        Refusal::from_code(code).ok_or("0 is not the code of a refusal")
    }
}

/// A refusal for display: if versions do not match, it shows those of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The versions that the node which reports this speaks.
    pub ours: Versions,
    /// The versions that the other node speaks.
    pub theirs: Versions,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { refusal, ours, theirs } = self;
        match refusal {
            Refusal::Version => {
                write!(f, "this node speaks protocol {ours}, the other node {theirs}: update the older one")
            }
            other => write!(f, "{other}"),
        }
    }
}

/// The identity of one side, the peer and link that it means, and whether it agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    pub(crate) number: u16,
    /// Why the sender refuses this link.
    pub(crate) refusal: Option<Refusal>,
    pub(crate) cluster: ClusterId,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// The number of the sender's cores.
    pub(crate) cores: u16,
    /// The life of the sender.
    pub(crate) incarnation: Incarnation,
    /// The number of the dialler's attempt: of two connections, the one with the greater number is newer.
    pub(crate) attempt: u64,
    /// The generation of the cluster, as the sender knows it.
    pub(crate) generation: u64,
    /// The protocol that the sender speaks.
    pub(crate) protocol: Protocol,
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
        bytes[30..32].copy_from_slice(&(HELLO_BYTES as u16).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.incarnation.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.generation.to_le_bytes());
        bytes[56] = self.protocol.versions.min();
        bytes[57] = self.protocol.versions.max();
        bytes[64..72].copy_from_slice(&self.protocol.capabilities.0.to_le_bytes());
        let crc = crc32c(&bytes[..HELLO_FIELDS_END]);
        bytes[HELLO_FIELDS_END..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Receives a hello whose first bytes have arrived; `None` if it is not one.
    pub(crate) async fn read(
        wire: &mut Wire,
        first: [u8; PREAMBLE_BYTES],
    ) -> Result<Option<Hello>, WireError> {
        if first[..4] != HELLO_MAGIC {
            return Ok(None);
        }
        let mut bytes = first.to_vec();
        bytes.extend(wire.receive::<{ HELLO_HEAD_BYTES - PREAMBLE_BYTES }>().await?);
        let len = usize::from(u16_at(&bytes, 30));
        if !(HELLO_BYTES..=HELLO_BYTES_MAX).contains(&len) {
            return Ok(None);
        }
        bytes.extend(wire.receive_bytes(len - HELLO_HEAD_BYTES).await?);
        Ok(Hello::parse(&bytes))
    }

    /// Decodes a hello; `None` if the bytes are not exactly one hello. Fields after those of this version are
    /// skipped.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Hello> {
        let (fields, crc) = bytes.split_last_chunk::<4>()?;
        let is_hello = (HELLO_BYTES..=HELLO_BYTES_MAX).contains(&bytes.len())
            && bytes.starts_with(&HELLO_MAGIC)
            && usize::from(u16_at(bytes, 30)) == bytes.len()
            && crc32c(fields).to_le_bytes() == *crc;
        if !is_hello || !(1..=CORES_MAX).contains(&u16_at(bytes, 28)) {
            return None;
        }
        let versions = Versions::new(bytes[56], bytes[57])?;
        Some(Hello {
            role: match bytes[4] {
                1 => Role::Control,
                2 => Role::Replication,
                _ => return None,
            },
            number: u16_at(bytes, 6),
            refusal: Refusal::from_code(bytes[5]),
            cluster: ClusterId(std::array::from_fn(|at| bytes[8 + at])),
            from: NodeId(u16_at(bytes, 24)),
            to: NodeId(u16_at(bytes, 26)),
            cores: u16_at(bytes, 28),
            incarnation: Incarnation(u64_at(bytes, 32)),
            attempt: u64_at(bytes, 40),
            generation: u64_at(bytes, 48),
            protocol: Protocol { versions, capabilities: Capabilities(u64_at(bytes, 64)) },
        })
    }
}

/// The caller checks that the bytes are there.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    (0..8).fold(0, |value, byte| value | u64::from(bytes[at + byte]) << (8 * byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Versions = Versions::new(2, 3).unwrap();

    #[test]
    fn a_preamble_is_eight_bytes() {
        let preamble = Preamble { versions: Versions::CURRENT, purpose: Purpose::Link, tls: true };
        assert_eq!(preamble.encode(), *b"URSA\x01\x01\x01\x01");
        let preamble = Preamble { versions: OURS, purpose: Purpose::Link, tls: true };
        assert_eq!(preamble.encode(), *b"URSA\x03\x01\x01\x02");
        let parse = |bytes| Opening::parse(bytes, OURS);
        assert_eq!(parse(preamble.encode()), Opening::Preamble(preamble));
        let join = Preamble { purpose: Purpose::Join, ..preamble };
        assert_eq!(parse(*b"URSA\x03\x02\x01\x02"), Opening::Preamble(join));
        let death_notice = Preamble { purpose: Purpose::DeathNotice, ..preamble };
        assert_eq!(death_notice.encode(), *b"URSA\x03\x03\x01\x02");
        assert_eq!(parse(death_notice.encode()), Opening::Preamble(death_notice));
        let later = Versions::new(3, 9).unwrap();
        assert_eq!(
            parse(*b"URSA\x09\x01\x01\x03"),
            Opening::Preamble(Preamble { versions: later, ..preamble }),
            "version 3 is in common"
        );
        for (min, max) in [(1, 1), (4, 9)] {
            let versions = Versions::new(min, max).unwrap();
            // Whatever the purpose: its meaning may have changed.
            for purpose in [1, 77] {
                let bytes = [b'U', b'R', b'S', b'A', max, purpose, 1, min];
                assert_eq!(parse(bytes), Opening::NoCommonVersion(versions));
            }
        }
        let security = Opening::Refused(Refusal::Security, Versions::CURRENT);
        assert_eq!(parse(*b"URSA\x01\xff\x07\x01"), security);
        let unknown = Opening::Refused(Refusal::Later(0x63), OURS);
        assert_eq!(parse(*b"URSA\x03\xff\x63\x02"), unknown);
        assert_eq!(Refusal::Version.encode(OURS), *b"URSA\x03\xff\x01\x02");
        for foreign in [
            *b"GET / HT",
            *b"URSA\x03\x04\x01\x02",
            *b"URSA\x03\x01\x02\x02",
            *b"URSA\x02\x01\x01\x03",
            *b"URSA\x03\xff\x00\x02",
            *b"URSA\x01\x01\x01\0",
        ] {
            assert_eq!(parse(foreign), Opening::Foreign);
        }
    }

    const HELLO: Hello = Hello {
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
        protocol: Protocol { versions: OURS, capabilities: Capabilities(0x0a0b) },
    };

    #[test]
    fn a_hello_is_seventy_six_bytes() {
        let bytes = HELLO.encode();
        let expected = b"UHEL\x02\x05\x02\x010123456789abcdef\x07\0\x04\x03\x10\0\x4c\0\x88\x77\x66\x55\x44\x33\x22\x11\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\x03\0\0\0\0\0\0\x0b\x0a\0\0\0\0\0\0";
        assert_eq!(bytes[..72], *expected);
        assert_eq!(Hello::parse(&bytes), Some(HELLO));
        for cores in [0, 1025] {
            assert_eq!(Hello::parse(&Hello { cores, ..HELLO }.encode()), None);
        }
        assert!(Hello::parse(&Hello { cores: 1024, ..HELLO }.encode()).is_some());
        for at in 0..bytes.len() {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert_eq!(Hello::parse(&changed), None, "byte {at}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Hello::parse(&bytes[..len]), None);
        }
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let later = |more: usize| {
            let mut bytes = HELLO.encode()[..HELLO_FIELDS_END].to_vec();
            bytes.extend((0..more).map(|byte| byte as u8));
            let len = (bytes.len() + 4) as u16;
            bytes[30..32].copy_from_slice(&len.to_le_bytes());
            let crc = crc32c(&bytes);
            bytes.extend(crc.to_le_bytes());
            bytes
        };
        assert_eq!(later(0), HELLO.encode());
        for more in [1, 24, HELLO_BYTES_MAX - HELLO_BYTES] {
            assert_eq!(Hello::parse(&later(more)), Some(HELLO), "{more} bytes more");
        }
        assert_eq!(Hello::parse(&later(HELLO_BYTES_MAX - HELLO_BYTES + 1)), None);
    }

    #[test]
    fn every_refusal_has_its_number() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_code(refusal.code()), Some(refusal));
        }
        assert_eq!((Refusal::from_code(0), Refusal::from_code(12)), (None, Some(Refusal::Later(12))));
    }
}
