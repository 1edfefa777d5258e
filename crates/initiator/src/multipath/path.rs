//! One way to a unit: a portal of a target, and the session there, if there is one.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use base::Instant;
use rt::sync::Notify;

use crate::command::AccessState;
use crate::{Lun, Session};

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathName {
    /// The portal.
    pub portal: SocketAddr,
    /// TargetName.
    pub target: String,
    /// Counts the sessions at this portal.
    pub number: usize,
}

impl fmt::Display for PathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.portal, self.number)
    }
}

/// What a path is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// There is no session; logging in is tried again and again.
    Connecting,
    /// There is a session; the unit behind it is being asked who it is and how well it is reached.
    Checking,
    /// Commands may go here, if the access state allows it.
    Up,
    /// The target has asked us to leave: what is under way is waited for.
    Leaving,
    /// Somebody is there, but not the unit; looked at again from time to time.
    Refused,
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathState::Connecting => "connecting",
            PathState::Checking => "checking",
            PathState::Up => "up",
            PathState::Leaving => "leaving",
            PathState::Refused => "refused",
        })
    }
}

/// What is known of a path.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// Where it leads.
    pub name: PathName,
    /// What it is doing.
    pub state: PathState,
    /// How well the unit is reached through it; as last heard.
    pub access: AccessState,
    /// Commands go by it.
    pub in_use: bool,
    /// Commands under way.
    pub outstanding: u32,
    /// Commands that went by it.
    pub commands: u64,
    /// How often it was lost.
    pub losses: u64,
    /// Why it could not be used last.
    pub last_error: Option<String>,
}

impl fmt::Display for PathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.name, self.state)?;
        match (&self.last_error, self.state) {
            (None, _) => Ok(()),
            (Some(_), PathState::Up) => write!(f, ", {}", self.access),
            (Some(error), _) => write!(f, ": {error}"),
        }
    }
}

/// A path with all that belongs to it over the times that it is there and is not.
pub(super) struct Path {
    /// Its place in the lists of paths.
    pub(super) index: usize,
    pub(super) name: PathName,
    /// The same for all of its sessions: a login takes the place of the session before (RFC 7143 6.3.5).
    pub(super) isid: [u8; 6],
    /// Where the unit was found last.
    pub(super) lun: Cell<Lun>,
    pub(super) state: Cell<PathState>,
    pub(super) access: Cell<AccessState>,
    /// The unit is to be asked who it is.
    pub(super) check_wanted: Cell<bool>,
    /// The key that it is registered with; as far as we know.
    pub(super) registered: Cell<Option<u64>>,
    /// The first login has ended, well or not.
    pub(super) tried: Cell<bool>,
    pub(super) losses: Cell<u64>,
    pub(super) last_error: RefCell<Option<String>>,
}

impl Path {
    pub(super) fn new(index: usize, name: PathName, isid: [u8; 6], lun: Lun) -> Path {
        Path {
            index,
            name,
            isid,
            lun: Cell::new(lun),
            state: Cell::new(PathState::Connecting),
            access: Cell::new(AccessState::ActiveOptimized),
            check_wanted: Cell::new(false),
            registered: Cell::new(None),
            tried: Cell::new(false),
            losses: Cell::new(0),
            last_error: RefCell::default(),
        }
    }
}

/// One session of a path.
pub(super) struct Link {
    pub(super) session: Session,
    pub(super) lun: Lun,
    /// The target port group of the port behind it, as the unit has told.
    pub(super) port_group: Cell<Option<u16>>,
    /// Its target says of other nodes only what it acts by: see [`super::life::watch_others`].
    pub(super) fences: Cell<bool>,
    pub(super) began: Instant,
    /// A later login has taken its place: its target has ended it, with what it was carrying out.
    replaced: Cell<bool>,
    /// No command of this session can take effect any more.
    settled: Cell<bool>,
    /// Rung when it is so.
    bell: Notify,
}

impl Link {
    pub(super) fn new(session: Session, lun: Lun) -> Link {
        Link {
            session,
            lun,
            port_group: Cell::new(None),
            fences: Cell::new(false),
            began: rt::now(),
            replaced: Cell::new(false),
            settled: Cell::new(false),
            bell: Notify::new(),
        }
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.get()
    }

    /// A later login has taken its place.
    pub(super) fn replace(&self) {
        self.replaced.set(true);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.get()
    }

    /// It has become known that no command of this session can take effect any more.
    pub(super) fn settle(&self) {
        self.settled.set(true);
        self.bell.notify();
    }

    /// Waits until that is known.
    pub(super) async fn settled(&self) {
        while !self.settled.get() {
            self.bell.notified().await;
        }
    }

    /// How long the target wants to be left alone before its session is replaced (RFC 7143 13.15).
    pub(super) fn time2wait(&self) -> Duration {
        Duration::from_secs(u64::from(self.session.negotiated().time2wait))
    }
}
