//! A command that did not succeed at once: what it must wait for, and whether it may be sent again.
//!
//! `docs/why/multipath.md` has the reasons.

use std::rc::Rc;
use std::time::Duration;

use base::{Instant, LbaRange};

use super::attempt::FailedAttempt;
use super::failure::{EffectKnown, Failure, Tried, Why};
use super::outcome::{Done, Fate, Verdict, judge};
use super::path::Link;
use super::shared::Shared;
use super::suspect::Place;
use crate::Error;
use crate::command::{Command, Effect};

/// How long to pause when the unit is busy.
const PAUSE: Duration = Duration::from_millis(100);

/// At most this many attempts are kept for the failure; older ones are dropped.
const TRIED_MAX: usize = 32;

/// Blocks that are in doubt: no other command may change them.
///
/// That ends when this is dropped and every copy of the command that may still be under way is settled.
pub(super) struct Hold {
    shared: Rc<Shared>,
    place: Place,
    /// The sessions with such copies.
    copies: Vec<Rc<Link>>,
}

impl Hold {
    pub(super) fn new(shared: &Rc<Shared>, blocks: LbaRange) -> Hold {
        let place = shared.doubt.borrow_mut().add(blocks);
        Hold { shared: Rc::clone(shared), place, copies: Vec::new() }
    }

    /// Notes that a copy may be under way in this session, which we no longer use.
    pub(super) fn add_copy(&mut self, link: Rc<Link>) {
        self.copies.push(link);
    }

    /// Waits until no copy is under way.
    async fn settled(&self) {
        for link in &self.copies {
            link.settled().await;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.copies.retain(|link| !link.is_settled());
        let (shared, place) = (Rc::clone(&self.shared), self.place);
        if self.copies.is_empty() {
            return shared.release(place);
        }
        let copies = std::mem::take(&mut self.copies);
        rt::spawn(async move {
            for link in copies {
                link.settled().await;
            }
            shared.release(place);
        })
        .detach();
    }
}

/// A command that did not succeed at once.
struct Failover<'a> {
    shared: &'a Rc<Shared>,
    effect: Effect,
    began: Instant,
    /// The most that any attempt may have done.
    done: Done,
    tried: Vec<Tried>,
    /// The hold on its blocks, once they are in doubt.
    hold: Option<Hold>,
}

impl Shared {
    /// Completes a command whose first attempt failed, or which could not be sent at once.
    pub(super) async fn persist<C: Command>(
        self: &Rc<Shared>,
        command: &C,
        first: Option<FailedAttempt>,
    ) -> Result<C::Answer, Failure> {
        let mut failover = Failover {
            shared: self,
            effect: command.effect(),
            began: rt::now(),
            done: Done::Nothing,
            tried: Vec::new(),
            hold: None,
        };
        let mut failed = first;
        loop {
            let avoid = failed.as_ref().map(|failed| failed.index);
            if let Some(failed) = failed {
                failover.handle(failed).await?;
            }
            failover.admission().await?;
            let attempt = loop {
                match self.begin(command, avoid) {
                    Some(attempt) => break attempt,
                    None => failover.path().await?,
                }
            };
            if failover.hold.is_some() {
                self.repeated.set(self.repeated.get() + 1);
            }
            match attempt.await {
                Ok(data) => {
                    let answer = command.answer(data).ok_or(Error::BadAnswer(C::NAME));
                    return answer.map_err(|error| failover.fail(Why::Answer(error)));
                }
                Err(next) => failed = Some(next),
            }
        }
    }
}

impl Failover<'_> {
    /// Handles a failed attempt: waits until another one may follow, or returns the failure.
    async fn handle(&mut self, failed: FailedAttempt) -> Result<(), Failure> {
        let FailedAttempt { index, link, error } = failed;
        let Verdict::Again { done, path, pause } = judge(&error) else {
            return Err(self.fail(Why::Answer(error)));
        };
        match path {
            Fate::Fine => {}
            Fate::Check => self.shared.want_check(index, &link),
            Fate::Lost => self.shared.suspect(index, &link),
        }
        if self.tried.len() == TRIED_MAX {
            self.tried.remove(0);
        }
        self.tried.push(Tried { path: self.shared.paths.borrow()[index].name.clone(), error });
        if let (Some(blocks), Done::Perhaps | Done::Unsettled | Done::UnderWay) = (self.effect.blocks(), done)
        {
            // Once an attempt may take effect later, that stays so, whatever later attempts return.
            let unsettled = [self.done, done].contains(&Done::Unsettled);
            self.done = if unsettled { Done::Unsettled } else { Done::Perhaps };
            let hold = self.hold.get_or_insert_with(|| Hold::new(self.shared, blocks));
            if done == Done::UnderWay {
                hold.add_copy(link);
            }
            self.settle().await?;
            if let Effect::Once(_) = self.effect {
                return Err(self.fail(Why::Once));
            }
        }
        if pause {
            rt::sleep(PAUSE).await;
        }
        match self.left() {
            Duration::ZERO => Err(self.fail(Why::GivenUp(self.shared.options.queue_for))),
            _ => Ok(()),
        }
    }

    /// Waits until no copy of the command is under way.
    async fn settle(&mut self) -> Result<(), Failure> {
        let left = self.left();
        let Some(hold) = &self.hold else { return Ok(()) };
        // Nothing can be done earlier, so this waits as long as settling may take.
        let limit = left.max(self.shared.options.quiesce);
        match rt::timeout(limit, hold.settled()).await {
            Ok(()) => Ok(()),
            Err(_) => {
                self.done = Done::UnderWay;
                Err(self.fail(Why::GivenUp(limit)))
            }
        }
    }

    /// Waits until none of the blocks is in doubt because of an earlier command.
    async fn admission(&mut self) -> Result<(), Failure> {
        let Some(blocks) = self.effect.blocks() else { return Ok(()) };
        let place = self.hold.as_ref().map(|hold| hold.place);
        let admitted = async {
            while !self.shared.doubt.borrow().admits(blocks, place) {
                self.shared.changed.notified().await;
            }
        };
        let limit = self.left().max(self.shared.options.quiesce);
        match rt::timeout(limit, admitted).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.fail(Why::GivenUp(limit))),
        }
    }

    /// Waits until a path is usable.
    async fn path(&mut self) -> Result<(), Failure> {
        let Some(since) = self.shared.out_since.get() else {
            rt::yield_now().await;
            return Ok(());
        };
        let until = since + self.shared.options.queue_for;
        let found = async {
            while self.shared.out_since.get().is_some() {
                self.shared.changed.notified().await;
            }
        };
        match rt::timeout(until.since(rt::now()), found).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.fail(Why::NoPath(rt::now().since(since), self.shared.status()))),
        }
    }

    /// How long the command may still be retried.
    fn left(&self) -> Duration {
        self.shared.options.queue_for.saturating_sub(rt::now().since(self.began))
    }

    fn fail(&mut self, why: Why) -> Failure {
        let effect = match (&why, self.done) {
            (_, Done::Unsettled) => EffectKnown::PerhapsLater,
            (Why::Answer(_), _) => EffectKnown::Answered,
            (_, Done::Nothing) => EffectKnown::None,
            (_, Done::Perhaps) => EffectKnown::Perhaps,
            (_, Done::UnderWay) => EffectKnown::PerhapsLater,
        };
        Failure::new(why, effect, std::mem::take(&mut self.tried))
    }
}
