//! Simulated TCP.
//!
//! A connection carries two streams of bytes. Bytes of one stream are never reordered, lost or changed; they
//! are cut and joined at will, take their time, and wait when the other side does not receive. What TCP
//! cannot promise, this does not either: a connection may break with any part of what was sent undelivered;
//! when a link is cut, bytes are held and delivered after it heals, or the connection times out, on one side
//! earlier than on the other; a machine without power answers nothing, and resets what it no longer knows
//! when it is back.

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
