//! The server's side of NBD, the network block device protocol, for one export that is only read.
//!
//! The protocol is `doc/proto.md` of <https://github.com/NetworkBlockDevice/nbd>; *sections* are those of
//! that document. Implemented are the fixed newstyle negotiation with TLS, structured and simple replies,
//! reads with holes, and block status: `base:allocation`, and `qemu:dirty-bitmap:NAME` for what has changed.
//! Left out are commands that write, FLUSH and CACHE, which are not offered, and the experimental extensions.
//!
//! What it guarantees: no bytes of a client make it panic, loop, or allocate by a number that they contain.
//! At most [`OPTION_BYTES_MAX`] of an option and [`PIECE_BYTES_MAX`] of a reply are in memory, and a client
//! has at most [`ANSWERED_AT_ONCE`] requests under way. Where TLS is required, it learns nothing before.
//!
//! [`Negotiation`], [`Requests`] and [`Answer`] do no I/O: bytes go in, bytes and events come out. What is
//! served is a [`Source`]. [`serve`] moves the bytes of one connection, which is a [`Transport`].

mod answer;
mod connection;
mod export;
mod negotiation;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod violation;
mod wire;

pub use self::answer::{Answer, BadSource, EXTENTS_MAX, PIECE_BYTES_MAX, READ_BYTES_MAX, Truncated};
pub use self::connection::{
    ANSWERED_AT_ONCE, Ended, NEGOTIATED_WITHIN, Problem, QUEUED_REQUESTS_MAX, Transport, serve,
};
pub use self::export::{Export, Extent, Map, Piece, Source};
pub use self::negotiation::{
    Contexts, Negotiated, Negotiation, NegotiationEvent, OPTION_BYTES_MAX, Security,
};
pub use self::request::{Command, Request, Requests, WRITE_BYTES_MAX};
pub use self::violation::Violation;
