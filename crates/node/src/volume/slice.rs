//! A slice: one core's part of a volume. Everything that is done to its bytes is done here.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use base::{ByteLen, ByteOffset, Chain, Instant};
use replica::Payload;
use rt::Durability;
use store::{CoreDisks, SliceError, SliceSpec};

use super::order::{Exclusive, Order};
use crate::copies::{Opening, RangeLock, SliceCopy};

/// One slice on its core. Offsets are bytes of the slice.
pub struct Slice {
    layout: Rc<store::Slice>,
    /// If other nodes have copies of it, or may.
    copy: OnceCell<Rc<SliceCopy>>,
    order: Rc<Order>,
}

/// A range that a command has for itself, until this is dropped.
pub enum TakenRange {
    /// Only this node has the slice.
    Here { _exclusive: Exclusive },
    /// On all nodes that have a copy.
    Everywhere { _lock: RangeLock },
}

/// Whether an operation must respect what others hold exclusively, or is itself part of such a holder's
/// command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// An ordinary command.
    Ordinary,
    /// The command has taken the range with [`Slice::take`].
    Holder,
}

fn bytes(offset: ByteOffset, len: ByteLen) -> Range<u64> {
    offset.0..offset.0 + len.0
}

impl Slice {
    /// The slice that this layout keeps, and that no other node has.
    pub fn new(layout: store::Slice) -> Slice {
        Slice { layout: Rc::new(layout), copy: OnceCell::new(), order: Rc::default() }
    }

    /// The slice that this layout keeps a copy of.
    ///
    /// # Errors
    /// What the layout says.
    pub async fn open_copy(layout: store::Slice, opening: Opening) -> Result<Slice, SliceError> {
        let slice = Slice::new(layout);
        slice.open_as_copy(opening).await?;
        Ok(slice)
    }

    async fn open_as_copy(&self, opening: Opening) -> Result<(), SliceError> {
        // An empty one has nothing to agree on.
        if opening.stripe.slice_len(self.index(), opening.size).0 > 0 {
            let copy = SliceCopy::open(Rc::clone(&self.layout), opening, Rc::clone(&self.order)).await?;
            // Nobody else opens it.
            let _ = self.copy.set(copy);
        }
        Ok(())
    }

    /// Other nodes may have copies from now on; it has room for its dirty map by `spec`. What hosts do here
    /// ends first, and goes on when the copy serves.
    ///
    /// # Errors
    /// What the layout says: its disk is out of service, and so is the slice.
    pub async fn become_copy(
        &self,
        spec: SliceSpec,
        disks: &CoreDisks,
        opening: Opening,
    ) -> Result<(), SliceError> {
        let _all = self.order.exclusive(0..self.layout.len().0).await;
        // Whoever makes the volume larger meanwhile gives it room for its map, too.
        if self.layout.map_pages() == 0 && spec.len() >= self.layout.len() {
            self.layout.grow(spec, disks);
        }
        self.open_as_copy(opening).await?;
        self.copy.get().inspect(|copy| copy.serves_soon());
        Ok(())
    }

    /// Which slice of its volume it is.
    pub fn index(&self) -> u16 {
        self.layout.index()
    }

    /// How long it is.
    pub fn len(&self) -> ByteLen {
        self.copy.get().map_or(self.layout.len(), |copy| copy.len())
    }

    /// The copy of it here, if other nodes have some as well.
    pub fn copy(&self) -> Option<&Rc<SliceCopy>> {
        self.copy.get()
    }

    /// What is on this node's disk, whoever may serve it. Blocks that it does not read are written again with
    /// what another copy holds, if that can be.
    ///
    /// # Errors
    /// What the layout says. [`SliceError::Unavailable`]: the disk is late, and others wait.
    pub async fn read_repaired(&self, offset: ByteOffset, len: ByteLen) -> Result<Chain, SliceError> {
        match self.copy.get() {
            None => self.layout.read(offset, len).await,
            Some(copy) => copy.read_here(offset, len).await,
        }
    }

    /// The slice has become longer.
    pub fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        self.layout.grow(spec, disks);
    }

    /// Takes the range for a command that reads and then writes it as one step.
    ///
    /// # Errors
    /// [`SliceError::Unavailable`] if other nodes do not give it.
    pub async fn take(&self, offset: ByteOffset, len: ByteLen) -> Result<TakenRange, SliceError> {
        let range = bytes(offset, len);
        let exclusive = match self.copy.get() {
            None => Some(self.order.exclusive(range.clone()).await),
            Some(_) => None,
        };
        match (self.copy.get(), exclusive) {
            (None, Some(_exclusive)) => Ok(TakenRange::Here { _exclusive }),
            // It may have become one meanwhile.
            (copy, exclusive) => {
                drop(exclusive);
                let copy = copy.ok_or(SliceError::Unavailable)?;
                Ok(TakenRange::Everywhere { _lock: copy.lock(range).await? })
            }
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// What the layout says.
    pub async fn read(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        standing: Standing,
    ) -> Result<Chain, SliceError> {
        let _under_way = match standing {
            Standing::Ordinary => Some(self.order.read(bytes(offset, len)).await),
            Standing::Holder => None,
        };
        match self.copy.get() {
            None => self.layout.read(offset, len).await,
            Some(copy) => copy.read(offset, len).await,
        }
    }

    /// Writes, and returns when the write may be acknowledged: nothing else decides that. Of a copy it begins
    /// soon after `came`, or not at all.
    ///
    /// # Errors
    /// What the layout says.
    pub async fn write(
        &self,
        came: Instant,
        offset: ByteOffset,
        data: Chain,
        durability: Durability,
        standing: Standing,
    ) -> Result<(), SliceError> {
        let _under_way = match standing {
            Standing::Ordinary => Some(self.order.write(bytes(offset, ByteLen(data.len() as u64))).await),
            Standing::Holder => None,
        };
        match self.copy.get() {
            None => self.layout.write(offset, data, durability).await,
            // Durable on all members before it is acknowledged (R3), whatever the initiator asked for.
            Some(copy) => {
                let len = ByteLen(data.len() as u64);
                match standing {
                    Standing::Ordinary => copy.write(came, offset, len, Payload::Data(data)).await,
                    Standing::Holder => copy.write_locked(offset, len, Payload::Data(data)).await,
                }
            }
        }
    }

    /// Gives the range back; it reads as zeros. `came` as for [`Slice::write`].
    ///
    /// # Errors
    /// What the layout says.
    pub async fn zero(&self, came: Instant, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let _under_way = self.order.write(bytes(offset, len)).await;
        match self.copy.get() {
            None => self.layout.zero(offset, len).await,
            Some(copy) => copy.write(came, offset, len, Payload::Zeros).await,
        }
    }

    /// Makes everything that was acknowledged durable.
    ///
    /// # Errors
    /// What the layout says.
    pub async fn flush(&self) -> Result<(), SliceError> {
        match self.copy.get() {
            None => self.layout.flush().await,
            // What was acknowledged is on all members' disks.
            Some(_) => Ok(()),
        }
    }

    /// Whether a write would be refused at once because a disk is out of service. Of a copy the disk alone
    /// says nothing: others go on without it, and what it still answers itself is the copy's decision.
    ///
    /// # Errors
    /// [`SliceError::Offline`].
    pub fn test_ready(&self) -> Result<(), SliceError> {
        let refuses = match self.copy.get() {
            None => self.layout.is_offline(),
            Some(copy) => copy.has_failed(),
        };
        if refuses { Err(SliceError::Offline) } else { Ok(()) }
    }

    /// The parts of the range that take space, in order, `max` of them at most: if there are so many, what
    /// comes after the last is not known.
    ///
    /// # Errors
    /// What the layout says.
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
