//! What is read of the node at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use node::control::{
    ControlError, NodeStatus, PoolStatus, RecordStatus, ReplicationStats, SessionStatus, VolumeStats,
};
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
    /// Whether hosts can use it through this node.
    pub(super) serving: bool,
}

/// The cluster as this node sees it.
#[derive(Debug, Default)]
pub(super) enum Members {
    /// There is none.
    #[default]
    NoCluster,
    /// Its record does not answer.
    Unknown,
    /// Its nodes, by number.
    Known {
        nodes: Vec<NodeStatus>,
        /// Its record can be changed.
        answers: bool,
    },
}

/// The node at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// By name.
    pub(super) volumes: Vec<Measured>,
    pub(super) stats: VolumeStats,
    /// The copies of volumes that have several, by the volume's name.
    pub(super) copies: Vec<(String, CopiesStatus)>,
    /// In how many bytes copies are known to differ, of those volumes whose copies were compared through this node.
    pub(super) different: Vec<(String, u64)>,
    pub(super) replication: ReplicationStats,
    /// Names of all targets, in order.
    pub(super) targets: Vec<String>,
    pub(super) sessions: Vec<SessionStatus>,
    /// By status class and detail.
    pub(super) refused_logins: BTreeMap<u16, u64>,
    pub(super) pools: Vec<PoolStatus>,
    pub(super) record: RecordStatus,
    /// How many things somebody should look after.
    pub(super) problems: usize,
    /// How long each change under way has been so.
    pub(super) changes: Vec<Duration>,
}

impl Snapshot {
    pub(super) async fn take(control: &Control) -> Result<Snapshot, ControlError> {
        let volumes = control.volumes();
        let copies =
            volumes.iter().filter_map(|volume| Some((volume.info.name.clone(), volume.copies.clone()?)));
        let copies: Vec<(String, CopiesStatus)> = copies.collect();
        let known_to_differ = control.known_to_differ();
        let different = volumes
            .iter()
            .filter_map(|volume| Some((volume.info.name.clone(), *known_to_differ.get(&volume.info.id)?)));
        let different = different.collect();
        let volumes = volumes.into_iter().map(|volume| Measured {
            id: volume.info.id,
            name: volume.info.name,
            pool: volume.pool,
            capacity: volume.info.capacity.0,
            serving: volume.copies.as_ref().map_or(volume.problem.is_none(), |copies| copies.serving),
        });
        Ok(Snapshot {
            volumes: volumes.collect(),
            stats: control.stats().await?,
            copies,
            different,
            replication: control.replication().await?,
            targets: control.access().targets().map(|target| target.name.to_string()).collect(),
            sessions: control.sessions().await?,
            refused_logins: control.refused_logins(),
            pools: control.pools(),
            record: control.record(),
            problems: control.problems().len(),
            changes: control.changes().into_iter().map(|change| change.age).collect(),
        })
    }
}
