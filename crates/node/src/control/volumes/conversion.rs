//! Conversions of volumes to another kind: which kind a volume should have, and how this node gets its copy
//! there while it is in use.
//!
//! The cluster's record says which kind the copies of a volume should have; without a record, the catalog of
//! the pool does. Each node converts its own copy, and resumes that after a restart. Why it is safe:
//! `docs/why/pool.md`, *Converting a volume*.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::Instant;
use proto::scsi::LuConfig;
use rt::sync::{Notify, Semaphore};
use serde::{Deserialize, Serialize};
use store::{Compression, MetadataState, Pool, SliceError, SpacePolicy, StoreError, VolumeInfo, VolumeKind};

use super::super::change::WaitsFor;
use super::super::doing::Doing;
use super::super::filling::THRESHOLDS;
use super::super::snapshots::{last_snapshot, no_new_snapshot};
use super::super::turns::{NOTHING, Thing};
use super::super::{Beat, ChangeFailure, Control, ControlError, EndedJob, EndedWork, JobOutcome, Result};
use super::VolumeStatus;
use crate::canary::{Canary, makes};
use crate::copies::VolumeEntry;
use crate::data::{VolumeId, convert_some};
use crate::events::Event;
use crate::events::code::VOLUME_CONVERTED;
use crate::shard::{Shard, on_all_cores};

/// How often a node checks whether it has volumes to convert.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after a problem a conversion is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long it waits after a pass that was not the last one, since slices may be in use by others.
const PAUSE: Duration = Duration::from_millis(100);
/// Whether a volume that becomes thick gets checksums of its own: they are chosen when a volume is created.
const CHECKSUMS: bool = false;
/// How many volumes are converted at the same time; others wait.
const AT_ONCE: usize = 2;

/// The conversion of this node's copy of a volume.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// The volume's name when it began.
    pub volume: String,
    /// The kind that it is converted to.
    pub to: VolumeKind,
    /// How long ago it began, or was resumed.
    pub age: Duration,
    /// Size of the volume in bytes.
    pub total: u64,
    /// Bytes that are the same in both layouts.
    pub done: u64,
    /// Bytes that were compared or copied in this life of the node.
    pub copied: u64,
    /// What it waits for.
    pub waits_for: Option<ConversionWait>,
}

/// What a conversion waits for. Nodes report it to each other as JSON.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum ConversionWait {
    #[error("this node is stopping")]
    Restart,
    #[error("space in the pool for the log: delete something or add a disk")]
    PoolSpace,
    #[error("space in the file system under the pool")]
    FileSystemSpace,
    #[error("blocks that the disk cannot read, until they are repaired or written")]
    Unreadable,
    #[error("its disks, or until this node serves the volume")]
    Disks,
    #[error("its disks, which could not write")]
    Unwritable,
    #[error("disk {} to leave its pool: wait until that is complete, or cancel it", .0.display())]
    LeavingDisk(PathBuf),
    /// The change was refused.
    #[error("{}", refusal(why, error))]
    Refused {
        why: ChangeFailure,
        /// All that is known about it, only on the node that converts.
        #[serde(skip)]
        error: Option<Arc<ControlError>>,
    },
}

fn refusal(why: &ChangeFailure, error: &Option<Arc<ControlError>>) -> String {
    error.as_ref().map_or_else(|| why.to_string(), |error| error.with_hint())
}

impl From<ControlError> for ConversionWait {
    fn from(error: ControlError) -> ConversionWait {
        match error {
            ControlError::Store(StoreError::DiskIsLeaving { path, .. }) => ConversionWait::LeavingDisk(path),
            error => ConversionWait::Refused { why: (&error).into(), error: Some(Arc::new(error)) },
        }
    }
}

/// The conversions of this node.
pub(in crate::control) struct Conversions {
    of: RefCell<BTreeMap<VolumeId, Rc<Converting>>>,
    /// Volumes whose copy could not begin to be converted yet, and why.
    refused: RefCell<BTreeMap<VolumeId, (VolumeKind, ConversionWait)>>,
    turns: Rc<Semaphore>,
    layouts: LayoutTurns,
}

impl Default for Conversions {
    fn default() -> Conversions {
        Conversions {
            of: RefCell::default(),
            refused: RefCell::default(),
            turns: Rc::new(Semaphore::new(AT_ONCE)),
            layouts: LayoutTurns::default(),
        }
    }
}

struct Converting {
    began: Instant,
    to: VolumeKind,
    volume: String,
    total: u64,
    done: Cell<u64>,
    copied: Cell<u64>,
    waits_for: RefCell<Option<ConversionWait>>,
}

impl Converting {
    fn shown(&self) -> Conversion {
        Conversion {
            volume: self.volume.clone(),
            to: self.to,
            age: rt::now().since(self.began),
            total: self.total,
            done: self.done.get(),
            copied: self.copied.get(),
            waits_for: self.waits_for.borrow().clone(),
        }
    }
}

/// Keeps apart what opens slices of a volume from what changes where they lie: slices must never be opened by
/// a specification from before such a change.
#[derive(Default)]
struct LayoutTurns {
    held: RefCell<BTreeSet<VolumeId>>,
    freed: Notify,
}

/// Nobody else opens slices of this volume, or changes where they lie, until this is dropped.
pub(in crate::control) struct LayoutTurn<'a> {
    turns: &'a LayoutTurns,
    id: VolumeId,
}

impl LayoutTurns {
    async fn hold(&self, id: VolumeId) -> LayoutTurn<'_> {
        self.freed.until(|| !self.held.borrow().contains(&id)).await;
        self.held.borrow_mut().insert(id);
        LayoutTurn { turns: self, id }
    }
}

impl Drop for LayoutTurn<'_> {
    fn drop(&mut self) {
        self.turns.held.borrow_mut().remove(&self.id);
        self.turns.freed.notify();
    }
}

/// Whether the blocks of a volume are compressed in the log; `None`: its pool has none of it in a log.
pub(in crate::control) fn compression_in_logs(info: &VolumeInfo) -> Option<Compression> {
    let is_log = info.kind.is_compressible() || info.converting.is_some_and(VolumeKind::is_compressible);
    is_log.then_some(info.compression)
}

impl Control {
    /// Converts a volume to another kind while it is in use, or cancels that: the kind is the one that it has
    /// then. The copies follow in the background, each on its node.
    ///
    /// # Errors
    /// The volume cannot have this kind; this node has no space for it; errors of the cluster's record.
    pub async fn convert_volume(self: &Rc<Control>, name: &str, kind: VolumeKind) -> Result<VolumeStatus> {
        let (before, pool) = self.volume_and_pool_name(name)?;
        let id = before.id.to_string();
        let work = Doing::ConvertVolume.of(&before.name);
        let changed = self.change(work, NOTHING, |control, changing| async move {
            changing.concerns(before.id);
            let volume = changing.hold(Thing::volume_in(before.id, pool)).await?;
            let (pool, before) = control.volume_to_change(&before)?;
            control.check_convertible(&pool, &before, kind)?;
            // Each node holds the volume for its own part.
            drop((volume, pool));
            changing.waits_for(WaitsFor::ClusterRecord);
            let reconciler = control.reconciler()?;
            let entry = control
                .change_entry(&reconciler, before.id, None, |entry| {
                    check_kind(entry.shape.kind, kind, entry.space.into())?;
                    control.check_snapshots_allow(before.id, &entry.name, kind)?;
                    let mut next = VolumeEntry::clone(entry);
                    next.shape.kind = kind;
                    if !kind.has_snapshots() {
                        next.snapshots_above = Some(last_snapshot(&reconciler));
                    }
                    Ok((next, vec![no_new_snapshot(&reconciler)]))
                })
                .await?;
            Ok((before.id, entry.compression.known()))
        });
        let (volume, compression) = changed.await?;
        // If this fails, this node follows later, as the other ones do.
        let _followed = self.follow_kind(volume, kind, compression.unwrap_or_default()).await;
        self.volume(&id)
    }

    /// Checks, without doing it, whether a volume could be converted on this node; returns whether it is not
    /// of this kind yet, nor on its way there.
    ///
    /// # Errors
    /// As [`Control::convert_volume`], except those of the cluster's record.
    pub fn check_conversion(&self, name: &str, kind: VolumeKind) -> Result<bool> {
        let (pool, info) = self.volume_named(name)?;
        self.check_in_one_pool(&info)?;
        self.check_convertible(&pool, &info, kind)
    }

    /// Cancels the conversion of a volume: copies that have been converted already are converted back.
    ///
    /// # Errors
    /// As [`Control::convert_volume`].
    pub async fn cancel_conversion(self: &Rc<Control>, name: &str) -> Result<VolumeStatus> {
        let (_, info) = self.volume_named(name)?;
        let former = self.wanted_kind(&info).other();
        let former = former.ok_or(StoreError::NotConvertible(info.id))?;
        self.convert_volume(name, former).await
    }

    /// The kind that this node's copy of a volume has, and the one that it is being converted to.
    /// [`Control::volume`] shows the kind that the volume should have.
    pub fn kinds_of_copy(&self, name: &str) -> Result<(VolumeKind, Option<VolumeKind>)> {
        self.volume_named(name).map(|(_, info)| (info.kind, info.converting))
    }

    /// Whether this node's copy of a volume is of the kind that the volume should have.
    pub fn is_of_its_kind(&self, name: &str) -> Result<bool> {
        let (_, info) = self.volume_named(name)?;
        Ok(info.converting.is_none() && info.kind == self.wanted_kind(&info))
    }

    /// The kind that a volume has, or is being converted to.
    fn wanted_kind(&self, info: &VolumeInfo) -> VolumeKind {
        let entry = self.reconciler().ok().and_then(|reconciler| reconciler.volume(info.id));
        entry.map_or(info.converting.unwrap_or(info.kind), |volume| volume.entry.shape.kind)
    }

    /// Checks that a volume with snapshots does not become one that cannot have them.
    fn check_snapshots_allow(&self, id: VolumeId, name: &str, kind: VolumeKind) -> Result<()> {
        if kind.has_snapshots() { Ok(()) } else { self.check_no_snapshots(id, name) }
    }

    fn check_convertible(&self, pool: &Pool, info: &VolumeInfo, kind: VolumeKind) -> Result<bool> {
        check_kind(info.kind, kind, info.space)?;
        self.check_snapshots_allow(info.id, &info.name, kind)?;
        if info.converting.is_none() && info.kind != kind {
            pool.check_conversion(info.id, kind, CHECKSUMS)?;
        }
        Ok(self.wanted_kind(info) != kind)
    }

    /// Forgets why conversions could not begin, except those of volumes that are `still` to begin.
    pub(in crate::control) fn forget_refused(&self, still: impl Fn(VolumeId) -> bool) {
        self.conversions.refused.borrow_mut().retain(|id, _| still(*id));
    }

    /// Begins to convert this node's copy of a volume, or gives that up. A copy that becomes log-structured
    /// gets this compression.
    pub(in crate::control) async fn follow_kind(
        self: &Rc<Control>,
        id: VolumeId,
        kind: VolumeKind,
        compression: Compression,
    ) -> Result<()> {
        let (before, pool) = self.volume_and_pool_name(&id.to_string())?;
        if before.converting.unwrap_or(before.kind) == kind {
            return Ok(());
        }
        let work = Doing::BeginConversion.of(&before.name);
        self.change(work, Thing::volume_in(before.id, pool), |control, changing| async move {
            let (pool, info) = control.volume_to_change(&before)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            match info.converting {
                None if info.kind != kind => {
                    let zeroing = changing.zeroing();
                    pool.begin_conversion(id, kind, compression, CHECKSUMS, zeroing).await?;
                    control.tell_conversion(&pool, id).await
                }
                Some(other) if other != kind => {
                    control.give_up_conversion(&pool, &info).await?;
                    // The task that converts the volume may not have begun.
                    rt::spawn(Rc::clone(&control).free_left(id)).detach();
                    Ok(())
                }
                _ => Ok(()),
            }
        })
        .await
    }

    /// Lets this node's copy of a volume follow the cluster's record. If that is refused, it is shown, and
    /// tried again until the record says something else.
    pub(in crate::control) async fn follow_recorded_kind(
        self: &Rc<Control>,
        id: VolumeId,
        entry: &VolumeEntry,
    ) {
        if makes(Canary::RefusedForGood) && self.conversions.refused.borrow().contains_key(&id) {
            return;
        }
        let kind = entry.shape.kind;
        let compression = entry.compression.known().unwrap_or_default();
        let followed = self.follow_kind(id, kind, compression).await;
        let mut refused = self.conversions.refused.borrow_mut();
        match followed {
            Ok(()) => drop(refused.remove(&id)),
            Err(error) => {
                tracing::debug!(volume = entry.name, %error, "the copy of a volume cannot be converted yet");
                refused.insert(id, (kind, error.into()));
            }
        }
    }

    /// Tells the open slices that the volume is being converted. The caller holds the volume.
    async fn tell_conversion(&self, pool: &Pool, id: VolumeId) -> Result<()> {
        let _turn = self.conversions.layouts.hold(id).await;
        let (pool_id, specs) = (pool.id(), self.specs_by_core(pool, id)?);
        on_all_cores(move || async move {
            let shard = Shard::current();
            if let (Some(unit), Some(disks)) = (shard.unit(id), shard.disks(pool_id)) {
                unit.volume().begin_conversion(&specs[usize::from(rt::core().0)], &disks);
            }
        })
        .await;
        Ok(())
    }

    /// Gives up the layout that a volume is being converted to. The caller holds the volume, or it is being
    /// opened.
    pub(in crate::control) async fn give_up_conversion(&self, pool: &Pool, info: &VolumeInfo) -> Result<()> {
        let (id, _turn) = (info.id, self.conversions.layouts.hold(info.id).await);
        // Otherwise the volume may have been switched, and nobody knows.
        if pool.metadata_state() != MetadataState::Writable {
            return Err(StoreError::MetadataReadOnly(pool.id()).into());
        }
        let is_free = end_conversion(id, false).await;
        pool.cancel_conversion(id).await?;
        if is_free {
            pool.leave_layouts(id);
        }
        Ok(())
    }

    /// Waits until nobody changes where the slices of a volume lie: to be held while they are opened.
    pub(in crate::control) async fn hold_layout(&self, id: VolumeId) -> LayoutTurn<'_> {
        self.conversions.layouts.hold(id).await
    }

    /// The conversions of this node's copies that are under way, or are to begin.
    pub fn conversions(&self) -> Vec<(VolumeId, Conversion)> {
        let of = self.conversions.of.borrow();
        let under_way = of.iter().map(|(id, converting)| (*id, converting.shown()));
        let refused = self.conversions.refused.borrow();
        let waiting = refused.iter().filter(|(id, _)| !of.contains_key(*id));
        let waiting = waiting.filter_map(|(id, (to, why))| {
            let (_, info) = self.volume_named(&id.to_string()).ok()?;
            let conversion = Conversion {
                volume: self.shown_name(&info),
                to: *to,
                age: Duration::ZERO,
                total: info.capacity.0,
                done: 0,
                copied: 0,
                waits_for: Some(why.clone()),
            };
            Some((*id, conversion))
        });
        under_way.chain(waiting).collect()
    }

    /// Converts the volumes of this node that are to be converted, as long as it runs.
    pub(in crate::control) async fn convert_volumes(self: Rc<Control>) {
        loop {
            Beat::Conversions.wait(LOOK_EVERY).await;
            for id in self.to_convert() {
                let Some((_, info)) = self.current_of(self.copies_of(id)) else { continue };
                let Some(to) = info.converting else { continue };
                let converting = Rc::new(Converting {
                    began: rt::now(),
                    to,
                    volume: self.shown_name(&info),
                    total: info.capacity.0,
                    done: Cell::new(0),
                    copied: Cell::new(0),
                    waits_for: RefCell::default(),
                });
                self.conversions.of.borrow_mut().insert(id, Rc::clone(&converting));
                rt::spawn(Rc::clone(&self).convert(id, converting)).detach();
            }
        }
    }

    /// Volumes that are being converted, and that no task here converts.
    fn to_convert(&self) -> Vec<VolumeId> {
        let known = self.conversions.of.borrow();
        let pools = self.open_pools().into_iter();
        let ids = pools.flat_map(|pool| pool.volumes_to_convert());
        ids.filter(|id| !known.contains_key(id)).collect()
    }

    fn is_converted_to(&self, id: VolumeId) -> Option<VolumeKind> {
        self.current_of(self.copies_of(id))?.1.converting
    }

    async fn convert(self: Rc<Control>, id: VolumeId, converting: Rc<Converting>) {
        let turns = Rc::clone(&self.conversions.turns);
        let mut ended = None;
        while self.is_converted_to(id) == Some(converting.to) {
            turns.acquire(1).await;
            let done = self.convert_all(id, &converting).await;
            turns.release(1);
            match done {
                Ok(true) => {
                    ended = Some(JobOutcome::Done);
                    break;
                }
                // It was cancelled, or hosts' writes have not been copied yet.
                Ok(false) => rt::sleep(PAUSE).await,
                Err(why) => {
                    tracing::debug!(volume = %id, waits_for = %why, "a conversion waits");
                    converting.waits_for.replace(Some(why));
                    rt::sleep(AGAIN_AFTER).await;
                }
            }
        }
        // A pool that was closed is not the end: the next task continues. And a switch may have taken so long
        // that nobody waited for it.
        let now = self.current_of(self.copies_of(id)).map(|(_, info)| info.kind);
        let ended = ended.or_else(|| match now? == converting.to {
            true => Some(JobOutcome::Done),
            false => Some(JobOutcome::Cancelled),
        });
        self.conversions.of.borrow_mut().remove(&id);
        rt::spawn(Rc::clone(&self).free_left(id)).detach();
        let Some(outcome) = ended else { return };
        let shown = converting.shown();
        let (subject, took) = (shown.volume.clone(), Some(shown.age));
        let work = EndedWork::Conversion { volume: id, found: Box::new(shown) };
        self.note_end(EndedJob { work, subject, outcome, took });
    }

    /// Frees the space of layouts that a volume has left. That takes as long as deleting a volume, and other
    /// changes of it do not wait.
    pub(in crate::control) async fn free_left(self: Rc<Control>, id: VolumeId) {
        let Ok((before, pool)) = self.volume_and_pool_name(&id.to_string()) else { return };
        let name = before.name.clone();
        let freed = self.change(Doing::FreeLayout.of(&name), NOTHING, |control, changing| async move {
            // A switch or a cancellation may still be under way.
            drop(changing.hold(Thing::volume_in(before.id, pool)).await?);
            let (pool, info) = control.volume_still(&before)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            Ok(pool.free_left_layouts(info.id, changing.zeroing()).await?)
        });
        if let Err(error) = freed.await {
            tracing::warn!(volume = name, %error, "the former space of a converted volume is not free yet");
        }
    }

    /// Copies what is to be copied, then switches the volume. Returns whether it has been switched.
    ///
    /// # Errors
    /// What it waits for.
    async fn convert_all(
        self: &Rc<Control>,
        id: VolumeId,
        converting: &Rc<Converting>,
    ) -> Result<bool, ConversionWait> {
        let Some((_, info)) = self.current_of(self.copies_of(id)) else { return Ok(false) };
        let mut before = 0;
        for slice in 0..info.stripe.slices() {
            let len = info.stripe.slice_len(slice, info.capacity).0;
            let mut left = len;
            loop {
                if self.reconciler().is_ok_and(|reconciler| reconciler.is_stopping()) {
                    return Err(ConversionWait::Restart);
                }
                let began = rt::now();
                let now = convert_some(id, slice).await.map_err(|error| awaited(error, converting.to))?.0;
                converting.copied.set(converting.copied.get() + left.saturating_sub(now));
                left = now;
                converting.done.set(before + len.saturating_sub(left));
                converting.waits_for.take();
                if left == 0 {
                    break;
                }
                // Half of the time is left to hosts.
                rt::sleep(rt::now().since(began)).await;
                rt::next_turn().await;
                if self.is_converted_to(id) != Some(converting.to) {
                    return Ok(false);
                }
            }
            before += len;
        }
        if !converting.to.has_snapshots() {
            self.delete_snapshots_before_thick(id).await;
        }
        self.switch(id).await?.map_err(|error| awaited(error, converting.to))
    }

    /// Makes the layout that this node's copy was converted to the only one. Returns whether it is; the inner
    /// error is that of a slice that cannot be switched yet.
    async fn switch(self: &Rc<Control>, id: VolumeId) -> Result<Result<bool, SliceError>> {
        let (before, pool) = self.volume_and_pool_name(&id.to_string())?;
        let work = Doing::SwitchLayout.of(&before.name);
        self.change(work, Thing::volume_in(before.id, pool), |control, changing| async move {
            let (pool, info) = control.volume_to_change(&before)?;
            if info.converting.is_none() {
                return Ok(Ok(false));
            }
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            let switched = {
                let _turn = control.conversions.layouts.hold(id).await;
                control.switch_slices(&pool, &info).await
            };
            let info = match switched? {
                Ok(Some(info)) => info,
                Ok(None) => {
                    // A slice may not know yet: it was opened while this began.
                    control.tell_conversion(&pool, id).await?;
                    return Ok(Ok(false));
                }
                Err(error) => return Ok(Err(error)),
            };
            show_kind(&info).await;
            let name = control.shown_name(&info);
            let text = format!("volume {name} was converted: it is a {} volume now", info.kind.name());
            control.events().tell(Event::new(VOLUME_CONVERTED, &name, text).of_volume(id));
            Ok(Ok(true))
        })
        .await
    }

    /// Switches the volume in the pool and on all cores; `None`: not everything has been copied. The caller
    /// holds the volume and its layout. The inner error is as for [`Control::switch`].
    async fn switch_slices(
        &self,
        pool: &Pool,
        info: &VolumeInfo,
    ) -> Result<Result<Option<VolumeInfo>, SliceError>> {
        let id = info.id;
        let equal = on_all_cores(move || async move {
            match Shard::current().unit(id) {
                Some(unit) => unit.volume().become_equal().await,
                None => Ok(0),
            }
        });
        let equal: Result<Vec<usize>, SliceError> = equal.await.into_iter().collect();
        let switched = match equal {
            Ok(equal) if equal.iter().sum::<usize>() == usize::from(info.stripe.slices()) => {
                pool.switch_volume(id).await.map(|info| Ok(Some(info))).map_err(ControlError::from)
            }
            Ok(_) => Ok(Ok(None)),
            Err(error) => Ok(Err(error)),
        };
        match switched {
            Ok(Ok(Some(info))) => {
                leave_layout(pool, id, true).await;
                Ok(Ok(Some(info)))
            }
            not_switched => {
                // If the pool's metadata could not be written, nobody knows what the disks say: both layouts
                // count until the pool is reopened.
                if pool.metadata_state() == MetadataState::Writable {
                    on_all_cores(move || async move {
                        if let Some(unit) = Shard::current().unit(id) {
                            unit.volume().count_present_only();
                        }
                    })
                    .await;
                }
                not_switched
            }
        }
    }
}

/// Lets all slices of a volume turn to their new layout, or stay with the present one. Returns whether the
/// space of the other one can be freed.
async fn end_conversion(id: VolumeId, switched: bool) -> bool {
    let ended = on_all_cores(move || async move {
        match Shard::current().unit(id) {
            Some(unit) => unit.volume().end_conversion(switched).await,
            None => true,
        }
    });
    let is_free = ended.await.into_iter().all(|is_free| is_free);
    if !is_free {
        tracing::warn!(volume = %id, "a write to a converted volume has not ended: its former space is freed only when the pool is reopened");
    }
    is_free
}

/// The same, and tells the pool that the slices have left the layout that the catalog does not name any more.
async fn leave_layout(pool: &Pool, id: VolumeId, switched: bool) {
    if end_conversion(id, switched).await {
        pool.leave_layouts(id);
    }
}

/// Reports over SCSI what differs between the kinds.
async fn show_kind(info: &VolumeInfo) {
    let (id, thresholds) = (info.id, info.kind.is_thin().then_some(THRESHOLDS));
    on_all_cores(move || async move {
        let Some(unit) = Shard::current().unit(id) else { return };
        let mut brain = unit.brain().borrow_mut();
        let config = LuConfig { thresholds, ..brain.config().clone() };
        brain.reconfigure(config);
    })
    .await;
}

/// Checks whether a volume of one kind can be converted to another one, or is of that kind already.
fn check_kind(from: VolumeKind, to: VolumeKind, space: SpacePolicy) -> Result<()> {
    let reason = if !from.is_durable() {
        "a RAM volume cannot be converted: create another volume and copy the data"
    } else if !to.is_durable() {
        "no volume can be converted to a RAM volume"
    } else if !to.is_thin() && space != SpacePolicy::default() {
        "a thick volume has neither a reserve nor a policy for a full pool: first run `ursa volume set NAME --reserve 0 --when-full fail`"
    } else {
        return Ok(());
    };
    Err(ControlError::Invalid { field: "kind", reason })
}

/// The text of the event that a volume is to be converted.
pub(crate) fn to_be_converted(volume: &str, kind: VolumeKind) -> String {
    format!("volume {volume} is converted to a {} volume", kind.name())
}

/// What a conversion waits for after this error.
fn awaited(error: SliceError, to: VolumeKind) -> ConversionWait {
    match error {
        SliceError::Full if to.is_thin() => ConversionWait::PoolSpace,
        SliceError::Full => ConversionWait::FileSystemSpace,
        SliceError::Unreadable(_) => ConversionWait::Unreadable,
        SliceError::Offline | SliceError::Unavailable => ConversionWait::Disks,
        SliceError::Unwritable | SliceError::Unknown => ConversionWait::Unwritable,
    }
}
