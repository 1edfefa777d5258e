//! A node that cannot take part in its cluster: its copy of the record is damaged, a certificate cannot be
//! read, or settings do not match.
//!
//! Its sole volumes do not depend on any of that. So it starts, serves these by the access rules that it knew
//! last ([`KnownAccess`]), and keeps trying. Volumes with copies stay closed, because only the cluster's
//! record knows which copies are in sync. Nothing that the cluster shares can be changed meanwhile.

use std::rc::Rc;
use std::time::Duration;

use base::{Instant, chain};
use replica::Revision;
use serde::{Deserialize, Serialize};

use super::super::access::{HOSTS, TARGETS};
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError, Result, StartError};
use super::ClusterFault;
use crate::attach::access::{HostGroup, Target};
use crate::attach::port_numbers::NodeNumber;
use crate::events::code::{CLUSTER_FAILED, CLUSTER_RECOVERED};
use crate::events::{Event, tell};
use crate::member::{RECORD_DEADLINE, Reconciler};
use crate::record::set;
use crate::shard::{Shard, on_all_cores};

/// How often a node tries again to take part in its cluster. Each attempt is a life of its own, which the
/// node's record counts.
pub(in crate::control) const TRY_EVERY: Duration = Duration::from_secs(10);
/// How often the node checks whether the cluster's access rules have changed on another node, and saves them
/// for a start without the cluster. Each change writes the node's record.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How long a start waits for a record in which only this node votes.
const READ_WITHIN: Duration = Duration::from_secs(3);
/// The pause after they were saved: all of them are read and written each time, and somebody may be creating
/// a thousand.
const KEEP_PAUSE: Duration = Duration::from_millis(50);

/// The key in the node's own record of the last known targets and host groups of the cluster.
pub(in crate::control) const KNOWN_ACCESS: &str = "known_access";

/// The cluster's targets and host groups, as the node last knew them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::control) struct KnownAccess {
    pub(in crate::control) targets: Vec<Target>,
    pub(in crate::control) hosts: Vec<HostGroup>,
}

/// Why the node does not take part in its cluster.
#[derive(Clone, Debug)]
pub struct ClusterFailure {
    /// The reason.
    pub why: ClusterFault,
    /// Since when.
    pub since: Instant,
}

impl Control {
    /// Why the node does not take part in its cluster, if it is in one.
    pub fn cluster_failure(&self) -> Option<ClusterFailure> {
        self.cluster_failure.borrow().clone()
    }

    /// Begins the life of this start in the node's cluster. If that fails, the node shows why and tries
    /// again. At its first start, it creates a cluster.
    ///
    /// # Errors
    /// At the first start, when nothing is served yet: the cluster cannot be created.
    pub(crate) async fn begin_in_cluster(self: &Rc<Control>) -> Result<(), StartError> {
        let begun = match self.has_place() {
            false => {
                self.enter_first().await.map_err(StartError::Cluster)?;
                Ok(())
            }
            true => self.try_cluster().await,
        };
        if let Err(error) = begun {
            self.try_cluster_later(&error).await;
            return Ok(());
        }
        let Ok(reconciler) = self.reconciler() else { return Ok(()) };
        if self.place().is_some_and(|place| place.is_private()) {
            // Only this node votes, so that takes a moment. Then everything works when the node serves.
            reconciler.until(READ_WITHIN, || reconciler.knows_this_life()).await;
        }
        // Until it has read the record, it acts by what it knew last.
        let control = Rc::clone(self);
        let follow = async move { control.follow_rules_of_record(reconciler, Revision(1)).await };
        rt::spawn(follow).detach();
        Ok(())
    }

    /// Returns the outcome of the beginning of a node's first life in a cluster.
    ///
    /// If the node is in the cluster by then, and could not begin, it continues as after such a start.
    pub(super) async fn begun_in_cluster(self: &Rc<Control>, begun: Result<()>) -> Result<()> {
        if let Err(error) = &begun
            && self.reconciler().is_err()
        {
            self.try_cluster_later(error).await;
        }
        begun
    }

    /// Shows why the node cannot take part in the cluster that it is in, and tries again.
    async fn try_cluster_later(self: &Rc<Control>, error: &ControlError) {
        self.note_cluster_failure(error);
        // Hosts know the node's ports by its number, whether or not the cluster is available.
        let number = self.place().and_then(|place| NodeNumber::new(place.node.into()));
        on_all_cores(move || async move { Shard::current().set_place(number) }).await;
        rt::spawn(Rc::clone(self).try_cluster_again()).detach();
    }

    async fn try_cluster_again(self: Rc<Control>) {
        loop {
            rt::sleep(TRY_EVERY).await;
            match self.try_cluster().await {
                Ok(()) => break,
                Err(error) => self.note_cluster_failure(&error),
            }
        }
        self.cluster_failure.replace(None);
        let Ok(reconciler) = self.reconciler() else { return };
        let name = self.host.name.clone();
        tell(Event::new(CLUSTER_RECOVERED, &name, format!("node {name} takes part in its cluster again")));
        // It may have left another cluster.
        reconciler.until(RECORD_DEADLINE, || reconciler.knows_this_life()).await;
        self.finish_leaving().await;
        self.follow_rules_of_record(reconciler, Revision(1)).await;
    }

    /// Acts by the access rules of the record alone once the node acts by this revision: the rules that it
    /// knew before may name objects that no longer exist.
    pub(super) async fn follow_rules_of_record(&self, reconciler: Rc<Reconciler>, revision: Revision) {
        while !reconciler.is_stopping() {
            if reconciler.until(RECORD_DEADLINE, || reconciler.acts_by() >= revision).await {
                return self.announce_record().await;
            }
        }
    }

    fn note_cluster_failure(&self, error: &ControlError) {
        let why = ClusterFault::from(error);
        let cause = why.code();
        let mut failure = self.cluster_failure.borrow_mut();
        if let Some(known) = failure.as_mut().filter(|known| known.why.code() == cause) {
            known.why = why;
            return;
        }
        tracing::error!(
            reason = chain(error),
            "this node cannot take part in its cluster: it serves only volumes that have never had a copy on another node, and keeps trying"
        );
        let name = &self.host.name;
        let text = format!("node {name} cannot take part in its cluster: {why}");
        tell(Event::new(CLUSTER_FAILED, name, text).because(cause));
        let since = failure.as_ref().map_or(rt::now(), |known| known.since);
        *failure = Some(ClusterFailure { why, since });
    }

    /// Saves the cluster's access rules for a start without the cluster, as long as the node is in it.
    pub(super) async fn keep_access(self: Rc<Control>, reconciler: Rc<Reconciler>) {
        let mut saved_at = None;
        while !reconciler.is_stopping() {
            // A host may use a new volume at once, so the rules that this node has changed are saved soon.
            // The change itself does not wait for that: the disk of the node's record may hang.
            let next = rt::now().beat_after(KEEP_EVERY);
            let _ = rt::timeout_at(next, self.access_changed.notified()).await;
            let acts_by = reconciler.acts_by();
            if acts_by == Revision(0) || saved_at == Some(acts_by) {
                continue;
            }
            let known = KnownAccess { targets: reconciler.list(TARGETS), hosts: reconciler.list(HOSTS) };
            if self.record.borrow().get::<KnownAccess>(KNOWN_ACCESS).unwrap_or_default() == known {
                saved_at = Some(acts_by);
                continue;
            }
            let work = Doing::KeepAccess.of(&self.host.name);
            let kept = self.change(work, [Thing::Record], |control, changing| async move {
                control.commit(&changing, vec![set(KNOWN_ACCESS.into(), &known)]).await
            });
            if let Err(error) = kept.await {
                tracing::debug!(%error, "the access rules of the cluster could not be saved yet");
            }
            rt::sleep(KEEP_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rt::CoreId;

    use super::super::CLUSTER;
    use super::*;
    use crate::single_node::single_node;

    /// As after a downgrade. Otherwise the node would forget its cluster, and its copies would belong to no
    /// node.
    #[test]
    fn a_place_that_this_version_cannot_read_stays() {
        let (world, server) = single_node(1);
        world.block_on(server, CoreId(0), || async {
            let control = Control::current();
            let writer = Rc::clone(&control);
            let work = Doing::KeepAccess.of("a");
            let written = control.change(work, [Thing::Record], |_, changing| async move {
                let place = set(CLUSTER.into(), &["since", "a later version"]);
                writer.commit(&changing, vec![place]).await
            });
            written.await.unwrap();
            control.begin_in_cluster().await.unwrap();
            let failure = control.cluster_failure().unwrap();
            let entry = r#"["since","a later version"]"#.to_owned();
            assert_eq!(failure.why, ClusterFault::PlaceUnreadable { entry });
            let refused = control.leave_cluster().await.unwrap_err();
            assert!(matches!(&refused, ControlError::ClusterFailed(why) if *why == failure.why), "{refused}");
            // Its number is a guess, and may be that of another node.
            assert!(control.check_is_here(None).is_ok() && control.check_is_here(Some(1)).is_err());
            let kept = control.record.borrow().text(CLUSTER).map(str::to_owned);
            assert_eq!(kept.as_deref(), Some(r#"["since","a later version"]"#));
        });
    }
}
