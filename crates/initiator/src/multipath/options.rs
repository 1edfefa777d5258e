//! Which unit to open, and how to use it.

use std::net::SocketAddr;
use std::time::Duration;

use super::Policy;
use crate::command::UnitName;
use crate::{Lun, Options};

/// The unit to open, and where to look for it.
#[derive(Clone, Debug)]
pub struct Search {
    /// Portals to ask.
    pub portals: Vec<SocketAddr>,
    /// The name of the target; `None` searches all targets that the portals show us.
    pub target: Option<String>,
    /// The unit.
    pub unit: UnitSelector,
    /// Whether to use portals, too, that the given ones report. If not, each of the given portals must lead
    /// to the unit.
    pub discover: bool,
}

/// A unit, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitSelector {
    /// The unit that has this number at the first target that has one. A different unit is not a path to it.
    Lun(Lun),
    /// The unit of this name, whatever its number.
    Name(UnitName),
}

/// How a unit is used over its paths.
#[derive(Clone, Debug)]
pub struct MultipathOptions {
    /// How to log in. The session identifier is drawn for each path.
    pub login: Options,
    /// How commands are distributed.
    pub policy: Policy,
    /// Sessions at each portal, at least one. Each core that uses the unit opens it separately, so one
    /// session here is one per core.
    pub sessions: usize,
    /// How long commands wait when there is no path, and how long a command is retried.
    pub queue_for: Duration,
    /// The time after which a target port that cannot be reached in any other way has finished.
    ///
    /// When a path is lost, no command that had reached the target is under way after this time. It must be
    /// at least as long as the target may work on one command.
    pub quiesce: Duration,
}

impl Default for MultipathOptions {
    /// A minute without a path, like dm-multipath's no_path_retry 12. A target that cannot be reached gets
    /// the time in which commands must be answered.
    fn default() -> MultipathOptions {
        MultipathOptions {
            login: Options::default(),
            policy: Policy::default(),
            sessions: 1,
            queue_for: Duration::from_secs(60),
            quiesce: Duration::from_secs(30),
        }
    }
}
