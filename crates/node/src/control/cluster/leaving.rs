//! A node that leaves its cluster without the other nodes: it was removed or abandoned, or its copy of the
//! record is damaged.
//!
//! The node leaves at its next start, when nothing of the cluster runs yet. The directory with the
//! certificates and the record stays, because it may contain the key that lets nodes join the cluster; no
//! other place has the same one. Pools stay as they are. Sole volumes keep the targets and host groups
//! through which hosts used them; copies of the cluster's volumes are listed, but not served.
//!
//! A node whose directory is missing stays in its cluster until an administrator decides otherwise: the
//! directory may be on a file system that is not mounted yet. The node serves its sole volumes
//! ([`super::failing`]), and may join again; then it leaves at once ([`Control::leave_lost`]).

use std::collections::BTreeSet;
use std::rc::Rc;

use link::NODE_KEY_FILE;
use serde::{Deserialize, Serialize};

use super::super::access::{HOSTS, TARGETS};
use super::super::change::Work;
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError};
use super::failing::{KNOWN_ACCESS, KnownAccess};
use super::{CLUSTER, Place, RECORD_FILE, cluster_path};
use crate::config::RecordEngine;
use crate::copies::RECORD_DEADLINE;
use crate::events::code::CLUSTER_LEFT;
use crate::events::{Event, tell};
use crate::record::{Change, delete, set};
use crate::shard::Shard;
use crate::volume::VolumeId;

/// The key under which the node's own record stores the cluster that it has left.
const LEFT: &str = "left_cluster";

/// A cluster that the node has left.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LeftCluster {
    /// The cluster's identity.
    cluster: String,
    /// The access rules that were kept; `None` if that is still to be done.
    access: Option<KnownAccess>,
}

/// What leaving the cluster would keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Sole volumes of this node, which it serves as before.
    pub local: Vec<String>,
    /// Volumes with a copy here. The copy stays in its pool and is not served.
    pub copies: Vec<String>,
}

impl Control {
    /// Checks whether the node could leave its cluster; returns what that would keep.
    ///
    /// An active member cannot leave this way: the other nodes would wait for it, and it may have the only
    /// copy of a volume.
    ///
    /// # Errors
    /// [`ControlError::NoCluster`], [`ControlError::TakesPart`].
    pub async fn check_leaving(&self) -> Result<Leaving, ControlError> {
        self.place().ok_or(ControlError::NoCluster)?;
        if let Some(keeper) = self.keeper().ok().filter(|keeper| keeper.expelled().is_none())
            && keeper.store().get(CLUSTER, RECORD_DEADLINE).await.is_ok()
        {
            return Err(ControlError::TakesPart(keeper.me().0));
        }
        let volumes = self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let (local, copies): (Vec<_>, Vec<_>) = volumes.partition(|info| info.is_sole());
        let names = |volumes: Vec<store::VolumeInfo>| volumes.into_iter().map(|info| info.name).collect();
        Ok(Leaving { local: names(local), copies: names(copies) })
    }

    /// Makes the node leave its cluster at its next start. The other nodes are neither asked nor informed.
    ///
    /// # Errors
    /// As [`Control::check_leaving`]; [`ControlError::Record`].
    pub async fn leave_cluster(self: &Rc<Control>) -> Result<(), ControlError> {
        let before = self.place().ok_or(ControlError::NoCluster)?;
        self.check_leaving().await?;
        let control = Rc::clone(self);
        self.change(Work::new(Doing::LeaveCluster, &self.host.name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            let place = control.place_still(&before)?;
            tracing::warn!(node = place.node, "from its next start this node is no longer in a cluster");
            control.commit(&changing, vec![set(CLUSTER.into(), &Place { leave: true, ..place })]).await
        })
        .await
    }

    /// Leaves the cluster if the node is to do so; returns whether it has.
    pub(super) async fn leave_if_asked(self: &Rc<Control>, place: &Place) -> Result<bool, ControlError> {
        if !place.leave {
            return Ok(false);
        }
        self.forget_place(place).await?;
        Ok(true)
    }

    /// Whether the node is in a cluster but its directory for the cluster is missing or empty.
    ///
    /// That alone is no reason to forget the cluster: the directory may not be mounted yet.
    pub(in crate::control) fn has_lost_files(&self) -> bool {
        let Some(directory) = self.place().filter(|_| keeps_files()).map(|place| cluster_path(&place)) else {
            return false;
        };
        ![RECORD_FILE, NODE_KEY_FILE].into_iter().any(|file| directory.join(file).exists())
    }

    /// The keys of the access rules that the node still knows of a cluster of which it has lost everything
    /// else.
    pub(in crate::control) fn known_of_lost(&self, cluster: &str) -> Vec<String> {
        let is_it = self.has_lost_files() && self.place().is_some_and(|place| place.cluster == cluster);
        let known: Option<KnownAccess> = self.record.borrow().get(KNOWN_ACCESS);
        let known = known.filter(|_| is_it).unwrap_or_default();
        in_own_record(&known).map(|(key, _)| key).collect()
    }

    /// Leaves a cluster of which the node has lost everything, so that it does not take part, to join again.
    /// Otherwise does nothing.
    ///
    /// # Errors
    /// [`ControlError::Record`].
    pub(in crate::control) async fn leave_lost(self: &Rc<Control>) -> Result<(), ControlError> {
        let is_lost = self.has_lost_files() && self.keeper().is_err();
        let Some(place) = self.place().filter(|_| is_lost) else { return Ok(()) };
        self.forget_place(&place).await?;
        self.cluster_failure.replace(None);
        self.finish_leaving().await;
        Ok(())
    }

    async fn forget_place(self: &Rc<Control>, place: &Place) -> Result<(), ControlError> {
        let left = LeftCluster { cluster: place.cluster.clone(), access: None };
        let control = Rc::clone(self);
        self.change(Work::new(Doing::LeaveCluster, &self.host.name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            control.commit(&changing, vec![delete(CLUSTER.into()), set(LEFT.into(), &left)]).await
        })
        .await?;
        let name = self.host.name.clone();
        tracing::warn!(
            "this node has left its cluster and serves only volumes that have never had a copy on another node"
        );
        tell(Event::new(CLUSTER_LEFT, &name, format!("node {name} has left its cluster")));
        Ok(())
    }

    /// Takes over the targets and host groups through which hosts used the node's sole volumes, if these are
    /// known.
    pub(crate) async fn finish_leaving(self: &Rc<Control>) {
        let left: Option<LeftCluster> = self.record.borrow().get(LEFT);
        let Some(left) = left.filter(|left| left.access.is_none() && self.place().is_none()) else { return };
        let known: KnownAccess = self.record.borrow().get(KNOWN_ACCESS).unwrap_or_default();
        let volumes = || self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let ids = |sole: bool| volumes().filter(move |info| info.is_sole() == sole).map(|info| info.id);
        let (local, copies): (BTreeSet<VolumeId>, BTreeSet<VolumeId>) =
            (ids(true).collect(), ids(false).collect());
        // A pool that is not open may hold sole volumes, too.
        let all_known = self.all_pools_are_open();
        let is_kept = |id: &VolumeId| local.contains(id) || (!all_known && !copies.contains(id));
        let access = known.only(is_kept);
        let changes = in_own_record(&access).chain([
            delete(KNOWN_ACCESS.into()),
            set(LEFT.into(), &LeftCluster { access: Some(access.clone()), ..left }),
        ]);
        let (control, changes) = (Rc::clone(self), changes.collect::<Vec<Change>>());
        let taken = self.change(Work::new(Doing::TakeAccessOver, &self.host.name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            control.commit(&changing, changes).await
        });
        match taken.await {
            Ok(()) => self.announce_record().await,
            Err(error) => tracing::error!(%error, "volumes have no targets until the next start"),
        }
    }

    /// The changes of the node's own record that undo what it took over from this cluster and nobody has
    /// changed since. The cluster has these rules itself.
    pub(in crate::control) fn forget_left(&self, cluster: &str) -> Vec<Change> {
        let left: Option<LeftCluster> = self.record.borrow().get(LEFT);
        let access =
            left.filter(|left| left.cluster == cluster).and_then(|left| left.access).unwrap_or_default();
        let own = self.access();
        let targets = access.targets.iter().filter(|target| own.targets().any(|own| own == *target));
        let hosts = access.hosts.iter().filter(|host| own.hosts().any(|own| own == *host));
        targets
            .map(|target| delete(format!("{TARGETS}{}", target.name)))
            .chain(hosts.map(|host| delete(format!("{HOSTS}{}", host.name))))
            .chain([delete(LEFT.into())])
            .collect()
    }
}

/// Whether the node keeps files of a cluster at all; simulated nodes do not.
fn keeps_files() -> bool {
    matches!(Shard::current().config().record, RecordEngine::Embedded | RecordEngine::Etcd(_))
}

impl KnownAccess {
    /// The rules for these volumes only: their maps, the targets with any of these, and the host groups that
    /// these name.
    fn only(mut self, is_kept: impl Fn(&VolumeId) -> bool) -> KnownAccess {
        for target in &mut self.targets {
            target.maps.retain(|map| is_kept(&map.volume));
        }
        self.targets.retain(|target| !target.maps.is_empty());
        let named: BTreeSet<String> =
            self.targets.iter().flat_map(|target| &target.maps).map(|map| map.host.to_string()).collect();
        self.hosts.retain(|host| named.contains(&host.name.to_string()));
        self
    }
}

fn in_own_record(access: &KnownAccess) -> impl Iterator<Item = Change> {
    let targets = access.targets.iter().map(|target| set(format!("{TARGETS}{}", target.name), target));
    let hosts = access.hosts.iter().map(|host| set(format!("{HOSTS}{}", host.name), host));
    targets.chain(hosts)
}
