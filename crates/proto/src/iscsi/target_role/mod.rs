//! The target's role: a [`Login`] for the first phase of each connection, then a [`Session`] for all its
//! connections.
//!
//! The driver of both (in `node`) moves bytes and decides what only the node knows: which initiators may log
//! in, and which LUN is which volume. It works in a loop: feed the bytes that arrived, take the events,
//! answer them, send the output.
//!
//! The folder is not called `target`, because search tools skip folders of that name: cargo builds into one.

mod login;
mod session;

pub use super::Negotiated;
pub use login::{
    Authorization, Chap, Credentials, Login, LoginEvent, LoginOutcome, LoginRequest, LoginStatus, SessionKind,
};
pub use session::{
    CloseReason, Command, CommandId, ConnectionId, Counters, Event, InPlace, Session, SessionConfig,
    TRANSMIT_BYTES_MAX, TargetRecord, TaskCensus, TaskFunction, TaskResponse,
};
