//! The initiator's role, for our own clients: a [`Login`], then a [`Connection`]. One connection is a
//! session; several paths are several sessions, as multipath has it.
//!
//! The driver (in the `initiator` crate) moves bytes: feed what arrived, take the events, send what is to be
//! sent.

mod connection;
mod login;

pub use connection::{Command, CommandResult, Connection, ConnectionError, Event, TaskId, Transfer};
pub use login::{Identity, Login, LoginError, LoginOptions, LoginOutcome, Proof, Wish};
