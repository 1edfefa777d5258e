//! The activity of a node: sessions and counters of all cores.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use proto::iscsi::target_role::CloseReason;
use rt::CoreId;

use super::record_place::RecordPlace;
use super::{Control, ControlError, Result};
use crate::attach::unit::UnitStats;
use crate::config::RecordEngine;
use crate::copies::{self, Copies, VolumeEntry};
use crate::data::VolumeId;
use crate::member::{ClusterError, RECORD_DEADLINE};
use crate::record::RecordFault;
use crate::shard::{Shard, ask_all_cores};
use crate::yielding;

/// A session as administrators see it.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its number.
    pub tsih: u16,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's alias.
    pub alias: Option<String>,
    /// The initiator's session identifier.
    pub isid: [u8; 6],
    /// The target; `None` for discovery.
    pub target: Option<String>,
    /// The core that it runs on.
    pub core: CoreId,
    /// The addresses of its connections.
    pub addresses: Vec<SocketAddr>,
    /// How long it has existed.
    pub age: Duration,
    /// Its traffic so far.
    pub traffic: Traffic,
}

/// Traffic of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// SCSI commands.
    pub commands: u64,
    /// Bytes from the initiator, headers included.
    pub bytes_received: u64,
    /// Bytes to the initiator, headers included.
    pub bytes_sent: u64,
}

/// The state of the node's record.
#[derive(Clone, Debug, Default)]
pub struct RecordStatus {
    /// Set if one of its two copies was lost before this start.
    pub fault: Option<RecordFault>,
    /// A change could not be written. No change is possible until the disk can be written again.
    pub latched: bool,
}

/// The state of the cluster's record, as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRecordStatus {
    /// Where it is.
    pub place: RecordPlace,
    /// It can be changed: a majority of the nodes or etcd members that keep it responds.
    pub answers: bool,
    /// The endpoints at which this node reaches etcd, if the record is there.
    pub endpoints: Vec<String>,
}

/// What this node has done in this life to replicate copies.
#[derive(Clone, Debug, Default)]
pub struct ReplicationStats {
    /// Bytes of payload to and from each other node, by the node's number.
    pub traffic: BTreeMap<u16, copies::Traffic>,
    /// Bytes that resyncs from this node have sent to copies, by volume and node number.
    pub synced: BTreeMap<(VolumeId, u16), u64>,
    /// Bytes of regions that hosts' writes have added to the resyncs of copies that are out of sync, by
    /// volume and node number.
    ///
    /// Each node in sync counts for itself; what is sent a second time counts only on the source.
    pub dirtied: BTreeMap<(VolumeId, u16), u64>,
    /// Limit on the total resync rate of all nodes, in bytes per second; `None` if unlimited.
    pub sync_limit: Option<u64>,
    /// How much of that this node may use now, also by its own settings, in bytes per second; `None` if
    /// unlimited.
    pub sync_budget: Option<u64>,
}

/// The counters of one volume, of all cores together.
pub type VolumeStats = BTreeMap<VolumeId, UnitStats>;

/// Counters of volumes, as each core has them.
#[derive(Debug)]
pub struct StatsByCore(Vec<Vec<(VolumeId, UnitStats)>>);

impl StatsByCore {
    /// The sums by volume. For many volumes this takes a while, so do not call it on a core.
    pub fn sum(self) -> VolumeStats {
        let mut all = VolumeStats::new();
        for (id, stats) in self.0.into_iter().flatten() {
            all.entry(id).or_default().add(&stats);
        }
        all
    }
}

impl Control {
    /// All sessions, by number.
    pub async fn sessions(&self) -> Result<Vec<SessionStatus>> {
        let by_core = ask_all_cores(|| async {
            Shard::current().sessions().iter().map(|session| session.status()).collect::<Vec<_>>()
        });
        let mut all: Vec<SessionStatus> = by_core.await?.into_iter().flatten().collect();
        all.sort_by_key(|session| session.tsih);
        Ok(all)
    }

    /// One session, and the number of its commands under way: received, but not yet answered.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], [`ControlError::Core`].
    pub async fn session(&self, tsih: u16) -> Result<(SessionStatus, usize)> {
        let by_core = ask_all_cores(move || async move {
            Shard::current().session(tsih).map(|session| (session.status(), session.commands_under_way()))
        });
        let found = by_core.await?.into_iter().flatten().next();
        found.ok_or_else(|| ControlError::not_found("session", &tsih.to_string()))
    }

    /// The state of the node's record.
    pub fn record(&self) -> RecordStatus {
        let record = self.record.borrow();
        RecordStatus { fault: record.fault().cloned(), latched: record.is_latched() }
    }

    /// The state of the cluster's record; `None` if the node does not take part in its cluster.
    ///
    /// # Errors
    /// [`ControlError::Cluster`]: the record does not report it.
    pub async fn cluster_record(&self) -> Result<Option<ClusterRecordStatus>> {
        let Ok(reconciler) = self.reconciler() else { return Ok(None) };
        let status = reconciler.store().status(RECORD_DEADLINE).await.map_err(ClusterError::from)?;
        let place = self.place().map(|place| place.record).unwrap_or_default();
        let endpoints = match &Shard::current().config().record {
            RecordEngine::Etcd(access) if place == RecordPlace::Etcd => access.endpoints.clone(),
            _ => Vec::new(),
        };
        Ok(Some(ClusterRecordStatus { place, answers: status.quorum, endpoints }))
    }

    /// Where the record of the node's cluster is; before other nodes can join it: where it is to be.
    pub fn record_place(&self) -> RecordPlace {
        let shared = self.place().filter(|place| !place.is_private());
        shared.map_or_else(RecordPlace::configured, |place| place.record)
    }

    /// Ends a session. Its initiator may log in again.
    pub async fn end_session(&self, tsih: u16) -> Result<()> {
        let place = self.registry.place(tsih);
        let place = place.ok_or_else(|| ControlError::not_found("session", &tsih.to_string()))?;
        rt::send(place.core, move || {
            if let Some(session) = Shard::current().session(tsih) {
                session.end(CloseReason::Drained);
            }
        });
        Ok(())
    }

    /// The replication counters; empty if the node does not take part in its cluster.
    pub async fn replication(&self) -> Result<ReplicationStats> {
        let Ok(reconciler) = self.reconciler() else { return Ok(ReplicationStats::default()) };
        let by_core = ask_all_cores(|| async { Copies::current().traffic() }).await?;
        let counted = reconciler.counted();
        let (mut synced, mut dirtied) = (BTreeMap::new(), BTreeMap::new());
        let count = |entry: VolumeEntry| {
            let Some(volume) = VolumeId::parse(&entry.id) else { return };
            for copy in &entry.copies {
                if let Some(of_copy) = copy.slot().and_then(|slot| counted.get(&(entry.number, slot))) {
                    synced.insert((volume, copy.node), of_copy.copied);
                    dirtied.insert((volume, copy.node), of_copy.dirtied);
                }
            }
        };
        reconciler.for_each_entry(count).await;
        let traffic = copies::sum_traffic(by_core).into_iter().map(|(node, traffic)| (node.0, traffic));
        let (sync_limit, sync_budget) = (reconciler.sync_limit(), reconciler.sync_budget(rt::now()));
        Ok(ReplicationStats { traffic: traffic.collect(), synced, dirtied, sync_limit, sync_budget })
    }

    /// The sum of all volumes' counters, without volumes that were deleted or reopened.
    pub async fn total_stats(&self) -> Result<UnitStats> {
        let by_core = ask_all_cores(|| async {
            let mut sum = UnitStats::default();
            let shard = Shard::current();
            let add = |id| shard.unit(id).into_iter().for_each(|unit| unit.add_stats_to(&mut sum));
            yielding::for_each(shard.unit_ids(), add).await;
            sum
        });
        let mut all = UnitStats::default();
        by_core.await?.iter().for_each(|of_core| all.add(of_core));
        Ok(all)
    }

    /// The counters of one volume, summed over all cores; zero if the volume is not on this node.
    pub async fn volume_stats(&self, id: VolumeId) -> Result<UnitStats> {
        let by_core =
            ask_all_cores(move || async move { Shard::current().unit(id).map(|unit| unit.stats()) });
        let mut all = UnitStats::default();
        by_core.await?.iter().flatten().for_each(|of_core| all.add(of_core));
        Ok(all)
    }

    /// The counters of all volumes. Each core reads its own in parts, so they are from almost the same
    /// moment.
    pub async fn stats(&self) -> Result<StatsByCore> {
        let by_core = ask_all_cores(|| async {
            let shard = Shard::current();
            // A unit may be removed meanwhile, so no reference to it is kept.
            yielding::filter_map(shard.unit_ids(), |id| Some((id, shard.unit(id)?.stats()))).await
        });
        Ok(StatsByCore(by_core.await?))
    }
}
