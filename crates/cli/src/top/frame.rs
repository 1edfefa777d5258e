//! Two readings of a node, and the rates between them.

use std::collections::BTreeMap;
use std::time::Instant;

use api::{Missing, Session};
use node::copies::Cause;
use serde::Serialize;

use super::live::Live;
use super::series::{Series, series};

/// The counters at one moment.
#[derive(Debug)]
pub(super) struct Sample {
    at: Instant,
    node: String,
    version: String,
    findings: u64,
    /// The cluster's nodes by number, and whether each is up.
    nodes: BTreeMap<u16, bool>,
    volumes: BTreeMap<String, VolumeCounters>,
    /// By volume and node.
    copies: BTreeMap<(String, u16), CopyGauges>,
    cores: BTreeMap<u32, CoreCounters>,
    sessions: Vec<Session>,
    /// Live figures of other nodes, instead of counters.
    live: Option<Live>,
}

#[derive(Clone, Debug, Default)]
struct VolumeCounters {
    serving: bool,
    reads: KindCounters,
    writes: KindCounters,
}

#[derive(Clone, Debug, Default)]
struct KindCounters {
    operations: f64,
    seconds: f64,
    bytes: f64,
    /// The number of operations up to each latency in nanoseconds, cumulative; the last bound is `u64::MAX`.
    buckets: BTreeMap<u64, f64>,
}

#[derive(Clone, Debug, Default)]
struct CopyGauges {
    state: String,
    total: Option<f64>,
    left: Option<f64>,
    bytes_per_second: Option<f64>,
    seconds_left: Option<f64>,
    waits: bool,
    cause: String,
}

#[derive(Clone, Debug, Default)]
struct CoreCounters {
    cpu: f64,
    polling: f64,
    enters: f64,
    completions: f64,
}

/// What a node did between two readings.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Frame {
    pub(super) node: String,
    pub(super) version: String,
    /// The number of findings that need attention.
    pub(super) findings: u64,
    /// Nodes that were asked but did not respond.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<Missing>,
    /// The cluster's nodes that are up, and all; absent if the node does not take part in its cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<(usize, usize)>,
    /// The time between the readings.
    pub(super) seconds: f64,
    pub(super) volumes: Vec<VolumeRow>,
    pub(super) copies: Vec<CopyRow>,
    pub(super) paths: Vec<PathRow>,
    pub(super) cores: Vec<CoreRow>,
}

/// A volume through this node. Rates are per second.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct VolumeRow {
    pub(super) volume: String,
    pub(super) serving: bool,
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) bytes_read: f64,
    pub(super) bytes_written: f64,
    /// The mean latency; absent without reads.
    pub(super) read_seconds: Option<f64>,
    pub(super) write_seconds: Option<f64>,
    /// The 99th percentile of all reads and writes.
    pub(super) p99_seconds: Option<f64>,
    pub(super) copies: usize,
    pub(super) copies_in_sync: usize,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct CopyRow {
    pub(super) volume: String,
    pub(super) node: u16,
    pub(super) state: String,
    /// The part of the resync that is done; absent for a copy in sync.
    pub(super) done: Option<f64>,
    pub(super) bytes_left: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) seconds_left: Option<f64>,
    pub(super) waits: bool,
    pub(super) cause: String,
}

/// A session: a path of an initiator to a target through this node.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PathRow {
    pub(super) initiator: String,
    pub(super) from: String,
    pub(super) target: String,
    /// The number of its node, if several nodes are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<u16>,
    pub(super) core: u16,
    /// In seconds.
    pub(super) age: u64,
    pub(super) commands: f64,
    pub(super) bytes_received: f64,
    pub(super) bytes_sent: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct CoreRow {
    /// The number of its node, if several nodes are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<u16>,
    pub(super) core: u32,
    /// The part of its time in which it worked.
    pub(super) busy: f64,
    /// The part of its time in which it polled for work.
    pub(super) polling: f64,
    /// Absent for other nodes, which do not report it.
    pub(super) enters: Option<f64>,
    pub(super) completions: Option<f64>,
}

impl Sample {
    /// Parses the metrics; volumes and all else are sorted.
    pub(super) fn new(at: Instant, metrics: &str, sessions: Vec<Session>) -> Sample {
        let mut sample = Sample {
            at,
            node: String::new(),
            version: String::new(),
            findings: 0,
            nodes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            copies: BTreeMap::new(),
            cores: BTreeMap::new(),
            sessions,
            live: None,
        };
        for series in series(metrics) {
            sample.take(&series);
        }
        sample
    }

    /// The live figures of other nodes.
    pub(super) fn live(at: Instant, live: Live, sessions: Vec<Session>) -> Sample {
        Sample { live: Some(live), ..Sample::new(at, "", sessions) }
    }

    /// Stores a series; `None`: a label is missing.
    fn take(&mut self, series: &Series<'_>) -> Option<()> {
        let value = series.value;
        match series.name {
            "ursa_build_info" => {
                self.node = series.label("name")?;
                self.version = series.label("version")?;
            }
            "ursa_findings" => self.findings += value as u64,
            "ursa_node_up" => {
                self.nodes.insert(series.label("node")?.parse().ok()?, value > 0.0);
            }
            "ursa_volume_serving" => self.volume(series)?.serving = value > 0.0,
            "ursa_volume_bytes_total" => self.kind(series)?.bytes = value,
            "ursa_volume_operation_duration_seconds_count" => self.kind(series)?.operations = value,
            "ursa_volume_operation_duration_seconds_sum" => self.kind(series)?.seconds = value,
            "ursa_volume_operation_duration_seconds_bucket" => {
                let bound = match series.label("le")?.as_str() {
                    "+Inf" => u64::MAX,
                    bound => (bound.parse::<f64>().ok()? * 1e9).round() as u64,
                };
                self.kind(series)?.buckets.insert(bound, value);
            }
            "ursa_copy_state" if value > 0.0 => self.copy(series)?.state = series.label("state")?,
            "ursa_copy_resync_total_bytes" => self.copy(series)?.total = Some(value),
            "ursa_copy_resync_remaining_bytes" => self.copy(series)?.left = Some(value),
            "ursa_copy_resync_bytes_per_second" => self.copy(series)?.bytes_per_second = Some(value),
            "ursa_copy_resync_remaining_seconds" => self.copy(series)?.seconds_left = Some(value),
            "ursa_copy_resync_stalled" => self.copy(series)?.waits = value > 0.0,
            "ursa_copy_resync_cause" => self.copy(series)?.cause = words_of(&series.label("cause")?),
            "ursa_core_cpu_seconds_total" => self.core(series)?.cpu = value,
            "ursa_core_polling_seconds_total" => self.core(series)?.polling = value,
            "ursa_core_enters_total" => self.core(series)?.enters = value,
            "ursa_core_completions_total" => self.core(series)?.completions = value,
            _ => {}
        }
        Some(())
    }

    fn volume(&mut self, series: &Series<'_>) -> Option<&mut VolumeCounters> {
        Some(self.volumes.entry(series.label("volume")?).or_default())
    }

    fn kind(&mut self, series: &Series<'_>) -> Option<&mut KindCounters> {
        let kind = series.label("operation")?;
        let volume = self.volume(series)?;
        match kind.as_str() {
            "read" => Some(&mut volume.reads),
            "write" => Some(&mut volume.writes),
            _ => None,
        }
    }

    fn copy(&mut self, series: &Series<'_>) -> Option<&mut CopyGauges> {
        let copy = (series.label("volume")?, series.label("node")?.parse().ok()?);
        Some(self.copies.entry(copy).or_default())
    }

    fn core(&mut self, series: &Series<'_>) -> Option<&mut CoreCounters> {
        Some(self.cores.entry(series.label("core")?.parse().ok()?).or_default())
    }
}

impl Frame {
    /// The rates between two readings of a node.
    pub(super) fn between(before: &Sample, after: &Sample) -> Frame {
        // At least a millisecond, to avoid a division by zero.
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        let up = after.nodes.values().filter(|up| **up).count();
        let rates = Rates { seconds };
        let mut frame = Frame {
            node: after.node.clone(),
            version: after.version.clone(),
            findings: after.findings,
            missing: Vec::new(),
            nodes: (!after.nodes.is_empty()).then_some((up, after.nodes.len())),
            seconds,
            volumes: volumes(before, after, &rates),
            copies: copies(after),
            paths: paths(before, after, &rates),
            cores: cores(before, after, &rates),
        };
        if let Some(live) = &after.live {
            live.fill(&mut frame);
        }
        frame
    }
}

struct Rates {
    seconds: f64,
}

impl Rates {
    /// A rate per second. If a counter has decreased, the node was restarted, and its value counts from zero.
    fn of(&self, before: f64, after: f64) -> f64 {
        grown(before, after) / self.seconds
    }
}

fn words_of(cause: &str) -> String {
    Cause::of_code(cause).to_string()
}

fn grown(before: f64, after: f64) -> f64 {
    if after < before { after } else { after - before }
}

fn volumes(before: &Sample, after: &Sample, rates: &Rates) -> Vec<VolumeRow> {
    let row = |(name, now): (&String, &VolumeCounters)| {
        let was = before.volumes.get(name).cloned().unwrap_or_default();
        let copies = after.copies.range((name.clone(), 0)..=(name.clone(), u16::MAX));
        VolumeRow {
            volume: name.clone(),
            serving: now.serving,
            reads: rates.of(was.reads.operations, now.reads.operations),
            writes: rates.of(was.writes.operations, now.writes.operations),
            bytes_read: rates.of(was.reads.bytes, now.reads.bytes),
            bytes_written: rates.of(was.writes.bytes, now.writes.bytes),
            read_seconds: mean(&was.reads, &now.reads),
            write_seconds: mean(&was.writes, &now.writes),
            p99_seconds: quantile(0.99, &[(&was.reads, &now.reads), (&was.writes, &now.writes)]),
            copies: copies.clone().count(),
            copies_in_sync: copies.filter(|(_, copy)| copy.state == "in_sync").count(),
        }
    };
    after.volumes.iter().map(row).collect()
}

fn mean(before: &KindCounters, after: &KindCounters) -> Option<f64> {
    let operations = grown(before.operations, after.operations);
    (operations > 0.0).then(|| grown(before.seconds, after.seconds) / operations)
}

/// The latency below which this part of all operations lies, interpolated within its bucket.
///
/// In the last bucket, which has no upper bound, it is the lower one.
fn quantile(part: f64, kinds: &[(&KindCounters, &KindCounters)]) -> Option<f64> {
    let mut buckets: BTreeMap<u64, f64> = BTreeMap::new();
    for (before, after) in kinds {
        for (bound, count) in &after.buckets {
            let was = before.buckets.get(bound).copied().unwrap_or(0.0);
            *buckets.entry(*bound).or_default() += grown(was, *count);
        }
    }
    let all = *buckets.get(&u64::MAX)?;
    if all <= 0.0 {
        return None;
    }
    let rank = part * all;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if bound == u64::MAX {
            break;
        }
        let upper = bound as f64 / 1e9;
        if count >= rank {
            return Some(lower + (upper - lower) * (rank - below) / (count - below).max(1e-9));
        }
        (lower, below) = (upper, count);
    }
    Some(lower)
}

fn copies(after: &Sample) -> Vec<CopyRow> {
    let row = |((volume, node), copy): (&(String, u16), &CopyGauges)| CopyRow {
        volume: volume.clone(),
        node: *node,
        state: copy.state.clone(),
        // The amount of a new copy may be unknown.
        done: copy
            .total
            .filter(|total| *total > 0.0)
            .zip(copy.left)
            .map(|(total, left)| ((total - left) / total).clamp(0.0, 1.0)),
        bytes_left: copy.left,
        bytes_per_second: copy.bytes_per_second,
        seconds_left: copy.seconds_left,
        waits: copy.waits,
        cause: copy.cause.clone(),
    };
    after.copies.iter().map(row).collect()
}

fn paths(before: &Sample, after: &Sample, rates: &Rates) -> Vec<PathRow> {
    let of_several = after.live.as_ref().is_some_and(|live| live.node.is_none());
    let row = |now: &Session| {
        // TSIHs are reused: a session that is younger than before is another one.
        let is_it = |was: &&Session| {
            (was.node, was.tsih, &was.isid) == (now.node, now.tsih, &now.isid) && was.age <= now.age
        };
        let was = before.sessions.iter().find(is_it);
        let of = |count: fn(&Session) -> u64| rates.of(was.map_or(0, count) as f64, count(now) as f64);
        PathRow {
            initiator: now.initiator.clone(),
            from: now.addresses.join(" "),
            target: now.target.clone().unwrap_or_else(|| "(discovery)".into()),
            node: of_several.then_some(now.node),
            core: now.core,
            age: now.age,
            commands: of(|session| session.commands),
            bytes_received: of(|session| session.bytes_received),
            bytes_sent: of(|session| session.bytes_sent),
        }
    };
    after.sessions.iter().map(row).collect()
}

fn cores(before: &Sample, after: &Sample, rates: &Rates) -> Vec<CoreRow> {
    let row = |(core, now): (&u32, &CoreCounters)| {
        let was = before.cores.get(core).cloned().unwrap_or_default();
        let (cpu, polling) = (rates.of(was.cpu, now.cpu), rates.of(was.polling, now.polling));
        CoreRow {
            node: None,
            core: *core,
            // Polling is measured with the wall clock, work with CPU time, so `polling` may be slightly
            // larger than `cpu`.
            busy: (cpu - polling).clamp(0.0, 1.0),
            polling: polling.clamp(0.0, 1.0),
            enters: Some(rates.of(was.enters, now.enters)),
            completions: Some(rates.of(was.completions, now.completions)),
        }
    };
    after.cores.iter().map(row).collect()
}
