//! How connections of a session come and go.

use std::rc::Rc;
use std::time::Duration;

use proto::iscsi::target::{CommandId, ConnectionId, LoginOutcome, LoginStatus};
use rt::{CoreId, Stream};

use super::Session;
use super::connection::Connection;
use crate::access::{Barred, Claim};
use crate::shard::Shard;

/// How long commands of a connection that goes get to come to their end. A disk that takes longer is sick;
/// the initiator, which is told so, will come again or escalate.
const QUIET_DEADLINE: Duration = Duration::from_secs(10);

/// A place in a session that is kept for a connection at the end of its login. It is given back if nobody
/// takes it: the login may break off, or its deadline pass.
pub struct Seat {
    core: CoreId,
    tsih: u16,
    id: ConnectionId,
    taken: bool,
    replaces: bool,
}

/// Why there is no seat for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSeat {
    /// The login may not act for the session.
    Barred(Barred),
    /// The session takes no connection, or not now.
    Status(LoginStatus),
}

impl Seat {
    fn new(session: &Session, id: ConnectionId, replaces: bool) -> Seat {
        Seat { core: rt::core(), tsih: session.tsih(), id, taken: false, replaces }
    }

    /// The connection takes the place of one with its number.
    pub fn replaces(&self) -> bool {
        self.replaces
    }

    /// The session's number.
    pub fn tsih(&self) -> u16 {
        self.tsih
    }

    /// Moves the connection to the session's core and there into the session; it is closed if that has ended.
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

impl Drop for Seat {
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

    /// Keeps a place for a further connection, or one that replaces another of its number. In that case
    /// nothing of the former one takes effect any more when this returns: the initiator may write anew.
    ///
    /// # Errors
    /// The login may not act for this session, there are as many connections as the first login settled, the
    /// session has just ended, or commands of the former connection do not come to their end.
    pub async fn join(self: Rc<Session>, cid: u16, claim: &Claim) -> Result<Seat, NoSeat> {
        self.admits(claim).map_err(NoSeat::Barred)?;
        let replaces = self.connections.borrow().keys().any(|id| id.cid == cid);
        let id = self.brain.borrow_mut().expect_connection(cid).map_err(NoSeat::Status)?;
        let seat = Seat::new(&self, id, replaces);
        self.pump();
        match rt::timeout(QUIET_DEADLINE, self.quiet(Some(cid))).await {
            Ok(()) => Ok(seat),
            Err(_) => {
                tracing::error!(tsih = self.tsih(), cid, "timed out draining commands of a lost connection");
                Err(NoSeat::Status(LoginStatus::ServiceUnavailable))
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

    /// Nothing more will be sent on this connection, or it will not come.
    pub(super) fn forget_connection(self: &Rc<Session>, id: ConnectionId) {
        let forgotten = self.connections.borrow_mut().remove(&id);
        drop(forgotten);
        self.brain.borrow_mut().remove_connection(id);
        self.pump();
    }

    /// The initiator logs a connection out (`None`: all of them). It may write through another one, or
    /// another initiator may, when it has the answer: what is at a disk comes first.
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

    /// Waits until no command of this connection (`None`: of any) runs.
    pub(super) async fn quiet(&self, cid: Option<u16>) {
        let is_of = |running: &super::Running| cid.is_none_or(|cid| running.cid == cid);
        self.command_ended.until(|| !self.running.borrow().values().any(is_of)).await;
    }
}
