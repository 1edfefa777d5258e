//! The start of a node: from nothing, or from what an earlier life left, until it serves.

use std::path::PathBuf;

use base::ByteLen;
use rt::sync::Notify;
use rt::{Listener, OpenError};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use store::{Host, HostId, LogMemory, NewDisk, OpenPool, Pool, RamBudget, StoreError};

use super::change::{Changes, Changing, WaitsFor};
use super::doing::Doing;
use super::ended::EndedJobs;
use super::members::Door;
use super::pools::{POOLS, PoolRecord};
use super::previous_run::retry_while_held;
use super::read_errors::ReadErrors;
use super::scrubbing::Scrubs;
use super::turns::Thing;
use super::verifying::Verifications;
use super::{Control, ControlError, ImportSpec, NewVolume, Opened, PoolSpec, Result};
use crate::config::Config;
use crate::events::Events;
use crate::iscsi::portal::Registry;
use crate::member::floating::Floating;
use crate::record::{Record, RecordError, set};

/// The pool that a first start creates. It is also the one that is used if there are several and the caller
/// names none.
pub const DEFAULT_POOL: &str = "default";

/// What a start creates if it does not exist.
#[derive(Clone, Debug, Default)]
pub struct StartSpec {
    /// The default pool, on a first start only.
    pub pool: Option<DefaultPool>,
    /// Volumes, by name.
    pub volumes: Vec<NewVolume>,
}

/// The pool that a first start creates: a file.
#[derive(Clone, Debug)]
pub struct DefaultPool {
    /// Its path.
    pub path: PathBuf,
    /// How large the file may become; it takes space as it is written.
    pub size: ByteLen,
}

/// A node could not start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum StartError {
    /// Its record could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the disk of the node's record {0} has not responded for {seconds} seconds", seconds = RECORD_DEADLINE.as_secs())]
    RecordSilent(PathBuf),
    #[error("cannot write the node's record")]
    Identity(#[source] ControlError),
    #[error("cannot create the record of the node's cluster")]
    Cluster(#[source] ControlError),
    #[error("cannot create the first pool")]
    DefaultPool(#[source] ControlError),
    #[error("cannot create volume {0:?}")]
    Volume(String, #[source] ControlError),
    #[error(
        "cannot listen for iSCSI at {0}: is another target running there? (check with `ss -ltnp`; choose another address with --iscsi-listen)"
    )]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// This node's identity, in the record.
#[derive(Serialize, Deserialize)]
struct NodeRecord {
    id: String,
    name: String,
    /// The first start is not complete: the default pool may have to be created, and volumes.
    starting: bool,
}

const NODE: &str = "node";

/// How long a start waits for the disk of the record.
const RECORD_DEADLINE: Duration = Duration::from_secs(30);

/// How long a start waits for all pools together before it serves without the late ones. Disks that spin up
/// take ten seconds; systemd gives a start ninety.
const POOL_DEADLINE: Duration = Duration::from_secs(30);

impl Control {
    /// Opens the record.
    pub(crate) async fn start(config: &Config) -> Result<Rc<Control>, StartError> {
        let path = config.data_dir.join("record");
        let record = rt::timeout(RECORD_DEADLINE, retry_while_held(async || Record::open(&path).await)).await;
        let record = record.map_err(|rt::Elapsed| StartError::RecordSilent(path))??;
        let known: Option<NodeRecord> = record.get(NODE);
        let id = known.as_ref().and_then(|node| HostId::parse(&node.id)).unwrap_or_else(HostId::random);
        let now = (config.unix_now)();
        let read_errors = ReadErrors::restored(&record, now);
        let scrubs = Scrubs::restored(&record);
        let control = Rc::new(Control {
            record: RefCell::new(record),
            started: Some(now).filter(|now| *now > 0),
            changes: Changes::of_life(now),
            pools: RefCell::new(BTreeMap::new()),
            unserved: RefCell::default(),
            unsettled: RefCell::default(),
            set_aside: RefCell::default(),
            registry: Registry::new(rt::cores()),
            host: Host { id, name: config.name.clone() },
            ram: RamBudget::new(ByteLen(config.ram_bytes_max)),
            log: config.log,
            log_memory: LogMemory::new(ByteLen(config.map_bytes_max)),
            refused_logins: RefCell::default(),
            tokens: RefCell::default(),
            shown_paths: RefCell::default(),
            shown_portals: RefCell::default(),
            being_made: RefCell::default(),
            copy_requests: RefCell::default(),
            used_life: Cell::new(None),
            forgotten_record: Cell::new(false),
            accepted_older: RefCell::default(),
            lacking: RefCell::default(),
            unvouched: Notify::new(),
            leaving: Notify::new(),
            leaving_problems: RefCell::default(),
            floating: Floating::new(),
            events: Events::default(),
            verifications: Verifications::default(),
            read_errors,
            scrubs,
            conversions: Default::default(),
            snapshots: Default::default(),
            lost_blocks: Default::default(),
            overcommitted: RefCell::default(),
            levels: RefCell::default(),
            ended: EndedJobs::default(),
            cluster_failure: RefCell::default(),
            access_changed: Notify::new(),
            life: RefCell::default(),
            former: RefCell::default(),
            door: Door::default(),
        });
        if known.is_none() {
            let node = NodeRecord { id: id.to_string(), name: config.name.clone(), starting: true };
            control.set_identity(node).await.map_err(StartError::Identity)?;
        }
        rt::spawn(Rc::clone(&control).keep_record_writable()).detach();
        rt::spawn(Rc::clone(&control).keep_read_errors()).detach();
        rt::spawn(Rc::clone(&control).scrub_by_schedule()).detach();
        rt::spawn(Rc::clone(&control).empty_leaving_disks()).detach();
        rt::spawn(Rc::clone(&control).convert_volumes()).detach();
        rt::spawn(Rc::clone(&control).settle_by_schedule()).detach();
        Ok(control)
    }

    async fn set_identity(self: &Rc<Control>, node: NodeRecord) -> Result<()> {
        self.change(Doing::WriteIdentity.of(&node.name), [Thing::Record], |control, changing| async move {
            control.commit(&changing, vec![set(NODE.into(), &node)]).await
        })
        .await
    }

    /// Opens the pools of the record, or creates the default one on a first start, and opens their volumes on
    /// all cores.
    ///
    /// A pool that cannot be opened does not keep the others from serving, and the wait for pools has a
    /// deadline.
    pub(crate) async fn open_everything(
        self: &Rc<Control>,
        default_pool: Option<DefaultPool>,
    ) -> Result<(), StartError> {
        // This comes before the volumes, because their units start with the ports that lead to them. Sessions
        // come only when the portals listen.
        self.announce_record().await;
        let pools: Vec<PoolRecord> = self.record.borrow().list(POOLS);
        // Once in the life of a node: an administrator who removes it does not want another.
        if let (true, true, Some(default)) = (self.is_first_start(), pools.is_empty(), default_pool) {
            self.make_default_pool(default).await.map_err(StartError::DefaultPool)?;
        }
        // The result for each pool is in the log and in the pool's status.
        rt::join_all(pools.into_iter().map(|pool| self.open_known_pool(pool))).await;
        Ok(())
    }

    async fn open_known_pool(self: &Rc<Control>, pool: PoolRecord) -> Result<()> {
        self.know_pool(&pool.name, &pool.paths, Opened::NotYet(rt::now()));
        let (work, holds) = (Doing::OpenPool.of(&pool.name), [Thing::Pool(pool.name.clone())]);
        self.change_within(POOL_DEADLINE, work, holds, |control, changing| async move {
            control.open_awaited(&changing, pool).await
        })
        .await
    }

    /// Opens a pool that the node waits for. The pool's status shows the result. The caller holds the pool.
    pub(super) async fn open_awaited(
        &self,
        changing: &Rc<Changing>,
        PoolRecord { name, paths, uncertain, .. }: PoolRecord,
    ) -> Result<()> {
        changing.waits_for(WaitsFor::Disks(paths.iter().chain(&uncertain).cloned().collect()));
        let options = OpenPool { uncertain: uncertain.clone(), ..self.opening_pool() };
        match retry_while_held(async || Pool::open(&paths, options.clone()).await).await {
            _ if !self.is_awaited(&name) => {
                tracing::info!(pool = name, "a forgotten pool has responded and is closed again");
                Ok(())
            }
            Ok(pool) => {
                self.attach_disks(&pool).await;
                self.know_pool(&name, &pool.paths(), Opened::Yes(pool.clone()));
                self.show_pool(changing, &pool).await?;
                if uncertain.is_some() {
                    self.record_pool(changing, PoolRecord::of(&pool)).await?;
                }
                Ok(())
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(pool = name, error = cause, "a pool could not be opened");
                self.know_pool(&name, &paths, Opened::No(error.into()));
                Ok(())
            }
        }
    }

    /// Creates the configured volumes that do not exist, and ends the first start.
    ///
    /// # Errors
    /// [`StartError::Volume`] at the first start: nothing is served yet. [`StartError::Identity`].
    pub(crate) async fn make_volumes(self: &Rc<Control>, volumes: Vec<NewVolume>) -> Result<(), StartError> {
        let is_first = self.is_first_start();
        for new in volumes {
            let name = new.name.clone();
            if self.volume_named(&name).is_ok() {
                continue;
            }
            if self.has_closed_pools() {
                tracing::warn!(
                    volume = name,
                    "a configured volume was not created: it may be in the pool that could not be opened"
                );
                continue;
            }
            match self.create_volume(new).await {
                // The cluster may have a volume of that name, or may not be available yet.
                Err(error) if !is_first => {
                    let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(volume = name, error, "a configured volume was not created{hint}");
                }
                made => drop(made.map_err(|error| StartError::Volume(name, error))?),
            }
        }
        let node: Option<NodeRecord> = self.record.borrow().get(NODE);
        match node.filter(|node| node.starting) {
            Some(node) => {
                let ended = self.set_identity(NodeRecord { starting: false, ..node }).await;
                ended.map_err(StartError::Identity)
            }
            None => Ok(()),
        }
    }

    fn is_first_start(&self) -> bool {
        let node: Option<NodeRecord> = self.record.borrow().get(NODE);
        node.is_some_and(|node| node.starting)
    }

    fn has_closed_pools(&self) -> bool {
        self.pools.borrow().values().any(|known| known.open().is_none())
    }

    /// Creates the default pool.
    ///
    /// An interrupted start may have left its file: blank, or as a complete pool that the record does not
    /// name yet.
    async fn make_default_pool(self: &Rc<Control>, DefaultPool { path, size }: DefaultPool) -> Result<()> {
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
        match self.import_pool(ImportSpec { paths: vec![path.clone()], ..ImportSpec::default() }).await {
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
            let listener = retry_while_held(async || Listener::bind(*address).await).await;
            listeners.push(listener.map_err(|error| StartError::Listen(*address, error))?);
        }
        Ok(listeners)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version_1::check;

    /// What version 1 has in the node's record. Later versions must read it.
    #[test]
    fn an_entry_of_version_1_is_read_and_keeps_what_it_says() {
        check::<NodeRecord>(&json!({
            "id": "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "name": "server1", "starting": true
        }));
    }
}
