//! A slice: one core's part of a volume. All operations on its bytes happen here.

use std::any::Any;
use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::Payload;
use rt::Durability;
use store::{BadBlock, BadVersion, CoreDisks, MovedPart, SliceError, SliceSpec};

use super::order::Order;
use crate::copies::{Opening, SliceCopy};

/// One slice on its core. Offsets are in bytes of the slice.
pub struct Slice {
    layout: Rc<store::Slice>,
    /// Set if other nodes have copies of the slice, or may have.
    copy: OnceCell<Rc<SliceCopy>>,
    order: Rc<Order>,
}

/// A range that a command has for itself on all nodes with a copy of the slice, until this is dropped.
///
/// Who gave it, and how they learn that it is free again, concerns only what holds it.
pub struct TakenRange {
    _held_by: Box<dyn Any>,
}

impl TakenRange {
    /// A range that is taken until `held_by` is dropped.
    pub(super) fn held_by(held_by: impl Any) -> TakenRange {
        TakenRange { _held_by: Box::new(held_by) }
    }
}

/// Whether an operation must respect exclusive claims of others, or belongs to a command that holds such a
/// claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRole {
    /// An ordinary command.
    Ordinary,
    /// The command has taken the range with [`Slice::take`].
    Holder,
}

fn bytes(offset: ByteOffset, len: ByteLen) -> Range<u64> {
    offset.0..offset.0 + len.0
}

impl Slice {
    /// A slice that this layout keeps, and that no other node has.
    pub fn new(layout: store::Slice) -> Slice {
        Slice { layout: Rc::new(layout), copy: OnceCell::new(), order: Rc::default() }
    }

    /// A slice that this layout keeps a copy of.
    pub async fn open_copy(layout: store::Slice, opening: Opening) -> Result<Slice, SliceError> {
        let slice = Slice::new(layout);
        slice.open_as_copy(opening).await?;
        Ok(slice)
    }

    async fn open_as_copy(&self, opening: Opening) -> Result<(), SliceError> {
        // An empty slice has nothing to agree on.
        if opening.stripe.slice_len(self.index(), opening.size).0 > 0 {
            let copy = SliceCopy::open(Rc::clone(&self.layout), opening, Rc::clone(&self.order)).await?;
            // No other task opens it.
            let _ = self.copy.set(copy);
        }
        Ok(())
    }

    /// Turns the slice into a copy: other nodes may have copies from now on.
    ///
    /// `spec` gives it room for its dirty map. Hosts' operations end first, and resume when the copy serves.
    ///
    /// # Errors
    /// Those of the layout: its disk is out of service, and so is the slice.
    pub async fn become_copy(
        &self,
        spec: SliceSpec,
        disks: &CoreDisks,
        opening: Opening,
    ) -> Result<(), SliceError> {
        let _all = self.order.exclusive(0..self.layout.len().0).await;
        // If the volume was enlarged meanwhile, that gave it room for its map, too.
        if self.layout.map_pages() == 0 && spec.len() >= self.layout.len() {
            self.layout.grow(spec, disks);
        }
        self.open_as_copy(opening).await?;
        self.copy.get().inspect(|copy| copy.serves_soon());
        Ok(())
    }

    /// The number of the slice in its volume.
    pub fn index(&self) -> u16 {
        self.layout.index()
    }

    /// Its length.
    pub fn len(&self) -> ByteLen {
        self.copy.get().map_or(self.layout.len(), |copy| copy.len())
    }

    /// The copy of the slice on this node, if other nodes have copies as well.
    pub fn copy(&self) -> Option<&Rc<SliceCopy>> {
        self.copy.get()
    }

    /// Where the slice's bytes are on this node.
    pub fn layout(&self) -> &store::Slice {
        &self.layout
    }

    /// Reads what is on this node's disk, regardless of which copies may serve.
    ///
    /// Bad blocks are repaired from another copy if possible.
    ///
    /// # Errors
    /// Those of the layout. [`SliceError::Unavailable`]: the disk is late, and other operations wait.
    pub async fn read_repaired(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        match self.copy.get() {
            None => self.layout.read(offset, len).await,
            Some(copy) => copy.read_here(offset, len).await,
        }
    }

    /// Repairs a bad block of this node's disk from another copy. Returns whether it can be read now.
    pub(super) async fn repair_found(&self, bad: BadBlock) -> bool {
        match self.copy.get() {
            None => false,
            Some(copy) => copy.repair_found(bad).await,
        }
    }

    /// Repairs blocks that only snapshots have from another copy. Returns whether each can be read now.
    pub(super) async fn repair_past(
        &self,
        bad: Vec<BadVersion>,
    ) -> Result<Vec<(BadVersion, bool)>, SliceError> {
        match self.copy.get() {
            None => Ok(bad.into_iter().map(|version| (version, false)).collect()),
            Some(copy) => copy.repair_past(bad).await,
        }
    }

    /// Holds back the operations on a part of the volume; see [`store::Slice::hold_part`].
    pub async fn hold(&self, part: &MovedPart) -> Result<(), SliceError> {
        self.layout.hold_part(part).await
    }

    /// See [`store::Slice::let_go`].
    pub fn let_go(&self) {
        self.layout.let_go();
    }

    /// See [`store::Slice::lose_part`].
    pub fn lose(&self) {
        self.layout.lose_part();
    }

    /// Makes the slice longer, or takes the new place of a part that was moved.
    pub fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        self.layout.grow(spec, disks);
    }

    /// Takes the range for a command that reads and then writes it atomically.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`] if other nodes do not grant it.
    pub async fn take(&self, offset: ByteOffset, len: ByteLen) -> Result<TakenRange, SliceError> {
        let range = bytes(offset, len);
        if self.copy.get().is_none() {
            let here = self.order.exclusive(range.clone()).await;
            // The slice may have become a copy meanwhile: then the other nodes have to give the range, too.
            if self.copy.get().is_none() {
                return Ok(TakenRange::held_by(here));
            }
        }
        let copy = self.copy.get().ok_or(SliceError::Unavailable)?;
        Ok(TakenRange::held_by(copy.lock(range).await?))
    }

    /// Reads.
    pub async fn read(&self, offset: ByteOffset, len: ByteLen, role: ClaimRole) -> Result<Chain, SliceError> {
        let _under_way = match role {
            ClaimRole::Ordinary => Some(self.order.read(bytes(offset, len)).await),
            ClaimRole::Holder => None,
        };
        match self.copy.get() {
            None => self.layout.read(offset, len).await,
            Some(copy) => copy.read(offset, len).await,
        }
    }

    /// Writes, and returns when the write may be acknowledged. Nothing else decides that.
    ///
    /// The write of a copy begins soon after `came`, or not at all.
    pub async fn write(
        &self,
        came: Instant,
        offset: ByteOffset,
        data: Chain,
        durability: Durability,
        role: ClaimRole,
    ) -> Result<(), SliceError> {
        let _under_way = match role {
            ClaimRole::Ordinary => Some(self.order.write(bytes(offset, ByteLen(data.len() as u64))).await),
            ClaimRole::Holder => None,
        };
        match self.copy.get() {
            None => self.layout.write(offset, data, durability).await,
            // Durable on all members before it is acknowledged (R3), regardless of what the initiator
            // requested.
            Some(copy) => {
                let len = ByteLen(data.len() as u64);
                match role {
                    ClaimRole::Ordinary => copy.write(came, offset, len, Payload::Data(data)).await,
                    ClaimRole::Holder => copy.write_locked(came, offset, len, Payload::Data(data)).await,
                }
            }
        }
    }

    /// Deallocates the range; it then reads as zeros. `came` as for [`Slice::write`].
    pub async fn zero(&self, came: Instant, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let _under_way = self.order.write(bytes(offset, len)).await;
        match self.copy.get() {
            None => self.layout.zero(offset, len).await,
            Some(copy) => copy.write(came, offset, len, Payload::Zeros).await,
        }
    }

    /// Makes everything that was acknowledged durable.
    pub async fn flush(&self) -> Result<(), SliceError> {
        match self.copy.get() {
            None => self.layout.flush().await,
            // Everything that was acknowledged is on all members' disks.
            Some(_) => Ok(()),
        }
    }

    /// Fails if a write would be refused at once because a disk is out of service.
    ///
    /// For a copy, the state of the disk is not enough: the others continue without it, and the copy decides
    /// what it still serves itself.
    pub fn test_ready(&self) -> Result<(), SliceError> {
        let refuses = match self.copy.get() {
            None => self.layout.is_offline(),
            Some(copy) => copy.has_failed(),
        };
        if refuses { Err(SliceError::Offline) } else { Ok(()) }
    }

    /// The allocated parts of the range, in order, at most `max` of them.
    ///
    /// If there are `max`, what follows the last one is unknown.
    pub async fn allocated(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        match self.copy.get() {
            None => self.layout.allocated(offset, len, max).await,
            Some(copy) => copy.allocated(offset, len, max).await,
        }
    }
}
