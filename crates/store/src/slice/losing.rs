//! What a slice notes durably of the blocks that are lost, and of those that it holds for other copies: see
//! [`crate::lost`].

use std::rc::Rc;

use base::{ByteLen, ByteOffset};

use super::Slice;
use crate::copy::MAP_PAGE_BYTES;
use crate::error::{BadBlock, ReadFailure, SliceError};
use crate::lost;

impl Slice {
    /// Notes durably that the range is lost: the disk holds other data there than the slice should.
    ///
    /// A block stays lost until it is written. `holders` has a bit for each copy, by slot, that holds the
    /// data but whose disk could not read it. With `keeps_held`, this copy is one of the holders, so what it
    /// noted with [`Slice::hold`] does not become lost. Returns what was not lost before and is now; `None`
    /// if the list is full ([`crate::LOST_UNITS_MAX`]) and nothing has changed.
    ///
    /// # Errors
    /// As for [`Slice::read_map_page`] and [`Slice::write_map_page`].
    ///
    /// # Panics
    /// If the volume is not a copy.
    pub async fn lose(
        &self,
        offset: ByteOffset,
        len: ByteLen,
        holders: u8,
        keeps_held: bool,
    ) -> Result<Option<Vec<(ByteOffset, ByteLen)>>, SliceError> {
        self.check(offset, len);
        assert!(self.map_pages() > 0, "only a copy loses blocks");
        self.know_lost().await?;
        let _change = self.lost.change().await;
        let added = self.lost.add(&(offset.0..offset.0 + len.0), holders, keeps_held);
        if added.is_some() {
            self.write_lost(&self.lost.page()).await?;
        }
        Ok(added)
    }

    /// Notes durably that this copy holds these ranges although its disk could not read them.
    ///
    /// Other copies are about to note the ranges as lost. A note lasts until the range is written, or until
    /// the list needs its place. Returns whether all of them are noted: if the list is full
    /// ([`crate::LOST_UNITS_MAX`]), some are not.
    ///
    /// # Panics
    /// If the volume is not a copy.
    pub async fn hold(&self, ranges: &[(ByteOffset, ByteLen)]) -> Result<bool, SliceError> {
        assert!(self.map_pages() > 0, "only a copy has others");
        self.know_lost().await?;
        ranges.iter().for_each(|(offset, len)| self.check(*offset, *len));
        // Otherwise, a record that the disk cannot read might count as not written after a crash, and the
        // older block would reappear.
        self.layout().merge_all().await?;
        if let Some(conversion) = self.conversion() {
            let next = Rc::clone(&conversion.next);
            let merging = async move { next.merge_all().await };
            if conversion.is_equal() {
                conversion.unless_given_up(merging, || {}).await?;
            } else {
                let merged = conversion.in_time(merging).await;
                if merged.is_err() {
                    conversion.note_unmerged();
                }
                // It may become equal at any moment.
                if conversion.is_equal() {
                    merged?;
                }
            }
        }
        let mut ranges = ranges.iter().map(|(offset, len)| offset.0..offset.0 + len.0);
        let _change = self.lost.change().await;
        if self.lost.hold(ranges.clone()) {
            self.write_lost(&self.lost.page()).await?;
        }
        Ok(ranges.all(|range| self.lost.holds_all_of(&range)))
    }

    /// Forgets durably what this copy holds, and which copies hold what is lost here.
    ///
    /// Used when this copy's data has a different history from that of the others.
    pub async fn hold_nothing(&self) -> Result<(), SliceError> {
        if self.map_pages() == 0 {
            return Ok(());
        }
        self.know_lost().await?;
        let _change = self.lost.change().await;
        self.set_lost(self.lost.unheld()).await
    }

    /// A bit for each copy, by slot, that holds everything that is lost in the range ([`Slice::lose`]).
    pub fn holders_of_lost(&self, offset: ByteOffset, len: ByteLen) -> u8 {
        self.lost.holders(&(offset.0..offset.0 + len.0))
    }

    /// The lost ranges in order; adjacent ranges are merged. Empty before [`Slice::know_lost`].
    pub fn lost(&self) -> Vec<(ByteOffset, ByteLen)> {
        self.lost.ranges()
    }

    /// Whether any block is lost.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether any part of the range is lost.
    pub fn has_lost_in(&self, offset: ByteOffset, len: ByteLen) -> bool {
        self.lost.first_in(&(offset.0..offset.0 + len.0)).is_some()
    }

    /// Reads the list of lost blocks, unless it has been read already.
    ///
    /// Calling this is optional, because all other operations do it.
    ///
    /// # Errors
    /// [`SliceError::Unreadable`]: the disk cannot read the list, or the list is damaged.
    /// [`SliceError::Offline`].
    pub async fn know_lost(&self) -> Result<(), SliceError> {
        if self.map_pages() == 0 || self.lost.is_known() {
            return Ok(());
        }
        if self.lost.load(&self.read_page(0).await?) {
            return Ok(());
        }
        let (_, disk, disk_offset) = self.layout().page(0);
        tracing::error!(disk, disk_offset, "the list of lost blocks of a slice is damaged");
        let (offset, cause) = (ByteOffset(0), ReadFailure::Medium);
        Err(SliceError::Unreadable(BadBlock { offset, disk, disk_offset, cause }))
    }

    pub(super) fn check_lost(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let range = offset.0..offset.0 + len.0;
        self.lost.first_in(&range).map_or(Ok(()), |lost| Err(lost_error(lost.max(range.start))))
    }

    /// Removes the range from what is lost. The caller has written it durably.
    pub(crate) async fn end_loss(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        let _change = self.lost.change().await;
        self.set_lost(self.lost.without(&(offset.0..offset.0 + len.0))).await
    }

    /// Removes the range from what is held: it is about to be written, and will differ from what others have
    /// lost.
    ///
    /// Every write does this first, and may have to wait for the disk. A caller that must not wait between a
    /// decision and its write does it before the decision, when the list is known ([`Slice::know_lost`]).
    ///
    /// # Errors
    /// As for [`Slice::write_map_page`].
    pub async fn end_hold(&self, offset: ByteOffset, len: ByteLen) -> Result<(), SliceError> {
        self.check(offset, len);
        let range = offset.0..offset.0 + len.0;
        if !self.lost.holds_some_of(&range) {
            return Ok(());
        }
        let _change = self.lost.change().await;
        self.set_lost(self.lost.without_held(&range)).await
    }

    /// Writes the list, then applies it. The caller holds [`lost::Lost::change`].
    async fn set_lost(&self, units: lost::Units) -> Result<(), SliceError> {
        let page = lost::encode(&units);
        if page != self.lost.page() {
            self.write_lost(&page).await?;
            self.lost.set(units);
        }
        Ok(())
    }

    async fn write_lost(&self, page: &[u8; MAP_PAGE_BYTES]) -> Result<(), SliceError> {
        self.write_page(0, page).await
    }
}

/// Names no disk of this copy: the disk that could not read the block was another copy's.
pub(super) fn lost_error(offset: u64) -> SliceError {
    let (offset, cause) = (ByteOffset(offset), ReadFailure::Lost);
    SliceError::Unreadable(BadBlock { offset, disk: 0, disk_offset: 0, cause })
}
