//! Calls for volumes and their copies.

use std::thread;
use std::time::Duration;

use super::path::{of_node, segment};
use super::{Client, Result};
use crate::{
    CopyCreate, ForkResolution, List, PolicyChoice, PolicyChosen, Scrub, Verification, VerificationState,
    Volume, VolumeChange, VolumeConvert, VolumeCounters, VolumeCreate,
};

/// How often the client queries the progress of a verify.
const VERIFICATION_EVERY: Duration = Duration::from_millis(500);

/// Volumes.
impl Client {
    /// All volumes of the cluster, by name; and which nodes did not answer.
    pub fn volumes(&self) -> Result<List<Volume>> {
        self.get("/v1/volumes")
    }

    /// One volume, by name or ID.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        self.get(&format!("/v1/volumes/{}", segment(name)))
    }

    /// Counters of the I/O to a volume through a node, with a latency histogram.
    ///
    /// `None` means the queried node, or one that has a copy.
    pub fn volume_counters(&self, name: &str, node: Option<u16>) -> Result<VolumeCounters> {
        self.get(&of_node(format!("/v1/volumes/{}/counters", segment(name)), node))
    }

    /// Creates a volume, and maps it unless the request says otherwise.
    pub fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        self.post("/v1/volumes", volume)
    }

    /// Grows or renames a volume.
    pub fn change_volume(&self, name: &str, change: &VolumeChange) -> Result<Volume> {
        self.patch(&format!("/v1/volumes/{}", segment(name)), change)
    }

    /// Verifies the copies of a volume, and waits for the end; reports the progress every half second.
    ///
    /// `node` does the work; `None` means the queried node, or one that has a copy.
    pub fn verify_volume(
        &self,
        name: &str,
        node: Option<u16>,
        mut told: impl FnMut(&Verification),
    ) -> Result<Verification> {
        let path = of_node(format!("/v1/volumes/{}/verify", segment(name)), node);
        let mut found: Verification = self.post_empty(&path)?;
        while found.state == VerificationState::Running {
            told(&found);
            thread::sleep(VERIFICATION_EVERY);
            found = self.get(&path)?;
        }
        Ok(found)
    }

    /// Scrubs a volume, and returns the result, or the progress if it takes longer.
    ///
    /// `node` does the work; `None` means the queried node, or one that has a copy.
    pub fn scrub_volume(&self, name: &str, node: Option<u16>) -> Result<Scrub> {
        let path = of_node(format!("/v1/volumes/{}/scrub", segment(name)), node);
        self.post_empty(&path)
    }

    /// Converts a volume to another kind. It continues in the background: each copy is a job of its node.
    pub fn convert_volume(&self, name: &str, to: &VolumeConvert) -> Result<Volume> {
        self.post(&format!("/v1/volumes/{}/convert", segment(name)), to)
    }

    /// Adds a copy to a volume, or moves one.
    pub fn add_copy(&self, name: &str, copy: &CopyCreate) -> Result<Volume> {
        self.post(&format!("/v1/volumes/{}/copies", segment(name)), copy)
    }

    /// Removes a volume's copy from a node. The removal may continue after the response.
    pub fn remove_copy(&self, name: &str, node: u16) -> Result<()> {
        self.delete(&format!("/v1/volumes/{}/copies/{node}", segment(name)))
    }

    /// Sets the split-brain policy of a volume.
    pub fn set_split_brain_policy(&self, name: &str, choice: &PolicyChoice) -> Result<PolicyChosen> {
        self.put_json(&format!("/v1/volumes/{}/split-brain-policy", segment(name)), choice)
    }

    /// Decides which node's data is kept of a volume that several nodes have served alone.
    pub fn resolve_fork(&self, name: &str, resolution: &ForkResolution) -> Result<()> {
        self.put(&format!("/v1/volumes/{}/split-brain", segment(name)), resolution)
    }

    /// Deletes a volume with all its data; with `force`, also its maps.
    pub fn delete_volume(&self, name: &str, force: bool) -> Result<()> {
        self.delete(&format!("/v1/volumes/{}?force={force}", segment(name)))
    }
}
