//! How a slice lies on disks, in logs or in memory, behind one interface.

use std::cell::Ref;
use std::mem::discriminant;
use std::ops::Range;
use std::rc::Rc;

use base::{ByteLen, ByteOffset, Chain};
use rt::Durability;

use super::{SliceSpec, SpecKind};
use crate::disks::{CoreDisks, PoolDisk};
use crate::error::SliceError;
use crate::gate::Gate;
use crate::log::LogSlice;
use crate::ram::RamSlice;
use crate::thick::ThickSlice;

/// How the blocks of a slice are stored.
pub(crate) enum Layout {
    /// On the pool's disks, overwritten in place.
    Thick(ThickSlice),
    /// On the pool's disks, never overwritten in place.
    Log(LogSlice),
    /// In memory.
    Ram(RamSlice),
}

/// A change of a range of a slice.
#[derive(Clone)]
pub(crate) enum Change {
    Write(Chain, Durability),
    /// As [`Slice::rewrite`](super::Slice::rewrite).
    Rewrite(Chain),
    Zero,
}

impl Change {
    /// The same, durable only after a flush.
    pub(crate) fn cached(self) -> Change {
        match self {
            Change::Write(data, _) | Change::Rewrite(data) => Change::Write(data, Durability::Cached),
            Change::Zero => Change::Zero,
        }
    }
}

impl Layout {
    pub(super) fn open(spec: SliceSpec, disks: &CoreDisks) -> Layout {
        match &spec.kind {
            SpecKind::Thick { .. } => Layout::Thick(ThickSlice::new(spec, disks.clone())),
            SpecKind::Log { .. } => Layout::Log(LogSlice::new(spec, disks.clone())),
            SpecKind::Ram { .. } => Layout::Ram(RamSlice::new(spec)),
        }
    }

    /// The specification with which the slice was opened or grown.
    pub(super) fn spec(&self) -> Ref<'_, SliceSpec> {
        match self {
            Layout::Thick(slice) => slice.spec(),
            Layout::Log(slice) => slice.spec(),
            Layout::Ram(slice) => slice.spec(),
        }
    }

    pub(super) fn is_of(&self, kind: &SpecKind) -> bool {
        discriminant(&self.spec().kind) == discriminant(kind)
    }

    /// The disk that has a page of the slice's map, its place in the pool, and the page's offset there.
    pub(super) fn page(&self, page: u64) -> (Rc<PoolDisk>, u16, u64) {
        let spec = self.spec();
        let (SpecKind::Thick { map, .. } | SpecKind::Log { map, .. }) = &spec.kind else {
            panic!("the map of {spec:?} is in memory")
        };
        let (place, disk_offset) = map.place(spec.index, page);
        let disk = match self {
            Layout::Thick(slice) => slice.disk(place),
            Layout::Log(slice) => slice.disk(place),
            Layout::Ram(_) => unreachable!("its specification is not of such a slice"),
        };
        (disk, place, disk_offset)
    }

    /// The operations on what lies in place; those on logs are not counted.
    pub(super) fn gate(&self) -> Option<&Gate> {
        match self {
            Layout::Thick(slice) => Some(slice.gate()),
            Layout::Log(_) | Layout::Ram(_) => None,
        }
    }

    pub(super) async fn hold(&self, range: Range<u64>) -> Result<(), SliceError> {
        match self {
            Layout::Thick(slice) => slice.hold(range).await,
            Layout::Log(_) | Layout::Ram(_) => Ok(()),
        }
    }

    pub(crate) async fn read(&self, range: &Range<u64>) -> Result<Chain, SliceError> {
        let (offset, len) = span(range);
        match self {
            Layout::Thick(slice) => {
                let _pass = slice.gate().read(slice.touched(range)).await?;
                slice.read(offset, len).await
            }
            Layout::Log(slice) => slice.read(offset, len).await,
            Layout::Ram(slice) => Ok(slice.memory().read(offset, len)),
        }
    }

    pub(crate) async fn apply(&self, range: &Range<u64>, change: Change) -> Result<(), SliceError> {
        let (offset, len) = span(range);
        match (self, change) {
            (Layout::Thick(slice), change) => {
                let pass = slice.gate().change(slice.touched(range)).await?;
                let changed = match change {
                    Change::Write(data, durability) => slice.write(offset, data, durability).await,
                    Change::Rewrite(data) => slice.rewrite(offset, data).await,
                    Change::Zero => slice.zero(offset, len).await,
                };
                pass.end();
                changed
            }
            (Layout::Log(slice), Change::Write(data, durability)) => {
                slice.write(offset, data, durability).await
            }
            (Layout::Log(slice), Change::Rewrite(data)) => slice.rewrite(offset, data).await,
            (Layout::Log(slice), Change::Zero) => slice.zero(offset, len).await,
            (Layout::Ram(slice), change) => {
                match change {
                    Change::Write(data, _) | Change::Rewrite(data) => slice.memory().write(offset, &data),
                    Change::Zero => slice.memory().zero(offset, len),
                }
                Ok(())
            }
        }
    }

    pub(crate) async fn allocated(
        &self,
        range: &Range<u64>,
        max: usize,
    ) -> Result<Vec<(ByteOffset, ByteLen)>, SliceError> {
        let (offset, len) = span(range);
        match self {
            Layout::Thick(slice) => {
                let _pass = slice.gate().read(slice.touched(range)).await?;
                slice.allocated(offset, len, max).await
            }
            Layout::Log(slice) => slice.allocated(offset, len, max).await,
            Layout::Ram(slice) => Ok(slice.memory().allocated(offset, len, max)),
        }
    }

    pub(super) async fn reserve(&self, range: &Range<u64>) -> Result<(), SliceError> {
        let (offset, len) = span(range);
        match self {
            Layout::Thick(slice) => {
                let pass = slice.gate().change(range.clone()).await?;
                let reserved = slice.reserve(offset, len).await;
                pass.end();
                reserved
            }
            Layout::Log(slice) => slice.reserve(offset, len).await,
            Layout::Ram(_) => Ok(()),
        }
    }

    pub(crate) async fn flush(&self) -> Result<(), SliceError> {
        match self {
            Layout::Thick(slice) => slice.flush().await,
            Layout::Log(slice) => slice.flush().await,
            Layout::Ram(_) => Ok(()),
        }
    }

    pub(super) fn is_offline(&self) -> bool {
        match self {
            Layout::Thick(slice) => slice.gate().is_lost() || slice.is_offline(),
            Layout::Log(slice) => slice.is_offline(),
            Layout::Ram(_) => false,
        }
    }

    /// See [`Slice::hold`](super::Slice::hold).
    pub(super) async fn merge_all(&self) -> Result<(), SliceError> {
        match self {
            Layout::Log(slice) => slice.merge_all().await,
            Layout::Thick(_) | Layout::Ram(_) => Ok(()),
        }
    }

    pub(super) fn grow(&self, spec: SliceSpec, disks: &CoreDisks) {
        match self {
            Layout::Thick(slice) => slice.grow(spec, disks),
            Layout::Log(slice) => slice.grow(spec, disks),
            Layout::Ram(slice) => slice.grow(spec),
        }
    }
}

/// The offset and length of a range.
fn span(range: &Range<u64>) -> (ByteOffset, ByteLen) {
    (ByteOffset(range.start), ByteLen(range.end - range.start))
}
