//! The second layout of a slice whose volume is being converted, and what the slice does with it.
//!
//! Until both layouts have everything ([`Conversion::is_equal`]), only the present one counts. Until then
//! hosts do not wait for a disk that hangs and holds only the other one: an operation there that is late goes
//! on alone, and nothing else is done there before it has ended. The reasons are in `docs/why/pool.md`,
//! *Converting a volume*.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use base::{Buf, ByteLen, Chain};
use rt::Durability;

use super::{Change, Layout, Slice, SliceSpec};
use crate::canary::{Canary, makes};
use crate::disks::CoreDisks;
use crate::error::SliceError;
use crate::range_lock::{Locked, RangeLock};

/// How much a step copies: hosts' writes to the range wait for that, some milliseconds on a disk that seeks.
const STEP_BYTES: u64 = 256 << 10;

/// What is copied or not as a whole: the largest block of disks, and the block of logs.
const UNIT: u64 = 4096;

/// How long a write that failed only in the other layout waits until it is known whether that layout
/// counts: a commit of the catalog decides it.
const DECIDED_WITHIN: Duration = Duration::from_secs(5);

/// How often such a write looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Slice {
    pub(super) fn conversion(&self) -> Option<Rc<Conversion>> {
        self.conversion.borrow().clone()
    }

    /// Begins to convert the slice after [`Pool::begin_conversion`](crate::Pool::begin_conversion), unless
    /// that has begun. [`Slice::convert_some`] does it.
    ///
    /// `spec` is the new specification of the same slice; `disks` are this core's disks, as for
    /// [`Slice::grow`]. Operations under way are not disturbed.
    ///
    /// # Panics
    /// If `spec` is of another slice or layout.
    pub fn begin_conversion(&self, spec: &SliceSpec, disks: &CoreDisks) {
        assert_eq!(spec.index, self.index(), "{spec:?} is not of this slice");
        // A slice that has yet to learn that the volume has grown is converted after that.
        let is_new = self.conversion.borrow().is_none() && spec.len == self.len();
        assert!(self.layout().is_of(&spec.kind), "{spec:?} is from before the volume was converted");
        if let Some(next) = spec.of_next().filter(|_| is_new) {
            self.convert_to(next, disks);
        }
    }

    pub(super) fn convert_to(&self, spec: SliceSpec, disks: &CoreDisks) {
        let len = spec.len;
        let conversion = Conversion::new(Layout::open(spec, disks), len, Rc::clone(&self.late));
        self.conversion.replace(Some(Rc::new(conversion)));
    }

    /// Copies some hundred KiB to the layout that the volume is being converted to. Returns how much is left.
    ///
    /// One task does this at a time.
    ///
    /// # Errors
    /// [`SliceError::Full`]: there is no room for the other layout; [`SliceError::Unreadable`]: this one
    /// cannot read what is to be copied; and others. The slice serves as before, and what failed is left to
    /// copy.
    pub async fn convert_some(&self) -> Result<ByteLen, SliceError> {
        self.know_lost().await?;
        let Some(conversion) = self.conversion() else { return Ok(ByteLen(0)) };
        // Changes that do not know of the conversion: once they have ended, there are no more of them.
        while Rc::strong_count(&self.changing) > 1 {
            rt::sleep(LOOK_EVERY).await;
        }
        let is_lost = |range: &Range<u64>| {
            let mut lost = self.lost.ranges().into_iter();
            lost.any(|(offset, len)| offset.0 <= range.start && range.end <= offset.0 + len.0)
        };
        let under_way = UnderWay::new(&self.abandoned);
        let copied = conversion.copy_some(&self.turns, &self.layout(), is_lost).await;
        under_way.end();
        copied?;
        if conversion.left().0 == 0 && self.has_held() && !conversion.is_merged() {
            // As in [`Slice::hold`].
            conversion.merge().await?;
        }
        Ok(conversion.left())
    }

    /// Whether the copy holds anything of the slice ([`Slice::hold`]).
    fn has_held(&self) -> bool {
        self.lost.holds_some_of(&(0..self.len().0))
    }

    /// Makes the other layout count as much as the present one, if everything has been copied, and merged if
    /// need be ([`Slice::convert_some`]), and the slice has no snapshots. Returns whether it does: then the
    /// volume can be switched ([`Pool::switch_volume`](crate::Pool::switch_volume)).
    ///
    /// # Errors
    /// Those of a flush of the other layout: it does not count. [`SliceError::Offline`]: the caller of an
    /// earlier change has gone away, and it is unknown whether that is in both; reopening the pool helps.
    pub async fn become_equal(&self) -> Result<bool, SliceError> {
        let Some(conversion) = self.conversion() else { return Ok(false) };
        if self.abandoned.get() {
            return Err(SliceError::Offline);
        }
        if self.has_held() && !conversion.is_merged() {
            return Ok(false);
        }
        // The other layout does not have them.
        if self.has_snapshots() {
            return Ok(false);
        }
        conversion.become_equal(&self.turns).await
    }

    /// Makes only the present layout count again, because the volume was certainly not switched.
    pub fn count_present_only(&self) {
        self.conversion().inspect(|conversion| conversion.count_present_only());
    }

    /// Turns to the other layout (`switched`), or stays with the present one, and closes the one that is
    /// left.
    ///
    /// The catalog says the same already if the volume was switched. Returns when no operation uses the
    /// layout that was left, and whether its space can be freed: not if the caller of a change has gone away,
    /// since nobody knows when that ends.
    pub async fn end_conversion(&self, switched: bool) -> bool {
        let Some(conversion) = self.conversion() else { return !self.abandoned.get() };
        // A write may wait for that.
        match switched {
            true => conversion.note_switched(),
            false => conversion.count_present_only(),
        }
        let left = {
            let _turn = turn(&self.turns, &(0..self.len().0)).await;
            self.conversion.take();
            match switched {
                true => Some(self.layout.replace(Rc::clone(&conversion.next))),
                false => None,
            }
        };
        // Reads under way.
        while left.as_ref().is_some_and(|left| Rc::strong_count(left) > 1) {
            rt::sleep(LOOK_EVERY).await;
        }
        // And the copying, or a flush.
        while !switched && Rc::strong_count(&conversion) > 1 {
            rt::sleep(LOOK_EVERY).await;
        }
        !self.abandoned.get()
    }

    /// Waits until nothing is under way in the other layout that those who began it do not wait for any more,
    /// because a disk hangs.
    ///
    /// To be called before the slice is closed: whoever opens it next, or has its space next, relies on that.
    pub async fn late_ended(&self) {
        while self.late.get() > 0 {
            rt::sleep(LOOK_AT_LATE).await;
        }
    }

    /// Changes the range in the layout, and in that which the volume is being converted to.
    pub(super) async fn apply(&self, range: Range<u64>, change: Change) -> Result<(), SliceError> {
        if self.conversion.borrow().is_none() && self.turns.is_free() {
            return self.apply_to_one(range, change).await;
        }
        let _turn = turn(&self.turns, &range).await;
        // It may have ended meanwhile.
        let Some(conversion) = self.conversion() else { return self.apply_to_one(range, change).await };
        let under_way = UnderWay::new(&self.abandoned);
        let changed = conversion.apply(&self.layout(), range, change).await;
        under_way.end();
        changed
    }

    /// Changes the range in the layout. No conversion is under way.
    async fn apply_to_one(&self, range: Range<u64>, change: Change) -> Result<(), SliceError> {
        let _changing = Rc::clone(&self.changing);
        let under_way = UnderWay::new(&self.abandoned);
        let changed = self.layout().apply(&range, change).await;
        under_way.end();
        changed
    }
}

/// A change that is under way.
struct UnderWay<'a> {
    abandoned: &'a Cell<bool>,
    has_ended: bool,
}

impl UnderWay<'_> {
    fn new(abandoned: &Cell<bool>) -> UnderWay<'_> {
        UnderWay { abandoned, has_ended: false }
    }

    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.abandoned.set(true);
        }
    }
}

/// How long hosts wait for an operation of the other layout while only the present one counts.
///
/// That is less than the time after which the other members of a volume remove a copy that finishes no writes
/// (R20): a copy stays, although a disk hangs that it does not need.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// How long a merge of the other layout may take. In a large log it takes seconds; no host waits for it.
const MERGED_WITHIN: Duration = Duration::from_secs(60);

/// How often those look that wait for an operation which is late.
const LOOK_AT_LATE: Duration = Duration::from_millis(50);

/// A layout that a slice is being copied to.
pub(crate) struct Conversion {
    pub(crate) next: Rc<Layout>,
    /// The length of the slice, which does not grow meanwhile.
    len: u64,
    /// Start and end of what has to be copied, or to be copied again. Behind it, and before it, both layouts
    /// are the same, as far as no change is under way.
    behind: Cell<(u64, u64)>,
    /// Both layouts have everything, and each change is made to both before it is acknowledged.
    equal: Cell<bool>,
    /// The volume was switched to the other layout.
    switched: Cell<bool>,
    /// How many operations of another layout of the slice have not ended although nobody waits for them any
    /// more: they may still change it.
    late: Rc<Cell<usize>>,
    /// How often something was copied, or was not merged, that a copy may hold; and how often before the last
    /// merge of the other layout.
    unmerged: Cell<u64>,
    merged: Cell<u64>,
}

impl Conversion {
    /// Nothing of the slice, which is this long, has been compared yet. `late` is the slice's.
    pub(crate) fn new(next: Layout, len: ByteLen, late: Rc<Cell<usize>>) -> Conversion {
        Conversion {
            next: Rc::new(next),
            len: len.0,
            behind: Cell::new((0, len.0)),
            equal: Cell::new(false),
            switched: Cell::new(false),
            late,
            unmerged: Cell::new(1),
            merged: Cell::new(0),
        }
    }

    pub(crate) fn is_equal(&self) -> bool {
        self.equal.get()
    }

    /// How much has to be copied, or to be copied again.
    pub(crate) fn left(&self) -> ByteLen {
        let (start, end) = self.behind.get();
        ByteLen(end.saturating_sub(start))
    }

    /// Changes the range on both layouts. It is the caller's turn ([`turn`]).
    ///
    /// # Errors
    /// Those of the present layout; of the other one only if both count, and continue to count.
    pub(crate) async fn apply(
        self: &Rc<Self>,
        present: &Layout,
        range: Range<u64>,
        change: Change,
    ) -> Result<(), SliceError> {
        if self.equal.get() {
            return self.apply_to_equal(present, range, change).await;
        }
        let (start, end) = self.behind.get();
        let is_copied_later = start <= range.start && range.end <= end;
        let changed = present.apply(&range, change.clone()).await;
        if is_copied_later || makes(Canary::ConvertOnce) {
            return changed;
        }
        // It need not be durable: nothing counts here before a flush.
        let is_same = match changed {
            Ok(()) => self.change_next(&range, change.cached()).await.is_ok(),
            Err(_) => false,
        };
        if !is_same {
            self.fall_behind(&range);
        }
        changed
    }

    async fn apply_to_equal(
        self: &Rc<Self>,
        present: &Layout,
        range: Range<u64>,
        change: Change,
    ) -> Result<(), SliceError> {
        if makes(Canary::EqualOnce) {
            return present.apply(&range, change).await;
        }
        // The log first: it may lack room, and then nothing has been changed.
        let is_next_first = matches!(&*self.next, Layout::Log(_));
        if !is_next_first {
            present.apply(&range, change.clone()).await.inspect_err(|_| self.fall_behind(&range))?;
        }
        let (next, there, to) = (Rc::clone(&self.next), range.clone(), change.clone());
        let changed = async move { next.apply(&there, to).await };
        self.unless_given_up(changed, || self.fall_behind(&range)).await?;
        if is_next_first {
            present.apply(&range, change).await.inspect_err(|_| self.fall_behind(&range))?;
        }
        Ok(())
    }

    /// Waits until the pool has switched the volume, or has not; returns whether only the present layout
    /// counts. If that remains unknown, both do.
    pub(crate) async fn is_given_up(&self) -> bool {
        let until = rt::now() + DECIDED_WITHIN;
        while self.equal.get() && !self.switched.get() && rt::now() < until {
            rt::sleep(LOOK_EVERY).await;
        }
        !self.equal.get()
    }

    /// Whether the other layout is left alone, because an operation there is late.
    fn is_late(&self) -> bool {
        self.late.get() > 0
    }

    /// Waits for an operation of the other layout, which does not count yet.
    ///
    /// # Errors
    /// Those of the operation; [`SliceError::Offline`]: it is late and may still happen, or an earlier one is
    /// late and this one was not begun.
    pub(crate) async fn in_time<T: 'static>(
        self: &Rc<Self>,
        operation: impl Future<Output = Result<T, SliceError>> + 'static,
    ) -> Result<T, SliceError> {
        self.within(LATE_AFTER, operation).await
    }

    async fn within<T: 'static>(
        self: &Rc<Self>,
        limit: Duration,
        operation: impl Future<Output = Result<T, SliceError>> + 'static,
    ) -> Result<T, SliceError> {
        if self.is_late() {
            return Err(SliceError::Offline);
        }
        let mut operation = Box::pin(operation);
        match rt::timeout(limit, operation.as_mut()).await {
            Ok(result) => result,
            Err(rt::Elapsed) => {
                self.leave_alone(operation);
                Err(SliceError::Offline)
            }
        }
    }

    /// Waits for an operation of the other layout, which counts as much as the present one, unless it is
    /// given up meanwhile. `missed` is called if the operation fails or is late.
    ///
    /// # Errors
    /// Those of the operation, if the other layout is not given up.
    pub(crate) async fn unless_given_up(
        self: &Rc<Self>,
        operation: impl Future<Output = Result<(), SliceError>> + 'static,
        missed: impl Fn(),
    ) -> Result<(), SliceError> {
        let mut operation = Box::pin(operation);
        let mut within = LATE_AFTER;
        loop {
            if let Ok(result) = rt::timeout(within, operation.as_mut()).await {
                let Err(error) = result else { return Ok(()) };
                missed();
                // It is an error only if this layout is to be the volume's.
                return if self.is_given_up().await { Ok(()) } else { Err(error) };
            }
            missed();
            if self.switched.get() {
                // It is the volume's only layout: others decide what becomes of a disk that hangs.
                return operation.await;
            }
            if !self.equal.get() {
                self.leave_alone(operation);
                return Ok(());
            }
            within = LOOK_AT_LATE;
        }
    }

    /// Lets an operation of the other layout end without those who have waited for it.
    fn leave_alone<T: 'static>(self: &Rc<Self>, operation: impl Future<Output = T> + 'static) {
        if !self.is_late() {
            tracing::warn!("a disk does not answer: the conversion of a volume waits, and hosts do not");
        }
        self.late.set(self.late.get() + 1);
        let conversion = Rc::clone(self);
        rt::spawn(async move {
            drop(operation.await);
            conversion.late.set(conversion.late.get() - 1);
        })
        .detach();
    }

    async fn change_next(self: &Rc<Self>, range: &Range<u64>, change: Change) -> Result<(), SliceError> {
        let (next, range) = (Rc::clone(&self.next), range.clone());
        self.in_time(async move { next.apply(&range, change).await }).await
    }

    /// Notes that the layouts may differ in the range.
    fn fall_behind(&self, range: &Range<u64>) {
        let (from, to) = (range.start / UNIT * UNIT, range.end.next_multiple_of(UNIT).min(self.len));
        self.behind.set(match self.behind.get() {
            (start, end) if start < end => (start.min(from), end.max(to)),
            _ => (from, to),
        });
    }

    /// Copies a part of what is left to copy. `is_lost`: whether a range is lost as a whole.
    ///
    /// One task copies at a time. `turns` are those of the slice.
    ///
    /// # Errors
    /// Those of both layouts. Nothing has been lost: the part is copied again.
    pub(crate) async fn copy_some(
        self: &Rc<Self>,
        turns: &RangeLock,
        present: &Layout,
        is_lost: impl Fn(&Range<u64>) -> bool,
    ) -> Result<(), SliceError> {
        let (start, end) = self.behind.get();
        if start >= end {
            return Ok(());
        }
        if self.is_late() {
            return Err(SliceError::Offline);
        }
        self.note_unmerged();
        let range = start..end.min((start / STEP_BYTES + 1) * STEP_BYTES);
        let _turn = match makes(Canary::ConvertUnheld) {
            true => None,
            false => Some(turn(turns, &range).await),
        };
        self.copy(present, &range, is_lost).await?;
        // A change of an earlier range may have failed meanwhile.
        let (now, end) = self.behind.get();
        if now == range.start {
            self.behind.set((range.end, end));
        }
        Ok(())
    }

    async fn copy(
        self: &Rc<Self>,
        present: &Layout,
        range: &Range<u64>,
        is_lost: impl Fn(&Range<u64>) -> bool,
    ) -> Result<(), SliceError> {
        let is_used = !present.allocated(range, 1).await?.is_empty();
        let (next, there) = (Rc::clone(&self.next), range.clone());
        let is_used_there = match self.in_time(async move { next.allocated(&there, 1).await }).await {
            Ok(found) => !found.is_empty(),
            // What cannot be looked up is written.
            Err(_) => true,
        };
        if !is_used && !is_used_there {
            return Ok(());
        }
        let data = if is_used { Some(read(present, range, is_lost).await?) } else { None };
        // Most of it is the same if this continues after a restart; and a disk that does not know what it has
        // in use was zeroed, and need not be zeroed again.
        let (next, of) = (Rc::clone(&self.next), range.clone());
        let read_there = self.in_time(async move { next.read(&of).await });
        let there = if is_used_there { read_there.await.ok() } else { None };
        match (data.filter(|data| !is_zeros(data)), there) {
            (None, None) if !is_used_there => Ok(()),
            (None, Some(there)) if is_zeros(&there) => Ok(()),
            (None, _) => self.change_next(range, Change::Zero).await,
            (Some(data), Some(there)) if data.to_vec() == there.to_vec() => Ok(()),
            (Some(data), _) => self.change_next(range, Change::Write(data, Durability::Cached)).await,
        }
    }

    /// Makes both layouts count from now on, unless something is left to copy. Returns whether they do.
    ///
    /// # Errors
    /// Those of a flush of the other layout; [`SliceError::Offline`] if something is late there.
    pub(crate) async fn become_equal(self: &Rc<Self>, turns: &RangeLock) -> Result<bool, SliceError> {
        // Most of it now, while hosts' writes continue.
        self.flush_next().await?;
        let _turn = turn(turns, &(0..self.len)).await;
        if self.left().0 > 0 {
            return Ok(false);
        }
        self.flush_next().await?;
        if self.is_late() {
            return Err(SliceError::Offline);
        }
        self.equal.set(true);
        Ok(true)
    }

    /// Notes that the other layout may have something that the copy holds, or is about to, and that is not
    /// merged there.
    pub(crate) fn note_unmerged(&self) {
        self.unmerged.set(self.unmerged.get() + 1);
    }

    /// Whether all that the copy holds is merged in the other layout, as far as it has been copied.
    pub(crate) fn is_merged(&self) -> bool {
        self.merged.get() == self.unmerged.get()
    }

    /// Merges what the copy holds in the other layout. No host may wait for it.
    pub(crate) async fn merge(self: &Rc<Self>) -> Result<(), SliceError> {
        let (next, unmerged) = (Rc::clone(&self.next), self.unmerged.get());
        self.within(MERGED_WITHIN, async move { next.merge_all().await }).await?;
        self.merged.set(unmerged);
        Ok(())
    }

    async fn flush_next(self: &Rc<Self>) -> Result<(), SliceError> {
        let next = Rc::clone(&self.next);
        self.in_time(async move { next.flush().await }).await
    }

    /// Makes only the present layout count again.
    pub(crate) fn count_present_only(&self) {
        self.equal.set(false);
    }

    /// Notes that the volume was switched: only the other layout counts from now on.
    pub(crate) fn note_switched(&self) {
        self.switched.set(true);
    }
}

/// Waits until nobody else changes the range of a slice that is being converted.
pub(crate) async fn turn<'a>(turns: &'a RangeLock, range: &Range<u64>) -> Locked<'a> {
    turns.lock(range.start / UNIT * UNIT, range.end.next_multiple_of(UNIT)).await
}

/// Reads a range, except what is lost as a whole: nobody reads that anywhere.
async fn read(
    layout: &Layout,
    range: &Range<u64>,
    is_lost: impl Fn(&Range<u64>) -> bool,
) -> Result<Chain, SliceError> {
    match layout.read(range).await {
        Err(SliceError::Unreadable(_)) => {}
        read => return read,
    }
    let mut data = Chain::new();
    let mut at = range.start;
    while at < range.end {
        let unit = at..range.end.min((at / UNIT + 1) * UNIT);
        at = unit.end;
        match layout.read(&unit).await {
            Ok(read) => data.append(read),
            Err(SliceError::Unreadable(_)) if is_lost(&unit) => {
                data.push(Buf::zeroed((unit.end - unit.start) as usize).share());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(data)
}

fn is_zeros(data: &Chain) -> bool {
    data.parts().iter().all(|part| part.iter().all(|byte| *byte == 0))
}
