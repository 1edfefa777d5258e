//! What unit to open, and how.

use std::net::SocketAddr;
use std::time::Duration;

use super::Policy;
use crate::command::UnitName;
use crate::{Lun, Options};

/// Which unit is meant, and where to look for it.
#[derive(Clone, Debug)]
pub struct Search {
    /// Portals to ask.
    pub portals: Vec<SocketAddr>,
    /// The name of the target; `None`: all that the portals show us are looked through.
    pub target: Option<String>,
    /// The unit.
    pub unit: Wanted,
    /// Whether portals that the given ones tell us of are used, too. If not, each of the given ones must lead
    /// to the unit.
    pub discover: bool,
}

/// A unit, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The unit that has this number at the first target that has one; what is not the same unit is no path
    /// to it.
    Lun(Lun),
    /// The unit of this name, whatever its number.
    Name(UnitName),
}

/// How a unit is used over its paths.
#[derive(Clone, Debug)]
pub struct MultipathOptions {
    /// How to log in. The session identifier is drawn for each path.
    pub login: Options,
    /// How commands are spread.
    pub policy: Policy,
    /// Sessions at each portal, one at least. Each core that uses the unit opens it by itself, so that one is
    /// one a core.
    pub sessions: usize,
    /// How long commands wait when there is no path, and how long a command is sent again.
    pub queue_for: Duration,
    /// When a path is lost and its target port can be reached by no other way: after this time no command
    /// that had reached the target is under way any more. It must be at least as long as the target may work
    /// at one.
    pub quiesce: Duration,
}

impl Default for MultipathOptions {
    /// A minute without a path, as no_path_retry 12 gives dm-multipath; and for a target that cannot be
    /// asked, what commands get to be answered.
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
