//! What was logged and need not be logged again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::Instant;
use replica::NodeId;

use crate::{LinkTrouble, NotAdmitted, Role};

/// What persists is logged again after this time.
const SAY_AGAIN: Duration = Duration::from_secs(600);

/// How many things are remembered about members, and as many about strangers, so that these cannot hide what
/// goes wrong with members. More are not logged.
const REMEMBERED_MAX: usize = 256;

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogTopic {
    /// There are too many connections from this address.
    Crowd(IpAddr),
    /// No connection can be accepted, with the system's error number.
    Accept(i32),
    /// A connection from this address did not become a link. Clients use another port with each attempt.
    Incoming(IpAddr, LinkTrouble),
    /// A node at this address could not ask to join; `None`: it sent an unexpected message.
    Joiner(IpAddr, Option<LinkTrouble>),
    /// A node at this address was not admitted; `None`: the user of the member refused.
    NotAdmitted(IpAddr, Option<NotAdmitted>),
    /// A link of this role cannot be established with this address.
    Dial(Role, Option<SocketAddr>, LinkTrouble),
}

/// Lets a task that retries every second log why it fails once, and again every ten minutes.
#[derive(Default)]
pub(crate) struct LogThrottle(RefCell<BTreeMap<(Option<NodeId>, LogTopic), Instant>>);

impl LogThrottle {
    /// Whether to log this now, about this node or an unknown one.
    pub(crate) fn is_news(&self, node: Option<NodeId>, what: LogTopic) -> bool {
        let now = rt::now();
        let mut said = self.0.borrow_mut();
        said.retain(|_, when| now.since(*when) < SAY_AGAIN);
        let remembered = said.keys().filter(|(whom, _)| whom.is_some() == node.is_some()).count();
        if remembered >= REMEMBERED_MAX || said.contains_key(&(node, what)) {
            return false;
        }
        said.insert((node, what), now);
        true
    }

    /// All is well with this node: its next failure is logged.
    pub(crate) fn forget(&self, node: NodeId) {
        self.0.borrow_mut().retain(|(whom, _), _| *whom != Some(node));
    }
}
