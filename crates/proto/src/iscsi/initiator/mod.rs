//! The initiator's role, for our own clients: a [`Login`], then a [`Connection`]. A session has one
//! connection; several paths are several sessions, as multipath requires.
//!
//! The driver (in the `initiator` crate) moves bytes: feed the bytes that arrived, take the events, send the
//! output.

mod connection;
mod login;

pub use connection::{Command, CommandResult, Connection, ConnectionError, Event, TaskId, Transfer};
pub use login::{Identity, Login, LoginError, LoginOptions, LoginOutcome, Proof, Wish};
