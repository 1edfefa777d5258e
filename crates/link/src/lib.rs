//! Links between the nodes of a cluster: frames in order over TCP, encrypted and mutually authenticated.
//!
//! Two nodes have one *control* link, on core 0 of both, and as many *replication* links as the greater of
//! their numbers of cores; number k runs on core `k mod cores` of each side. So a slice's messages always
//! travel by the same link, in order, and no frame changes cores. The node with the higher number connects,
//! and reconnects as long as the other is a member.
//!
//! Guarantees: a link that is up delivers what was sent, in order and once, until it is down. Then everything
//! that was on its way is lost. On each core, `down` comes before the next `up` of the same link, and nothing
//! of the old link is delivered after that. Links with an earlier life of a peer are down on all cores before
//! the first link with a later life is up. A node gets no link if it is not a member, proves to be another
//! node than it claims, or is in an earlier life than one that was seen.
//!
//! Structure: core 0 has the [`mesh`]. It accepts ([`acceptor`]) and makes ([`dialler`]) connections; two
//! sides agree by hellos ([`hello`], [`wire`]). Then the connection moves to the core of its link
//! ([`endpoint`], [`link`]), which decodes [`frame`]s and hands them to the [`Handler`] that the user has
//! installed there.
//! The format is in `docs/formats/replication-link.md`.

mod acceptor;
mod credentials;
mod death_notice;
mod dialler;
mod endpoint;
mod frame;
mod hello;
mod join;
mod link;
mod links;
mod log_throttle;
mod mesh;
mod name;
mod protocol;
mod room;
mod settings;
mod tls;
mod trouble;
mod wire;

#[doc(hidden)]
pub use self::tls::fuzzing;
pub use credentials::{
    ClusterAuthority, CredentialsError, FileError, NODE_KEY_FILE, NodeCredentials, OpenToken, Secret,
    SecretDigest, Token, TokenError, UnixSeconds, Unredeemed,
};
pub use death_notice::{DeathNotice, DeathNoticeError};
pub use frame::{Decoder, Frame, HEAD_MAX, HEADER_BYTES, Malformed, PAYLOAD_MAX, encode};
pub use hello::{Refusal, Refused};
pub use join::{ABOUT_MAX, JoinAnswer, JoinError, JoinRequest, Joined, NoAnswer, NotAdmitted, join};
pub use link::Link;
pub use links::{Handler, Links, PeerState, StartError};
pub use name::{ClusterId, LinkName, Role};
pub use protocol::{Capabilities, Negotiated, Protocol, Versions};
pub use settings::{DOUBT, Limits, Peer, SILENCE, Settings};
pub use trouble::{LinkTrouble, TlsTrouble};
