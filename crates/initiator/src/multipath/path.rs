//! One path to a unit: a portal of a target, and the session there, if there is one.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use base::Instant;
use rt::sync::Notify;

use crate::command::AccessState;
use crate::{Lun, Session};

/// Identifies a path: where it leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathName {
    /// The portal.
    pub portal: SocketAddr,
    /// TargetName.
    pub target: String,
    /// The number of the session at this portal.
    pub number: usize,
}

base::shows!(Display for PathName, |it| "{} #{}", it.portal, it.number);

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// There is no session; login is retried.
    Connecting,
    /// There is a session; the unit is being asked for its name and access state.
    Checking,
    /// Commands may use the path, if the access state allows it.
    Up,
    /// The target has requested a logout: the session waits for the commands under way.
    Leaving,
    /// The target answers, but the unit is not there; checked again from time to time.
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
    /// Its state.
    pub state: PathState,
    /// The unit's access state through it, as last reported.
    pub access: AccessState,
    /// Whether commands use it.
    pub in_use: bool,
    /// Commands under way.
    pub outstanding: u32,
    /// Commands sent over it so far.
    pub commands: u64,
    /// How often it was lost.
    pub losses: u64,
    /// Why it was last unusable.
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

/// What a path keeps from one session to the next.
pub(super) struct Path {
    /// Its index in the lists of paths.
    pub(super) index: usize,
    pub(super) name: PathName,
    /// The same for all of its sessions: a login replaces the session before it (RFC 7143 6.3.5).
    pub(super) isid: [u8; 6],
    /// The LUN at which the unit was last found.
    pub(super) lun: Cell<Lun>,
    pub(super) state: Cell<PathState>,
    pub(super) access: Cell<AccessState>,
    /// The unit must be asked for its name.
    pub(super) check_wanted: Cell<bool>,
    /// The key that it is registered with, as far as we know.
    pub(super) registered: Cell<Option<u64>>,
    /// The first login has ended, successfully or not.
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
    /// The target port group of the port, as the unit reported it.
    pub(super) port_group: Cell<Option<u16>>,
    /// Its target acts on what it reports about other nodes: see [`super::path_lifetime::watch_others`].
    pub(super) fences: Cell<bool>,
    pub(super) began: Instant,
    /// A later login has replaced it: its target has ended the session and the commands in it.
    replaced: Cell<bool>,
    /// No command of this session can take effect any more.
    settled: Cell<bool>,
    /// Notified when it is settled.
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

    /// Notes that a later login has replaced the session.
    pub(super) fn replace(&self) {
        self.replaced.set(true);
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.get()
    }

    /// Notes that no command of this session can take effect any more.
    pub(super) fn settle(&self) {
        self.settled.set(true);
        self.bell.notify();
    }

    /// Waits until the session is settled.
    pub(super) async fn settled(&self) {
        while !self.settled.get() {
            self.bell.notified().await;
        }
    }

    /// How long the target asks to wait before its session is replaced (RFC 7143 13.15).
    pub(super) fn time2wait(&self) -> Duration {
        Duration::from_secs(u64::from(self.session.negotiated().time2wait))
    }
}
