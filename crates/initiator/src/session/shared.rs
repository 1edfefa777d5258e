//! State that a session, its tasks and its commands under way share.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use proto::iscsi::initiator::{Connection, Event};
use proto::iscsi::wire::AsyncEvent;
use rt::Stream;
use rt::sync::Notify;

use super::keep_alive::{KeepAlive, Step};
use super::waiters::{Answer, Overdue, Waiters};
use crate::{Ended, Options, Timeouts};

pub(super) struct Shared {
    pub(super) stream: Stream,
    pub(super) connection: RefCell<Connection>,
    pub(super) waiters: RefCell<Waiters>,
    pub(super) timeouts: Timeouts,
    /// Log out when the target requests it.
    obedient: bool,
    /// Notified when there is something to send.
    pub(super) output: Notify,
    /// Set once: why the session has ended.
    pub(super) ended: Cell<Option<Ended>>,
    /// Notified when the session has ended, and at everything else that matters to an owner of several
    /// sessions; see [`crate::Session::changed`].
    pub(super) changed: Notify,
    keep_alive: RefCell<KeepAlive>,
    /// Counts the ticks of the session's clock.
    pub(super) tick: Cell<u32>,
    /// Commands that were not answered in time, for the task that handles them.
    pub(super) overdue: RefCell<Vec<Overdue>>,
    /// Notified when there are some.
    pub(super) overdue_found: Notify,
    /// The target has requested a logout within this time: no new commands.
    pub(super) leaving: Cell<Option<Duration>>,
    /// Notified when the target requests a logout, and when the last command of a session that is leaving has
    /// been answered.
    pub(super) leave: Notify,
    /// Unsolicited sense data of units; see [`crate::Session::take_sense`].
    pub(super) sense: RefCell<Vec<([u8; 8], Vec<u8>)>>,
}

/// At most this many messages of unsolicited sense data are kept; each only means "look at the unit".
const SENSE_MAX: usize = 16;

impl Shared {
    pub(super) fn new(stream: Stream, connection: Connection, options: &Options) -> Shared {
        let timeouts = options.timeouts.clone();
        Shared {
            stream,
            connection: RefCell::new(connection),
            waiters: RefCell::default(),
            keep_alive: RefCell::new(KeepAlive::new(timeouts.ping_after, timeouts.ping_deadline)),
            timeouts,
            obedient: options.obedient,
            output: Notify::new(),
            ended: Cell::new(None),
            changed: Notify::new(),
            tick: Cell::new(0),
            overdue: RefCell::default(),
            overdue_found: Notify::new(),
            leaving: Cell::new(None),
            leave: Notify::new(),
            sense: RefCell::default(),
        }
    }

    /// Processes received bytes.
    pub(super) fn handle_bytes(&self, bytes: &[u8]) {
        self.connection.borrow_mut().handle_bytes(bytes);
        self.handle_events();
    }

    /// Passes the results of what arrived to those that wait for them.
    pub(super) fn handle_events(&self) {
        if self.keep_alive.borrow_mut().heard() {
            self.changed.notify();
        }
        let mut ended = None;
        let mut connection = self.connection.borrow_mut();
        let mut waiters = self.waiters.borrow_mut();
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Done(task, result) => waiters.answer(task, Answer::Command(result)),
                Event::Aborted(task) => waiters.answer(task, Answer::Aborted),
                Event::TaskDone(task, response) => waiters.answer(task, Answer::Task(response)),
                Event::Targets(task, targets) => waiters.answer(task, Answer::Targets(targets)),
                Event::Pong(task) => waiters.answer(task, Answer::Pong),
                Event::LoggedOut(task, _) => {
                    waiters.answer(task, Answer::LoggedOut);
                    ended = Some(match self.leaving.get() {
                        Some(_) => Ended::AskedToLeave,
                        None => Ended::LoggedOut,
                    });
                }
                Event::Async(event) => ended = ended.or(self.handle_async(event)),
                Event::Sense(lun, sense) => {
                    let mut told = self.sense.borrow_mut();
                    if told.len() < SENSE_MAX {
                        told.push((lun, sense));
                    }
                    self.changed.notify();
                }
                Event::Failed(error) => ended = Some(Ended::Failed(error)),
            }
        }
        if connection.has_output() {
            self.output.notify();
        }
        if self.leaving.get().is_some() && waiters.commands() == 0 {
            self.leave.notify();
        }
        drop((connection, waiters));
        if let Some(ended) = ended {
            self.end(ended);
        }
    }

    /// Reacts to an asynchronous event (RFC 7143 11.9.1). Returns why the session has ended, if it has.
    fn handle_async(&self, event: AsyncEvent) -> Option<Ended> {
        tracing::info!(?event, peer = %self.stream.peer_address(), "asynchronous event from the target");
        match event {
            AsyncEvent::LogoutRequested { .. } | AsyncEvent::NegotiationRequested { .. }
                if !self.obedient =>
            {
                None
            }
            // We never renegotiate; RFC 7143 then wants a logout.
            AsyncEvent::LogoutRequested { within } | AsyncEvent::NegotiationRequested { within } => {
                self.leaving.set(Some(Duration::from_secs(u64::from(within))));
                self.leave.notify();
                self.changed.notify();
                None
            }
            // A session has only one connection.
            AsyncEvent::ConnectionDropped { .. } | AsyncEvent::SessionDropped { .. } => Some(Ended::Dropped),
            AsyncEvent::Scsi | AsyncEvent::TasksTerminated | AsyncEvent::Unknown(_) => None,
        }
    }

    /// One tick of the session's clock.
    pub(super) fn handle_tick(&self) {
        self.tick.set(self.tick.get().wrapping_add(1));
        let step = self.keep_alive.borrow_mut().tick();
        match step {
            Step::Nothing => {}
            Step::Ask => {
                // Whatever arrives counts as the answer.
                self.connection.borrow_mut().ping();
                self.output.notify();
            }
            Step::Doubt => self.changed.notify(),
            Step::GiveUp => return self.end(Ended::Silent),
        }
        let limit = super::keep_alive::ticks(self.timeouts.command);
        let overdue = self.waiters.borrow_mut().overdue(self.tick.get(), limit);
        if !overdue.is_empty() {
            self.overdue.borrow_mut().extend(overdue);
            self.overdue_found.notify();
        }
    }

    /// Whether the target was pinged and has not answered.
    pub(super) fn is_silent(&self) -> bool {
        self.keep_alive.borrow().is_silent()
    }

    /// Ends the session, once.
    ///
    /// After a logout the connection is closed. Otherwise it is reset, so that nothing that it still holds
    /// reaches the target later.
    pub(super) fn end(&self, ended: Ended) {
        if self.ended.get().is_some() {
            return;
        }
        match ended {
            Ended::LoggedOut | Ended::AskedToLeave => self.stream.shutdown(),
            _ => self.stream.abort(),
        }
        self.tell_all(ended);
    }

    /// Notifies all waiters that the session has ended.
    pub(super) fn tell_all(&self, ended: Ended) {
        if self.ended.get().is_none() {
            self.ended.set(Some(ended));
            let mut connection = self.connection.borrow_mut();
            self.waiters.borrow_mut().end(ended, |task| !connection.withdraw(task));
            drop(connection);
            self.output.notify();
            self.changed.notify();
        }
    }
}
