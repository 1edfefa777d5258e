//! Full pools: for a while, another volume takes all space of a node's pool.
//!
//! Half of the time that is a thick volume: log volumes in that pool get no more zones. Otherwise it is a log
//! volume, and a host writes to it until nothing more fits into the logs that all log volumes of the pool
//! share: even a block that is overwritten may find no room then. Copies may leave for that, and hosts'
//! writes are refused where no other copy has room. No copy fails, and all works again once the volume is
//! deleted.
//!
//! This is a part of a plan, and no [`super::Harm`]: it happens beside the plan's faults, by random numbers
//! of its own, and takes no fault's turn.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockSize, ByteLen, Chain, Lba, Rng};
use initiator::Lun;
use node::control::{ControlError, MapSpec, NewVolume};
use rt::CoreId;
use rt::sim::NodeId;
use store::{Compression, SpacePolicy, StoreError, VolumeKind};

use super::Harms;
use crate::cluster::{Pool, TARGET, log_in};
use crate::load::Counts;
use crate::load::hot::attended;

/// A pool is filled in one turn of faults out of this many.
const ONE_IN: u64 = 3;
/// How long it stays full, at most.
const FULL_MAX: Duration = Duration::from_secs(8);
/// How many extents the volume leaves at most, because what is free is not what one volume can get.
const LEFT_MAX: u64 = 4;
/// Between two attempts to delete it.
const AGAIN: Duration = Duration::from_secs(1);

/// The LUN of the log volume that fills the pool of the first node; those of the others follow.
const LOG_LUN: u16 = 9;
/// Size of a log volume that fills a pool: larger than any pool.
const LOG_BYTES: u64 = 64 << 20;
/// How much a host writes to it at a time.
const PIECE: u64 = 64 << 10;
/// Behind the end of such a unit, the volume may lie in another log.
const STRIPE_UNIT: u64 = 1 << 20;
/// The host pauses for so long after a write.
const PAUSE: Duration = Duration::from_millis(2);
/// As soon as a write has found no space: it takes what the cleaner gains.
const PAUSE_WHEN_FULL: Duration = Duration::from_millis(100);

/// A volume that fills a pool of a node.
pub(super) struct Filler {
    index: usize,
    name: String,
    /// When it is to be deleted.
    until: Duration,
    /// The host that writes to it, if it is a log volume, until it is to be deleted.
    host: Option<NodeId>,
    is_log: bool,
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
        let by_log = rng.one_in(2);
        if fills && self.may_change_volumes(index) {
            match by_log {
                true => self.fill_logs(index, pool, full_for),
                false => self.fill(index, pool, full_for),
            }
        }
    }

    /// Deletes all volumes that fill pools, as far as that is possible now. To be called again until all
    /// volumes that the nodes serve are those of hosts.
    pub(super) fn empty_pools(&mut self) {
        self.delete_fillers(|_| true);
    }

    /// Whether there are volumes that fill pools.
    pub(super) fn has_fillers(&self) -> bool {
        self.fillers.iter().any(|filler| !filler.gone.get())
    }

    pub(super) fn may_change_volumes(&self, index: usize) -> bool {
        self.cluster.is_started(index) && !self.stopping.contains(&index)
    }

    /// Notes a volume that is about to be created; returns its name, what its creator holds, and whether it
    /// is gone.
    fn note_filler(
        &mut self,
        index: usize,
        full_for: Duration,
        host: Option<NodeId>,
    ) -> (String, Rc<()>, Rc<Cell<bool>>) {
        let now = self.cluster.world.now();
        let name = format!("filler-{}-{}", index + 1, now.as_micros());
        let (making, gone) = (Rc::new(()), Rc::new(Cell::new(false)));
        let filler = Filler {
            index,
            name: name.clone(),
            until: now + full_for,
            host,
            is_log: host.is_some(),
            making: Rc::clone(&making),
            asked: None,
            gone: Rc::clone(&gone),
        };
        self.fillers.push(filler);
        (name, making, gone)
    }

    /// Creates a log volume on a node, and has a host write to it. A node has at most one.
    fn fill_logs(&mut self, index: usize, pool: Pool, full_for: Duration) {
        if self.fillers.iter().any(|filler| filler.index == index && filler.is_log) {
            return;
        }
        let (cluster, block_size, counts) = (self.cluster, self.plan.block, self.counts.clone());
        let host = cluster.add_host("filler");
        let (name, making, _) = self.note_filler(index, full_for, Some(host));
        let lun = Lun(LOG_LUN + index as u16);
        let new = NewVolume {
            name,
            pool: Some(pool.name.into()),
            kind: VolumeKind::Log,
            size: ByteLen(LOG_BYTES),
            block_size,
            native_512: false,
            slices: None,
            created: 1_700_000_000,
            map: Some(MapSpec { target: TARGET.into(), host: "any".into(), lun: Some(lun.0) }),
            copies: None,
            space: SpacePolicy::default(),
            compression: Compression::Off,
            checksums: false,
        };
        cluster.ask_to(index, move |control| async move {
            let _making = making;
            // It may exist even after an error, now or later.
            drop(control.create_volume(new).await);
        });
        let (portal, rng) = (cluster.servers[index].portal, Rng::new(cluster.world.now().as_micros() as u64));
        let write = move || write_all(portal, lun, block_size, rng, counts);
        drop(cluster.world.spawn_on(host, CoreId(0), write));
    }

    fn fill(&mut self, index: usize, pool: Pool, full_for: Duration) {
        let (name, making, gone) = self.note_filler(index, full_for, None);
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
                    checksums: false,
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
            if let Some(host) = filler.host.take() {
                cluster.world.kill(host);
            }
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

/// Writes blocks that do not shrink, one after the other, until the host is killed.
async fn write_all(portal: SocketAddr, lun: Lun, size: BlockSize, mut rng: Rng, counts: Counts) {
    loop {
        rt::sleep(PAUSE_WHEN_FULL).await;
        let Ok(session) = log_in(portal, lun, "filler").await else { continue };
        let (mut at, mut pause) = (0, PAUSE);
        while at < LOG_BYTES {
            let mut data = vec![0; PIECE as usize];
            rng.fill(&mut data);
            let (lba, data) = (Lba(at / u64::from(size.bytes())), Chain::copy_of(&data));
            match attended(async || session.write(lun, lba, data.clone(), size).await).await {
                Ok(()) => at += PIECE,
                Err(error) if error.is_out_of_space() => {
                    if pause == PAUSE {
                        counts.count("logs filled up");
                    }
                    pause = PAUSE_WHEN_FULL;
                    at = (at / STRIPE_UNIT + 1) * STRIPE_UNIT;
                }
                Err(_) => break,
            }
            rt::sleep(pause).await;
        }
    }
}
