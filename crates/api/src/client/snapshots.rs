//! Calls for snapshots.

use super::path::{segment, with_query};
use super::{Client, Result};
use crate::{
    List, Snapshot, SnapshotChange, SnapshotClone, SnapshotCloned, SnapshotCreate, SnapshotDataQuery,
    SnapshotDiff, SnapshotDiffQuery, SnapshotRestore, SnapshotRestored, SnapshotSchedule,
    SnapshotScheduleChange, SnapshotScheduleCreate,
};

/// Snapshots of volumes.
impl Client {
    /// All snapshots, or those of a volume; only those with all of these labels, as in `app=shop,ticket`.
    pub fn snapshots(&self, volume: Option<&str>, label: Option<&str>) -> Result<List<Snapshot>> {
        let parameters = [
            ("volume", volume.map(str::to_owned)),
            // Several are separated by commas.
            ("label", label.map(str::to_owned)),
        ];
        self.get(&with_query("/v1/snapshots", parameters))
    }

    /// One snapshot, by name or number.
    pub fn snapshot(&self, snapshot: &str) -> Result<Snapshot> {
        self.get(&format!("/v1/snapshots/{}", segment(snapshot)))
    }

    /// A page of what differs between two snapshots of a volume.
    pub fn snapshot_diff(&self, query: &SnapshotDiffQuery) -> Result<SnapshotDiff> {
        let path = format!("/v1/snapshots/{}/diff", segment(&query.snapshot));
        let parameters = [
            ("volume", Some(query.volume.clone())),
            ("since", query.since.clone()),
            ("offset", Some(query.offset.to_string())),
            ("limit", Some(query.limit.to_string())),
        ];
        self.get(&with_query(&path, parameters))
    }

    /// The bytes of a range of a volume as a snapshot has it: exactly as many as were asked for.
    pub fn snapshot_data(&self, query: &SnapshotDataQuery) -> Result<Vec<u8>> {
        let path = format!("/v1/snapshots/{}/data", segment(&query.snapshot));
        let parameters = [
            ("volume", Some(query.volume.clone())),
            ("offset", Some(query.offset.to_string())),
            ("len", Some(query.len.to_string())),
        ];
        self.get_bytes(&with_query(&path, parameters), query.len)
    }

    /// Takes a snapshot.
    pub fn create_snapshot(&self, snapshot: &SnapshotCreate) -> Result<Snapshot> {
        self.post("/v1/snapshots", snapshot)
    }

    /// Restores volumes to a snapshot.
    pub fn restore_snapshot(&self, snapshot: &str, restore: &SnapshotRestore) -> Result<SnapshotRestored> {
        self.post(&format!("/v1/snapshots/{}/restore", segment(snapshot)), restore)
    }

    /// Creates clones of a snapshot.
    pub fn clone_snapshot(&self, snapshot: &str, clone: &SnapshotClone) -> Result<SnapshotCloned> {
        self.post(&format!("/v1/snapshots/{}/clones", segment(snapshot)), clone)
    }

    /// Puts a snapshot on hold or releases it, and changes its expiry and its labels.
    pub fn change_snapshot(&self, snapshot: &str, change: &SnapshotChange) -> Result<Snapshot> {
        self.patch(&format!("/v1/snapshots/{}", segment(snapshot)), change)
    }

    /// Deletes a snapshot. Its space is freed in the background.
    pub fn delete_snapshot(&self, snapshot: &str) -> Result<()> {
        self.delete(&format!("/v1/snapshots/{}", segment(snapshot)))
    }
}

/// Schedules of snapshots.
impl Client {
    /// All schedules.
    pub fn snapshot_schedules(&self) -> Result<Vec<SnapshotSchedule>> {
        self.list("/v1/snapshot-schedules")
    }

    /// One schedule.
    pub fn snapshot_schedule(&self, schedule: &str) -> Result<SnapshotSchedule> {
        self.get(&format!("/v1/snapshot-schedules/{}", segment(schedule)))
    }

    /// Creates a schedule.
    pub fn create_snapshot_schedule(&self, schedule: &SnapshotScheduleCreate) -> Result<SnapshotSchedule> {
        self.post("/v1/snapshot-schedules", schedule)
    }

    /// Changes a schedule, pauses it, or resumes it.
    pub fn change_snapshot_schedule(
        &self,
        schedule: &str,
        change: &SnapshotScheduleChange,
    ) -> Result<SnapshotSchedule> {
        self.patch(&format!("/v1/snapshot-schedules/{}", segment(schedule)), change)
    }

    /// Deletes a schedule. Its snapshots stay.
    pub fn delete_snapshot_schedule(&self, schedule: &str) -> Result<()> {
        self.delete(&format!("/v1/snapshot-schedules/{}", segment(schedule)))
    }
}
