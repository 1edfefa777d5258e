//! One session: a login, then commands of any task on this core.
//!
//! `shared` holds what the session's tasks and commands have in common, around the brain (`proto`'s
//! `Connection`); `tasks` are the loops that move bytes and watch the clock; `pending` is a command under
//! way.

mod escalation;
mod keep_alive;
mod pending;
mod shared;
mod tasks;
mod waiters;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use base::SendBatch;
use proto::iscsi::Negotiated;
use proto::iscsi::initiator::{
    self as iscsi, CommandResult, Connection, Login, LoginError, LoginOptions, LoginOutcome, TaskId, Transfer,
};
use proto::iscsi::target_role::{TargetRecord, TaskFunction};
use proto::iscsi::wire::ServiceResponse;
use proto::scsi::Cdb;
use rt::{Stream, Task};

pub use self::pending::Pending;
use self::shared::Shared;
use self::waiters::{Answer, WaitId};
use crate::command::Command;
use crate::{Ended, Error, Lun, Options};

/// A session with one target, over one connection. It belongs to the core that created it.
///
/// The session maintains itself: it pings a silent target and gives it up if it does not answer, aborts
/// commands that are not answered in time, and logs out when the target requests it. Dropping the session
/// closes the connection without a logout: the target may still execute commands that are under way.
pub struct Session {
    shared: Rc<Shared>,
    portal_group: Option<u16>,
    /// They end when the session is dropped.
    _tasks: [Task<()>; 5],
}

impl Session {
    /// Logs in to `target` at `portal`.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::Login`], [`Error::NoLogin`].
    pub async fn connect(portal: SocketAddr, target: &str, options: &Options) -> Result<Session, Error> {
        Session::log_in(portal, options.login(Some(target)), options).await
    }

    pub(crate) async fn log_in(
        portal: SocketAddr,
        login: LoginOptions,
        options: &Options,
    ) -> Result<Session, Error> {
        let deadline = options.timeouts.login;
        let stream =
            Stream::connect(portal, deadline).await.map_err(|source| Error::Connect { portal, source })?;
        let cid = login.identity.cid;
        let outcome = rt::timeout(deadline, carry_out(&stream, Login::new(login)))
            .await
            .map_err(|_| Error::NoLogin { portal })?
            .map_err(|_| Error::NoLogin { portal })?
            .map_err(|source| Error::Login { portal, source })?;
        let shared = Rc::new(Shared::new(stream, Connection::new(&outcome, cid), options));
        shared.handle_bytes(&outcome.leftover);
        let tasks = tasks::start(&shared);
        Ok(Session { shared, portal_group: outcome.portal_group, _tasks: tasks })
    }

    /// The negotiated login parameters.
    pub fn negotiated(&self) -> Negotiated {
        self.shared.connection.borrow().negotiated().clone()
    }

    /// The target portal group that the portal belongs to, if the target reported it.
    pub fn portal_group(&self) -> Option<u16> {
        self.portal_group
    }

    /// The portal.
    pub fn portal(&self) -> SocketAddr {
        self.shared.stream.peer_address()
    }

    /// Why the session has ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended.get()
    }

    /// Waits until the session has ended.
    pub async fn closed(&self) -> Ended {
        loop {
            match self.shared.ended.get() {
                Some(ended) => return ended,
                None => self.changed().await,
            }
        }
    }

    /// Waits until something changes that matters to the session's owner.
    ///
    /// That is: the session has ended or is about to, the target falls silent or answers again, a unit has
    /// sent sense data, or [`Session::nudge`] was called.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Wakes the task that waits in [`Session::changed`].
    pub fn nudge(&self) {
        self.shared.changed.notify();
    }

    /// Whether the target was pinged and has not answered within half a second.
    pub fn is_silent(&self) -> bool {
        self.shared.is_silent()
    }

    /// Whether the target has requested a logout: the session sends no more commands.
    pub fn is_leaving(&self) -> bool {
        self.shared.leaving.get().is_some()
    }

    /// Unsolicited sense data of units since the last call.
    pub fn take_sense(&self) -> Vec<([u8; 8], Vec<u8>)> {
        self.shared.sense.take()
    }

    /// Starts a command.
    #[inline]
    pub fn start(&self, lun: Lun, cdb: Cdb, transfer: Transfer) -> Pending {
        if let Some(ended) = self.shared.ended.get() {
            return Pending::failed(Error::NotSent(ended));
        }
        if self.shared.leaving.get().is_some() {
            return Pending::failed(Error::NotSent(Ended::AskedToLeave));
        }
        let lun = lun.bytes();
        let task = self.shared.connection.borrow_mut().submit(iscsi::Command { lun, cdb, transfer });
        let id = self.shared.waiters.borrow_mut().add(task, Some(lun), self.shared.tick.get());
        self.shared.output.notify();
        Pending::new(Rc::clone(&self.shared), id, lun)
    }

    /// Sends a command and waits for its result, whatever the status. Dropping the future aborts the command.
    ///
    /// # Errors
    /// [`Error::NotSent`], [`Error::Ended`], [`Error::Aborted`], [`Error::TimedOut`].
    pub async fn execute(&self, lun: Lun, cdb: Cdb, transfer: Transfer) -> Result<CommandResult, Error> {
        self.start(lun, cdb, transfer).await
    }

    /// Like [`Session::execute`], for a command that must end with GOOD.
    ///
    /// # Errors
    /// Those of [`Session::execute`], [`Error::Status`] and [`Error::TargetFailure`].
    pub async fn command(&self, lun: Lun, cdb: Cdb, transfer: Transfer) -> Result<CommandResult, Error> {
        good(self.start(lun, cdb, transfer).await?)
    }

    /// Sends a command and parses its answer.
    ///
    /// # Errors
    /// As for [`Session::command`], and [`Error::BadAnswer`].
    pub async fn send<C: Command>(&self, lun: Lun, command: &C) -> Result<C::Answer, Error> {
        let result = self.command(lun, command.cdb(), command.transfer()).await?;
        command.answer(result.data).ok_or(Error::BadAnswer(C::NAME))
    }

    /// Requests a task management function, and returns the response code (RFC 7143 11.6.1); 0 is success.
    ///
    /// The commands that the function ends fail with [`Error::Aborted`].
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn manage(&self, function: TaskFunction, lun: Lun) -> Result<u8, Error> {
        match wait_for(&self.shared, |connection| connection.manage(function, lun.bytes(), None)).await? {
            Answer::Task(response) => Ok(response),
            _ => Err(Error::BadAnswer("a task management function")),
        }
    }

    /// Pings the target and waits for the answer.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn ping(&self) -> Result<(), Error> {
        match wait_for(&self.shared, Connection::ping).await? {
            Answer::Pong => Ok(()),
            _ => Err(Error::BadAnswer("a ping")),
        }
    }

    /// The targets that the portal shows us.
    pub(crate) async fn targets(&self) -> Result<Vec<TargetRecord>, Error> {
        match wait_for(&self.shared, Connection::send_targets).await? {
            Answer::Targets(targets) => Ok(targets),
            _ => Err(Error::BadAnswer("SendTargets")),
        }
    }

    /// Logs out. Commands under way, and later ones, fail.
    ///
    /// # Errors
    /// [`Error::Ended`] if the session had ended before, or the target did not answer within the time for
    /// logins.
    pub async fn logout(&self) -> Result<(), Error> {
        let answer =
            rt::timeout(self.shared.timeouts.login, wait_for(&self.shared, Connection::logout)).await;
        match answer {
            Ok(Ok(Answer::LoggedOut)) => Ok(()),
            Ok(Ok(_)) => Err(Error::BadAnswer("a logout")),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.shared.end(Ended::Silent);
                Err(Error::Ended(Ended::Silent))
            }
        }
    }

    /// Ends the session at once.
    ///
    /// Nothing that has not reached the target yet will reach it later. The target may still execute what it
    /// has received.
    pub fn give_up(&self) {
        self.shared.end(Ended::GivenUp);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The drop may happen outside of any core. There a stream can be closed, but not reset.
        self.shared.tell_all(Ended::GivenUp);
    }
}

/// Turns any result but GOOD into an error.
#[inline]
pub(crate) fn good(result: CommandResult) -> Result<CommandResult, Error> {
    match result.response {
        ServiceResponse::Completed { status: 0 } => Ok(result),
        ServiceResponse::Completed { status } => Err(Error::Status { status, sense: result.sense }),
        ServiceResponse::TargetFailure(response) => Err(Error::TargetFailure(response)),
    }
}

/// Starts a request that is not a SCSI command, and waits for its answer.
async fn wait_for(
    shared: &Rc<Shared>,
    start: impl FnOnce(&mut Connection) -> TaskId,
) -> Result<Answer, Error> {
    if let Some(ended) = shared.ended.get() {
        return Err(Error::Ended(ended));
    }
    let task = start(&mut shared.connection.borrow_mut());
    let id = shared.waiters.borrow_mut().add(task, None, shared.tick.get());
    shared.output.notify();
    let waiting = Waiting { shared, id };
    match poll_fn(|context| shared.waiters.borrow_mut().poll(waiting.id, context)).await {
        Answer::Ended(ended) | Answer::NotSent(ended) => Err(Error::Ended(ended)),
        answer => Ok(answer),
    }
}

/// Abandons the wait when it is dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    id: WaitId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.waiters.borrow_mut().abandon(self.id);
    }
}

/// Exchanges PDUs until the login has ended.
async fn carry_out(stream: &Stream, mut login: Login) -> io::Result<Result<LoginOutcome, LoginError>> {
    let mut batch = SendBatch::new();
    loop {
        if let Some(result) = login.result() {
            return Ok(result);
        }
        login.poll_transmit(&mut batch);
        if !batch.is_empty() {
            batch = stream.send(batch).await?;
        }
        let received = stream.receive().await?;
        if received.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        login.handle_bytes(&received);
    }
}
