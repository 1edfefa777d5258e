//! Simulated TCP.
//!
//! A connection carries two streams of bytes. Bytes of one stream are never reordered, lost or changed. But
//! they are split and joined at will, take time, and wait if the other side does not receive. Like TCP, it
//! does not promise more: a connection may break with any part of the sent bytes undelivered; if a link is
//! cut, bytes are held and delivered after it heals, or the connection times out, on one side earlier than on
//! the other; a machine without power answers nothing, and when it is back it resets connections that it no
//! longer knows.

mod calls;
mod connection;
mod face;
mod links;
mod network;
mod outages;
mod packets;

pub use face::{DetachedStream, Listener, Received, Stream};
pub use links::NetProfile;
pub(super) use network::{ConnectionId, Net, NetDue};
