//! Moves what a node had before it created its cluster into the cluster's record.

use std::rc::Rc;
use std::time::Duration;

use cluster::Transaction;

use super::super::access::{HOSTS, TARGETS};
use super::super::change::{Changing, WaitsFor, Work};
use super::super::doing::Doing;
use super::super::turns::Thing;
use super::super::{Control, ControlError};
use crate::access::{HostGroup, Target};
use crate::copies::{ClusterError, Keeper};
use crate::record::{Change, delete, set};

/// How many entries one transaction moves. A transaction takes a hundred, of 1 MiB together, and a large host
/// group has 20 KiB.
const MOVED_AT_ONCE: usize = 50;

/// The pause before the node tries again to move its entries.
const MOVE_AGAIN: Duration = Duration::from_secs(1);

impl Control {
    /// Moves the targets, hosts, users and tokens that the node had before it created the cluster. The caller
    /// holds the record.
    ///
    /// Entries that the cluster's record already has stay as they are there: an earlier life that was
    /// interrupted moved them. The node's own record keeps everything until all of it is moved.
    pub(super) async fn move_own_to_cluster(&self, changing: &Changing) -> Result<(), ControlError> {
        let (Ok(keeper), Some(place)) = (self.keeper(), self.place()) else { return Ok(()) };
        if !place.is_founders() {
            return Ok(());
        }
        // Users and tokens come last, and the marker last of these: until then the cluster can still be set
        // up.
        let mut own = self.own_access();
        own.extend(self.own_people());
        if own.is_empty() {
            return Ok(());
        }
        changing.waits_for(WaitsFor::ClusterRecord);
        for some in own.chunks(MOVED_AT_ONCE) {
            move_some(&keeper, some.to_vec()).await?;
        }
        self.commit(changing, own.into_iter().map(|(key, _)| delete(key)).collect()).await
    }

    /// The targets and hosts in the node's own record, by key.
    pub(super) fn own_access(&self) -> Vec<Change> {
        let record = self.record.borrow();
        let targets = record.list::<Target>(TARGETS).into_iter();
        let hosts = record.list::<HostGroup>(HOSTS).into_iter();
        let mut own: Vec<Change> =
            targets.map(|target| set(format!("{TARGETS}{}", target.name), &target)).collect();
        own.extend(hosts.map(|host| set(format!("{HOSTS}{}", host.name), &host)));
        own
    }

    /// Moves what is left to be moved, and tries again until that succeeds.
    pub(super) async fn move_later(self: Rc<Control>) {
        while self.keeper().is_ok_and(|keeper| !keeper.is_stopping()) {
            rt::sleep(MOVE_AGAIN).await;
            let control = Rc::clone(&self);
            let moved = self.change(Work::new(Doing::MoveAccess, &self.host.name), |changing| async move {
                let _record = changing.hold([Thing::Record]).await?;
                control.move_own_to_cluster(&changing).await
            });
            match moved.await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "not moved yet"),
            }
        }
    }
}

/// Adds these entries to the cluster's record, except those that exist there.
async fn move_some(keeper: &Keeper, mut some: Vec<Change>) -> Result<(), ControlError> {
    loop {
        let put = |transaction: Transaction, (key, value): &Change| match value {
            Some(value) => transaction.expect(key, None).put(key, value.get()),
            None => transaction,
        };
        match keeper.commit(some.iter().fold(Keeper::transaction(), put)).await {
            Err(ClusterError::Conflict(there)) if some.iter().any(|(key, _)| *key == there) => {
                some.retain(|(key, _)| *key != there);
            }
            result => return Ok(result?),
        }
    }
}
