//! Volumes: splits SCSI operations into pieces, and passes these to the slices that own them.
//!
//! Each core has its own [`Volume`] for every volume of the node. It knows the stripe map and owns the slices
//! of its core; pieces for other slices travel to their core by message and return with the result. An
//! operation on several pieces is not atomic, as SCSI allows. One that must be atomic (COMPARE AND WRITE,
//! ORWRITE) first takes all of its pieces, in the order of the slices, so that two of them cannot wait for
//! each other.

mod claims;
mod convert;
mod memory;
mod order;
mod piece;
mod scan;
mod scrub;
mod slice;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Buf, ByteLen, ByteOffset, Chain, Instant, Lba, LbaRange};
use proto::block::{BlockDone, BlockError, BlockOp};
use rt::{CoreId, Durability};
pub use store::VolumeId;
use store::{CoreDisks, Piece, SliceError, SliceSpec, Stripe, WhenFull};

pub use self::convert::convert_some;
pub use self::order::{Exclusive, Order};
use self::piece::PieceOp;
pub use self::scrub::{ScrubAt, Scrubbed, ScrubbedBlock};
pub use self::slice::{ClaimRole, Slice, TakenRange};
use crate::control::{note_bad_block, space_of};

/// How much of the data that a long operation reads for itself (VERIFY, ORWRITE) or generates (WRITE SAME) is
/// in memory at once.
const STEP_BYTES: u64 = 1 << 20;

/// How long a write waits for room in a full pool, if its volume pauses.
///
/// Together with what else may hold it up (a step waits for its initiator's word for up to 10 s, and may
/// begin within [`crate::copies::HOLD_MAX`] of that), this is less than the 30 s after which Linux aborts a
/// command; other initiators take longer.
pub const ROOM_WAIT_MAX: Duration = Duration::from_secs(15);

/// How often such a write is tried again.
const ROOM_AGAIN: Duration = Duration::from_millis(250);

/// How a command finds out whether it may continue, if it takes long.
struct WaitPolicy<W, M> {
    /// The initiator's last word: see [`Volume::perform`].
    word: W,
    /// Whether the command may wait for room in a full pool.
    may_wait: M,
    /// Until when it waits for room; `None`: it has not had to wait yet. It holds for all steps together.
    until: Cell<Option<Instant>>,
}

/// One volume, as one core knows it.
pub struct Volume {
    id: VolumeId,
    block_size: BlockSize,
    /// Grows when the volume is resized.
    blocks: Cell<BlockCount>,
    stripe: Stripe,
    /// By number; `None` for slices of other cores.
    slices: Vec<Option<Rc<Slice>>>,
    /// What a host's write does if it finds its pool full.
    when_full: Cell<WhenFull>,
}

/// The core that a slice lives on.
pub fn core_of(slice: u16, cores: usize) -> CoreId {
    CoreId((usize::from(slice) % cores) as u16)
}

impl Volume {
    /// A volume with the slices of this core.
    pub fn new(
        id: VolumeId,
        block_size: BlockSize,
        blocks: BlockCount,
        stripe: Stripe,
        of_this_core: Vec<Slice>,
    ) -> Volume {
        let mut slices: Vec<Option<Rc<Slice>>> = (0..stripe.slices()).map(|_| None).collect();
        for slice in of_this_core {
            let number = usize::from(slice.index());
            slices[number] = Some(Rc::new(slice));
        }
        let when_full = Cell::default();
        Volume { id, block_size, blocks: Cell::new(blocks), stripe, slices, when_full }
    }

    /// The volume's identity.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The logical block size.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The capacity.
    pub fn blocks(&self) -> BlockCount {
        self.blocks.get()
    }

    /// Makes this core's slices longer. All cores do this before one of them announces the new capacity.
    pub fn grow(&self, specs: Vec<SliceSpec>, disks: &CoreDisks) {
        for spec in specs {
            if let Some(Some(slice)) = self.slices.get(usize::from(spec.index())) {
                slice.grow(spec, disks);
            }
        }
    }

    /// Lets the checksums of this core's slices count after a crash, where nothing was written for this long;
    /// see [`store::Slice::settle`].
    pub async fn settle(&self, idle: Duration) {
        for slice in self.own_slices() {
            if let Err(error) = slice.layout().settle(idle).await {
                tracing::debug!(volume = %self.id, slice = slice.index(), %error, "checksums are not settled");
            }
        }
    }

    /// This core's slices.
    pub fn own_slices(&self) -> impl Iterator<Item = &Rc<Slice>> {
        self.slices.iter().flatten()
    }

    /// One of this core's slices.
    pub fn slice(&self, number: u16) -> Option<Rc<Slice>> {
        self.slices.get(usize::from(number))?.clone()
    }

    /// Sets the capacity, after [`Volume::grow`].
    pub fn set_blocks(&self, blocks: BlockCount) {
        self.blocks.set(blocks);
    }

    /// Sets what a host's write does if it finds its pool full.
    pub fn set_when_full(&self, when_full: WhenFull) {
        self.when_full.set(when_full);
    }

    /// Executes one operation of a command that arrived at `came`.
    ///
    /// An operation of several steps asks for the initiator's last `word`
    /// ([`crate::iscsi::session::Caller::word`]) before each of them, and stops if that is an error. So does
    /// a write that waits for room, before each attempt; it stops waiting if it may not wait any more.
    ///
    /// # Errors
    /// Those that the standard has a code for; see [`BlockError`].
    pub async fn perform<W: Future<Output = Result<Instant, BlockError>>>(
        &self,
        op: BlockOp,
        came: Instant,
        word: impl Fn() -> W,
        may_wait: impl Fn() -> bool,
    ) -> Result<BlockDone, BlockError> {
        let wait_policy = WaitPolicy { word: &word, may_wait, until: Cell::default() };
        match op {
            BlockOp::Read { range, fua } => {
                if fua {
                    self.bring_to_medium(range).await?;
                }
                self.read(range, ClaimRole::Ordinary).await.map(BlockDone::Data)
            }
            BlockOp::Write { range, data, fua } | BlockOp::WriteAtomic { range, data, fua } => {
                self.write_or_wait(came, range, data, durability(fua), &wait_policy).await?;
                Ok(BlockDone::Done)
            }
            BlockOp::WriteAndVerify { range, data, compare } => {
                self.write_or_wait(came, range, data.clone(), Durability::Durable, &wait_policy).await?;
                if compare { self.compare(range, &data).await } else { self.verify(range).await }
            }
            BlockOp::WriteSame { range, pattern, fua } => {
                self.write_same(range, &pattern, fua, &wait_policy).await
            }
            BlockOp::Unmap { ranges, fua } => self.unmap(ranges, fua, &word).await,
            BlockOp::Verify { range } => {
                self.bring_to_medium(range).await?;
                self.verify(range).await
            }
            BlockOp::Compare { range, data } => {
                self.bring_to_medium(range).await?;
                self.compare(range, &data).await
            }
            BlockOp::CompareAndWrite { range, compare, write, fua } => {
                self.compare_and_write(came, range, &compare, write, fua).await
            }
            BlockOp::OrWrite { range, data, fua } => self.or_write(range, &data, fua, &word).await,
            BlockOp::Flush => self.flush().await,
            BlockOp::TestReady => self.test_ready().await,
            // There is no cache to prefetch into.
            BlockOp::Prefetch { .. } => Ok(BlockDone::Done),
            BlockOp::LbaStatus { start, max } => self.lba_status(start, max).await.map(BlockDone::LbaStatus),
            BlockOp::Space => space_of(self.id).await.map(BlockDone::Space),
        }
    }

    /// Reads `range`.
    ///
    /// # Errors
    /// [`BlockError::Unreadable`], [`BlockError::Offline`].
    pub async fn read(&self, range: LbaRange, role: ClaimRole) -> Result<Chain, BlockError> {
        let mut pieces = self.pieces(range);
        let Some(first) = pieces.next() else { return Ok(Chain::new()) };
        let read = |piece: Piece| self.carry_out(piece, PieceOp::Read { len: piece.len, role });
        if first.len == range.count * self.block_size {
            return read(first).await;
        }
        let parts = rt::join_all(std::iter::once(first).chain(pieces).map(read)).await;
        let mut data = Chain::new();
        for part in parts {
            data.append(part?);
        }
        Ok(data)
    }

    /// Writes `data`, which has as many bytes as `range`.
    ///
    /// On a replicated volume, the write begins soon after `came`, when the initiator was known to be there,
    /// or not at all.
    ///
    /// # Errors
    /// [`BlockError::Unwritable`], [`BlockError::Full`], [`BlockError::Offline`].
    pub async fn write(
        &self,
        came: Instant,
        range: LbaRange,
        data: Chain,
        durability: Durability,
        role: ClaimRole,
    ) -> Result<(), BlockError> {
        let mut pieces = self.pieces(range);
        let Some(first) = pieces.next() else { return Ok(()) };
        if first.len == range.count * self.block_size {
            return self.carry_out(first, PieceOp::Write { came, data, durability, role }).await.map(drop);
        }
        let start = first.volume_offset.0;
        let write = |piece: Piece| {
            let from = (piece.volume_offset.0 - start) as usize;
            let data = data.slice(from..from + piece.len.0 as usize);
            self.carry_out(piece, PieceOp::Write { came, data, durability, role })
        };
        all_done(rt::join_all(std::iter::once(first).chain(pieces).map(write)).await)
    }

    /// Writes for a host. If the volume pauses when its pool is full, pieces that find no room are tried
    /// again until the command has waited for [`ROOM_WAIT_MAX`].
    ///
    /// They hold nothing meanwhile: reads and UNMAP of the same blocks continue. Only these pieces are
    /// written again. What has been written may have been read, and overwritten by another command, and must
    /// not come back.
    async fn write_or_wait<W: Future<Output = Result<Instant, BlockError>>>(
        &self,
        came: Instant,
        range: LbaRange,
        data: Chain,
        durability: Durability,
        wait_policy: &WaitPolicy<impl Fn() -> W, impl Fn() -> bool>,
    ) -> Result<(), BlockError> {
        if self.when_full.get() == WhenFull::Fail {
            return self.write(came, range, data, durability, ClaimRole::Ordinary).await;
        }
        let start = (range.start * self.block_size).0;
        // A log takes pieces of this size as a whole or not at all.
        let mut left: Vec<Piece> = self.steps(range).flat_map(|step| self.pieces(step)).collect();
        let mut came = came;
        loop {
            let write = |piece: &Piece| {
                let from = (piece.volume_offset.0 - start) as usize;
                let data = data.slice(from..from + piece.len.0 as usize);
                let op = PieceOp::Write { came, data, durability, role: ClaimRole::Ordinary };
                self.carry_out(*piece, op)
            };
            let results = rt::join_all(left.iter().map(write)).await;
            let mut refused = Vec::new();
            for (piece, result) in left.into_iter().zip(results) {
                match result {
                    Ok(_) => {}
                    Err(BlockError::Full) => refused.push(piece),
                    Err(error) => return Err(error),
                }
            }
            if refused.is_empty() {
                return Ok(());
            }
            let now = rt::now();
            let until = wait_policy.until.get().unwrap_or(now + ROOM_WAIT_MAX);
            wait_policy.until.set(Some(until));
            let waits = || self.when_full.get() == WhenFull::Pause && (wait_policy.may_wait)();
            if now >= until || !waits() {
                return Err(BlockError::Full);
            }
            rt::sleep(ROOM_AGAIN.min(until.since(now))).await;
            came = (wait_policy.word)().await?;
            // Again: its initiator may have been fenced off meanwhile, and another one may have written
            // there.
            if !waits() {
                return Err(BlockError::Full);
            }
            left = refused;
        }
    }

    async fn write_same<W: Future<Output = Result<Instant, BlockError>>>(
        &self,
        range: LbaRange,
        pattern: &Chain,
        fua: bool,
        wait_policy: &WaitPolicy<impl Fn() -> W, impl Fn() -> bool>,
    ) -> Result<BlockDone, BlockError> {
        let block = pattern.contiguous();
        let step_blocks = (STEP_BYTES >> self.block_size.shift()).min(range.count.0);
        let mut repeated = Buf::uncleared((BlockCount(step_blocks) * self.block_size).0 as usize);
        repeated.chunks_exact_mut(block.len()).for_each(|place| place.copy_from_slice(&block));
        let repeated = Chain::from(repeated);
        for step in self.steps(range) {
            let came = (wait_policy.word)().await?;
            let data = repeated.slice(0..(step.count * self.block_size).0 as usize);
            self.write_or_wait(came, step, data, durability(fua), wait_policy).await?;
        }
        Ok(BlockDone::Done)
    }

    async fn unmap<W: Future<Output = Result<Instant, BlockError>>>(
        &self,
        ranges: Vec<LbaRange>,
        fua: bool,
        word: impl Fn() -> W,
    ) -> Result<BlockDone, BlockError> {
        for range in ranges {
            // A long range has many pieces, and each is quick: one batch at a time.
            let mut pieces = self.pieces(range).peekable();
            while pieces.peek().is_some() {
                let came = word().await?;
                let zero = |piece: Piece| self.carry_out(piece, PieceOp::Zero { came, len: piece.len });
                all_done(rt::join_all(pieces.by_ref().take(usize::from(store::SLICES_MAX)).map(zero)).await)?;
            }
        }
        if fua { self.flush().await } else { Ok(BlockDone::Done) }
    }

    async fn compare_and_write(
        &self,
        came: Instant,
        range: LbaRange,
        compare: &Chain,
        write: Chain,
        fua: bool,
    ) -> Result<BlockDone, BlockError> {
        let _taken = self.take(range).await?;
        let found = self.read(range, ClaimRole::Holder).await?;
        scan::first_difference(&found, compare).map_or(Ok(()), |at| Err(BlockError::Miscompare(at)))?;
        self.write(came, range, write, durability(fua), ClaimRole::Holder).await?;
        Ok(BlockDone::Done)
    }

    async fn or_write<W: Future<Output = Result<Instant, BlockError>>>(
        &self,
        range: LbaRange,
        data: &Chain,
        fua: bool,
        word: impl Fn() -> W,
    ) -> Result<BlockDone, BlockError> {
        let _taken = self.take(range).await?;
        let mut at = 0;
        for step in self.steps(range) {
            let found = self.read(step, ClaimRole::Holder).await?;
            let came = word().await?;
            let mut result = Buf::uncleared(found.len());
            found.copy_to(&mut result);
            let data = data.slice(at..at + found.len());
            let or = data.parts().iter().flat_map(|part| part.iter());
            result.iter_mut().zip(or).for_each(|(byte, or)| *byte |= or);
            at += found.len();
            self.write(came, step, result.into(), durability(fua), ClaimRole::Holder).await?;
        }
        Ok(BlockDone::Done)
    }

    /// Makes every acknowledged write durable, on all slices.
    ///
    /// # Errors
    /// [`BlockError::Offline`]: a failed flush takes the disk out of service.
    pub async fn flush(&self) -> Result<BlockDone, BlockError> {
        self.on_all_slices(|| PieceOp::Flush).await
    }

    /// Writes cached data of these blocks to the medium (SBC-3, Caches: reads with FUA, VERIFY). Costs
    /// nothing if there were no writes.
    async fn bring_to_medium(&self, range: LbaRange) -> Result<(), BlockError> {
        let flush = |piece| self.carry_out(piece, PieceOp::Flush);
        all_done(rt::join_all(self.pieces(range).map(flush)).await)
    }

    /// Whether all slices accept writes.
    async fn test_ready(&self) -> Result<BlockDone, BlockError> {
        self.on_all_slices(|| PieceOp::TestReady).await
    }

    async fn on_all_slices(&self, op: impl Fn() -> PieceOp) -> Result<BlockDone, BlockError> {
        let slices = 0..self.stripe.slices();
        let whole =
            |slice| Piece { slice, offset: ByteOffset(0), len: ByteLen(0), volume_offset: ByteOffset(0) };
        all_done(rt::join_all(slices.map(|slice| self.carry_out(whole(slice), op()))).await)?;
        Ok(BlockDone::Done)
    }

    /// Takes all pieces of `range` for one command, in the order of the slices.
    async fn take(&self, range: LbaRange) -> Result<Vec<TakenRange>, BlockError> {
        let mut pieces: Vec<Piece> = self.pieces(range).collect();
        pieces.sort_by_key(|piece| (piece.slice, piece.offset));
        let mut taken = Vec::with_capacity(pieces.len());
        for piece in pieces {
            taken.push(self.take_piece(piece).await.map_err(|error| self.block_error(piece, error))?);
        }
        Ok(taken)
    }

    async fn carry_out(&self, piece: Piece, op: PieceOp) -> Result<Chain, BlockError> {
        self.carry_out_piece(piece, op).await.map_err(|error| self.block_error(piece, error))
    }

    fn pieces(&self, range: LbaRange) -> store::Pieces {
        self.stripe.pieces(range.start * self.block_size, range.count * self.block_size)
    }

    /// Splits `range` into parts of at most [`STEP_BYTES`].
    fn steps(&self, range: LbaRange) -> impl Iterator<Item = LbaRange> + use<> {
        let step = STEP_BYTES >> self.block_size.shift();
        (0..range.count.0.div_ceil(step)).map(move |n| {
            let start = range.start + BlockCount(n * step);
            LbaRange { start, count: BlockCount((range.end() - start).0.min(step)) }
        })
    }

    /// Waits until no write to this core's slices that lost its host can take effect any more.
    pub async fn orphans_ended(&self) {
        for copy in self.slices.iter().flatten().filter_map(|slice| slice.copy()) {
            copy.orphans_ended().await;
        }
    }

    /// The offset in the volume of a byte of a slice.
    pub fn volume_offset(&self, slice: u16, of_slice: ByteOffset) -> ByteOffset {
        self.stripe.volume_offset(slice, of_slice)
    }

    fn lba(&self, offset: ByteOffset) -> Lba {
        Lba(offset.0 >> self.block_size.shift())
    }

    fn block_error(&self, piece: Piece, error: SliceError) -> BlockError {
        let lba = |offset| self.lba(self.stripe.volume_offset(piece.slice, offset));
        match error {
            SliceError::Unreadable(bad) => {
                note_bad_block(self.id, self.stripe.volume_offset(piece.slice, bad.offset), bad, None);
                BlockError::Unreadable(lba(bad.offset))
            }
            SliceError::Unwritable => BlockError::Unwritable,
            SliceError::Full => BlockError::Full,
            SliceError::Offline => BlockError::Offline,
            SliceError::Unavailable => BlockError::Unavailable,
            SliceError::Unknown => BlockError::Unknown,
        }
    }
}

fn durability(fua: bool) -> Durability {
    if fua { Durability::Durable } else { Durability::Cached }
}

/// The first error among a command's pieces, if any.
fn all_done(results: Vec<Result<Chain, BlockError>>) -> Result<(), BlockError> {
    results.into_iter().try_for_each(|result| result.map(drop))
}
