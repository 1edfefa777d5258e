//! Full pools: for a while, a volume that no host sees takes all space of a node's pool.
//!
//! Log volumes in that pool get no more space then. Their copies may leave for that, and hosts' writes are
//! refused where no other copy has room. No copy fails, and all works again once the volume is deleted.
//!
//! This is a part of a plan, and no [`super::Harm`]: it happens beside the plan's faults, by random numbers
//! of its own, and takes no fault's turn.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, Rng};
use node::control::{ControlError, NewVolume};
use store::{Compression, SpacePolicy, StoreError, VolumeKind};

use super::Harms;
use crate::cluster::Pool;

/// A pool is filled in one turn of faults out of this many.
const ONE_IN: u64 = 3;
/// How long it stays full, at most.
const FULL_MAX: Duration = Duration::from_secs(8);
/// How many extents the volume leaves at most, because what is free is not what one volume can get.
const LEFT_MAX: u64 = 4;
/// Between two attempts to delete it.
const AGAIN: Duration = Duration::from_secs(1);

/// A volume that fills a pool of a node.
pub(super) struct Filler {
    index: usize,
    name: String,
    /// When it is to be deleted.
    until: Duration,
    /// Shared with the task that creates it.
    making: Rc<()>,
    /// When its deletion was last requested.
    asked: Option<Duration>,
    /// It is deleted, or was never created.
    gone: Rc<Cell<bool>>,
}

impl Harms<'_> {
    /// Fills a pool now and then, and empties those that have been full for long enough.
    ///
    /// The random numbers are for this alone.
    pub fn fill_pools(&mut self, rng: &mut Rng) {
        let now = self.cluster.world.now();
        self.delete_fillers(|filler| now >= filler.until);
        let logs = self.cluster.volumes.iter().filter(|volume| volume.kind == VolumeKind::Log);
        let pools: Vec<Pool> = logs.map(|volume| volume.pool).collect();
        let fills = rng.one_in(ONE_IN);
        let index = rng.below(self.cluster.servers.len() as u64) as usize;
        let pool = pools[rng.below(pools.len() as u64) as usize];
        let full_for = Duration::from_millis(rng.below(FULL_MAX.as_millis() as u64));
        if fills && self.may_change_volumes(index) {
            self.fill(index, pool, full_for);
        }
    }

    /// Deletes all volumes that fill pools, as far as that is possible now. To be called again until all
    /// volumes that the nodes serve are those of hosts.
    pub(super) fn empty_pools(&mut self) {
        self.delete_fillers(|_| true);
    }

    pub(super) fn may_change_volumes(&self, index: usize) -> bool {
        self.cluster.is_started(index) && !self.stopping.contains(&index)
    }

    fn fill(&mut self, index: usize, pool: Pool, full_for: Duration) {
        let now = self.cluster.world.now();
        let name = format!("filler-{}-{}", index + 1, now.as_micros());
        let (making, gone) = (Rc::new(()), Rc::new(Cell::new(false)));
        let filler = Filler {
            index,
            name: name.clone(),
            until: now + full_for,
            making: Rc::clone(&making),
            asked: None,
            gone: Rc::clone(&gone),
        };
        self.fillers.push(filler);
        let (counts, block_size) = (self.counts.clone(), self.plan.block);
        self.cluster.ask_to(index, move |control| async move {
            let _making = making;
            let Some(state) = control.pool(pool.name).ok().and_then(|pool| pool.state.ok()) else {
                return gone.set(true);
            };
            let (free, extent) = (state.usage.free.0, state.usage.extent.0);
            for left in 0..=LEFT_MAX {
                let size = ByteLen((free / extent).saturating_sub(left) * extent);
                if size == ByteLen(0) {
                    break;
                }
                let new = NewVolume {
                    name: name.clone(),
                    pool: Some(pool.name.into()),
                    kind: VolumeKind::Thick,
                    size,
                    block_size,
                    native_512: false,
                    slices: Some(1),
                    created: 1_700_000_000,
                    map: None,
                    copies: None,
                    space: SpacePolicy::default(),
                    compression: Compression::default(),
                };
                match control.create_volume(new).await {
                    Ok(_) => return counts.count("pool filled up"),
                    Err(ControlError::Store(StoreError::NoSpace { .. })) => {}
                    // It may exist nevertheless, now or later.
                    Err(_) => return,
                }
            }
            gone.set(true);
        });
    }

    fn delete_fillers(&mut self, is_due: impl Fn(&Filler) -> bool) {
        let (cluster, now) = (self.cluster, self.cluster.world.now());
        self.fillers.retain(|filler| !filler.gone.get());
        for filler in &mut self.fillers {
            let is_being_made = Rc::strong_count(&filler.making) > 1;
            let is_asked_for = filler.asked.is_some_and(|asked| now < asked + AGAIN);
            let may = cluster.is_started(filler.index) && !self.stopping.contains(&filler.index);
            if !is_due(filler) || is_being_made || is_asked_for || !may {
                continue;
            }
            filler.asked = Some(now);
            let (name, gone) = (filler.name.clone(), Rc::clone(&filler.gone));
            cluster.ask_to(filler.index, move |control| async move {
                // If it is unknown, the node may not have followed the record yet, or not have opened its
                // pool.
                if control.delete_volume(&name, true).await.is_ok() {
                    gone.set(true);
                }
            });
        }
    }
}
