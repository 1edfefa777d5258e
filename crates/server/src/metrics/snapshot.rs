//! What a scrape reads of the node, at one moment.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use api::Severity;
use node::access::Access;
use node::control::{
    ControlError, MapMemory, NodeStatus, PoolStatus, RecordStatus, ReplicationStats, ScrubStatus,
    SessionStatus, StatsByCore, VolumeStats, VolumeStatus,
};
use node::member::CopiesStatus;
use node::{Control, VolumeId};
use store::InLogs;

use crate::http::{Refusal, State, severity_of};

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
    /// The scrubs of it on this node.
    pub(super) scrub: Option<ScrubStatus>,
    /// What its blocks take, if it is log-structured.
    pub(super) in_logs: Option<InLogs>,
}

/// The cluster as this node sees it.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The nodes of the cluster, by number; empty if the record does not answer.
    pub(super) nodes: Vec<NodeStatus>,
    /// Whether the record can be changed.
    pub(super) answers: bool,
}

/// The node at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// By name.
    pub(super) volumes: Vec<Measured>,
    pub(super) stats: VolumeStats,
    /// The copies of volumes that have several, by the volume's name.
    pub(super) copies: Vec<(String, CopiesStatus)>,
    /// How many bytes copies are known to differ in, for volumes that were verified through this node.
    pub(super) different: Vec<(String, u64)>,
    pub(super) replication: ReplicationStats,
    /// When each schedule of snapshots has last taken one, in seconds since 1970, by name.
    pub(super) schedules: Vec<(String, u64)>,
    /// Bytes that this node has read for scrubs.
    pub(super) scrubbed_bytes: u64,
    /// Names of all targets, in order.
    pub(super) targets: Vec<String>,
    pub(super) sessions: Vec<SessionStatus>,
    /// By status class and detail.
    pub(super) refused_logins: BTreeMap<u16, u64>,
    pub(super) pools: Vec<PoolStatus>,
    pub(super) map_memory: MapMemory,
    pub(super) record: RecordStatus,
    /// The severity of each finding that the node reports about itself.
    pub(super) findings: Vec<Severity>,
    /// The age of each change in progress.
    pub(super) changes: Vec<Duration>,
}

impl Snapshot {
    /// Takes a snapshot. Only what needs the node's core runs there, since that core also answers hosts.
    pub(super) async fn take(state: &State) -> Result<Snapshot, Refusal> {
        let Seen { mut volumes, known_to_differ, access, stats, rest } = state.call(Seen::look).await?;
        volumes.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        let different = volumes
            .iter()
            .filter_map(|volume| Some((volume.info.name.clone(), *known_to_differ.get(&volume.info.id)?)));
        let different = different.collect();
        let mut copies = Vec::new();
        let measured = volumes.into_iter().map(|volume| {
            let serving = volume.copies.as_ref().map_or(volume.problem.is_none(), |copies| copies.serving);
            copies.extend(volume.copies.map(|of_it| (volume.info.name.clone(), of_it)));
            let (id, name, capacity) = (volume.info.id, volume.info.name, volume.info.capacity.0);
            let in_logs = volume.info.kind.is_thin().then_some(volume.info.in_logs);
            Measured { id, name, pool: volume.pool, capacity, serving, scrub: volume.scrub, in_logs }
        });
        let volumes = measured.collect();
        let targets = access.targets().map(|target| target.name.to_string()).collect();
        Ok(Snapshot { volumes, copies, different, targets, stats: stats.sum(), ..rest })
    }
}

/// What is read on the node's core.
struct Seen {
    volumes: Vec<VolumeStatus>,
    known_to_differ: BTreeMap<VolumeId, u64>,
    access: Arc<Access>,
    stats: StatsByCore,
    /// The rest, without the fields that are derived from those above.
    rest: Snapshot,
}

impl Seen {
    async fn look(control: Rc<Control>) -> Result<Seen, ControlError> {
        let rest = Snapshot {
            replication: control.replication().await?,
            sessions: control.sessions().await?,
            schedules: control.last_scheduled_snapshots(),
            scrubbed_bytes: control.scrubbed_bytes(),
            refused_logins: control.refused_logins(),
            pools: control.pools(),
            map_memory: control.map_memory(),
            record: control.record(),
            findings: control.faults().iter().map(|fault| severity_of(&fault.kind)).collect(),
            changes: control.changes().into_iter().map(|change| change.age).collect(),
            ..Snapshot::default()
        };
        let (known_to_differ, access) = (control.known_to_differ(), control.access());
        let (volumes, stats) = (control.volumes().await, control.stats().await?);
        Ok(Seen { volumes, known_to_differ, access, stats, rest })
    }
}
