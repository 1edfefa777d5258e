//! Portals: where initiators connect.
//!
//! Core 0 accepts, and takes every connection through its login: logins are rare and small, and the registry of sessions
//! is there. Then the connection moves to its session's core: the least loaded one for a new session, the session's own for
//! a further connection of it.

mod login;
mod registry;

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use proto::iscsi::target::CloseReason;
use rt::{CoreId, Listener};

pub use self::registry::Registry;
use self::registry::{Place, SessionName};
use crate::control::Control;
use crate::events::Event;
use crate::events::code::{SESSION_ENDED, SESSION_LOST};
use crate::port_numbers::PortNumbers;

/// Connections that may be in their login at once, of all portals: 2,000 hosts that come back after an outage and some
/// more. Each holds a few KiB. Beyond it, a connection waits in the kernel's queue.
const LOGINS_MAX: usize = 4096;

/// How long to wait before accepting again when the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at `address`.
///
/// # Errors
/// What the system says.
pub async fn listen(address: SocketAddr) -> io::Result<Listener> {
    Listener::bind(address).await
}

/// Accepts connections for ever. `logins` counts those in their login, at all portals.
pub async fn serve(listener: Listener, logins: Rc<Cell<usize>>) {
    loop {
        while logins.get() >= LOGINS_MAX {
            rt::sleep(ACCEPT_PAUSE).await;
        }
        match listener.accept().await {
            Ok((stream, peer)) => {
                logins.set(logins.get() + 1);
                let logins = Rc::clone(&logins);
                rt::spawn(async move {
                    login::log_in(stream, peer).await;
                    logins.set(logins.get() - 1);
                })
                .detach();
            }
            Err(error) => {
                tracing::warn!(portal = %listener.local_address(), %error, "cannot accept a connection");
                rt::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The addresses to tell initiators: a portal that listens on all addresses is told as those that its connections came in
/// on, since these can be reached.
pub fn addresses(portals: &[SocketAddr], local: &[SocketAddr], numbers: PortNumbers) -> Vec<String> {
    let mut addresses: Vec<SocketAddr> = portals
        .iter()
        .flat_map(|portal| {
            let reached = local.iter().map(|local| SocketAddr::new(canonical(local.ip()), portal.port()));
            let reached: Vec<SocketAddr> =
                if portal.ip().is_unspecified() { reached.collect() } else { vec![*portal] };
            reached
        })
        .collect();
    addresses.sort();
    addresses.dedup();
    target_addresses(&addresses, numbers)
}

/// TargetAddress of portals (RFC 7143 13.8).
pub fn target_addresses(portals: &[SocketAddr], numbers: PortNumbers) -> Vec<String> {
    portals.iter().map(|portal| format!("{portal},{}", numbers.portal_group())).collect()
}

fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Tells the registry that a session is over.
pub fn session_ended(tsih: u16, why: Option<CloseReason>) {
    rt::send(CoreId(0), move || {
        let Some(control) = Control::try_current() else { return };
        // Sessions for discovery come and go.
        if let Some(Place { name: SessionName { initiator, target: Some(target), .. }, .. }) =
            control.registry().remove(tsih)
        {
            control.events().tell(end_of_session(&initiator, &target, why));
        }
    });
}

/// What is told of the end of a session.
fn end_of_session(initiator: &str, target: &str, why: Option<CloseReason>) -> Event {
    let (code, cause, how) = match why {
        Some(CloseReason::LoggedOut) => (SESSION_ENDED, "logged_out", "has logged out"),
        Some(CloseReason::Drained) => (SESSION_ENDED, "asked_to", "was asked to log out"),
        Some(CloseReason::Reinstated) => (SESSION_ENDED, "replaced", "has logged in anew"),
        Some(CloseReason::Reset) => (SESSION_LOST, "reset", "was cut off"),
        None | Some(CloseReason::PeerClosed) => (SESSION_LOST, "connection_lost", "has lost its connection"),
        Some(CloseReason::NopTimeout) => (SESSION_LOST, "no_answer", "does not answer any more"),
        Some(CloseReason::HeaderDigest | CloseReason::DataDigest) => {
            (SESSION_LOST, "digest", "has sent data whose checksum is wrong")
        }
        Some(CloseReason::ProtocolError) => (SESSION_LOST, "protocol_error", "has broken the protocol"),
        Some(CloseReason::AbortTimeout) => {
            (SESSION_LOST, "abort_timeout", "was cut off since what it wants aborted does not end")
        }
    };
    Event::new(code, initiator, format!("{initiator} {how}: its session with {target} has ended"))
        .because(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_numbers::NodeNumber;

    #[test]
    fn a_portal_on_all_addresses_is_told_by_those_in_use() {
        let all = ["0.0.0.0:3260".parse().unwrap()];
        let local = ["10.0.0.5:3260".parse().unwrap(), "10.0.0.5:3260".parse().unwrap()];
        let alone = PortNumbers::Alone;
        assert_eq!(addresses(&all, &local, alone), ["10.0.0.5:3260,1"]);
        let two = ["127.0.0.1:3261".parse().unwrap(), "127.0.0.1:3260".parse().unwrap()];
        assert_eq!(addresses(&two, &local, alone), ["127.0.0.1:3260,1", "127.0.0.1:3261,1"]);
        let six = ["[::]:3260".parse().unwrap()];
        let third = PortNumbers::of(NodeNumber::new(3));
        assert_eq!(addresses(&six, &["[fd00::5]:3260".parse().unwrap()], third), ["[fd00::5]:3260,3"]);
    }
}
