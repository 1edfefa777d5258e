//! Pools: make, import, export, show.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use store::{CreateOptions, MetadataState, NewDisk, OpenPool, Pool, StoreError, Usage};

use super::{Control, ControlError, OpenedPool};
use crate::access::VolumeName;
use crate::record::{delete, set};
use crate::shard::{Shard, on_all_cores};

/// A pool to be made.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Its disks.
    pub disks: Vec<NewDisk>,
    /// Overwrite what the disks hold.
    pub wipe: bool,
}

/// A pool as administrators see it.
#[derive(Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its disks' paths.
    pub paths: Vec<PathBuf>,
    /// What it is and has; or why it could not be opened.
    pub state: Result<PoolState, String>,
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
}

/// A pool in the record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PoolRecord {
    pub(super) name: String,
    pub(super) paths: Vec<PathBuf>,
}

pub(super) const POOLS: &str = "pool/";

fn key(name: &str) -> String {
    format!("{POOLS}{name}")
}

impl Control {
    /// All pools of this node, by name.
    pub fn pools(&self) -> Vec<PoolStatus> {
        let pools = self.pools.borrow();
        pools.iter().map(|(name, opened)| status(name, opened)).collect()
    }

    /// One pool.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub fn pool(&self, name: &str) -> Result<PoolStatus, ControlError> {
        let pools = self.pools.borrow();
        let opened = pools.get(name).ok_or_else(|| ControlError::not_found("pool", name))?;
        Ok(status(name, opened))
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// A name that is none or taken, and what the store says.
    pub async fn create_pool(&self, spec: PoolSpec) -> Result<PoolStatus, ControlError> {
        let _changing = self.change().await;
        self.check_new_pool(&spec.name)?;
        let paths = spec.disks.iter().map(|disk| disk.path.clone()).collect();
        let options = CreateOptions {
            name: spec.name.clone(),
            host: self.host.clone(),
            extent: None,
            wipe: spec.wipe,
            ram: self.ram.clone(),
        };
        let pool = Pool::create(spec.disks, options).await?;
        self.adopt_pool(spec.name, paths, pool).await
    }

    /// Opens a pool that another server, or an earlier life of this one, has made; also one of this node that could not
    /// be opened at its start. One that is refused for its names is given back.
    ///
    /// # Errors
    /// What the store says; a pool or a volume of the same name.
    pub async fn import_pool(&self, paths: Vec<PathBuf>, force: bool) -> Result<PoolStatus, ControlError> {
        let _changing = self.change().await;
        let pool = self.open_pool(&paths, force).await?;
        let name = pool.name();
        if let Err(taken) = self.check_names(&pool) {
            pool.export().await?;
            return Err(taken);
        }
        let status = self.adopt_pool(name.clone(), paths, pool.clone()).await?;
        self.open_volumes(&pool).await?;
        self.announce_volumes().await;
        Ok(status)
    }

    /// Closes a pool so that another server may import it. Its volumes must not be mapped.
    ///
    /// # Errors
    /// [`ControlError::Mapped`], and what the store says.
    pub async fn export_pool(&self, name: &str) -> Result<(), ControlError> {
        let _changing = self.change().await;
        let pool = self.pool_named(name)?;
        let volumes = pool.volumes();
        for volume in &volumes {
            self.check_unmapped(volume.id, &volume.name)?;
        }
        for volume in &volumes {
            self.close_volume(volume.id).await;
        }
        pool.export().await?;
        let id = pool.id();
        on_all_cores(move || async move { Shard::current().remove_disks(id) }).await;
        self.commit(vec![delete(key(name))]).await?;
        self.pools.borrow_mut().remove(name);
        Ok(())
    }

    /// The open pool of this name.
    pub(super) fn pool_named(&self, name: &str) -> Result<Pool, ControlError> {
        let pools = self.pools.borrow();
        let opened = pools.get(name).ok_or_else(|| ControlError::not_found("pool", name))?;
        match &opened.pool {
            Ok(pool) => Ok(pool.clone()),
            Err(error) => Err(ControlError::PoolClosed(name.to_owned(), error.to_string())),
        }
    }

    /// The pool that is meant when none is named: the only one.
    pub(super) fn only_pool(&self) -> Result<Pool, ControlError> {
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

    pub(super) async fn open_pool(&self, paths: &[PathBuf], force: bool) -> Result<Pool, StoreError> {
        Pool::open(paths, OpenPool { host: self.host.clone(), force, ram: self.ram.clone() }).await
    }

    /// Gives a pool's disks to all cores.
    pub(super) async fn attach_disks(&self, pool: &Pool) {
        let (id, disks) = (pool.id(), pool.share_disks());
        on_all_cores(move || {
            let disks = disks.clone();
            async move { Shard::current().add_disks(id, disks.attach()) }
        })
        .await;
    }

    async fn adopt_pool(
        &self,
        name: String,
        paths: Vec<PathBuf>,
        pool: Pool,
    ) -> Result<PoolStatus, ControlError> {
        let record = PoolRecord { name: name.clone(), paths: paths.clone() };
        self.commit(vec![set(key(&name), &record)]).await?;
        self.attach_disks(&pool).await;
        let opened = OpenedPool { paths, pool: Ok(pool) };
        let status = status(&name, &opened);
        self.pools.borrow_mut().insert(name, opened);
        Ok(status)
    }

    /// The names of a pool that is to be imported, and of its volumes, are free.
    fn check_names(&self, pool: &Pool) -> Result<(), ControlError> {
        let name = pool.name();
        if self.pools.borrow().get(&name).is_some_and(|known| known.pool.is_ok()) {
            return Err(ControlError::Exists { kind: "pool", name });
        }
        let taken = pool.volumes().into_iter().find(|volume| self.volume_named(&volume.name).is_ok());
        match taken {
            Some(volume) => Err(ControlError::Exists { kind: "volume", name: volume.name }),
            None => Ok(()),
        }
    }

    fn check_new_pool(&self, name: &str) -> Result<(), ControlError> {
        let name: VolumeName = name.parse()?;
        if self.pools.borrow().contains_key(name.as_str()) {
            return Err(ControlError::Exists { kind: "pool", name: name.into() });
        }
        Ok(())
    }
}

fn status(name: &str, opened: &OpenedPool) -> PoolStatus {
    let state = match &opened.pool {
        Ok(pool) => Ok(PoolState {
            id: pool.id().to_string(),
            usage: pool.usage(),
            metadata: pool.metadata_state(),
            volumes: pool.volumes().len(),
        }),
        Err(error) => Err(error.to_string()),
    };
    PoolStatus { name: name.to_owned(), paths: opened.paths.clone(), state }
}
