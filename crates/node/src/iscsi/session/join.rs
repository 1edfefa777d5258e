//! How connections join and leave a session.

use std::rc::Rc;
use std::time::Duration;

use proto::iscsi::target_role::{CommandId, ConnectionId, LoginOutcome, LoginStatus};
use rt::{CoreId, Stream};

use super::Session;
use super::connection::Connection;
use crate::attach::access::{Barred, Claim};
use crate::shard::Shard;

/// How long commands of a connection that is closed may take to end. A disk that takes longer is faulty; the
/// login or logout then fails, and the initiator tries again or escalates.
const QUIET_DEADLINE: Duration = Duration::from_secs(10);

/// A place in a session, reserved for a connection at the end of its login.
///
/// It is released if it is not taken: the login may fail, or its deadline pass.
pub struct ConnectionSlot {
    core: CoreId,
    tsih: u16,
    id: ConnectionId,
    taken: bool,
    replaces: bool,
}

/// Why a connection got no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoConnectionSlot {
    /// The login may not act for the session.
    Barred(Barred),
    /// The session accepts no connection, or not now.
    Status(LoginStatus),
}

impl ConnectionSlot {
    fn new(session: &Session, id: ConnectionId, replaces: bool) -> ConnectionSlot {
        ConnectionSlot { core: rt::core(), tsih: session.tsih(), id, taken: false, replaces }
    }

    /// Whether the connection replaces one with the same number.
    pub fn replaces(&self) -> bool {
        self.replaces
    }

    /// The session's number.
    pub fn tsih(&self) -> u16 {
        self.tsih
    }

    /// Moves the connection to the session's core and adds it to the session.
    ///
    /// It is closed if the session has ended.
    pub fn take(mut self, stream: rt::DetachedStream, login: LoginOutcome) {
        self.taken = true;
        let (tsih, id) = (self.tsih, self.id);
        rt::send(self.core, move || {
            if let Some(session) = Shard::current().session(tsih) {
                session.add_connection(id, stream.attach(), login);
            }
        });
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let (tsih, id) = (self.tsih, self.id);
        rt::send(self.core, move || {
            if let Some(session) = Shard::current().session(tsih) {
                session.forget_connection(id);
            }
        });
    }
}

impl Session {
    /// Adds the first connection.
    pub fn add_leading_connection(self: &Rc<Session>, stream: Stream, login: LoginOutcome) {
        let expected = self.brain.borrow_mut().expect_connection(login.request.cid);
        let id = expected.expect("a new session accepts a connection");
        self.add_connection(id, stream, login);
    }

    /// Reserves a place for a further connection, or for one that replaces another of the same number.
    ///
    /// In the second case no command of the former connection can take effect after the return: the initiator
    /// may send its writes again.
    ///
    /// # Errors
    /// The login may not act for this session, the session has as many connections as the first login
    /// negotiated, it has just ended, or commands of the former connection do not end in time.
    pub async fn join(
        self: Rc<Session>,
        cid: u16,
        claim: &Claim,
    ) -> Result<ConnectionSlot, NoConnectionSlot> {
        self.admits(claim).map_err(NoConnectionSlot::Barred)?;
        let replaces = self.connections.borrow().keys().any(|id| id.cid == cid);
        let id = self.brain.borrow_mut().expect_connection(cid).map_err(NoConnectionSlot::Status)?;
        let slot = ConnectionSlot::new(&self, id, replaces);
        self.pump();
        match rt::timeout(QUIET_DEADLINE, self.quiet(Some(cid))).await {
            Ok(()) => Ok(slot),
            Err(_) => {
                tracing::error!(tsih = self.tsih(), cid, "timed out draining commands of a lost connection");
                Err(NoConnectionSlot::Status(LoginStatus::ServiceUnavailable))
            }
        }
    }

    fn add_connection(self: &Rc<Session>, id: ConnectionId, stream: Stream, login: LoginOutcome) {
        let LoginOutcome { negotiated, stat_sn, exp_cmd_sn, leftover, .. } = login;
        let added = self.brain.borrow_mut().add_connection(id, negotiated, stat_sn, exp_cmd_sn, rt::now());
        if !added {
            return;
        }
        let connection = Rc::new(Connection::new(id, stream));
        self.connections.borrow_mut().insert(id, Rc::clone(&connection));
        self.brain.borrow_mut().handle_bytes(id, &leftover, rt::now());
        rt::spawn(Rc::clone(&connection).receive(Rc::clone(self))).detach();
        rt::spawn(connection.send(Rc::clone(self))).detach();
        self.deadline_changed.notify();
        self.pump();
    }

    /// Removes a connection that will send nothing more, or that never came.
    pub(super) fn forget_connection(self: &Rc<Session>, id: ConnectionId) {
        let forgotten = self.connections.borrow_mut().remove(&id);
        drop(forgotten);
        self.brain.borrow_mut().remove_connection(id);
        self.pump();
    }

    /// Handles the logout of a connection (`None`: of all).
    ///
    /// After the response, writes may come through another connection or from another initiator, so commands
    /// that are at a disk must end first.
    pub(super) async fn log_out(self: Rc<Session>, id: CommandId, cid: Option<u16>) {
        let quiet = rt::timeout(QUIET_DEADLINE, self.quiet(cid)).await;
        if quiet.is_err() {
            tracing::error!(
                tsih = self.tsih(),
                cid,
                "timed out draining commands of a connection that logged out"
            );
        }
        self.brain.borrow_mut().logout_done(id, quiet.is_ok());
        self.pump();
    }

    /// Waits until no command of this connection (`None`: of any) is running.
    pub(super) async fn quiet(&self, cid: Option<u16>) {
        let is_of = |running: &super::Running| cid.is_none_or(|cid| running.cid == cid);
        self.command_ended.until(|| !self.running.borrow().values().any(is_of)).await;
    }
}
