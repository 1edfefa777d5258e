//! Pools: create, import, export, show.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::ByteLen;
use serde::{Deserialize, Serialize};
use store::{
    CreateOptions, DiskUsage, FoundPool, GrownDisk, MetadataState, NewDisk, OpenPool, Pool, PoolId,
    StoreError, Usage,
};

use super::change::{Changing, WaitsFor};
use super::doing::Doing;
use super::filling::Filling;
use super::leaving::DiskLeaving;
use super::overcommit::{Overcommit, Promises};
use super::previous_run::retry_while_held;
use super::read_errors::DiskReadErrors;
use super::scrubbing::PoolScrubs;
use super::turns::{NOTHING, Thing};
use super::{Control, ControlError, KnownPool, Opened, Result};
use crate::attach::access::VolumeName;
use crate::record::{delete, set};
use crate::shard::{Shard, on_all_cores};

/// A pool to be created.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Its disks.
    pub disks: Vec<NewDisk>,
    /// Overwrite what the disks hold.
    pub wipe: bool,
}

/// A pool to be imported.
#[derive(Clone, Debug, Default)]
pub struct ImportSpec {
    /// All of its disks.
    pub paths: Vec<PathBuf>,
    /// Its new name; `None` keeps its name.
    pub name: Option<String>,
    /// Import it although another server may be using it.
    pub force: bool,
}

/// A pool as administrators see it.
#[derive(Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its disks' paths.
    pub paths: Vec<PathBuf>,
    /// What it is and has, or why it could not be opened.
    pub state: Result<PoolState, NotOpen>,
}

/// Why a pool is not open.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum NotOpen {
    #[error("its disks have not responded for {} seconds; it opens when they do", .0.as_secs())]
    Silent(Duration),
    #[error("{0}")]
    Failed(Arc<StoreError>),
}

/// What an open pool is and has.
#[derive(Debug)]
pub struct PoolState {
    /// Its identity.
    pub id: String,
    /// How full it is.
    pub usage: Usage,
    /// Whether its volumes can be changed.
    pub metadata: MetadataState,
    /// How many volumes it has.
    pub volumes: usize,
    /// Its disks that are out of service.
    pub failed: Vec<FailedDisk>,
    /// Read errors of its disks in this life of the node.
    pub read_errors: Vec<DiskReadErrors>,
    /// How much its files that take space as they are written may still take, in bytes.
    pub promised: u64,
    /// Set if its file system has less free space than that, together with what other pools of this node may
    /// take.
    pub overcommit: Option<Overcommit>,
    /// How full it is, if it has log volumes.
    pub filling: Option<Filling>,
    /// The scrubs of its volumes.
    pub scrubs: PoolScrubs,
    /// The disk that is leaving it.
    pub leaving: Option<DiskLeaving>,
}

impl PoolState {
    /// How much of the pool its volumes use, in bytes.
    pub fn used(&self) -> u64 {
        let reserved = self.usage.total.0.saturating_sub(self.usage.free.0);
        self.filling.map_or(reserved, |filling| filling.used)
    }
}

/// A disk that is out of service since a write or a flush failed.
#[derive(Clone, Debug)]
pub struct FailedDisk {
    /// Its path.
    pub path: PathBuf,
    /// The system's error number.
    pub errno: i32,
    /// How long ago that was.
    pub age: Duration,
}

/// A pool in the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PoolRecord {
    pub(super) name: String,
    pub(super) paths: Vec<PathBuf>,
    /// Its identity, which tells it from another pool of the same name.
    pub(super) id: String,
    /// A disk that is being added or removed, and is not in `paths`. Whether it belongs to the pool, only the
    /// pool knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) uncertain: Option<PathBuf>,
}

pub(super) const POOLS: &str = "pool/";

pub(super) fn key(name: &str) -> String {
    format!("{POOLS}{name}")
}

/// The memory that the maps of all log volumes use.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapMemory {
    /// How much they use.
    pub used: ByteLen,
    /// [`crate::Config::map_bytes_max`].
    pub limit: ByteLen,
}

impl Control {
    /// All pools of this node, by name.
    pub fn pools(&self) -> Vec<PoolStatus> {
        let promises = self.look_at_promises(&self.open_pools());
        let pools = self.pools.borrow();
        pools.iter().map(|(name, opened)| self.pool_status(name, opened, &promises)).collect()
    }

    /// One pool.
    pub fn pool(&self, name: &str) -> Result<PoolStatus> {
        let promises = self.look_at_promises(&self.open_pools());
        let pools = self.pools.borrow();
        let opened = pools.get(name).ok_or_else(|| ControlError::not_found("pool", name))?;
        Ok(self.pool_status(name, opened, &promises))
    }

    fn pool_status(&self, name: &str, known: &KnownPool, promises: &Promises) -> PoolStatus {
        let state = known.opened().map(|pool| self.pool_state(pool, promises));
        PoolStatus { name: name.to_owned(), paths: known.paths.clone(), state }
    }

    fn pool_state(&self, pool: &Pool, promises: &Promises) -> PoolState {
        let usage = pool.usage();
        let (promised, overcommit) = self.promised(promises, pool);
        PoolState {
            id: pool.id().to_string(),
            metadata: pool.metadata_state(),
            volumes: pool.volume_ids().len(),
            failed: usage.disks.iter().filter_map(failed_disk).collect(),
            read_errors: self.read_errors(pool),
            promised,
            overcommit,
            filling: self.filling(pool, &usage),
            scrubs: self.pool_scrubs(pool.id()),
            leaving: self.disk_leaving(pool),
            usage,
        }
    }

    /// Creates a pool.
    ///
    /// # Errors
    /// The name is invalid or taken; errors of the store.
    pub async fn create_pool(self: &Rc<Control>, spec: PoolSpec) -> Result<PoolStatus> {
        self.change(Doing::MakePool.of(&spec.name), NOTHING, |control, changing| async move {
            let name: VolumeName = spec.name.parse()?;
            let _pool = changing.hold([Thing::Pool(name.to_string())]).await?;
            control.check_pool_is_new(name.as_str())?;
            let paths: Vec<PathBuf> = spec.disks.iter().map(|disk| disk.path.clone()).collect();
            let options = CreateOptions {
                name: name.into(),
                host: control.host.clone(),
                extent: None,
                wipe: spec.wipe,
                ram: control.ram.clone(),
            };
            changing.waits_for(WaitsFor::Disks(paths.clone()));
            let pool = Pool::create(spec.disks, options).await?;
            control.adopt_pool(&changing, paths, pool).await
        })
        .await
    }

    /// Checks that no pool has this name.
    pub(super) fn check_pool_is_new(&self, name: &str) -> Result<()> {
        match self.pools.borrow().contains_key(name) {
            true => Err(ControlError::Exists { kind: "pool", name: name.to_owned() }),
            false => Ok(()),
        }
    }

    /// Imports a pool that another server, or an earlier life of this one, created.
    ///
    /// It also opens a pool of this node that could not be opened at the start. If the import is refused
    /// because of a name, the pool is exported again under its old name.
    ///
    /// # Errors
    /// Errors of the store; a pool or a volume has the same name; [`ControlError::PoolOfThatName`];
    /// [`ControlError::PoolHereAlready`].
    pub async fn import_pool(self: &Rc<Control>, import: ImportSpec) -> Result<PoolStatus> {
        let ImportSpec { paths, name, force } = import;
        let name = name.map(|name| name.parse::<VolumeName>()).transpose()?;
        let disks = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        let imported = self.change(Doing::ImportPool.of(&disks), NOTHING, |control, changing| async move {
            changing.waits_for(WaitsFor::Disks(paths.clone()));
            let options = OpenPool { force, ..control.opening_pool() };
            // Opening the pool writes to its disks, which may be those of an open pool, by other paths.
            let found = Pool::check_open(&paths, &options).await?;
            let name = name.map_or_else(|| found.contents.name.clone(), String::from);
            control.check_identity(found.id, &name)?;
            let pool = retry_while_held(async || Pool::open(&paths, options.clone()).await).await?;
            let names = pool.volumes().into_iter().map(|volume| Thing::VolumeName(volume.name));
            let things: Vec<Thing> = names.chain([Thing::Pool(name.clone())]).collect();
            let held = changing.hold(things).await;
            let named = |held| control.check_names(&pool.as_found(), &name).map(|()| held);
            let _names = match held.and_then(named) {
                Ok(held) => held,
                Err(refused) => {
                    changing.waits_for(WaitsFor::Disks(paths));
                    pool.export().await?;
                    return Err(refused);
                }
            };
            if name != pool.name() {
                changing.waits_for(WaitsFor::Disks(paths.clone()));
                pool.rename(&name).await?;
            }
            control.drop_states_set_aside(&pool);
            let status = control.adopt_pool(&changing, paths, pool.clone()).await?;
            control.show_pool(&changing, &pool).await?;
            Ok(status)
        });
        let status = imported.await?;
        self.record_pools_now().await;
        Ok(status)
    }

    /// Whether this pool is the one that the record means by `name`.
    fn is_recorded_as(&self, pool: &FoundPool, name: &str) -> bool {
        let record: Option<PoolRecord> = self.record.borrow().get(&key(name));
        record.is_some_and(|record| record.id == pool.id.to_string())
    }

    /// Adds a disk to a pool that is in use.
    ///
    /// # Errors
    /// Errors of the store. If the pool then accepts no changes, it may or may not have the disk; the next
    /// start finds out.
    pub async fn add_disk(self: &Rc<Control>, name: &str, disk: NewDisk, wipe: bool) -> Result<PoolStatus> {
        self.change_pool(Doing::GrowPool, name, move |control, changing, pool| async move {
            let record = |uncertain| PoolRecord { uncertain, ..PoolRecord::of(&pool) };
            // The record comes first: after a crash, the next start must know where the disk is.
            control.record_pool(&changing, record(Some(disk.path.clone()))).await?;
            let disks = pool.paths().into_iter().chain([disk.path.clone()]);
            changing.waits_for(WaitsFor::Disks(disks.collect()));
            let added = match pool.add_disk(disk, wipe).await {
                Err(error) if pool.metadata_state() == MetadataState::Failed => return Err(error.into()),
                ended => ended,
            };
            control.attach_present(&pool).await;
            control.record_pool(&changing, record(None)).await?;
            control.know_pool(&pool.name(), &pool.paths(), Opened::Yes(pool.clone()));
            added?;
            control.pool(&pool.name())
        })
        .await
    }

    /// Removes a disk, on which nothing lies, from a pool that is in use.
    ///
    /// # Errors
    /// [`StoreError::DiskInUse`], and other errors of the store. If the pool then accepts no changes, it may
    /// or may not have the disk; reopening it finds out.
    pub(super) async fn remove_empty_disk(
        self: &Rc<Control>,
        name: &str,
        disk: PathBuf,
    ) -> Result<PoolStatus> {
        // No volume of the pool is changed meanwhile.
        self.change_pool(Doing::ShrinkPool, name, move |control, changing, pool| async move {
            pool.check_removal(&disk)?;
            let place = pool.place_of(&disk);
            let others = pool.paths().into_iter().filter(|path| *path != disk).collect();
            let record = PoolRecord { paths: others, uncertain: Some(disk.clone()), ..PoolRecord::of(&pool) };
            // The record comes first: after a crash, the next start finds the pool whether or not it still
            // has the disk.
            control.record_pool(&changing, record).await?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            let removed = match pool.remove_disk(&disk).await {
                Err(error) if pool.metadata_state() == MetadataState::Failed => return Err(error.into()),
                ended => ended,
            };
            control.attach_present(&pool).await;
            control.let_go_of_removed(&pool).await;
            control.record_pool(&changing, PoolRecord::of(&pool)).await?;
            control.know_pool(&pool.name(), &pool.paths(), Opened::Yes(pool.clone()));
            removed?;
            if let Some(place) = place {
                control.forget_read_errors(&changing, &pool, place).await?;
            }
            control.pool(&pool.name())
        })
        .await
    }

    /// Gives the slices of a pool's volumes its present disks, so that none keeps a removed one open.
    async fn let_go_of_removed(&self, pool: &Pool) {
        for id in pool.volume_ids() {
            if let Err(error) = self.grow_slices(pool, id).await {
                tracing::debug!(volume = %id, %error, "a volume's slices could not be given the pool's disks");
            }
        }
    }

    /// Grows a pool that is in use into the new space of disks that have become larger.
    ///
    /// # Errors
    /// [`StoreError::NotGrown`], and other errors of the store.
    pub async fn grow_pool(self: &Rc<Control>, name: &str) -> Result<PoolStatus> {
        self.change_pool(Doing::GrowDisks, name, |control, _, pool| async move {
            pool.grow().await?;
            control.pool(&pool.name())
        })
        .await
    }

    /// The disks that [`Control::grow_pool`] would find larger. Writes nothing.
    pub fn check_growth(&self, name: &str) -> Result<Vec<GrownDisk>> {
        Ok(self.pool_named(name)?.check_growth()?)
    }

    /// Exports a pool, so that another server may import it. Its volumes must not be mapped.
    ///
    /// # Errors
    /// [`ControlError::MappedInPool`], and errors of the store.
    pub async fn export_pool(self: &Rc<Control>, name: &str) -> Result<()> {
        let name = name.to_owned();
        let work = Doing::ExportPool.of(&name);
        let exported = self.change(work, [Thing::Pool(name.clone())], |control, changing| async move {
            let pool = control.exportable(&name)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            control.settle_pool(&pool).await;
            // Again, since volumes may have been mapped meanwhile.
            let pool = control.exportable(&name)?;
            control.set_volumes_aside(&changing, &pool).await;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            if let Err(error) = pool.export().await {
                // The pool still belongs to this node, so its volumes are served as before.
                control.open_volumes(&pool).await;
                return Err(error.into());
            }
            control.close_pool(&changing, &pool).await;
            let _record = changing.hold([Thing::Record]).await?;
            let kept = [control.read_errors.without(pool.id()), control.scrubs.without(pool.id())].concat();
            control.commit(&changing, kept.into_iter().chain([delete(key(&name))]).collect()).await?;
            control.read_errors.forget(pool.id());
            control.scrubs.forget(pool.id());
            control.unknow_pool(&name);
            drop(_record);
            control.serve_elsewhere(&pool).await;
            control.stop_expecting(pool.volumes().iter().map(|volume| volume.id).collect()).await;
            Ok(())
        });
        exported.await?;
        self.record_pools_now().await;
        Ok(())
    }

    /// Checks, without doing it, whether a pool could be exported; returns the names of its volumes.
    ///
    /// # Errors
    /// As [`Control::export_pool`], except those that only the disks can report.
    pub fn check_export(&self, name: &str) -> Result<Vec<String>> {
        let pool = self.exportable(name)?;
        Ok(self.current_volumes(&pool).into_iter().map(|volume| volume.name).collect())
    }

    fn exportable(&self, name: &str) -> Result<Pool> {
        let pool = self.pool_named(name)?;
        if pool.metadata_state() == MetadataState::Failed {
            return Err(StoreError::MetadataReadOnly(pool.id()).into());
        }
        self.check_none_is_mapped(&pool)?;
        Ok(pool)
    }

    /// Changes an open pool. Nobody else changes or closes it, or changes its volumes, meanwhile.
    pub(super) async fn change_pool<T: 'static, F: Future<Output = Result<T>> + 'static>(
        self: &Rc<Control>,
        doing: Doing,
        name: &str,
        body: impl FnOnce(Rc<Control>, Rc<Changing>, Pool) -> F + 'static,
    ) -> Result<T> {
        let name = name.to_owned();
        self.change(doing.of(&name), [Thing::Pool(name.clone())], |control, changing| async move {
            let pool = control.pool_named(&name)?;
            changing.waits_for(WaitsFor::Disks(pool.paths()));
            body(control, changing, pool).await
        })
        .await
    }

    /// The open pool of this name.
    pub(super) fn pool_named(&self, name: &str) -> Result<Pool> {
        let pools = self.pools.borrow();
        let opened = pools.get(name).ok_or_else(|| ControlError::not_found("pool", name))?;
        opened.opened().cloned().map_err(|why| ControlError::PoolClosed(name.to_owned(), why))
    }

    /// The pool that is used when the caller names none: the only one, or the default one.
    pub(super) fn only_pool(&self) -> Result<Pool> {
        let names: Vec<String> = self.pools.borrow().keys().cloned().collect();
        match names.as_slice() {
            [] => Err(ControlError::NoPool),
            [only] => self.pool_named(only),
            several if several.iter().any(|name| name == super::start::DEFAULT_POOL) => {
                self.pool_named(super::start::DEFAULT_POOL)
            }
            several => Err(ControlError::ChoosePool(several.join(", "))),
        }
    }

    /// How this node opens a pool.
    pub(super) fn opening_pool(&self) -> OpenPool {
        OpenPool { host: self.host.clone(), force: false, ram: self.ram.clone(), uncertain: None }
    }

    /// Attaches a pool's disks on all cores.
    pub(super) async fn attach_disks(&self, pool: &Pool) {
        let (id, disks) = (pool.id(), pool.share_disks());
        on_all_cores(move || async move { Shard::current().add_disks(id, disks.attach()) }).await;
    }

    /// Attaches the disks that were added to a pool on all cores, and drops those that were removed.
    async fn attach_present(&self, pool: &Pool) {
        let (id, disks) = (pool.id(), pool.share_disks());
        on_all_cores(move || async move {
            let shard = Shard::current();
            if let Some(known) = shard.disks(id) {
                shard.add_disks(id, disks.attach_added(&known));
            }
        })
        .await;
    }

    /// Adds a pool to the record and attaches its disks on all cores.
    async fn adopt_pool(
        &self,
        changing: &Rc<Changing>,
        paths: Vec<PathBuf>,
        pool: Pool,
    ) -> Result<PoolStatus> {
        let name = pool.name();
        self.record_pool(changing, PoolRecord { paths: paths.clone(), ..PoolRecord::of(&pool) }).await?;
        self.attach_disks(&pool).await;
        self.know_pool(&name, &paths, Opened::Yes(pool));
        self.pool(&name)
    }

    /// How much of the node's memory the maps of log volumes use.
    pub fn map_memory(&self) -> MapMemory {
        MapMemory { used: self.log_memory.used(), limit: self.log_memory.limit() }
    }

    /// Stores the state of a pool of the record.
    pub(super) fn know_pool(&self, name: &str, paths: &[PathBuf], state: Opened) {
        if let Opened::Yes(pool) = &state {
            pool.set_log_tuning(self.log);
            pool.set_log_memory(self.log_memory.clone());
        }
        let known = KnownPool { paths: paths.to_owned(), state, closing: false };
        let before = self.pools.borrow_mut().insert(name.to_owned(), known);
        drop(before);
        self.leaving.notify();
    }

    /// Writes a pool's entry to the record.
    pub(super) async fn record_pool(&self, changing: &Rc<Changing>, record: PoolRecord) -> Result<()> {
        let _record = changing.hold([Thing::Record]).await?;
        self.commit(changing, vec![set(key(&record.name), &record)]).await
    }

    /// Opens the volumes of a pool on all cores, and announces them to the sessions that may see them.
    pub(super) async fn show_pool(&self, changing: &Changing, pool: &Pool) -> Result<()> {
        self.open_volumes(pool).await;
        let _record = changing.hold([Thing::Record]).await?;
        self.announce_volumes().await;
        Ok(())
    }

    /// Whether all pools that the node's own record names are open.
    ///
    /// False during the start, before the node has looked at them.
    pub(crate) fn all_pools_are_open(&self) -> bool {
        let recorded: Vec<PoolRecord> = self.record.borrow().list(POOLS);
        let pools = self.pools.borrow();
        let is_open = |pool: &PoolRecord| pools.get(&pool.name).is_some_and(|known| known.open().is_some());
        recorded.iter().all(is_open) && pools.values().all(|known| known.open().is_some())
    }

    /// Forgets a pool that the record no longer names.
    pub(super) fn unknow_pool(&self, name: &str) {
        let before = self.pools.borrow_mut().remove(name);
        drop(before);
    }

    /// Checks that this node does not have a pool with this identity already: what is to be imported may be
    /// an image of that pool. Cores know the disks of a pool by its identity.
    ///
    /// If that pool is not open, it may be imported under its name: its disks have got other paths.
    fn check_identity(&self, id: PoolId, name: &str) -> Result<()> {
        let open = self.pool_with(id).map(|pool| pool.name());
        let recorded: Vec<PoolRecord> = self.record.borrow().list(POOLS);
        let is_it = |known: &PoolRecord| PoolId::parse(&known.id) == Some(id);
        let others = recorded.into_iter().filter(is_it).map(|known| known.name).filter(|known| known != name);
        match open.into_iter().chain(others).next() {
            Some(known) => Err(ControlError::PoolHereAlready(known)),
            None => Ok(()),
        }
    }

    /// Checks that a pool to be imported is not here already, and that its name and those of its volumes are
    /// free.
    pub(super) fn check_names(&self, pool: &FoundPool, name: &str) -> Result<()> {
        self.check_identity(pool.id, name)?;
        match self.pools.borrow().get(name) {
            Some(known) if known.open().is_some() => {
                return Err(ControlError::Exists { kind: "pool", name: name.to_owned() });
            }
            // The record's entry is the only thing that leads to that other pool's disks, so it must stay.
            Some(_) if !self.is_recorded_as(pool, name) => {
                return Err(ControlError::PoolOfThatName(name.to_owned()));
            }
            _ => {}
        }
        let taken = pool.contents.volumes.iter().find(|volume| self.volume_named(&volume.name).is_ok());
        match taken {
            Some(volume) => Err(ControlError::Exists { kind: "volume", name: volume.name.clone() }),
            None => Ok(()),
        }
    }
}

impl PoolRecord {
    /// The record's entry for an open pool.
    pub(super) fn of(pool: &Pool) -> PoolRecord {
        let (name, paths, id) = (pool.name(), pool.paths(), pool.id().to_string());
        PoolRecord { name, paths, id, uncertain: None }
    }
}

fn failed_disk(disk: &DiskUsage) -> Option<FailedDisk> {
    let failure = disk.failure?;
    Some(FailedDisk { path: disk.path.clone(), errno: failure.error, age: rt::now().since(failure.at) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version_1::check;

    /// What version 1 has in the node's record. Later versions must read it.
    #[test]
    fn an_entry_of_version_1_is_read_and_keeps_what_it_says() {
        let id = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";
        check::<PoolRecord>(
            &json!({"name": "default", "paths": ["/var/lib/ursa/pools/default.img"], "id": id}),
        );
        check::<PoolRecord>(&json!({
            "name": "fast", "paths": ["/dev/sdb", "/dev/sdc"], "id": id, "uncertain": "/dev/sdd"
        }));
    }
}
