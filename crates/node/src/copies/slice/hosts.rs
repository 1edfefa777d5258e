//! What hosts read and write through a copy.

use std::rc::Rc;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::{Blocks, Command, Outcome, Payload, ReadMark, Standing, Unreadable, Unwritable};
use rt::sync::{Receiver, oneshot};
use store::SliceError;

use super::super::HOLD_MAX;
use super::super::core::Copies;
use super::repair::Unread;
use super::{HostWrite, LOOK_AGAIN, SliceCopy, WriteEnd};
use crate::canary::{Canary, makes};

impl SliceCopy {
    /// Reads, when this copy may (R9), and where clocks may stop, when the other members have confirmed it
    /// (R24). What this node's disk does not read comes from another copy in sync (R25).
    ///
    /// # Errors
    /// What the layout says; [`SliceError::Unavailable`] if this copy may not be read, and did not become
    /// readable soon.
    pub async fn read(self: &Rc<Self>, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        let blocks = self.blocks(offset, len);
        let mut until = None;
        loop {
            let mark = self.until_readable(blocks).await?;
            let confirmation = self.ask_confirmation();
            let data = match self.read_somewhere(offset, len).await {
                Ok(data) => data,
                Err(Unread::Error(error)) => return Err(error),
                Err(Unread::Again) => {
                    self.hold(&mut until).await?;
                    continue;
                }
            };
            if !self.is_confirmed(confirmation).await? {
                continue;
            }
            let still = self.ask(|replica, now, leases| replica.still_readable(mark, now, leases, blocks));
            if still || makes(Canary::ReadOnce) {
                return Ok(data);
            }
        }
    }

    /// Reads from this node's disk, when this copy may (R9): what a host would be given, for another copy.
    ///
    /// # Errors
    /// As [`SliceCopy::read`].
    pub(in crate::copies) async fn read_own(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<Chain, SliceError> {
        let blocks = self.blocks(offset, len);
        loop {
            let mark = self.until_readable(blocks).await?;
            let confirmation = self.ask_confirmation();
            let data = self.layout.read(offset, len).await?;
            if !self.is_confirmed(confirmation).await? {
                continue;
            }
            let still = self.ask(|replica, now, leases| replica.still_readable(mark, now, leases, blocks));
            if still || makes(Canary::FetchOnce) {
                return Ok(data);
            }
        }
    }

    /// Waits until the blocks may be read here (R9).
    async fn until_readable(self: &Rc<Self>, blocks: Blocks) -> Result<ReadMark, SliceError> {
        let (mut until, mut asked) = (None, false);
        loop {
            if self.frozen.get() {
                self.hold(&mut until).await?;
                continue;
            }
            match self.ask(|replica, now, leases| replica.readable(now, leases, blocks)) {
                Ok(mark) => {
                    self.served.set(true);
                    return Ok(mark);
                }
                Err(Unreadable::Failed) => return Err(SliceError::Offline),
                // Whoever writes there brings it to its end, or the configuration changes.
                Err(Unreadable::Unsettled) => {
                    if self.waits_for_room() {
                        self.hold(&mut until).await?;
                        continue;
                    }
                    if !asked {
                        asked = true;
                        self.ask_validation(blocks);
                    }
                    let _ = rt::timeout(LOOK_AGAIN, self.happened.notified()).await;
                }
                Err(Unreadable::NotInSync | Unreadable::NoLease(_)) => self.hold(&mut until).await?,
            }
        }
    }

    /// Whether a command that changes something may wait until it can begin: for leases, but not for a copy
    /// that is not in sync (any more) to be it again. By then its initiator may have sent it again through
    /// another node, and something else since, or have been fenced off. Who has waited while it was lost and
    /// came back is not seen here: a copy that comes back waits for the end of such commands before it is
    /// promoted.
    pub(in crate::copies) fn may_wait(&self) -> bool {
        self.serves_soon.get()
            || matches!(self.replica.borrow().standing(), Standing::InSync(_))
            || makes(Canary::GoOnAfterLoss)
    }

    /// The parts of the range that take space, as [`crate::volume::Slice::allocated`] has it, when this copy
    /// may be read.
    ///
    /// # Errors
    /// As [`SliceCopy::read`].
    pub async fn allocated(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        let mut until = None;
        loop {
            // What is under way need not be settled as for a read: what was acknowledged takes space on all
            // members, and of the rest either is true.
            let leased = || self.ask(|replica, now, leases| replica.leased(now, leases)).is_ok();
            if self.frozen.get() || !leased() {
                self.hold(&mut until).await?;
                continue;
            }
            let epoch = self.epoch();
            let confirmation = self.ask_confirmation();
            let allocated = self.layout.allocated(offset, len, max).await?;
            if self.is_confirmed(confirmation).await? && leased() && self.epoch() == epoch {
                return Ok(allocated);
            }
        }
    }

    /// Writes, and returns when the write is on the disks of all members. `came` is when the command came: it
    /// begins within [`HOLD_MAX`] of that or not at all, whatever it waited for. Later its initiator may have
    /// sent it again through another node, and something else since.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`]: this copy does not serve, and nothing was written. [`SliceError::Full`]:
    /// neither was it, for want of space. [`SliceError::Unreadable`]: parts of blocks of the disk were to be
    /// written, and nobody can read the rest of this one. [`SliceError::Unknown`]: it did when the write
    /// began, and others may have it.
    pub async fn write(
        self: &Rc<Self>,
        came: Instant,
        offset: ByteOffset,
        len: ByteLen,
        payload: Payload,
    ) -> Result<(), SliceError> {
        self.layout.prefetch(offset, len);
        let blocks = self.blocks(offset, len);
        let begins_by = came + HOLD_MAX;
        let mut until = Some(begins_by);
        let done = loop {
            if !self.may_wait() {
                return Err(SliceError::Unavailable);
            }
            let found = match self.find_room(offset, len, &payload).await {
                Ok(()) => self.find_rest(offset, len).await,
                error => error,
            };
            match found {
                Ok(()) => {}
                Err(SliceError::Unavailable) => {
                    self.hold(&mut until).await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let is_late = rt::now() >= begins_by && !makes(Canary::BeginLate);
            if is_late || !self.may_wait() {
                return Err(SliceError::Unavailable);
            }
            // It could begin, but not end: then it is better off with a copy that has its leases.
            if self.frozen.get() || self.ask(|replica, now, leases| replica.leased(now, leases)).is_err() {
                self.hold(&mut until).await?;
                continue;
            }
            match self.begin(blocks, &payload) {
                Ok(done) => break done,
                Err(Unwritable::Failed) => return Err(SliceError::Offline),
                Err(Unwritable::NotInSync) => self.hold(&mut until).await?,
            }
        };
        self.end(len, done).await
    }

    /// Writes for a command that has the range for itself ([`SliceCopy::lock`]).
    ///
    /// # Errors
    /// [`SliceError::Unavailable`]: as [`SliceCopy::write`], or it has lost the range, and nothing was
    /// written.
    pub async fn write_locked(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
        payload: Payload,
    ) -> Result<(), SliceError> {
        self.find_room(offset, len, &payload).await?;
        let begins_by = rt::now() + HOLD_MAX;
        let mut until = Some(begins_by);
        while let Err(error) = self.find_rest(offset, len).await {
            match error {
                SliceError::Unavailable if self.may_wait() => self.hold(&mut until).await?,
                error => return Err(error),
            }
        }
        if rt::now() >= begins_by {
            return Err(SliceError::Unavailable);
        }
        // From here to the write's place in the order nothing else happens on this core.
        let range = offset.0..offset.0 + len.0;
        // A range that others gave in an earlier epoch is still this command's at its own node, which all who
        // want it ask. It is looked at again because a node that was lost and is back in that time was asked
        // by nobody, and because a host's write through another node asks nobody.
        let held = self.epoch().is_some_and(|epoch| self.locks.hold(epoch, &range));
        if !held {
            return Err(SliceError::Unavailable);
        }
        match self.begin(self.blocks(offset, len), &payload) {
            Ok(done) => self.end(len, done).await,
            Err(Unwritable::Failed) => Err(SliceError::Offline),
            Err(Unwritable::NotInSync) => Err(SliceError::Unavailable),
        }
    }

    fn begin(&self, blocks: Blocks, payload: &Payload) -> Result<Receiver<WriteEnd>, Unwritable> {
        if self.frozen.get() {
            return Err(Unwritable::NotInSync);
        }
        let command = Command(self.last_command.get() + 1);
        self.last_command.set(command.0);
        let clock = Copies::current().clock();
        self.replica.borrow_mut().write(command, blocks, payload.clone(), clock)?;
        self.served.set(true);
        let (answer, done) = oneshot();
        self.commands.borrow_mut().insert(command, HostWrite { blocks, given_up: None, answer });
        Ok(done)
    }

    async fn end(self: &Rc<Self>, len: ByteLen, done: Receiver<WriteEnd>) -> Result<(), SliceError> {
        let _timed = Copies::current().time_write(len.0);
        self.carry_out();
        if makes(Canary::AnswerEarly) {
            return Ok(());
        }
        match done.await {
            Ok(Ok(Outcome::Done)) => self.until_leased().await,
            Ok(Err(bad)) => Err(SliceError::Unreadable(bad)),
            Ok(Ok(Outcome::Unknown)) | Err(rt::sync::Closed) => Err(SliceError::Unknown),
        }
    }

    /// Waits a moment for the leases without which a write is not acknowledged (R22).
    async fn until_leased(&self) -> Result<(), SliceError> {
        let mut until = None;
        while self.ask(|replica, now, leases| replica.leased(now, leases)).is_err() {
            // All have it, but this node does not know any more who they are.
            if !self.may_wait() || self.hold(&mut until).await.is_err() {
                return Err(SliceError::Unknown);
            }
        }
        Ok(())
    }

    /// Waits a moment for this copy to serve (again).
    pub(in crate::copies) async fn hold(&self, until: &mut Option<Instant>) -> Result<(), SliceError> {
        let now = rt::now();
        let until = *until.get_or_insert(now + HOLD_MAX);
        if now >= until || self.given_up.get() {
            return Err(SliceError::Unavailable);
        }
        let _ = rt::timeout(LOOK_AGAIN.min(until.since(now)), self.happened.notified()).await;
        Ok(())
    }
}
