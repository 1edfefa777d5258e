//! A node that leaves its cluster without the other nodes: it was removed or abandoned, or its copy of the
//! record is damaged.
//!
//! The node leaves at its next start, when nothing of the cluster runs yet, for a cluster of its own. The
//! directory with the certificates and the record stays, because it may contain the key that lets nodes join
//! the cluster; no other place has the same one. Pools stay as they are. Sole volumes keep the targets and
//! host groups through which hosts used them; copies of the cluster's volumes are listed, but not served.
//!
//! A node whose directory is missing stays in its cluster until an administrator decides otherwise: the
//! directory may be on a file system that is not mounted yet. The node serves its sole volumes
//! ([`super::failing`]), and may join again, as another node.

use std::collections::BTreeSet;
use std::rc::Rc;

use link::NODE_KEY_FILE;
use serde::{Deserialize, Serialize};

use super::super::access::{HOSTS, TARGETS};
use super::super::change::Changing;
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError, Result};
use super::failing::{KNOWN_ACCESS, KnownAccess, TRY_EVERY};
use super::moving::MOVED_AT_ONCE;
use super::{CLUSTER, Place, RECORD_FILE, cluster_path, keeps_files};
use crate::data::VolumeId;
use crate::events::code::CLUSTER_LEFT;
use crate::events::{Event, tell};
use crate::member::RECORD_DEADLINE;
use crate::record::{Change, set};

/// The key under which the node's own record stores the cluster that it has left.
pub(super) const LEFT: &str = "left_cluster";

/// A cluster that the node has left for one of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LeftCluster {
    /// The cluster's identity.
    cluster: String,
    /// Its access rules: first all that the node knew, then those that it has taken over.
    access: KnownAccess,
    /// The rules have been taken over.
    is_done: bool,
}

/// What leaving the cluster would keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Sole volumes of this node, which it serves as before.
    pub local: Vec<String>,
    /// Volumes with a copy here. The copy stays in its pool and is not served.
    pub copies: Vec<String>,
    /// No other node can have joined the cluster.
    pub was_alone: bool,
}

impl Control {
    /// Checks whether the node could leave its cluster; returns what that would keep.
    ///
    /// An active member cannot leave this way: the other nodes would wait for it, and it may have the only
    /// copy of a volume.
    ///
    /// # Errors
    /// [`ControlError::ClusterFailed`], [`ControlError::TakesPart`], [`ControlError::OnlyNode`].
    pub async fn check_leaving(&self) -> Result<Leaving> {
        let place = self.own_place()?;
        if let Some(reconciler) = self.reconciler().ok().filter(|reconciler| reconciler.expelled().is_none())
            && reconciler.store().get(CLUSTER, RECORD_DEADLINE).await.is_ok()
        {
            return Err(match reconciler.nodes().len() {
                0 | 1 => ControlError::OnlyNode,
                _ => ControlError::TakesPart(reconciler.me().0),
            });
        }
        let volumes = self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let (local, copies): (Vec<_>, Vec<_>) = volumes.partition(|info| info.is_sole());
        let names = |volumes: Vec<store::VolumeInfo>| volumes.into_iter().map(|info| info.name).collect();
        Ok(Leaving { local: names(local), copies: names(copies), was_alone: place.is_private() })
    }

    /// Makes the node leave its cluster at its next start. The other nodes are neither asked nor informed.
    ///
    /// # Errors
    /// As [`Control::check_leaving`]; [`ControlError::Record`].
    pub async fn leave_cluster(self: &Rc<Control>) -> Result<()> {
        let before = self.own_place()?;
        self.check_leaving().await?;
        let work = Doing::LeaveCluster.of(self.name());
        self.change(work, [Thing::Record], |control, changing| async move {
            let place = control.place_still(&before)?;
            tracing::warn!(node = place.node, "from its next start this node is in a cluster of its own");
            control.commit(&changing, vec![set(CLUSTER.into(), &Place { leave: true, ..place })]).await
        })
        .await
    }

    /// Leaves the cluster for one of its own, in one step, and begins a life there. The caller holds the
    /// record.
    ///
    /// # Errors
    /// Files cannot be written. The node has left if its place says so.
    pub(super) async fn leave_for_its_own(
        self: &Rc<Control>,
        changing: &Changing,
        place: &Place,
    ) -> Result<()> {
        let access: KnownAccess = self.record.borrow().get(KNOWN_ACCESS).unwrap_or_default();
        let left = LeftCluster { cluster: place.cluster.clone(), access, is_done: false };
        let founded = self.found(changing, vec![set(LEFT.into(), &left)]).await;
        if self.place().is_some_and(|now| now.cluster != place.cluster) {
            let name = &self.host.name;
            tracing::warn!(
                "this node has left its cluster and serves only volumes that have never had a copy on another node"
            );
            tell(Event::new(CLUSTER_LEFT, name, format!("node {name} has left its cluster")));
        }
        founded
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
        known.filter(|_| is_it).unwrap_or_default().in_record().into_iter().map(|(key, _)| key).collect()
    }

    /// Takes over the targets and host groups through which hosts used the node's sole volumes in the cluster
    /// that it has left, if these are known. If that fails, the node acts by them, and tries again.
    pub(crate) async fn finish_leaving(self: &Rc<Control>) {
        let Err(error) = self.take_rules_over().await else { return };
        tracing::error!(%error, "the targets of the cluster that this node has left are not in the record of its own yet");
        let control = Rc::clone(self);
        rt::spawn(async move {
            loop {
                rt::sleep(TRY_EVERY).await;
                match control.take_rules_over().await {
                    Ok(()) => break,
                    Err(error) => tracing::debug!(%error, "they still are not"),
                }
            }
        })
        .detach();
    }

    /// The rules of the cluster that the node has left, if the record of its own does not have them yet.
    pub(in crate::control) fn rules_to_take_over(&self) -> Option<KnownAccess> {
        let left: Option<LeftCluster> = self.record.borrow().get(LEFT);
        left.filter(|left| !left.is_done).map(|left| left.access)
    }

    async fn take_rules_over(self: &Rc<Control>) -> Result<()> {
        if self.rules_to_take_over().is_none() {
            return Ok(());
        }
        let work = Doing::TakeAccessOver.of(&self.host.name);
        self.change(work, [Thing::Record], |control, changing| async move {
            control.take_left_rules_over(&changing).await
        })
        .await?;
        self.announce_record().await;
        Ok(())
    }

    /// The caller holds the record.
    async fn take_left_rules_over(&self, changing: &Changing) -> Result<()> {
        let left: Option<LeftCluster> = self.record.borrow().get(LEFT);
        // Another attempt may have been faster. What has been changed since counts.
        let Some(LeftCluster { cluster, access, .. }) = left.filter(|left| !left.is_done) else {
            return Ok(());
        };
        let volumes = || self.open_pools().into_iter().flat_map(|pool| pool.volumes());
        let ids = |sole: bool| volumes().filter(move |info| info.is_sole() == sole).map(|info| info.id);
        let (local, copies): (BTreeSet<VolumeId>, BTreeSet<VolumeId>) =
            (ids(true).collect(), ids(false).collect());
        // A pool that is not open may hold sole volumes, too.
        let all_known = self.all_pools_are_open();
        let is_kept = |id: &VolumeId| local.contains(id) || (!all_known && !copies.contains(id));
        let access = access.only(is_kept);
        let rules = access.in_record();
        let done = set(LEFT.into(), &LeftCluster { cluster, access, is_done: true });
        for some in rules.chunks(MOVED_AT_ONCE) {
            self.commit_shared(changing, some.to_vec(), Vec::new()).await?;
        }
        self.commit(changing, vec![done]).await
    }

    /// The keys of the rules that the node took over from this cluster when it left, and that nobody has
    /// changed since. The cluster has them itself.
    pub(in crate::control) fn taken_over(&self, cluster: &str) -> Vec<String> {
        let left: Option<LeftCluster> = self.record.borrow().get(LEFT);
        let left = left.filter(|left| left.is_done && left.cluster == cluster);
        let Some(LeftCluster { access: KnownAccess { mut targets, mut hosts }, .. }) = left else {
            return Vec::new();
        };
        let own = self.access();
        targets.retain(|target| own.targets().any(|own| own == target));
        hosts.retain(|host| own.hosts().any(|own| own == host));
        KnownAccess { targets, hosts }.in_record().into_iter().map(|(key, _)| key).collect()
    }
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

    /// The entries of a record that say the same.
    fn in_record(&self) -> Vec<Change> {
        let targets = self.targets.iter().map(|target| set(format!("{TARGETS}{}", target.name), target));
        let hosts = self.hosts.iter().map(|host| set(format!("{HOSTS}{}", host.name), host));
        targets.chain(hosts).collect()
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
        let access = json!({
            "targets": [{
                "name": "iqn.2026-11.io.ursa:db", "port": 1, "alias": "database",
                "chap": {"user": "target", "secret": "not a secret at all"},
                "maps": [{"lun": 0, "volume": "00000000000000000000000000000001", "host": "web"}],
                "made_with": "00000000000000000000000000000001"
            }],
            "hosts": [{"name": "web", "initiators": [], "addresses": ["10.1.0.0/16"], "chap": null}]
        });
        check::<KnownAccess>(&access);
        check::<LeftCluster>(&json!({
            "cluster": "00112233445566778899aabbccddeeff", "access": access, "is_done": true
        }));
    }
}
