//! From nothing, or from what an earlier life left, to a node that serves.

use std::path::PathBuf;

use base::ByteLen;
use rt::{Listener, OpenError};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use store::{Host, HostId, NewDisk, RamBudget, StoreError};

use super::pools::{POOLS, PoolRecord};
use super::predecessor::outlive;
use super::{Control, ControlError, NewVolume, OpenedPool, PoolSpec};
use crate::config::Config;
use crate::portal::{self, Registry};
use crate::record::{Record, RecordError, set};

/// The pool that a first start makes, and that is meant when several exist and none is named.
pub const DEFAULT_POOL: &str = "default";

/// What a start makes if it is not there.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The default pool, on a first start only.
    pub pool: Option<DefaultPool>,
    /// Volumes, by name.
    pub volumes: Vec<NewVolume>,
}

/// The pool that a first start makes: a file.
#[derive(Clone, Debug)]
pub struct DefaultPool {
    /// Where.
    pub path: PathBuf,
    /// How large the file may become; it takes space as it is written.
    pub size: ByteLen,
}

/// A node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its record could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The first pool could not be made.
    #[error("cannot make the first pool")]
    DefaultPool(#[source] ControlError),
    /// A volume that is to be there could not be made.
    #[error("cannot make the volume {0:?}")]
    Volume(String, #[source] ControlError),
    /// A portal could not be opened.
    #[error(
        "cannot listen for iSCSI at {0}: is another target running there? (`ss -ltnp` shows it; --iscsi-listen chooses another address)"
    )]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// Who this node is, in the record.
#[derive(Serialize, Deserialize)]
struct NodeRecord {
    id: String,
    name: String,
    /// The first start has not come to its end yet: the default pool may have to be made.
    #[serde(default)]
    starting: bool,
}

const NODE: &str = "node";

impl Control {
    /// Opens the record and everything in it. A pool that cannot be opened does not keep the others from serving.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) async fn start(config: &Config) -> Result<Control, StartError> {
        let record = outlive(async || Record::open(&config.data_dir.join("record")).await).await?;
        let known: Option<NodeRecord> = record.get(NODE);
        let id = known.as_ref().and_then(|node| HostId::parse(&node.id)).unwrap_or_else(HostId::random);
        let first = known.is_none();
        let control = Control {
            record: RefCell::new(record),
            changing: rt::sync::Semaphore::new(1),
            pools: RefCell::new(BTreeMap::new()),
            registry: Registry::new(),
            host: Host { id, name: config.name.clone() },
            ram: RamBudget::new(ByteLen(config.ram_bytes_max)),
            refused_logins: RefCell::default(),
        };
        if first {
            let node = NodeRecord { id: id.to_string(), name: config.name.clone(), starting: true };
            let committed = control.commit(vec![set(NODE.into(), &node)]).await;
            committed.map_err(StartError::DefaultPool)?;
        }
        Ok(control)
    }

    /// Opens the pools of the record, or makes the default one on a first start, and gives every core its volumes.
    pub(crate) async fn open_everything(&self, default_pool: Option<DefaultPool>) -> Result<(), StartError> {
        let pools: Vec<PoolRecord> = self.record.borrow().list(POOLS);
        self.finish_first_start(pools.is_empty(), default_pool).await.map_err(StartError::DefaultPool)?;
        for PoolRecord { name, paths } in pools {
            let pool = outlive(async || self.open_pool(&paths, false).await).await;
            match &pool {
                Ok(pool) => self.attach_disks(pool).await,
                Err(error) => tracing::error!(
                    pool = name,
                    error = error as &dyn std::error::Error,
                    "a pool could not be opened"
                ),
            }
            self.pools.borrow_mut().insert(name, OpenedPool { paths, pool });
        }
        // Before the volumes: their units begin with the ports that lead to them. Sessions come when portals listen.
        self.announce_record().await;
        for pool in self.open_pools() {
            if let Err(error) = self.open_volumes(&pool).await {
                tracing::error!(
                    pool = pool.name(),
                    error = &error as &dyn std::error::Error,
                    "volumes could not be opened"
                );
            }
        }
        Ok(())
    }

    /// Makes the volumes that are not there.
    ///
    /// # Errors
    /// [`StartError::Volume`].
    pub(crate) async fn make_volumes(&self, volumes: Vec<NewVolume>) -> Result<(), StartError> {
        for new in volumes {
            let name = new.name.clone();
            if self.volume_named(&name).is_ok() {
                continue;
            }
            if self.has_closed_pools() {
                tracing::warn!(
                    volume = name,
                    "a volume that is to be there was not made: it may be in the pool that could not be opened"
                );
                continue;
            }
            self.create_volume(new).await.map_err(|error| StartError::Volume(name, error))?;
        }
        Ok(())
    }

    fn has_closed_pools(&self) -> bool {
        self.pools.borrow().values().any(|opened| opened.pool.is_err())
    }

    /// Makes the default pool, once in the life of a node: who gives it away later does not want another.
    async fn finish_first_start(
        &self,
        no_pools: bool,
        default_pool: Option<DefaultPool>,
    ) -> Result<(), ControlError> {
        let node: Option<NodeRecord> = self.record.borrow().get(NODE);
        let Some(node) = node.filter(|node| node.starting) else { return Ok(()) };
        if let (true, Some(default)) = (no_pools, default_pool) {
            self.make_default_pool(default).await?;
        }
        self.commit(vec![set(NODE.into(), &NodeRecord { starting: false, ..node })]).await
    }

    /// A start that was cut off may have left the file: blank, or a whole pool that the record does not name yet.
    async fn make_default_pool(&self, DefaultPool { path, size }: DefaultPool) -> Result<(), ControlError> {
        let spec = |create| PoolSpec {
            name: DEFAULT_POOL.into(),
            disks: vec![NewDisk { path: path.clone(), create, reserve: false }],
            wipe: false,
        };
        match self.create_pool(spec(Some(size))).await {
            Err(ControlError::Store(StoreError::Open(OpenError::System { source, .. })))
                if source.kind() == ErrorKind::AlreadyExists => {}
            done => return done.map(drop),
        }
        match self.import_pool(vec![path.clone()], false).await {
            Err(ControlError::Store(StoreError::NotAPool { .. })) => {
                self.create_pool(spec(None)).await.map(drop)
            }
            done => done.map(drop),
        }
    }

    /// Opens the portals.
    pub(crate) async fn listen(&self, portals: &[SocketAddr]) -> Result<Vec<Listener>, StartError> {
        let mut listeners = Vec::with_capacity(portals.len());
        for address in portals {
            let listener = outlive(async || portal::listen(*address).await).await;
            listeners.push(listener.map_err(|error| StartError::Listen(*address, error))?);
        }
        Ok(listeners)
    }
}
