//! What need not be said again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use base::Instant;
use replica::NodeId;

/// What goes on is said again after this time.
const SAY_AGAIN: Duration = Duration::from_secs(600);

/// So many things are remembered at most of the members, and as many of strangers, who so do not hide what
/// goes wrong with members. More are not said.
const REMEMBERED_MAX: usize = 256;

/// Who tries again every second says why it fails once, and again every ten minutes.
#[derive(Default)]
pub(crate) struct Said(RefCell<BTreeMap<(Option<NodeId>, String), Instant>>);

impl Said {
    /// Whether this is to be said now, of this node or of somebody unknown.
    pub(crate) fn is_news(&self, node: Option<NodeId>, what: &str) -> bool {
        let now = rt::now();
        let mut said = self.0.borrow_mut();
        said.retain(|_, when| now.since(*when) < SAY_AGAIN);
        let remembered = said.keys().filter(|(whom, _)| whom.is_some() == node.is_some()).count();
        if remembered >= REMEMBERED_MAX || said.contains_key(&(node, what.to_owned())) {
            return false;
        }
        said.insert((node, what.to_owned()), now);
        true
    }

    /// All is well with this node: what goes wrong next is news.
    pub(crate) fn forget(&self, node: NodeId) {
        self.0.borrow_mut().retain(|(whom, _), _| *whom != Some(node));
    }
}
