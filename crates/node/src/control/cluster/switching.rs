//! A node that leaves a cluster of which it is the only node, to join another one, while hosts use its
//! volumes.
//!
//! That is possible as long as the cluster's record has never had another node. Then all volumes are sole:
//! hosts are served from the pools alone, whatever becomes of the record.
//!
//! First comes one commit of the node's own record: its new place. Until then the old life continues as if
//! nothing had happened, and after a crash the next life begins at the place that the record names. Then the
//! old life ends: its tasks, links and engine. The new one begins as at a start, and only when nothing holds
//! the old reconciler any more, which would make the new copies act by the old record. Meanwhile, the node is
//! in the state of one that cannot take part in its cluster ([`super::failing`]). Why: `docs/why/record.md`,
//! *A node that leaves a cluster of its own*.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Listener;

use super::super::change::Changing;
use super::super::doing::Doing;
use super::super::members::NEXT_NODE;
use super::super::previous_run::retry_while_held;
use super::super::turns::{NOTHING, Thing};
use super::super::{Control, ControlError, Result, snapshots};
use super::{ClusterFailure, ClusterFault, EnterError};
use crate::member::{Frozen, Reconciler};
use crate::record::Change;

/// How long a life waits until nothing holds the reconciler of the former cluster. Calls of its record end as
/// soon as that has stopped. Only what waits for a disk, or for its turn, takes longer.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// How often it looks: dropping a reference notifies nobody, and a node switches clusters once.
const GONE_EVERY: Duration = Duration::from_millis(10);

/// How long the node waits for volumes that are being created. They have their space already.
const CREATED_WITHIN: Duration = Duration::from_secs(5);
/// How often it looks: a node switches clusters once.
const CREATED_EVERY: Duration = Duration::from_millis(10);

impl Control {
    /// Lets the record of the node's present cluster confirm nothing until the result is dropped: what it
    /// confirmed after [`Control::cluster_to_leave`] would be lost. `None`: the node takes part in none.
    ///
    /// Volumes are created, deleted and converted in two steps: one in a pool, which the caller holds, and
    /// one in the record, for which they hold nothing.
    pub(super) async fn freeze_record(&self) -> Result<Option<Frozen>> {
        let Ok(reconciler) = self.reconciler() else { return Ok(None) };
        let until = rt::now() + CREATED_WITHIN;
        while self.being_created().is_some() && rt::now() < until {
            rt::sleep(CREATED_EVERY).await;
        }
        Ok(Some(reconciler.freeze().await?))
    }

    /// The reconciler of the cluster that this node leaves if it joins `cluster`; `None`: it has lost all
    /// files of it.
    ///
    /// # Errors
    /// The node cannot leave its cluster for that one: [`EnterError::Already`], [`EnterError::NotAlone`],
    /// [`EnterError::NotInPool`], [`EnterError::AddressGoing`], [`EnterError::HasSnapshots`],
    /// [`EnterError::HasSchedules`], [`ControlError::LifeUnknown`], [`ControlError::EntryUnreadable`],
    /// [`ControlError::ClusterFailed`].
    pub(super) async fn cluster_to_leave(&self, cluster: &str) -> Result<Option<Rc<Reconciler>>> {
        let place = self.own_place()?;
        if self.has_lost_files() && self.reconciler().is_err() && place.cluster == cluster {
            return Ok(None);
        }
        // A node that does not take part in its cluster does not know what the record says now.
        // A clone of the other node was alone in the same cluster, under the same number.
        let is_another = place.cluster != cluster || place.is_private();
        let reconciler = self.reconciler()?;
        if reconciler.is_stopping() || !is_another {
            return Err(EnterError::Already.into());
        }
        let is_alone = reconciler.revision_of(NEXT_NODE).is_none() && reconciler.nodes().len() < 2;
        if !is_alone || reconciler.sole_here().len() < reconciler.wanted_here().len() {
            return Err(EnterError::NotAlone.into());
        }
        // It may not have read the record yet.
        if !reconciler.knows_this_life() {
            return Err(ControlError::LifeUnknown);
        }
        if let Some(name) = reconciler.unreadable_keys().pop() {
            return Err(ControlError::EntryUnreadable { kind: "entry", name });
        }
        if let Some(snapshot) = snapshots::all(&reconciler).pop() {
            return Err(EnterError::HasSnapshots(snapshot.name).into());
        }
        if let Some(schedule) = self.snapshot_schedules()?.pop() {
            return Err(EnterError::HasSchedules(schedule.entry.name).into());
        }
        // The next life would not know that it has to be removed.
        if let Some(address) = self.address_going() {
            return Err(EnterError::AddressGoing(address).into());
        }
        match self.not_in_pool(&reconciler).await {
            Some(volume) => Err(EnterError::NotInPool(volume).into()),
            None => Ok(Some(reconciler)),
        }
    }

    /// Checks whether this node could leave its cluster for another one now, before any other node is asked.
    /// Returns the addresses at which it listens for other nodes, and which it would give up.
    ///
    /// # Errors
    /// As [`Control::cluster_to_leave`]. [`ControlError::Busy`]: a change of a volume or pool is under way.
    pub(in crate::control) async fn check_leaving_for(
        self: &Rc<Control>,
        cluster: &str,
    ) -> Result<Vec<SocketAddr>> {
        let cluster = cluster.to_owned();
        self.change(Doing::PrepareToJoin.of(&self.host.name), NOTHING, |control, changing| async move {
            let _volumes = changing.hold(control.pools_and_volumes()).await?;
            let reconciler = control.cluster_to_leave(&cluster).await?;
            Ok(reconciler.map(|reconciler| reconciler.addresses()).unwrap_or_default())
        })
        .await
    }

    /// All pools of this node and their volumes.
    pub(super) fn pools_and_volumes(&self) -> Vec<Thing> {
        let pools: Vec<String> = self.pools.borrow().keys().cloned().collect();
        let volumes = self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let volumes = volumes.map(|info| Thing::Volume(info.id));
        pools.into_iter().map(Thing::Pool).chain(volumes).collect()
    }

    /// Takes the node's place in another cluster, which is among `changes`, and ends its life in this one.
    /// The caller holds the record, all pools and their volumes.
    ///
    /// # Errors
    /// The record cannot be written, or a node is just joining this one. Nothing has changed.
    pub(super) async fn leave_for(
        &self,
        changing: &Changing,
        former: Rc<Reconciler>,
        changes: Vec<Change>,
    ) -> Result<()> {
        if !self.door.close() {
            return Err(EnterError::NotAlone.into());
        }
        if let Err(error) = self.commit(changing, changes).await {
            // The disk may have the new place all the same. The next start would lose what this cluster
            // confirms from now on.
            if self.commit(changing, Vec::new()).await.is_err() {
                tracing::error!(
                    "the record of this node cannot be written: its next start may be in the cluster that it was about to join"
                );
            }
            self.door.open();
            return Err(error);
        }
        // Without this, nothing would say why the node does not take part in a cluster. It is not reported as
        // an event.
        self.cluster_failure.replace(Some(ClusterFailure { why: ClusterFault::Moving, since: rt::now() }));
        self.tokens.borrow_mut().clear();
        drop(self.life.take());
        former.end().await;
        self.former.replace(Rc::downgrade(&former));
        for address in former.addresses() {
            // The new life may use the same ones, and the kernel may release them a little later.
            drop(retry_while_held(async || Listener::bind(address).await).await);
        }
        self.door.open();
        Ok(())
    }

    /// Begins the first life in the cluster for which the node has left another one.
    pub(super) async fn begin_elsewhere(self: &Rc<Control>) -> Result<()> {
        self.try_cluster().await?;
        self.cluster_failure.replace(None);
        Ok(())
    }

    /// Waits until nothing holds the reconciler of the cluster that this node has left for another one.
    ///
    /// # Errors
    /// [`EnterError::FormerCluster`].
    pub(super) async fn until_former_is_gone(&self) -> Result<(), EnterError> {
        let until = rt::now() + GONE_WITHIN;
        while self.former.borrow().strong_count() > 0 {
            if rt::now() >= until {
                return Err(EnterError::FormerCluster);
            }
            rt::sleep(GONE_EVERY).await;
        }
        Ok(())
    }
}
