//! What is read of the node at one moment.

use std::collections::BTreeMap;

use node::control::{ControlError, PoolStatus, RecordStatus, ReplicationStats, SessionStatus, VolumeStats};
use node::copies::CopiesStatus;
use node::{Control, VolumeId};

/// A volume that has metrics.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) id: VolumeId,
    pub(super) name: String,
    pub(super) pool: String,
    /// Bytes.
    pub(super) capacity: u64,
}

/// The node at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// By name.
    pub(super) volumes: Vec<Measured>,
    pub(super) stats: VolumeStats,
    /// The copies of volumes that have several, by the volume's name.
    pub(super) copies: Vec<(String, CopiesStatus)>,
    pub(super) replication: ReplicationStats,
    /// Names of all targets, in order.
    pub(super) targets: Vec<String>,
    pub(super) sessions: Vec<SessionStatus>,
    /// By status class and detail.
    pub(super) refused_logins: BTreeMap<u16, u64>,
    pub(super) pools: Vec<PoolStatus>,
    pub(super) record: RecordStatus,
}

impl Snapshot {
    pub(super) async fn take(control: &Control) -> Result<Snapshot, ControlError> {
        let volumes = control.volumes();
        let copies =
            volumes.iter().filter_map(|volume| Some((volume.info.name.clone(), volume.copies.clone()?)));
        let copies = copies.collect();
        let volumes = volumes.into_iter().map(|volume| Measured {
            id: volume.info.id,
            name: volume.info.name,
            pool: volume.pool,
            capacity: volume.info.capacity.0,
        });
        Ok(Snapshot {
            volumes: volumes.collect(),
            stats: control.stats().await?,
            copies,
            replication: control.replication().await?,
            targets: control.access().targets().map(|target| target.name.to_string()).collect(),
            sessions: control.sessions().await?,
            refused_logins: control.refused_logins(),
            pools: control.pools(),
            record: control.record(),
        })
    }
}
