//! This node's copy of a volume: opened when the cluster's record says what it is, and closed.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{BlockSize, ByteLen};
use replica::{Incarnation, Slot};
use store::{CopyState, MetadataState, PoolId, Stripe, VolumeInfo};

use super::super::doing::Doing;
use super::super::turns::NOTHING;
use super::super::volumes::open_on_all_cores;
use super::super::{Control, ControlError};
use crate::copies::{Address, Copies, CopyEntry, SliceCopy};
use crate::data::VolumeId;
use crate::shard::{Shard, on_all_cores};

/// How often to check whether the map of a new copy is on its disk.
const MAP_WRITTEN_EVERY: Duration = Duration::from_millis(100);

/// How often a pool that has no room for it is asked again to mark a copy as trusted.
const TRUSTED_AGAIN: Duration = Duration::from_secs(1);

/// How long a volume that is in use waits for a change of its reservations to end before it becomes a copy.
/// After that it is tried again later.
const TURN_MAX: Duration = Duration::from_secs(2);

/// How a copy on this node is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct CopyOpening {
    /// The volume's number in the cluster.
    pub number: u32,
    /// Which copy this is.
    pub me: Slot,
    /// The epoch in which it was added: [`crate::copies::CopyEntry::made`].
    pub made: u64,
    /// The volume's capacity.
    pub size: ByteLen,
    /// This life of the node.
    pub incarnation: Incarnation,
    /// The copy was created in this very life, and is in sync in it.
    pub new: bool,
}

impl CopyOpening {
    /// How to open a slice of it.
    pub(in crate::control) fn of_slice(
        &self,
        slice: u16,
        block_size: BlockSize,
        stripe: Stripe,
        worth: Worth,
    ) -> crate::copies::Opening {
        crate::copies::Opening {
            address: Address { volume: self.number, slice },
            me: self.me,
            incarnation: self.incarnation,
            block_bytes: block_size.bytes(),
            stripe,
            size: self.size,
            blank: worth.blank,
            untrusted: worth.untrusted,
        }
    }
}

/// What the content of a copy is worth when it is opened.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) struct Worth {
    /// It is worthless: everything must be copied.
    pub blank: bool,
    /// In addition, the pool must first record that the copy's map says so.
    pub untrusted: bool,
}

/// A copy that has been opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedCopy {
    /// The content of its disk must not be trusted.
    pub blank: bool,
    /// All of its slices are open. Otherwise it takes no part in replication.
    pub whole: bool,
}

impl Control {
    /// Opens this node's copy of a volume, if its pool is open.
    pub(crate) async fn open_copy(self: &Rc<Control>, id: VolumeId, copy: CopyOpening) -> Option<OpenedCopy> {
        let reconciler = self.reconciler().ok()?;
        let entry = reconciler.volume(id)?.entry;
        let (_, known) = entry.copy_on(reconciler.me())?;
        let is_kept = |info: &VolumeInfo| info.copy.is_some_and(|kept| known.is_kept_as(&kept));
        let current = self.current_of(self.copies_of(id));
        let (pool, mut kept) = current.filter(|(_, info)| is_kept(info))?;
        self.being_made.borrow_mut().remove(&id);
        let state = kept.copy.as_ref()?.state;
        let accepted = self.accepted_older.borrow().contains(&id);
        if matches!(state, CopyState::SetBack { .. }) && !accepted && !reconciler.has_another_in_sync(id) {
            let error = ControlError::OnlyOlder { volume: kept.name, pool: pool.name() };
            self.unserved.borrow_mut().insert(id, error.into());
            return None;
        }
        // Its pool may have been set back to a time before the volume grew.
        if kept.capacity < copy.size {
            // Nor can it grow while it is being converted; that begins again.
            if kept.converting.is_some() {
                match self.give_up_conversion(&pool, &kept).await {
                    Ok(()) => rt::spawn(Rc::clone(self).free_left(id)).detach(),
                    Err(error) => {
                        tracing::warn!(volume = kept.name, %error, "a conversion cannot be cancelled")
                    }
                }
            }
            kept = match pool.grow_volume(id, copy.size).await {
                Ok(grown) => grown,
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::error!(volume = kept.name, error = cause, "a copy is shorter than its volume");
                    self.unserved.borrow_mut().insert(id, Arc::new(error.into()));
                    return None;
                }
            };
        }
        // The copy may have been grown before the volume was.
        let info = VolumeInfo { capacity: copy.size.min(kept.capacity), ..kept };
        let untrusted = state.is_untrusted();
        let blank = untrusted || !copy.new && !info.kind.is_durable();
        let mut _turn = None;
        if let Some(unit) = Shard::current().unit(id) {
            // From here on, this node does not change the volume's reservations by itself.
            match rt::timeout(TURN_MAX, Shard::current().changes(id)).await {
                Ok(turn) => _turn = Some(turn),
                Err(rt::Elapsed) => return None,
            }
            // Flush now, so that less is left to flush while hosts wait for it.
            let _flushed = unit.volume().flush().await;
        }
        let layout = self.hold_layout(id).await;
        match self.opening(&pool, &info, Some((copy, Worth { blank, untrusted }))) {
            Ok(opening) => {
                self.unserved.borrow_mut().remove(&id);
                let whole = open_on_all_cores(vec![opening]).await;
                if !whole {
                    let number = copy.number;
                    on_all_cores(move || async move {
                        Copies::current().slices_of(number).iter().for_each(|slice| slice.wait_for_others());
                    })
                    .await;
                }
                // The copy may have been grown while it was being opened; nothing else informs these slices.
                if let Err(error) = self.grow_slices(&pool, id).await {
                    tracing::debug!(volume = %id, %error, "a copy that was just opened is gone");
                }
                drop(layout);
                if self.is_set_aside(id) {
                    self.stop_expecting(BTreeSet::from([id])).await;
                }
                self.shown_paths.borrow_mut().remove(&id);
                self.announce_volumes().await;
                if untrusted {
                    rt::spawn(Rc::clone(self).trust_copy(pool.id(), id, copy)).detach();
                }
                // Data that an administrator has accepted counts here; all other copies are then resynced in
                // full from it.
                Some(OpenedCopy { blank: blank && !accepted, whole })
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(volume = info.name, error = cause, "a copy is not served");
                self.unserved.borrow_mut().insert(id, error.into());
                None
            }
        }
    }

    /// Waits until the disk holds the whole map of a blank copy, then marks the copy as trusted.
    ///
    /// That map says that everything must be copied. Only then may anything be copied: a copy in sync must
    /// never be blank after a restart.
    ///
    /// The pool is not held meanwhile: it could not be closed and opened again.
    async fn trust_copy(self: Rc<Control>, pool: PoolId, id: VolumeId, copy: CopyOpening) {
        let number = copy.number;
        let mut is_told = false;
        loop {
            let written = on_all_cores(move || async move {
                let slices = Copies::current().slices_of(number);
                (slices.len(), slices.iter().all(|slice| slice.map_is_written()))
            })
            .await;
            let slices: usize = written.iter().map(|(count, _)| count).sum();
            // Not all slices could be opened. The next opening tries again.
            if slices == 0 || slices < self.slices_of_copy(id) {
                return;
            }
            // It must also wait until the record calls the copy out of sync. If it were trusted before, this
            // node could continue alone in its next life (R16) with data that the copy does not have.
            let accepted = self.accepted_older.borrow().contains(&id);
            let Ok(reconciler) = self.reconciler() else { return };
            // The copy may have been removed from this node meanwhile, and added again. Another task handles
            // that one.
            let entry = reconciler.volume(id).map(|volume| volume.entry);
            let is_it = |(slot, known): (Slot, &CopyEntry)| (slot, known.made) == (copy.me, copy.made);
            if entry.is_some_and(|entry| !entry.copy_on(reconciler.me()).is_some_and(is_it)) {
                return;
            }
            let is_out = || accepted || !reconciler.calls_this_copy_in_sync(id);
            let may_be = written.iter().all(|(_, written)| *written) && is_out();
            if !may_be {
                rt::sleep(MAP_WRITTEN_EVERY).await;
                continue;
            }
            // Before it counts again. An accepted copy does not wait for the record.
            if !self.note_lacking_snapshots(&reconciler, id).await && !accepted {
                rt::sleep(TRUSTED_AGAIN).await;
                continue;
            }
            {
                let Some(pool) = self.pool_with(pool) else { return };
                let (slot, state) = (copy.me.index() as u8, CopyState::Trusted { epoch: copy.made });
                let Err(error) = pool.set_copy(id, slot, state).await else { break };
                let error = &error as &dyn std::error::Error;
                if pool.metadata_state() != MetadataState::Writable {
                    // The copy is opened again with its pool.
                    tracing::error!(volume = %id, error, "a new copy cannot be started: its pool is locked");
                    return;
                }
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(volume = %id, error, "a new copy cannot be started yet");
                }
            }
            rt::sleep(TRUSTED_AGAIN).await;
        }
        self.accepted_older.borrow_mut().remove(&id);
        self.lacking.borrow_mut().remove(&id);
        on_all_cores(move || async move {
            Copies::current().slices_of(number).iter().for_each(SliceCopy::trust);
        })
        .await;
    }

    /// Closes a volume that has no copy on this node any more.
    pub(crate) async fn close_copy(self: &Rc<Control>, id: VolumeId) {
        let work = Doing::CloseCopy.of(&id.to_string());
        let closed = self.change(work, NOTHING, |control, changing| async move {
            changing.concerns(id);
            if let Ok((pool, _)) = control.volume_named(&id.to_string()) {
                control.close_volume(&changing, &pool, id).await;
            }
            control.shown_paths.borrow_mut().remove(&id);
            if let Ok(reconciler) = control.reconciler() {
                reconciler.closed(id);
            }
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::warn!(volume = %id, %error, "a copy could not be closed");
        }
    }
}
