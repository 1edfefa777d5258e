//! Reads and writes of hosts through a copy.

use std::cell::Cell;
use std::rc::Rc;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::{Blocks, Command, LEASE_LENGTH, Outcome, Payload, Standing, Unreadable, Unwritable};
use rt::sync::{Receiver, oneshot};
use store::SliceError;

use super::super::HOLD_MAX;
use super::super::core::Copies;
use super::locking::LOCK_MAX;
use super::reads::Reading;
use super::repair::Unread;
use super::{HostWrite, LOOK_AGAIN, SliceCopy, WriteEnd};
use crate::canary::{Canary, makes};

impl SliceCopy {
    /// Reads for a host, once this copy may be read (R9).
    ///
    /// Where clocks may stop, the other members confirm the read first (R24). Blocks that this node's disk
    /// cannot read come from another copy in sync (R25).
    ///
    /// # Errors
    /// Errors of the layout; [`SliceError::Unavailable`] if this copy may not be read, and did not become
    /// readable soon.
    pub async fn read(self: &Rc<Self>, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        let blocks = self.blocks(offset, len);
        let mut until = None;
        loop {
            let reading = self.until_readable(blocks).await?;
            let confirmation = self.ask_confirmation();
            let data = match self.read_somewhere(offset, len).await {
                Ok(data) => data,
                Err(Unread::Error(error)) => return Err(error),
                Err(Unread::Again) => {
                    self.try_again(&mut until).await?;
                    continue;
                }
            };
            if !self.is_confirmed(confirmation).await? {
                continue;
            }
            let mark = reading.mark;
            let still = self.ask(|replica, now, leases| replica.still_readable(mark, now, leases, blocks));
            if still || makes(Canary::ReadOnce) {
                return Ok(data);
            }
        }
    }

    /// Reads from this node's disk, once this copy may be read (R9): what a host could read here, for another
    /// copy. Once that copy does not wait any more, it reads no more than it has begun.
    ///
    /// # Errors
    /// As [`SliceCopy::read`]. [`SliceError::Unavailable`]: hosts have written there meanwhile, and nobody
    /// waits.
    pub(in crate::copies) async fn read_own(
        self: &Rc<Self>,
        offset: ByteOffset,
        len: ByteLen,
        is_awaited: &Cell<bool>,
    ) -> Result<Chain, SliceError> {
        let blocks = self.blocks(offset, len);
        loop {
            let reading = self.until_readable(blocks).await?;
            let confirmation = self.ask_confirmation();
            let data = self.layout.read(offset, len).await?;
            if !self.is_confirmed(confirmation).await? {
                continue;
            }
            let mark = reading.mark;
            let still = self.ask(|replica, now, leases| replica.still_readable(mark, now, leases, blocks));
            if still || makes(Canary::FetchOnce) {
                return Ok(data);
            }
            if !is_awaited.get() {
                return Err(SliceError::Unavailable);
            }
        }
    }

    /// Waits until the blocks may be read here (R9).
    async fn until_readable(self: &Rc<Self>, blocks: Blocks) -> Result<Reading<'_>, SliceError> {
        let (mut until, mut asked) = (None, false);
        loop {
            if self.is_stopped() {
                self.hold(&mut until).await?;
                continue;
            }
            match self.ask(|replica, now, leases| replica.readable(now, leases, blocks)) {
                Ok(mark) => {
                    self.served.set(true);
                    return Ok(self.reads.begin(mark));
                }
                Err(Unreadable::Failed) => return Err(SliceError::Offline),
                // The coordinator of the write there completes it, or the configuration changes.
                Err(Unreadable::Unsettled) => {
                    if self.waits_for_room() {
                        self.hold(&mut until).await?;
                        continue;
                    }
                    if !asked {
                        asked = true;
                        self.ask_validation(blocks);
                    }
                    // The end of a lease notifies nobody.
                    let _ = rt::timeout(LEASE_LENGTH, self.happened.notified()).await;
                }
                Err(Unreadable::NotInSync | Unreadable::NoLease(_)) => self.hold(&mut until).await?,
            }
        }
    }

    /// Whether a command that changes something may wait until it can begin.
    ///
    /// It may wait for leases, but a copy that is not in sync (any more) does not let it wait until it is in
    /// sync again. By then the initiator may have sent the command again through another node, and something
    /// else since, or may have been fenced off. This check misses a command that waited while the copy was
    /// lost and came back; but a copy that comes back waits for the end of such commands before it is
    /// promoted.
    pub(crate) fn may_wait(&self) -> bool {
        self.serves_soon.get()
            || matches!(self.replica.borrow().standing(), Standing::InSync(_))
            || makes(Canary::GoOnAfterLoss)
    }

    /// The parts of the range that take space, as in [`crate::data::Slice::allocated`], once this copy may
    /// be read.
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
            // Unlike for a read, writes under way need not be settled: acknowledged ones take space on all
            // members, and for the others either answer is true.
            let leased = || self.ask(|replica, now, leases| replica.leased(now, leases)).is_ok();
            if self.is_stopped() || !leased() {
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

    /// Writes, and returns when the write is on the disks of all members.
    ///
    /// `came` is when the command came. The write begins within [`HOLD_MAX`] of that or not at all, whatever
    /// it waits for: later, its initiator may have sent it again through another node, and something else
    /// since.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`]: this copy does not serve, and nothing was written. [`SliceError::Full`]:
    /// there is no space, and nothing was written. [`SliceError::Unreadable`]: the write changes a part of
    /// this block of the disk, and no copy can read the rest. [`SliceError::Unknown`]: the copy served when
    /// the write began, and other copies may have the write.
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
                    self.try_again(&mut until).await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let is_late = rt::now() >= begins_by && !makes(Canary::BeginLate);
            if is_late || !self.may_wait() {
                return Err(SliceError::Unavailable);
            }
            // Without its leases the write could begin but not end: the host is better off with a copy that
            // has them.
            if self.is_stopped() || self.ask(|replica, now, leases| replica.leased(now, leases)).is_err() {
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

    /// Writes for a command that came at `came` and has locked the range ([`SliceCopy::lock`]).
    ///
    /// The write begins within [`HOLD_MAX`], and within `LOCK_MAX` of when the command came, or not at all.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`]: as [`SliceCopy::write`], or the command has lost the range, and nothing
    /// was written.
    pub async fn write_locked(
        self: &Rc<Self>,
        came: Instant,
        offset: ByteOffset,
        len: ByteLen,
        payload: Payload,
    ) -> Result<(), SliceError> {
        let begins_by = (rt::now() + HOLD_MAX).min(came + LOCK_MAX);
        self.find_room(offset, len, &payload).await?;
        let mut until = Some(begins_by);
        while let Err(error) = self.find_rest(offset, len).await {
            match error {
                SliceError::Unavailable if self.may_wait() => self.try_again(&mut until).await?,
                error => return Err(error),
            }
        }
        if rt::now() >= begins_by {
            return Err(SliceError::Unavailable);
        }
        // From here until the write has its place in the order, nothing else runs on this core.
        let range = offset.0..offset.0 + len.0;
        // A range that other members gave in an earlier epoch is still locked on this node, which every
        // command for that range asks. The check is needed all the same: if this node was lost and came back
        // meanwhile, commands in between have not asked it, and a host's write through another node asks no
        // node.
        let held = self.locks.holds(&range);
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
        if self.is_stopped() {
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
            // All members have the write, but this node no longer knows which they are.
            if !self.may_wait() || self.hold(&mut until).await.is_err() {
                return Err(SliceError::Unknown);
            }
        }
        Ok(())
    }

    /// Waits until something has happened that may let this copy serve (again), or a lease has come.
    ///
    /// `until` is when to give up: the first call sets it to [`HOLD_MAX`] from now.
    async fn hold(&self, until: &mut Option<Instant>) -> Result<(), SliceError> {
        let until = self.gives_up_at(until)?;
        let copies = Copies::current();
        copies.want_lease();
        let _ = rt::timeout_at(until, self.happened.notified_or(&copies.leased)).await;
        Ok(())
    }

    /// Pauses before another attempt at what another node or the disk decides: nothing that happens here says
    /// that it will succeed. `until` is as in [`SliceCopy::hold`].
    pub(super) async fn try_again(&self, until: &mut Option<Instant>) -> Result<(), SliceError> {
        let until = self.gives_up_at(until)?;
        rt::sleep_until(until.min(rt::now() + LOOK_AGAIN)).await;
        Ok(())
    }

    /// When a command gives up that waits for this copy.
    fn gives_up_at(&self, until: &mut Option<Instant>) -> Result<Instant, SliceError> {
        let now = rt::now();
        let until = *until.get_or_insert(now + HOLD_MAX);
        if now >= until || self.given_up.get() {
            return Err(SliceError::Unavailable);
        }
        Ok(until)
    }
}
