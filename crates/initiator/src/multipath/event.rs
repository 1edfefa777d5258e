//! Path events, for people and for tests.

use std::collections::VecDeque;
use std::fmt;

use base::Instant;

use super::path::PathName;
use crate::Capacity;
use crate::command::AccessState;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by the node's clock.
    pub at: Instant,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A path is usable.
    Up(PathName),
    /// A path is lost, for this reason.
    Lost(PathName, String),
    /// A path does not lead to the unit.
    Refused(PathName, String),
    /// The access state of a path has changed.
    Access(PathName, AccessState),
    /// The unit no longer knows this host's key, and the path is not registered: another host has preempted
    /// it.
    Fenced(PathName),
    /// No path is usable: commands wait.
    NoPath,
    /// A path is usable again.
    Resumed,
    /// The unit was resized.
    Resized(Capacity),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Up(path) => write!(f, "path {path} is up"),
            What::Lost(path, why) => write!(f, "path {path} lost: {why}"),
            What::Refused(path, why) => write!(f, "path {path} does not lead to the LUN: {why}"),
            What::Access(path, state) => write!(f, "path {path} is {state}"),
            What::Fenced(path) => {
                write!(
                    f,
                    "path {path} is not registered: this host's reservation key was removed from the LUN"
                )
            }
            What::NoPath => f.write_str("no usable path; I/O is queued"),
            What::Resumed => f.write_str("a path is usable again; I/O resumes"),
            What::Resized(capacity) => write!(f, "the LUN was resized to {} blocks", capacity.blocks.0),
        }
    }
}

/// At most this many events are kept until they are taken; then the oldest are dropped.
const EVENTS_MAX: usize = 1024;

/// Events that have not been taken yet.
#[derive(Debug, Default)]
pub(super) struct Events(VecDeque<Event>);

impl Events {
    pub(super) fn add(&mut self, event: Event) {
        if self.0.len() == EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        self.0.drain(..).collect()
    }
}
