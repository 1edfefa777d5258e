//! The target's role: a [`Login`] for the first phase of each connection, then a [`Session`] for all its
//! connections.
//!
//! The driver of both (in `node`) moves bytes and decides what only the node can know: who may log in, which
//! LUN is which volume. It does so in a loop: feed what arrived, take the events, answer them, send what is
//! to be sent.

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
