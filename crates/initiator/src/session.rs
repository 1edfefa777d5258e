//! One session: a login, a task that receives, a task that sends, and commands from anybody on this core.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use base::SendBatch;
use proto::iscsi::Negotiated;
use proto::iscsi::initiator::{
    Command, CommandResult, Connection, Event, Login, LoginOptions, LoginOutcome, TaskId, Transfer,
};
use proto::iscsi::target::{TargetRecord, TaskFunction};
use proto::iscsi::wire::ServiceResponse;
use proto::scsi::Cdb;
use rt::sync::Notify;
use rt::{Stream, Task};

use crate::waiters::{Answer, WaitId, Waiters};
use crate::{Ended, Error, Lun, Options};

/// A session with one target, of one connection. It belongs to the core that made it. Dropping it closes the connection
/// without a logout.
pub struct Session {
    shared: Rc<Shared>,
    /// They end with the session.
    _tasks: [Task<()>; 2],
}

/// What the session and its two tasks have in common.
struct Shared {
    stream: Stream,
    connection: RefCell<Connection>,
    waiters: RefCell<Waiters>,
    /// There is something to be sent.
    output: Notify,
    /// Set once: why the session is over.
    ended: Cell<Option<Ended>>,
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
        let stream = Stream::connect(portal, options.timeout)
            .await
            .map_err(|source| Error::Connect { portal, source })?;
        let cid = login.identity.cid;
        let outcome = rt::timeout(options.timeout, carry_out(&stream, Login::new(login)))
            .await
            .map_err(|_| Error::NoLogin { portal })?
            .map_err(|_| Error::NoLogin { portal })?
            .map_err(|source| Error::Login { portal, source })?;
        let shared = Rc::new(Shared {
            stream,
            connection: RefCell::new(Connection::new(&outcome, cid)),
            waiters: RefCell::default(),
            output: Notify::new(),
            ended: Cell::new(None),
        });
        shared.handle_bytes(&outcome.leftover);
        let tasks = [rt::spawn(receive(Rc::clone(&shared))), rt::spawn(send(Rc::clone(&shared)))];
        Ok(Session { shared, _tasks: tasks })
    }

    /// The parameters that login settled.
    pub fn negotiated(&self) -> Negotiated {
        self.shared.connection.borrow().negotiated().clone()
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.ended.get()
    }

    /// Sends a command and waits for its answer, good or bad. Dropping the future does not abort the command.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Aborted`].
    pub async fn execute(&self, lun: Lun, cdb: Cdb, transfer: Transfer) -> Result<CommandResult, Error> {
        let command = Command { lun: lun.bytes(), cdb, transfer };
        match self.wait_for(|connection| connection.submit(command)).await? {
            Answer::Command(result) => Ok(result),
            Answer::Aborted => Err(Error::Aborted),
            _ => Err(Error::BadAnswer("a command")),
        }
    }

    /// As [`Session::execute`], for a command that must end with GOOD.
    ///
    /// # Errors
    /// [`Error::Status`] and [`Error::TargetFailure`] besides.
    pub async fn command(&self, lun: Lun, cdb: Cdb, transfer: Transfer) -> Result<CommandResult, Error> {
        let result = self.execute(lun, cdb, transfer).await?;
        match result.response {
            ServiceResponse::Completed { status: 0 } => Ok(result),
            ServiceResponse::Completed { status } => Err(Error::Status { status, sense: result.sense }),
            ServiceResponse::TargetFailure(response) => Err(Error::TargetFailure(response)),
        }
    }

    /// Asks for a task management function; the answer is RFC 7143's (11.6.1), 0 is well. The commands that it ends fail with
    /// [`Error::Aborted`].
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn manage(&self, function: TaskFunction, lun: Lun) -> Result<u8, Error> {
        match self.wait_for(|connection| connection.manage(function, lun.bytes(), None)).await? {
            Answer::Task(response) => Ok(response),
            _ => Err(Error::BadAnswer("a task management function")),
        }
    }

    /// Asks whether the target is there.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub async fn ping(&self) -> Result<(), Error> {
        match self.wait_for(Connection::ping).await? {
            Answer::Pong => Ok(()),
            _ => Err(Error::BadAnswer("a ping")),
        }
    }

    /// The targets that the other side shows us.
    pub(crate) async fn targets(&self) -> Result<Vec<TargetRecord>, Error> {
        match self.wait_for(Connection::send_targets).await? {
            Answer::Targets(targets) => Ok(targets),
            _ => Err(Error::BadAnswer("SendTargets")),
        }
    }

    /// Leaves in good order. Commands under way, and later ones, fail.
    ///
    /// # Errors
    /// [`Error::Ended`] if the session was over before.
    pub async fn logout(&self) -> Result<(), Error> {
        match self.wait_for(Connection::logout).await? {
            Answer::LoggedOut => Ok(()),
            _ => Err(Error::BadAnswer("a logout")),
        }
    }

    async fn wait_for(&self, start: impl FnOnce(&mut Connection) -> TaskId) -> Result<Answer, Error> {
        if let Some(ended) = self.shared.ended.get() {
            return Err(Error::Ended(ended));
        }
        let task = start(&mut self.shared.connection.borrow_mut());
        let id = self.shared.waiters.borrow_mut().add(task);
        self.shared.output.notify();
        let waiting = Waiting { shared: &self.shared, id };
        match poll_fn(|context| self.shared.waiters.borrow_mut().poll(waiting.id, context)).await {
            Answer::Ended(ended) => Err(Error::Ended(ended)),
            answer => Ok(answer),
        }
    }
}

/// Gives up waiting when it is dropped.
struct Waiting<'a> {
    shared: &'a Shared,
    id: WaitId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.waiters.borrow_mut().abandon(self.id);
    }
}

impl Shared {
    /// Takes in what arrived and tells those who wait.
    fn handle_bytes(&self, bytes: &[u8]) {
        let mut connection = self.connection.borrow_mut();
        connection.handle_bytes(bytes);
        while let Some(event) = connection.poll_event() {
            let mut waiters = self.waiters.borrow_mut();
            match event {
                Event::Done(task, result) => waiters.answer(task, Answer::Command(result)),
                Event::Aborted(task) => waiters.answer(task, Answer::Aborted),
                Event::TaskDone(task, response) => waiters.answer(task, Answer::Task(response)),
                Event::Targets(task, targets) => waiters.answer(task, Answer::Targets(targets)),
                Event::Pong(task) => waiters.answer(task, Answer::Pong),
                Event::LoggedOut(task, _) => {
                    waiters.answer(task, Answer::LoggedOut);
                    drop(waiters);
                    self.end(Ended::LoggedOut);
                }
                Event::Async(event) => tracing::info!(?event, "the target tells something"),
                Event::Failed(error) => {
                    drop(waiters);
                    self.end(Ended::Failed(error));
                }
            }
        }
        if connection.has_output() {
            self.output.notify();
        }
    }

    /// Ends the session, once.
    fn end(&self, ended: Ended) {
        if self.ended.get().is_none() {
            self.ended.set(Some(ended));
            self.waiters.borrow_mut().end(ended);
            self.stream.shutdown();
            self.output.notify();
        }
    }
}

/// Sends and receives until the login is over.
async fn carry_out(
    stream: &Stream,
    mut login: Login,
) -> io::Result<Result<LoginOutcome, proto::iscsi::initiator::LoginError>> {
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

async fn receive(shared: Rc<Shared>) {
    while shared.ended.get().is_none() {
        match shared.stream.receive().await {
            Ok(received) if received.is_empty() => shared.end(Ended::Closed),
            Ok(received) => shared.handle_bytes(&received),
            Err(error) => shared.end(Ended::Broken(error.kind())),
        }
    }
}

/// Sends all that there is at once: what was given by all who ran since the last time.
async fn send(shared: Rc<Shared>) {
    let mut batch = SendBatch::new();
    while shared.ended.get().is_none() {
        shared.connection.borrow_mut().poll_transmit(&mut batch);
        if batch.is_empty() {
            shared.output.notified().await;
            continue;
        }
        match shared.stream.send(batch).await {
            Ok(empty) => batch = empty,
            Err(error) => return shared.end(Ended::Broken(error.kind())),
        }
    }
}
