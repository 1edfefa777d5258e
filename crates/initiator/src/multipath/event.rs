//! What happens to paths, for people and for tests.

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
    /// A path can be used.
    Up(PathName),
    /// A path is lost, for this reason.
    Lost(PathName, String),
    /// Behind a path is not the unit.
    Refused(PathName, String),
    /// The unit is reached better or worse through a path.
    Access(PathName, AccessState),
    /// The unit does not know this host's key any more, and the path is not registered: another host has
    /// taken our place.
    Fenced(PathName),
    /// No path can be used: commands wait.
    NoPath,
    /// A path can be used again.
    Resumed,
    /// The unit has another size.
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

/// Events that nobody has asked for are kept up to this number, then the oldest go.
const EVENTS_MAX: usize = 1024;

/// Events that wait to be asked for.
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
