//! What the record says about verifying copies.

use std::time::Duration;

use store::VolumeId;

use super::{ClusterError, Reconciler, json};
use crate::copies::verification::{VERIFY_EVERY, VERIFY_EVERY_DEFAULT, VerificationEntry, verification_key};

impl Reconciler {
    /// What the record remembers of verifying a volume.
    pub fn verification(&self, id: VolumeId) -> VerificationEntry {
        self.get(&verification_key(id)).map(|(entry, _)| entry).unwrap_or_default()
    }

    /// How often volumes are verified; `None`: never.
    pub fn verify_every(&self) -> Option<Duration> {
        let seconds = self.get::<u64>(VERIFY_EVERY).map(|(seconds, _)| seconds);
        seconds
            .map_or(Some(VERIFY_EVERY_DEFAULT), |seconds| (seconds > 0).then(|| Duration::from_secs(seconds)))
    }

    /// Sets how often volumes are verified; `None`: never.
    ///
    /// # Errors
    /// [`ClusterError::Record`], [`ClusterError::Conflict`].
    pub async fn set_verify_every(&self, every: Option<Duration>) -> Result<(), ClusterError> {
        let seconds = every.map_or(0, |every| every.as_secs());
        let transaction = Reconciler::transaction().expect(VERIFY_EVERY, self.revision_of(VERIFY_EVERY));
        self.commit(transaction.put(VERIFY_EVERY, json(&seconds))).await
    }
}
