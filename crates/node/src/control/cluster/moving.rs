//! Moves what a node had before it created its cluster into the cluster's record.
//!
//! The new record gets all of it before the node is in the cluster. So if the node crashes, it is in no
//! cluster and has everything in its own record, or it is in the cluster and the cluster's record has it.

use cluster::{Store, Transaction};

use super::super::Control;
use super::super::access::{HOSTS, TARGETS};
use super::{EnterError, KNOWN_ACCESS};
use crate::access::{HostGroup, Target};
use crate::copies::{Keeper, RECORD_DEADLINE};
use crate::record::{Change, delete, set};

/// How many entries one transaction moves. A transaction takes a hundred, of 1 MiB together, and a large host
/// group has 20 KiB.
const MOVED_AT_ONCE: usize = 50;

impl Control {
    /// Writes the targets, hosts, users and tokens of the node into a new record, which no other node knows
    /// yet. Returns the changes of the node's own record with which the node enters the cluster. The caller
    /// holds the node's record.
    ///
    /// # Errors
    /// Those of the new record. The node is as it was.
    pub(super) async fn fill_record(&self, store: &Store) -> Result<Vec<Change>, EnterError> {
        let mut own = self.own_access();
        own.extend(self.own_people());
        for some in own.chunks(MOVED_AT_ONCE) {
            let put = |transaction: Transaction, (key, value): &Change| match value {
                Some(value) => transaction.put(key, value.get()),
                None => transaction,
            };
            // It has no preconditions, so nothing can conflict.
            store.cas(some.iter().fold(Keeper::transaction(), put), RECORD_DEADLINE).await?;
        }
        // If the node restarts before it has read the cluster's record, it acts by what it knows.
        let known = set(KNOWN_ACCESS.into(), &self.all_rules());
        Ok(own.into_iter().map(|(key, _)| delete(key)).chain([known]).collect())
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
}
