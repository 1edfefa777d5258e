//! The node's part in a cluster: it creates or joins one, and from then on each of its lives begins in it.

mod failing;
mod fault;
mod leaving;
mod moving;
mod switching;

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cluster::embedded::{Embedded, File, Identity, Saved, Settings, may_wait};
use cluster::etcd::Etcd;
use cluster::{Revision, Store};
use link::{ClusterAuthority, ClusterId, Limits, Links, NodeCredentials};
use replica::{Incarnation, NodeId};
use rt::{CoreId, Listener};
use serde::{Deserialize, Serialize};

use super::change::{Changing, WaitsFor};
use super::doing::Doing;
use super::members::OwnEntries;
use super::record_place::{RecordPlace, etcd_settings};
use super::turns::{NOTHING, Thing};
use super::{Beat, Control, ControlError, NeedsVotes, Result};
use crate::config::RecordEngine;
use crate::copies::{Copies, LinkHandler, LinkRoles, NodeEntry, node_key, peer};
use crate::member::{ClusterError, Engine, RECORD_DEADLINE, Reconciler};
use crate::record::{Change, delete, set};
use crate::shard::{Shard, on_all_cores};

pub use self::failing::ClusterFailure;
pub(super) use self::failing::{KNOWN_ACCESS, KnownAccess, TRY_EVERY};
pub use self::fault::ClusterFault;
use self::leaving::LEFT;
pub use self::leaving::Leaving;

/// The key under which the node's own record stores the node's cluster.
pub(super) const CLUSTER: &str = "cluster";

/// How often a node repeats its announcement in the cluster's record.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// How often it does so until the record knows this life.
const ANNOUNCE_SOON: Duration = Duration::from_millis(100);

/// The node's place in a cluster, as its own record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The cluster's identity.
    pub cluster: String,
    /// The node's number in it.
    pub node: u16,
    /// The addresses at which it listens for other nodes.
    pub listen: Vec<SocketAddr>,
    /// It has a vote in the record and no volumes.
    pub witness: bool,
    /// Where the cluster keeps its record.
    pub record: RecordPlace,
    /// At its next start, the node creates a new cluster of which it is the only member.
    pub force_new: bool,
    /// At its next start, the node leaves the cluster for one of its own.
    pub leave: bool,
    /// The number of its lives so far, made durable before each one does anything.
    pub incarnation: u64,
    /// The members at the time when it joined, from which it first learns about the others.
    pub members: Vec<Member>,
}

impl Place {
    /// The place of the only node of a new cluster.
    fn founding(record: RecordPlace, listen: Vec<SocketAddr>) -> Place {
        Place {
            cluster: ClusterId(rt::secret_bytes()).to_string(),
            node: Shard::current().config().node_number.get().into(),
            listen,
            witness: false,
            record,
            force_new: false,
            leave: false,
            incarnation: 0,
            members: Vec::new(),
        }
    }

    /// Whether no other node can have joined this cluster, because the node listens at no address.
    pub fn is_private(&self) -> bool {
        self.listen.is_empty() && self.members.is_empty()
    }
}

/// A member and its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub node: u16,
    /// The addresses for links.
    pub addresses: Vec<SocketAddr>,
}

/// The record of a cluster, open on this node.
struct OpenRecord {
    engine: Engine,
    store: Store,
    /// What other nodes know this one by; `None` in the simulator.
    tls: Option<NodeCredentials>,
}

/// What a member has admitted to its cluster.
pub(super) struct Admitted {
    /// The credentials of this node.
    pub credentials: NodeCredentials,
    /// What the member has added from this node's own record to the cluster's.
    pub entries: OwnEntries,
    /// A revision of the record that has it.
    pub revision: u64,
    /// The portal group that this node has from now on.
    pub portal_group: u16,
}

/// The node could not create, join or return to a cluster.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum EnterError {
    #[error("this node is already in that cluster, or in one that other nodes can join")]
    Already,
    #[error(
        "this node is in a cluster that has, or has had, other nodes: it can join another cluster only after it has left that one"
    )]
    NotAlone,
    #[error(
        "the last change of volume {0:?} is not in its pool yet: open the pool if it is not open (`ursa pool list`), or repeat the command in a few seconds"
    )]
    NotInPool(String),
    #[error(
        "floating IP {0}, which was removed, is still on a network device of this node: repeat the command in a few seconds"
    )]
    AddressGoing(IpAddr),
    #[error(
        "this node has snapshots (such as {0:?}), which cannot move to another cluster: let the other node join the cluster of this one instead, or delete the snapshots first (`ursa snapshot list`)"
    )]
    HasSnapshots(String),
    #[error(
        "this node has schedules of snapshots (such as {0:?}), which cannot move to another cluster: let the other node join the cluster of this one instead, or delete the schedules first (`ursa snapshot schedule delete`)"
    )]
    HasSchedules(String),
    #[error("{}", ClusterFault::FormerCluster)]
    FormerCluster,
    #[error("{}", ClusterFault::NotInEtcd)]
    NotInEtcd,
    #[error("{}", ClusterFault::InEtcd)]
    InEtcd,
    #[error("etcd cannot hold the cluster's record")]
    Etcd(#[from] cluster::etcd::StartError),
    #[error("the node's certificates cannot be used")]
    Credentials(#[from] link::CredentialsError),
    #[error("the cluster's record cannot be opened")]
    Record(#[from] cluster::embedded::StartError),
    #[error("the cluster's record cannot be created")]
    File(#[from] cluster::embedded::FileError),
    #[error("this node cannot be forced into a new cluster")]
    Force(#[from] cluster::embedded::ForceError),
    #[error("the cluster's record cannot be followed")]
    Follow(#[from] cluster::Error),
    /// TLS does not accept the node's credentials.
    #[error(transparent)]
    DeathNotice(#[from] link::DeathNoticeError),
    /// The node cannot listen for links.
    #[error(transparent)]
    Links(#[from] link::StartError),
    /// The entry about the node's cluster in its own record.
    #[error("{}", ClusterFault::unreadable(.0))]
    Malformed(String),
    #[error("{}", ClusterFault::gone(.0))]
    Lost(PathBuf),
    #[error("cannot create the directory {0}")]
    Directory(PathBuf, #[source] std::io::Error),
}

impl Control {
    /// The node's place in its cluster; `None` before its first start has created one, and if this version
    /// cannot read it.
    pub fn place(&self) -> Option<Place> {
        self.record.borrow().get(CLUSTER)
    }

    /// The node's place in its cluster, to be changed.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`]: this version cannot read it.
    pub(super) fn own_place(&self) -> Result<Place> {
        self.place().ok_or_else(|| self.why_no_part())
    }

    /// Whether the node has a place in a cluster, even if this version cannot read it.
    fn has_place(&self) -> bool {
        self.record.borrow().text(CLUSTER).is_some()
    }

    /// The text of the node's place if this version cannot read it. The node has one all the same, and must
    /// not take another one.
    fn unreadable_place(&self) -> Option<String> {
        let record = self.record.borrow();
        record.text(CLUSTER).filter(|_| record.get::<Place>(CLUSTER).is_none()).map(str::to_owned)
    }

    /// The node's place, if it is still the one that was checked: the node may have joined another cluster
    /// since.
    fn place_still(&self, before: &Place) -> Result<Place> {
        let is_it = |place: &Place| (&place.cluster, place.node) == (&before.cluster, before.node);
        let changed = || ClusterError::Conflict("the cluster of this node".into());
        Ok(self.place().filter(is_it).ok_or_else(changed)?)
    }

    /// Lets other nodes join the cluster of this node: it listens for them at these addresses. If the
    /// settings name etcd, the node moves its record there first.
    ///
    /// # Errors
    /// Others can join already; the node cannot listen there; files or etcd cannot be written.
    pub async fn init_cluster(self: &Rc<Control>, listen: Vec<SocketAddr>) -> Result<()> {
        self.change(Doing::MakeCluster.of(&self.host.name), NOTHING, |control, changing| async move {
            match RecordPlace::configured() {
                RecordPlace::Nodes => control.listen_for_others(&changing, listen).await,
                RecordPlace::Etcd => control.move_to_etcd(&changing, listen).await,
            }
        })
        .await
    }

    /// Takes the node's first place in a cluster, unless it has one: it creates a cluster in which it listens
    /// at no address.
    ///
    /// # Errors
    /// Files cannot be written. The node may be in the cluster after its next start.
    async fn enter_first(self: &Rc<Control>) -> Result<()> {
        let work = Doing::WriteIdentity.of(&self.host.name);
        self.change(work, [Thing::Record], |control, changing| async move {
            match Shard::current().config().first_place.clone() {
                Some(place) => control.begin(&changing, place, Vec::new()).await,
                None => control.found(&changing, Vec::new()).await,
            }
        })
        .await
    }

    /// Creates a cluster in which this node listens at no address, and begins its first life there. The
    /// changes in `also` become durable in the same step as the node's place. The caller holds the record.
    ///
    /// # Errors
    /// Files cannot be written. If it is the node's record, the node may be in the cluster after its next
    /// start.
    async fn found(self: &Rc<Control>, changing: &Changing, also: Vec<Change>) -> Result<()> {
        // If it cannot be written now, nothing is left behind.
        self.commit(changing, Vec::new()).await?;
        let place = Place::founding(RecordPlace::Nodes, Vec::new());
        changing.waits_for(WaitsFor::ClusterRecord);
        let begun = async {
            begin_record(&place).await?;
            self.open_record(&place)
        };
        let record = match begun.await {
            Ok(record) => record,
            Err(error) => {
                discard_record(&place).await;
                return Err(error.into());
            }
        };
        // If this fails, the node may have the cluster after its next start, so the record stays.
        let place = self.count_life(changing, place, also).await?;
        Ok(self.run_cluster(&place, record).await?)
    }

    /// Listens for other nodes at these addresses, in a cluster in which this node has had none.
    ///
    /// # Errors
    /// The node has addresses, or cannot listen at these; the record cannot be written.
    async fn listen_for_others(&self, changing: &Changing, listen: Vec<SocketAddr>) -> Result<()> {
        let _record = changing.hold([Thing::Record]).await?;
        let place = self.place().filter(|place| place.is_private() && !listen.is_empty());
        let Some(place) = place else { return Err(EnterError::Already.into()) };
        let reconciler = self.reconciler()?;
        try_to_listen(&listen, &[]).await?;
        let place = Place { listen: listen.clone(), ..place };
        self.commit(changing, vec![set(CLUSTER.into(), &place)]).await?;
        reconciler.links().listen(listen).await;
        // Its next announcement has them.
        let is_known = || {
            let entry = reconciler.get::<NodeEntry>(&node_key(reconciler.me()));
            entry.is_some_and(|(entry, _)| entry.addresses == reconciler.addresses())
        };
        reconciler.until(RECORD_DEADLINE, is_known).await;
        Ok(())
    }

    /// Enters a cluster that another node has let this one join, and leaves the present one, which has never
    /// had another node.
    ///
    /// `generation` is that of the member's record: nodes of different generations do not accept each other's
    /// messages.
    ///
    /// # Errors
    /// The node is in a cluster that it cannot leave for another one; files cannot be written.
    pub async fn enter_cluster(self: &Rc<Control>, place: Place, generation: u64) -> Result<()> {
        self.enter_with(place, generation, None).await
    }

    /// As [`Control::enter_cluster`], with what a member has admitted.
    ///
    /// # Errors
    /// As [`Control::enter_cluster`]; [`ControlError::ChangedWhileJoining`].
    pub(super) async fn enter_with(
        self: &Rc<Control>,
        place: Place,
        generation: u64,
        admitted: Option<Admitted>,
    ) -> Result<()> {
        self.change(Doing::JoinCluster.of(&self.host.name), NOTHING, |control, changing| async move {
            // The record of the cluster that the node leaves takes part in all changes of its volumes. A node
            // that has lost its files changes none.
            let volumes = match control.reconciler() {
                Ok(_) => Some(changing.hold(control.pools_and_volumes()).await?),
                Err(_) => None,
            };
            let record = changing.hold([Thing::Record]).await?;
            let frozen = control.freeze_record().await?;
            let former = control.cluster_to_leave(&place.cluster).await?;
            if former.is_some() && volumes.is_none() {
                return Err(ControlError::ChangedWhileJoining);
            }
            if let Some(Admitted { credentials, entries, .. }) = &admitted {
                if control.own_entries(&place.cluster) != *entries {
                    return Err(ControlError::ChangedWhileJoining);
                }
                credentials.save(&make_directory(&place)?).map_err(EnterError::from)?;
            }
            if let RecordEngine::Embedded = Shard::current().config().record {
                let identity = identity_of(&place, generation)?;
                let path = make_directory(&place)?.join(RECORD_FILE);
                File::create(&path, &Saved::joining(identity)).map_err(EnterError::from)?;
            }
            // If the node restarts before it has read the cluster's record, it acts by what it knows.
            let mut also = vec![set(KNOWN_ACCESS.into(), &control.all_rules()), delete(LEFT.into())];
            let group_before = control.portal_group();
            if let Some(Admitted { portal_group, .. }) = &admitted {
                also.extend(control.change_of_portal_group(*portal_group));
            }
            let begun = match former {
                // The node that has lost its files.
                None => {
                    let begun = control.begin(&changing, place, also).await;
                    begun.map(|()| drop(control.cluster_failure.replace(None)))
                }
                Some(former) => {
                    let changes = [set(CLUSTER.into(), &place)].into_iter().chain(also);
                    control.leave_for(&changing, former, changes.collect()).await?;
                    // Changes that wait for their turn may still have the former reconciler.
                    drop((volumes, record, frozen));
                    control.begin_elsewhere().await
                }
            };
            control.follow_portal_group(group_before).await;
            control.begun_in_cluster(begun).await?;
            // Some of them may have been deleted from the record since.
            if let (Some(admitted), Ok(reconciler)) = (admitted, control.reconciler()) {
                let revision = replica::Revision(admitted.revision);
                rt::spawn(async move { control.follow_rules_of_record(reconciler, revision).await }).detach();
            }
            Ok(())
        })
        .await
    }

    /// Turns this node, with all that it has, into a cluster of its own from its next start on.
    ///
    /// The other nodes are abandoned; they may join as new ones. This is for when the voters are lost for
    /// good: if they are still running, both sides continue and the hosts' data diverges.
    ///
    /// # Errors
    /// [`ControlError::ClusterWorks`]: a majority is reachable.
    pub async fn force_new_cluster(self: &Rc<Control>) -> Result<()> {
        let before = self.own_place()?;
        self.check_new_cluster().await?;
        self.change(Doing::ForceCluster.of(&self.host.name), [Thing::Record], |control, changing| async move {
            let place = control.place_still(&before)?;
            tracing::warn!(
                node = place.node,
                "from its next start this node is a new cluster of its own: the other nodes are abandoned and must never be started with their old data directories"
            );
            control.commit(&changing, vec![set(CLUSTER.into(), &Place { force_new: true, ..place })]).await
        })
        .await
    }

    /// Checks whether this node could be forced into a new cluster; returns the numbers of the nodes that
    /// would be abandoned.
    ///
    /// # Errors
    /// As [`Control::force_new_cluster`].
    pub async fn check_new_cluster(&self) -> Result<Vec<u16>> {
        let reconciler = self.reconciler()?;
        if !reconciler.nodes_vote() {
            return Err(ControlError::RecordInEtcd(NeedsVotes::NewCluster));
        }
        // Only a majority can answer this read; and no other node may be up that could be part of one.
        let works = reconciler.store().get(CLUSTER, RECORD_DEADLINE).await.is_ok();
        let mut others = reconciler.nodes();
        others.retain(|(node, _)| NodeId(node.id) != reconciler.me());
        let there = others.iter().find(|(_, up)| *up).map(|(node, _)| node.id);
        match (works, there) {
            (true, _) => Err(ControlError::ClusterWorks),
            (false, Some(node)) => Err(ControlError::NodeIsThere(node)),
            (false, None) => Ok(others.into_iter().map(|(node, _)| node.id).collect()),
        }
    }

    /// Begins a life in the node's cluster.
    async fn try_cluster(self: &Rc<Control>) -> Result<()> {
        self.until_former_is_gone().await?;
        let work = Doing::ReturnToCluster.of(&self.host.name);
        self.change(work, [Thing::Record], |control, changing| async move {
            if let Some(place) = control.unreadable_place() {
                return Err(EnterError::Malformed(place).into());
            }
            // The node may have joined again, or left, while this change waited for its turn.
            let Some(place) = control.place().filter(|_| control.reconciler().is_err()) else {
                return Ok(());
            };
            if place.leave {
                return control.leave_for_its_own(&changing, &place).await;
            }
            if control.has_lost_files() {
                return Err(EnterError::Lost(cluster_path(&place)).into());
            }
            if place.force_new && place.record == RecordPlace::Nodes && keeps_files() {
                // If this runs twice, the generation only grows once more.
                File::force_new_cluster(&cluster_path(&place).join(RECORD_FILE)).map_err(EnterError::from)?;
            }
            control.begin(&changing, place, Vec::new()).await
        })
        .await
    }

    /// Begins a life in a cluster, and makes the changes in `also` durable in the same step. The caller holds
    /// the record.
    async fn begin(self: &Rc<Control>, changing: &Changing, place: Place, also: Vec<Change>) -> Result<()> {
        let place = self.count_life(changing, place, also).await?;
        let record = self.open_record(&place)?;
        Ok(self.run_cluster(&place, record).await?)
    }

    /// Makes it durable that a life in a cluster begins, with the changes in `also`; returns the node's place
    /// in that life. The caller holds the record.
    async fn count_life(&self, changing: &Changing, place: Place, also: Vec<Change>) -> Result<Place> {
        // Before any other node hears from it, so that none mistakes this life for the previous one.
        let place = Place { incarnation: place.incarnation + 1, force_new: false, ..place };
        let changes = [set(CLUSTER.into(), &place)].into_iter().chain(also);
        self.commit(changing, changes.collect()).await?;
        Ok(place)
    }

    /// Opens the record of a cluster on this node. Until there are links, its engine reaches no other node.
    fn open_record(&self, place: &Place) -> Result<OpenRecord, EnterError> {
        let (cluster, me) = (cluster_id(place)?, NodeId(place.node));
        let config = Shard::current().config().clone();
        let (engine, store, tls) = match (&config.record, place.record) {
            (RecordEngine::Etcd(_), RecordPlace::Nodes) if !place.is_private() => {
                return Err(EnterError::NotInEtcd);
            }
            (RecordEngine::Etcd(access), RecordPlace::Etcd) => {
                let tls = NodeCredentials::load(&cluster_path(place), cluster, me)?;
                let etcd = Etcd::start(&etcd_settings(access, cluster))?;
                let store = etcd.store();
                (Engine::Etcd(etcd), store, Some(tls))
            }
            (_, RecordPlace::Etcd) => return Err(EnterError::InEtcd),
            (RecordEngine::Embedded | RecordEngine::Etcd(_), RecordPlace::Nodes) => {
                let directory = cluster_path(place);
                let tls = NodeCredentials::load(&directory, cluster, me)?;
                let embedded = embedded(&directory.join(RECORD_FILE), place.witness)?;
                let store = embedded.store();
                (Engine::Embedded(embedded), store, Some(tls))
            }
            (RecordEngine::Simulated(files), _) => {
                let simulated = files.start(record_node(place)?, place.witness, send_record);
                let store = simulated.store();
                (Engine::Simulated(simulated), store, None)
            }
            (RecordEngine::Memory(memory), _) => (Engine::Shared, memory.store(record_node(place)?), None),
            (RecordEngine::Memories(all), _) => {
                (Engine::Shared, all.of(&place.cluster).store(record_node(place)?), None)
            }
        };
        Ok(OpenRecord { engine, store, tls })
    }

    async fn run_cluster(self: &Rc<Control>, place: &Place, record: OpenRecord) -> Result<(), EnterError> {
        let cluster = cluster_id(place)?;
        let (me, life) = (NodeId(place.node), Incarnation(place.incarnation));
        let config = Shard::current().config().clone();
        let OpenRecord { engine, store, tls } = record;
        // Other nodes direct requests for a join token to a node that has the authority. Simulated clusters
        // have no certificates.
        let authority = tls.is_some() && ClusterAuthority::load(&cluster_path(place), cluster).is_ok();
        let generation = store.status(RECORD_DEADLINE).await?.generation;
        let watch = store.watch(Revision(0), RECORD_DEADLINE).await?;
        let read_confirm = config.read_confirm;
        // From here on nothing may fail: the cores' state of a cluster is set up once in a life.
        let settings = link::Settings {
            me,
            cluster,
            generation,
            incarnation: life,
            listen: place.listen.clone(),
            tls,
            protocol: link::Protocol::default(),
            limits: Limits::default(),
        };
        settings.check()?;
        // Those that are open were compared with the record of the cluster that the node has left, if any.
        self.open_pools().iter().for_each(store::Pool::doubt);
        on_all_cores(move || async move {
            Shard::current().set_copies(Copies::new(cluster, me, life, read_confirm));
        })
        .await;
        let links = Links::start(settings, || Rc::new(LinkHandler)).await?;
        let copies = Copies::current();
        links.set_peers(
            place
                .members
                .iter()
                .map(|member| peer(member.node, &member.addresses, &LinkRoles::new()))
                .collect(),
        );
        let reconciler = Reconciler::start(copies, store, watch, links, engine, self.forks());
        self.let_nodes_join(&reconciler, config.unix_now);
        // It must not be cancelled while it compares copies: it ends between two parts.
        rt::spawn(Rc::clone(self).verify_by_schedule(Rc::clone(&reconciler))).detach();
        let tasks = vec![
            rt::spawn(Rc::clone(self).say_that_it_is_there(Rc::clone(&reconciler), authority)),
            rt::spawn(Rc::clone(self).tidy_copies(Rc::clone(&reconciler))),
            rt::spawn(Rc::clone(self).keep_recorded(Rc::clone(&reconciler))),
            rt::spawn(Rc::clone(self).hold_addresses(Rc::clone(&reconciler))),
            rt::spawn(Rc::clone(self).keep_pool_marks(Rc::clone(&reconciler))),
            rt::spawn(Rc::clone(self).keep_access(Rc::clone(&reconciler))),
            rt::spawn(Rc::clone(self).keep_voters(reconciler)),
        ];
        drop(self.life.replace(tasks));
        Ok(())
    }

    /// Keeps the cluster's record up to date about where this life of the node is reached.
    async fn say_that_it_is_there(self: Rc<Control>, reconciler: Rc<Reconciler>, authority: bool) {
        while !reconciler.is_stopping() {
            let portals = Shard::current().portals();
            match self.announce_node(&reconciler, &self.host.name, portals, authority).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(%error, "the cluster's record does not know of this node yet")
                }
            }
            // Copies are opened only after that.
            match reconciler.knows_this_life() {
                true => Beat::Announcing.wait(ANNOUNCE_AGAIN).await,
                false => rt::sleep(ANNOUNCE_SOON).await,
            }
        }
    }
}

/// The directory with the certificates and the record of a node at this place.
///
/// A cluster gives each number to one node, once, unless its record was set back. So what another attempt to
/// enter a cluster has left, or a cluster that the node has left, is not in the way; and which directory
/// counts is decided by the place in the node's own record alone.
pub(super) fn cluster_path(place: &Place) -> PathBuf {
    let name = format!("{}-{}", place.cluster, place.node);
    Shard::current().config().data_dir.join(CLUSTER_DIRECTORY).join(name)
}

/// Creates the directory of a place that the node is about to take, durably.
///
/// A cluster that was forced from an older record gives numbers again. If this node has had the number
/// before, the directory of that time is renamed: SQLite would apply a log that it finds there to the new
/// record.
fn make_directory(place: &Place) -> Result<PathBuf, EnterError> {
    let directory = cluster_path(place);
    let make = || -> std::io::Result<()> {
        if directory.join(RECORD_FILE).exists() {
            std::fs::rename(&directory, free_name(&directory))?;
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        // The place must not be found without its directory.
        for above in directory.ancestors().skip(1).take(2).filter(|path| !path.as_os_str().is_empty()) {
            std::fs::File::open(above)?.sync_all()?;
        }
        Ok(())
    };
    match make() {
        Ok(()) => Ok(directory),
        Err(error) => Err(EnterError::Directory(directory, error)),
    }
}

/// A free name for a directory that is renamed.
fn free_name(directory: &Path) -> PathBuf {
    let mut names = (1..).map(|number: u32| directory.with_extension(format!("left-{number}")));
    names.find(|name| !name.exists()).expect("there are enough numbers")
}

/// Creates the record of a new cluster, and its authority.
async fn begin_record(place: &Place) -> Result<(), EnterError> {
    let (cluster, config) = (cluster_id(place)?, Shard::current().config().clone());
    match (&config.record, place.record) {
        (RecordEngine::Etcd(access), RecordPlace::Etcd) => {
            Etcd::found(&etcd_settings(access, cluster)).await?;
            make_authority(place, &make_directory(place)?)?;
        }
        (RecordEngine::Embedded | RecordEngine::Etcd(_), _) => {
            let directory = make_directory(place)?;
            make_authority(place, &directory)?;
            let record = Saved::founding(u128::from_be_bytes(cluster.0), record_node(place)?);
            File::create(&directory.join(RECORD_FILE), &record)?;
        }
        (RecordEngine::Simulated(_) | RecordEngine::Memory(_) | RecordEngine::Memories(_), _) => {}
    }
    Ok(())
}

/// Deletes what there is of the record of a cluster that the node could not create, and of its authority.
///
/// Nobody would ever find it again, and in a site's etcd it has hosts' secrets.
async fn discard_record(place: &Place) {
    if keeps_files() {
        // What cannot be deleted does no harm: each attempt has a directory of its own.
        let _deleted = std::fs::remove_dir_all(cluster_path(place));
    }
    let config = Shard::current().config().clone();
    let (RecordEngine::Etcd(access), RecordPlace::Etcd, Ok(cluster)) =
        (&config.record, place.record, cluster_id(place))
    else {
        return;
    };
    let settings = etcd_settings(access, cluster);
    if let Err(error) = Etcd::delete(&settings).await {
        tracing::warn!(
            prefix = settings.prefix,
            %error,
            "the cluster was not created, but etcd may have keys of it: delete all keys with this prefix"
        );
    }
}

/// Creates the authority that signs nodes' certificates, and the certificate of the first node.
fn make_authority(place: &Place, directory: &Path) -> Result<(), EnterError> {
    let authority = ClusterAuthority::create(cluster_id(place)?)?;
    authority.save(directory)?;
    authority.issue(NodeId(place.node))?.save(directory)?;
    Ok(())
}

/// Whether the node keeps files of a cluster at all; simulated nodes do not.
fn keeps_files() -> bool {
    matches!(Shard::current().config().record, RecordEngine::Embedded | RecordEngine::Etcd(_))
}

/// Checks that the node can listen at these addresses.
///
/// This runs before anything is stored: a node that is in a cluster and cannot listen does not start. `own`
/// are the addresses at which it listens already, and which it gives up before.
pub(super) async fn try_to_listen(addresses: &[SocketAddr], own: &[SocketAddr]) -> Result<(), EnterError> {
    let is_same = |one: &SocketAddr, other: &SocketAddr| {
        let any = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() == other.port() && (any || one.ip() == other.ip())
    };
    let mut held = Vec::new();
    for address in addresses.iter().filter(|address| !own.iter().any(|own| is_same(own, address))) {
        let listener = Listener::bind(*address).await;
        held.push(listener.map_err(|source| link::StartError::Listen { address: *address, source })?);
    }
    Ok(())
}

const RECORD_FILE: &str = "record.sqlite";

/// The directory for [`cluster_path`] in the data directory.
const CLUSTER_DIRECTORY: &str = "cluster";

pub(super) fn cluster_id(place: &Place) -> Result<ClusterId, EnterError> {
    let id = store::ClusterId::parse(&place.cluster);
    id.map(|id| ClusterId(id.0)).ok_or_else(|| EnterError::Malformed(place.cluster.clone()))
}

fn identity_of(place: &Place, generation: u64) -> Result<Identity, EnterError> {
    let cluster = u128::from_be_bytes(cluster_id(place)?.0);
    Ok(Identity { cluster, node: record_node(place)?, generation })
}

/// The node's number, as the record's engine takes it.
fn record_node(place: &Place) -> Result<cluster::NodeId, EnterError> {
    cluster::NodeId::new(place.node).ok_or_else(|| EnterError::Malformed(place.node.to_string()))
}

/// Starts the engine. Core 0 sends its messages over the control links; it need not wake for those that can
/// wait, since it wakes for each heartbeat.
fn embedded(path: &Path, witness: bool) -> Result<Embedded, EnterError> {
    let cores = rt::Handle::current();
    let settings = Settings { witness, ..Settings::new(rt::random()) };
    let send = move |to: cluster::NodeId, bytes: Vec<u8>| {
        if may_wait(&bytes) {
            cores.leave(CoreId(0), move || send_record(to, bytes));
        } else {
            drop(cores.call(CoreId(0), move || async move { send_record(to, bytes) }));
        }
    };
    Ok(Embedded::start(path, settings, send)?)
}

/// Sends a message of the engine over a control link. Runs on core 0.
fn send_record(to: cluster::NodeId, bytes: Vec<u8>) {
    if let Some(reconciler) = Shard::current().copies().and_then(|copies| copies.reconciler()) {
        reconciler.send_record(NodeId(to.get()), bytes);
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
        check::<Place>(&json!({
            "cluster": "00112233445566778899aabbccddeeff", "node": 2, "listen": ["10.0.0.2:3270"], "witness": true,
            "record": "nodes", "force_new": true, "leave": false, "incarnation": 7,
            "members": [{"node": 1, "addresses": ["10.0.0.1:3270"]}]
        }));
        check::<Place>(&json!({
            "cluster": "00112233445566778899aabbccddeeff", "node": 1, "listen": [], "witness": false,
            "record": "etcd", "force_new": false, "leave": true, "incarnation": 1, "members": []
        }));
    }
}
