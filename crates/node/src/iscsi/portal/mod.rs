//! Portals: where initiators connect.
//!
//! Core 0 accepts every connection and runs its login: logins are rare and small, and the registry of
//! sessions is there. Then the connection moves to its session's core: the least loaded core for a new
//! session, the session's own core for a further connection.

mod login;
mod registry;
mod room;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use proto::iscsi::target_role::CloseReason;
use rt::{CoreId, Listener};

pub use self::registry::Registry;
use self::registry::{Place, SessionName};
use self::room::{Place as RoomPlace, Room};
use crate::control::Control;
use crate::events::code::{LOGINS_CROWDED, SESSION_ENDED, SESSION_LOST};
use crate::events::{Event, tell};

/// How long to wait before accepting again when the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often to report that connections are closed to make room for others.
const CROWDED_EVERY: Duration = Duration::from_secs(60);

/// The connections in login.
pub struct Logins {
    room: RefCell<Room>,
    /// The task that runs each login.
    tasks: RefCell<BTreeMap<RoomPlace, rt::Task<()>>>,
    /// When crowding was last reported.
    told: Cell<Option<Instant>>,
}

impl Default for Logins {
    fn default() -> Logins {
        Logins {
            room: RefCell::new(Room::new(room::LOGINS_MAX)),
            tasks: RefCell::default(),
            told: Cell::new(None),
        }
    }
}

impl Logins {
    /// Runs the login of a connection.
    fn begin(self: &Rc<Logins>, stream: rt::DetachedStream, peer: SocketAddr) {
        let (place, gone) = self.room.borrow_mut().enter(peer.ip());
        if let Some(gone) = gone {
            let task = self.tasks.borrow_mut().remove(&gone);
            drop(task);
            self.tell_crowded(peer);
        }
        let logins = Rc::clone(self);
        let task = rt::spawn(async move {
            login::log_in(stream, peer, |shown| logins.room.borrow_mut().note(place, shown)).await;
            logins.room.borrow_mut().leave(place);
            if let Some(task) = logins.tasks.borrow_mut().remove(&place) {
                task.detach();
            }
        });
        self.tasks.borrow_mut().insert(place, task);
    }

    fn tell_crowded(&self, peer: SocketAddr) {
        let now = rt::now();
        if self.told.get().is_some_and(|told| now.since(told) < CROWDED_EVERY) {
            return;
        }
        self.told.set(Some(now));
        tracing::warn!(%peer, "connections that had not logged in were closed to make room for others");
        let text = format!(
            "too many connections in login: connections that have not logged in are closed to make room for new ones, most recently for one from {}",
            peer.ip()
        );
        tell(Event::new(LOGINS_CROWDED, peer.ip().to_string(), text).because("no_room"));
    }
}

/// Accepts connections forever. `logins` has the connections in login at all portals.
pub async fn serve(listener: Listener, logins: Rc<Logins>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => logins.begin(stream, peer),
            Err(error) => {
                tracing::warn!(portal = %listener.local_address(), %error, "cannot accept a connection");
                rt::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The portal addresses to report to initiators.
///
/// A portal that listens on all addresses is reported by the local addresses of the session's connections,
/// since these are reachable.
pub fn addresses(portals: &[SocketAddr], local: &[SocketAddr], group: u16) -> Vec<String> {
    let mut addresses: Vec<SocketAddr> = portals
        .iter()
        .flat_map(|portal| {
            let reached = local.iter().map(|local| SocketAddr::new(local.ip().to_canonical(), portal.port()));
            let reached: Vec<SocketAddr> =
                if portal.ip().is_unspecified() { reached.collect() } else { vec![*portal] };
            reached
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    target_addresses(&addresses, group)
}

/// The TargetAddress values of portals of this portal group (RFC 7143 13.8).
pub fn target_addresses(portals: &[SocketAddr], group: u16) -> Vec<String> {
    portals.iter().map(|portal| format!("{portal},{group}")).collect()
}

/// Removes a session that is over from the registry.
pub fn session_ended(tsih: u16, why: Option<CloseReason>) {
    rt::send(CoreId(0), move || {
        let Some(control) = Control::try_current() else { return };
        // Discovery sessions are frequent and are not reported.
        if let Some(Place { name: SessionName { initiator, target: Some(target), .. }, .. }) =
            control.registry().remove(tsih)
        {
            control.events().tell(end_of_session(&initiator, &target, why));
        }
    });
}

/// The event for the end of a session.
fn end_of_session(initiator: &str, target: &str, why: Option<CloseReason>) -> Event {
    let (code, cause, how) = match why {
        Some(CloseReason::LoggedOut) => (SESSION_ENDED, "logged_out", "logged out"),
        Some(CloseReason::Drained) => (SESSION_ENDED, "asked_to", "was asked to log out"),
        Some(CloseReason::Reinstated) => (SESSION_ENDED, "replaced", "was replaced by a new login"),
        Some(CloseReason::Reset) => (SESSION_LOST, "reset", "was reset"),
        None | Some(CloseReason::PeerClosed) => (SESSION_LOST, "connection_lost", "lost its connection"),
        Some(CloseReason::NopTimeout) => (SESSION_LOST, "no_answer", "stopped responding"),
        Some(CloseReason::HeaderDigest | CloseReason::DataDigest) => {
            (SESSION_LOST, "digest", "sent data with a wrong digest")
        }
        Some(CloseReason::ProtocolError) => (SESSION_LOST, "protocol_error", "violated the protocol"),
        Some(CloseReason::AbortTimeout) => {
            (SESSION_LOST, "abort_timeout", "was cut off: a task it asked to abort did not end")
        }
    };
    Event::new(code, initiator, format!("session of {initiator} with {target} ended: the initiator {how}"))
        .because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_portal_is_listed_by_its_addresses_in_use() {
        let all = ["0.0.0.0:3260".parse().unwrap()];
        let local = ["10.0.0.5:3260".parse().unwrap(), "10.0.0.5:3260".parse().unwrap()];
        assert_eq!(addresses(&all, &local, 1), ["10.0.0.5:3260,1"]);
        let two = ["127.0.0.1:3261".parse().unwrap(), "127.0.0.1:3260".parse().unwrap()];
        assert_eq!(addresses(&two, &local, 1), ["127.0.0.1:3260,1", "127.0.0.1:3261,1"]);
        let six = ["[::]:3260".parse().unwrap()];
        assert_eq!(addresses(&six, &["[fd00::5]:3260".parse().unwrap()], 300), ["[fd00::5]:3260,300"]);
    }
}
