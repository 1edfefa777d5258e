//! Forgetting a pool that the node cannot use any more.
//!
//! Nothing is written to the pool's disks, so it can be imported again, here or elsewhere.
//! [`Control::pool_remains`] shows beforehand what would be lost.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use replica::NodeId;
use store::{MetadataState, Pool, PoolId, StoreError, VolumeInfo};

use super::change::{Changing, WaitsFor};
use super::doing::Doing;
use super::peer_query::QUERY_DEADLINE;
use super::pools::{PoolRecord, key};
use super::turns::{NOTHING, Thing};
use super::{Control, ControlError, Opened, Result};
use crate::copies::{Answer, Ask, NodeEntry};
use crate::data::VolumeId;
use crate::record::delete;
use crate::shard::{Shard, on_all_cores};

/// How long a disk may take to report what is on it.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);

/// How long a pool that is closed waits for its own changes under way, for example of its mark. One that
/// hangs for longer keeps the pool from being opened again until its disk responds.
const POOL_CHANGES_MAX: Duration = Duration::from_secs(10);

/// What forgetting a pool would leave behind.
#[derive(Debug)]
pub struct PoolRemains {
    /// Its disks, each with the reason if it does not report its content.
    pub disks: Vec<(PathBuf, Option<Muteness>)>,
    /// Its volumes, by name, except those whose copy on this node is in another pool; `None` if none of the
    /// disks reports them.
    pub volumes: Option<Vec<VolumeInfo>>,
    /// LUN maps that would lead nowhere. If the pool's volumes are not known: those to volumes that no node
    /// has.
    pub maps: Vec<LostMap>,
}

/// Why a disk does not report its content.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Muteness {
    #[error("it does not respond")]
    Silent,
    #[error("it is now a disk of pool {0:?}")]
    OtherPool(String),
    /// It cannot be read, or holds no pool.
    #[error(transparent)]
    Unreadable(#[from] StoreError),
}

/// A LUN map to a volume that is about to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostMap {
    /// The target's iSCSI name.
    pub target: String,
    /// The LUN.
    pub lun: u16,
    /// The host group.
    pub host: String,
    /// The volume.
    pub volume: VolumeId,
}

impl Control {
    /// What forgetting this pool would leave behind. Reads its disks if possible.
    ///
    /// # Errors
    /// [`ControlError::PoolOpen`].
    pub async fn pool_remains(&self, name: &str) -> Result<PoolRemains> {
        let (disks, volumes) = match self.useless_pool(name)? {
            Some(pool) => (
                pool.paths().into_iter().map(|path| (path, None)).collect(),
                Some(self.current_volumes(&pool)),
            ),
            None => {
                let (disks, volumes) = self.probe_pool(name).await;
                (disks, volumes.map(|volumes| self.not_in_open_pools(volumes)))
            }
        };
        let maps = self.maps_to(volumes.as_deref()).await;
        Ok(PoolRemains { disks, volumes, maps })
    }

    /// Checks whether a pool could be forgotten; returns what that would leave behind.
    ///
    /// # Errors
    /// As [`Control::forget_pool`].
    pub async fn check_forgetting(&self, name: &str, unmap: bool) -> Result<PoolRemains> {
        if let (Some(pool), false) = (self.useless_pool(name)?, unmap) {
            self.check_none_is_mapped(&pool)?;
        }
        self.pool_remains(name).await
    }

    /// Forgets a pool that cannot be used.
    ///
    /// `unmap` deletes the LUN maps of its volumes; otherwise they stay, and work again when the pool has
    /// been imported.
    ///
    /// # Errors
    /// [`ControlError::PoolOpen`]; [`ControlError::MappedInPool`] for volumes that initiators still see.
    pub async fn forget_pool(self: &Rc<Control>, name: &str, unmap: bool) -> Result<()> {
        let name = name.to_owned();
        let awaited = self.is_awaited(&name);
        let forgotten = self.change(Doing::ForgetPool.of(&name), NOTHING, |control, changing| async move {
            // The task that opens the pool may hold it forever. It finds out later that the pool is no longer
            // wanted.
            let _pool = match awaited {
                true => None,
                false => Some(changing.hold([Thing::Pool(name.clone())]).await?),
            };
            control.forget(&changing, &name, unmap).await
        });
        forgotten.await?;
        self.record_pools_now().await;
        Ok(())
    }

    async fn forget(&self, changing: &Rc<Changing>, name: &str, unmap: bool) -> Result<()> {
        let open = self.useless_pool(name)?;
        let lost: BTreeSet<VolumeId> = match unmap {
            true => self.pool_remains(name).await?.maps.into_iter().map(|map| map.volume).collect(),
            false => BTreeSet::new(),
        };
        if let (Some(pool), false) = (&open, unmap) {
            self.check_none_is_mapped(pool)?;
        }
        {
            let _record = changing.hold([Thing::Record]).await?;
            let record: Option<PoolRecord> = self.record.borrow().get(&key(name));
            let id = record.and_then(|record| PoolId::parse(&record.id));
            let kept = |id| [self.read_errors.without(id), self.scrubs.without(id)].concat();
            let kept = id.map(kept).unwrap_or_default();
            let others = kept.into_iter().chain([delete(key(name))]).collect();
            self.change_record(changing, self.unmapping(&lost, false), others).await?;
            id.inspect(|id| {
                self.read_errors.forget(*id);
                self.scrubs.forget(*id);
            });
        }
        if let Some(pool) = &open {
            // Otherwise its copies would stay members until the next start, which no longer finds them, and
            // keep its disks open.
            self.set_volumes_aside(changing, pool).await;
            self.close_pool(changing, pool).await;
        }
        self.unknow_pool(name);
        if let Some(pool) = &open {
            self.serve_elsewhere(pool).await;
        }
        let lost = self.set_aside_of(name);
        if !lost.is_empty() {
            self.stop_expecting(lost).await;
            let _record = changing.hold([Thing::Record]).await?;
            self.announce_volumes().await;
        }
        Ok(())
    }

    /// Checks that no volume of the pool is mapped, so that the pool can be closed.
    pub(super) fn check_none_is_mapped(&self, pool: &Pool) -> Result<()> {
        let unmapped = |volume: &VolumeInfo| self.check_unmapped(volume.id, &volume.name);
        // Also those that another pool holds, too: its data may be older, and hosts must not get that while
        // they have the volume in use.
        self.current_volumes(pool).iter().try_for_each(unmapped).map_err(|error| match error {
            ControlError::Mapped { volume, target, lun } => {
                ControlError::MappedInPool { pool: pool.name(), volume, target, lun }
            }
            error => error,
        })
    }

    /// Closes a pool's volumes on all cores, and removes its disks there.
    pub(super) async fn close_pool(&self, changing: &Changing, pool: &Pool) {
        self.close_volumes(changing, pool).await;
        pool.logs_ended().await;
        let id = pool.id();
        on_all_cores(move || async move { Shard::current().remove_disks(id) }).await;
        // Last, since another one may begin at any time before the caller forgets the pool.
        changing.waits_for(WaitsFor::Disks(pool.paths()));
        let _ = rt::timeout(POOL_CHANGES_MAX, pool.changes_ended()).await;
    }

    /// Checks that a pool can be forgotten; returns it if it is open and so must be closed.
    fn useless_pool(&self, name: &str) -> Result<Option<Pool>> {
        let pools = self.pools.borrow();
        let known = pools.get(name).ok_or_else(|| ControlError::not_found("pool", name))?;
        match known.open() {
            Some(pool) if pool.metadata_state() == MetadataState::Writable => {
                Err(ControlError::PoolOpen(name.to_owned()))
            }
            open => Ok(open.cloned()),
        }
    }

    /// Whether a pool's disks have not responded yet.
    pub(super) fn is_awaited(&self, name: &str) -> bool {
        self.pools.borrow().get(name).is_some_and(|known| matches!(known.state, Opened::NotYet(_)))
    }

    /// Reads the disks of a pool that is not open, all at the same time.
    async fn probe_pool(&self, name: &str) -> (Vec<(PathBuf, Option<Muteness>)>, Option<Vec<VolumeInfo>>) {
        let paths = self.pools.borrow().get(name).map(|known| known.paths.clone()).unwrap_or_default();
        if self.is_awaited(name) {
            return (paths.into_iter().map(|path| (path, Some(Muteness::Silent))).collect(), None);
        }
        let told = rt::join_all(paths.iter().map(|path| probe_disk(path, name))).await;
        let mut volumes = None;
        let mut disks = Vec::new();
        for (path, told) in paths.into_iter().zip(told) {
            let mute = match told {
                Ok(found) => {
                    volumes = volumes.or(found);
                    None
                }
                Err(mute) => Some(mute),
            };
            disks.push((path, mute));
        }
        (disks, volumes)
    }

    /// The maps that would lead nowhere without these volumes; `None` means all volumes that no node has.
    ///
    /// Volumes that other nodes have, or may have, are not lost.
    async fn maps_to(&self, volumes: Option<&[VolumeInfo]>) -> Vec<LostMap> {
        let (access, reconciler) = (self.access(), self.reconciler().ok());
        let mapped: BTreeSet<VolumeId> =
            access.targets().flat_map(|target| &target.maps).map(|map| map.volume).collect();
        let may_be_lost = |id: &VolumeId| match volumes {
            Some(volumes) => volumes.iter().any(|volume| volume.id == *id),
            None => self.pool_of(*id).is_err(),
        };
        // `None` if the cluster's record does not list it.
        let has_other_copy = |id: &VolumeId| {
            let entry = reconciler.as_ref()?.volume(*id)?.entry;
            Some(entry.copies.iter().any(|copy| copy.node != self.number()))
        };
        let mut lost: BTreeSet<VolumeId> = mapped.into_iter().filter(may_be_lost).collect();
        lost.retain(|id| has_other_copy(id) != Some(true));
        if volumes.is_none() {
            let unknown: Vec<VolumeId> =
                lost.iter().copied().filter(|id| has_other_copy(id).is_none()).collect();
            let elsewhere = self.may_be_elsewhere(&unknown).await;
            lost.retain(|id| !elsewhere.contains(id));
        }
        let maps = access.targets().flat_map(|target| target.maps.iter().map(move |map| (target, map)));
        maps.filter(|(_, map)| lost.contains(&map.volume))
            .map(|(target, map)| LostMap {
                target: target.name.to_string(),
                lun: map.lun,
                host: map.host.to_string(),
                volume: map.volume,
            })
            .collect()
    }

    /// Which of these volumes another node has; all of them if a node does not respond.
    async fn may_be_elsewhere(&self, volumes: &[VolumeId]) -> BTreeSet<VolumeId> {
        let Some(reconciler) = self.reconciler().ok().filter(|_| !volumes.is_empty()) else {
            return BTreeSet::new();
        };
        let nodes = reconciler.nodes().into_iter().map(|(node, _)| node);
        let others = nodes.filter(|node| !node.witness && node.id != reconciler.me().0);
        let ask = |node: NodeEntry| {
            let (reconciler, ids) =
                (Rc::clone(&reconciler), volumes.iter().map(ToString::to_string).collect());
            async move { reconciler.ask_within(NodeId(node.id), Ask::HasVolumes { ids }, QUERY_DEADLINE).await }
        };
        let mut found = BTreeSet::new();
        for answer in rt::join_all(others.map(ask)).await {
            match answer {
                Ok(Answer::HasVolumes(ids)) => found.extend(ids.iter().filter_map(|id| VolumeId::parse(id))),
                _ => return volumes.iter().copied().collect(),
            }
        }
        found
    }
}

/// The volumes of pool `name` that one of its disks lists; `None` if the disk has no metadata.
async fn probe_disk(path: &Path, name: &str) -> Result<Option<Vec<VolumeInfo>>, Muteness> {
    let told =
        rt::timeout(PROBE_DEADLINE, store::probe(path)).await.map_err(|rt::Elapsed| Muteness::Silent)?;
    match told?.contents {
        Some(contents) if contents.name != name => Err(Muteness::OtherPool(contents.name)),
        contents => Ok(contents.map(|contents| contents.volumes)),
    }
}
