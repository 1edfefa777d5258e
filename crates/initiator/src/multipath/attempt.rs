//! One command under way on one path.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use base::{Buf, Instant, LbaRange};
use proto::iscsi::initiator::Transfer;

use super::failover::Hold;
use super::path::Link;
use super::shared::Shared;
use crate::command::Command;
use crate::session::good;
use crate::{Error, Pending};

/// A command under way on a path.
///
/// Dropping it gives the command up; its blocks stay in doubt until the command can have no further effect.
pub(super) struct Attempt<'a> {
    shared: &'a Rc<Shared>,
    /// The path.
    index: usize,
    link: Rc<Link>,
    bytes: u64,
    /// The blocks that it changes.
    blocks: Option<LbaRange>,
    /// When it started, if the policy measures durations.
    began: Option<Instant>,
    /// `None` once it has completed.
    pending: Option<Pending>,
}

/// A failed attempt: its path and session, and the error.
pub(super) struct FailedAttempt {
    pub(super) index: usize,
    pub(super) link: Rc<Link>,
    pub(super) error: Error,
}

impl Shared {
    /// Sends a command over the path that the policy chooses; `None` if no path is eligible. `avoid` is
    /// chosen only if there is no other.
    #[inline]
    pub(super) fn begin<'a, C: Command>(
        self: &'a Rc<Shared>,
        command: &C,
        avoid: Option<usize>,
    ) -> Option<Attempt<'a>> {
        let transfer = command.transfer();
        let bytes = match &transfer {
            Transfer::None => 0,
            Transfer::In(len) => u64::from(*len),
            Transfer::Out(data) => data.len() as u64,
        };
        let mut table = self.table.borrow_mut();
        let table = &mut *table;
        let began = table.selector.measures().then(rt::now);
        let index = table.selector.choose(&table.loads, bytes, avoid, began.unwrap_or_default())?;
        let link = Rc::clone(table.links[index].as_ref()?);
        table.loads[index].start(bytes);
        let pending = link.session.start(link.lun, command.cdb(), transfer);
        let blocks = command.effect().blocks();
        Some(Attempt { shared: self, index, link, bytes, blocks, began, pending: Some(pending) })
    }
}

impl Attempt<'_> {
    /// The command no longer counts as under way.
    #[inline]
    fn finish(&self, came_back: bool) {
        let load = &mut self.shared.table.borrow_mut().loads[self.index];
        load.finish(self.bytes);
        if let Some(began) = self.began.filter(|_| came_back) {
            load.measure(self.bytes, began, rt::now());
        }
    }
}

impl Future for Attempt<'_> {
    type Output = Result<Option<Buf>, FailedAttempt>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let pending = self.pending.as_mut().expect("it is not polled after its end");
        let Poll::Ready(result) = Pin::new(pending).poll(context) else { return Poll::Pending };
        self.pending = None;
        self.finish(result.is_ok());
        Poll::Ready(match result.and_then(good) {
            Ok(result) => Ok(result.data),
            Err(error) => Err(FailedAttempt { index: self.index, link: Rc::clone(&self.link), error }),
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        self.finish(false);
        let Some(blocks) = self.blocks else { return };
        let mut hold = Hold::new(self.shared, blocks);
        let link = Rc::clone(&self.link);
        rt::spawn(async move {
            if let Err(Error::Ended(_)) = pending.abort().await {
                hold.add_copy(link);
            }
            drop(hold);
        })
        .detach();
    }
}
