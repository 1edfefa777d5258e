//! What other nodes do: the live figures that every node reports of all nodes, sessions, volumes and copies.
//!
//! They do not include a core's system calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use api::{
    Client, ClientError, ClusterNode, CopyState, List, LiveFlow, LiveSample, LiveVolume, Missing, Severity,
    Volume, VolumeCopy,
};

use super::frame::{CopyRow, CoreRow, Frame, Sample, VolumeRow};
use crate::status;

/// How long to wait for the first sample of nodes that were not asked recently: they take one per second.
const FIRST_WITHIN: Duration = Duration::from_secs(4);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often volumes with their copies, and findings, are read: the responses are long in large clusters.
const SELDOM: Duration = Duration::from_secs(5);

/// Which figures are read: those of a node by its number, or of all.
pub(super) struct Whose {
    node: String,
    /// When volumes and findings were read last, and the result.
    seldom: Option<(Instant, Seldom)>,
}

/// What is not read each time.
#[derive(Clone)]
struct Seldom {
    volumes: Arc<Vec<Volume>>,
    /// The number of the cluster's findings that need attention.
    findings: u64,
}

/// A reading.
#[derive(Debug)]
pub(super) struct Live {
    /// The only node shown; `None`: all nodes.
    pub(super) node: Option<u16>,
    pub(super) samples: List<LiveSample>,
    pub(super) volumes: Arc<Vec<Volume>>,
    /// Empty if the node does not take part in its cluster.
    pub(super) nodes: Vec<ClusterNode>,
    /// The number of the cluster's findings that need attention.
    pub(super) findings: u64,
}

impl Whose {
    pub(super) fn new(node: String) -> Whose {
        Whose { node, seldom: None }
    }

    /// Takes a reading.
    ///
    /// # Errors
    /// See [`ClientError`]; also if the node does not exist.
    pub(super) fn read(&mut self, client: &Client) -> Result<Sample, ClientError> {
        let node = self.node.as_str();
        let nodes = status::cluster(client)?;
        let wanted = if node == "all" { nodes.len().max(1) } else { 1 };
        let until = Instant::now() + FIRST_WITHIN;
        let samples = loop {
            let samples = client.live_samples(node)?;
            if samples.items.len() + samples.missing.len() >= wanted || Instant::now() >= until {
                break samples;
            }
            thread::sleep(LOOK_EVERY);
        };
        let sessions = client.sessions_of(node)?.items;
        let node = node.parse().ok();
        let Seldom { volumes, findings } = self.seldom(client)?;
        let live = Live { node, samples, volumes, nodes, findings };
        Ok(Sample::live(Instant::now(), live, sessions))
    }

    fn seldom(&mut self, client: &Client) -> Result<Seldom, ClientError> {
        if let Some((_, seldom)) = self.seldom.as_ref().filter(|(at, _)| at.elapsed() < SELDOM) {
            return Ok(seldom.clone());
        }
        let findings = client.findings()?.into_iter().filter(|finding| finding.severity > Severity::Info);
        let seldom = Seldom { volumes: Arc::new(client.volumes()?.items), findings: findings.count() as u64 };
        self.seldom = Some((Instant::now(), seldom.clone()));
        Ok(seldom)
    }
}

impl Live {
    /// Fills a frame with everything except sessions.
    pub(super) fn fill(&self, frame: &mut Frame) {
        let (up, all) = (self.nodes.iter().filter(|node| node.up).count(), self.nodes.len());
        frame.node = self.name();
        frame.nodes = (all > 0).then_some((up, all));
        frame.findings = self.findings;
        frame.missing = self.samples.missing.clone();
        frame.volumes = self.volume_rows();
        let copies = self.shown().flat_map(|volume| volume.copies.iter().map(move |copy| (volume, copy)));
        frame.copies = copies.map(|(volume, copy)| copy_row(volume, copy)).collect();
        frame.cores = self.samples.items.iter().flat_map(|sample| self.core_rows(sample)).collect();
    }

    fn name(&self) -> String {
        match self.node {
            Some(id) => {
                let node = self.nodes.iter().find(|node| node.id == id);
                format!("node {id} ({})", node.map_or("-", |node| node.name.as_str()))
            }
            None => "all nodes".into(),
        }
    }

    /// The volumes of these nodes.
    fn shown(&self) -> impl Iterator<Item = &Volume> {
        let of = self.node;
        self.volumes.iter().filter(move |volume| of.is_none_or(|node| is_on(volume, node)))
    }

    /// A row for each volume, with the load through all of these nodes.
    fn volume_rows(&self) -> Vec<VolumeRow> {
        let mut rows: BTreeMap<&str, VolumeRow> =
            self.shown().map(|volume| (volume.id.as_str(), volume_row(volume, self.node))).collect();
        for done in self.samples.items.iter().flat_map(|sample| &sample.volumes) {
            // The volume was created after volumes were read.
            let unknown = || VolumeRow { volume: done.name.clone(), serving: true, ..VolumeRow::default() };
            add(rows.entry(&done.id).or_insert_with(unknown), done);
        }
        let mut rows: Vec<VolumeRow> = rows.into_values().collect();
        rows.sort_by(|a, b| a.volume.cmp(&b.volume));
        rows
    }

    fn core_rows(&self, sample: &LiveSample) -> impl Iterator<Item = CoreRow> {
        let node = self.node.is_none().then_some(sample.node);
        sample.cores.iter().zip(0..).map(move |(now, core)| CoreRow {
            node,
            core,
            busy: (now.cpu - now.polling).clamp(0.0, 1.0),
            polling: now.polling.clamp(0.0, 1.0),
            enters: None,
            completions: None,
        })
    }
}

fn is_on(volume: &Volume, node: u16) -> bool {
    volume.copies.iter().any(|copy| copy.node == node)
}

/// A row without load. A node whose copy is in sync serves the volume.
fn volume_row(volume: &Volume, node: Option<u16>) -> VolumeRow {
    let in_sync = || volume.copies.iter().filter(|copy| copy.state == CopyState::InSync);
    let serves = |copy: &VolumeCopy| node.is_none_or(|node| copy.node == node);
    VolumeRow {
        volume: volume.name.clone(),
        serving: match volume.copies.is_empty() {
            true => volume.problem.is_none(),
            false => in_sync().any(serves),
        },
        copies: volume.copies.len(),
        copies_in_sync: in_sync().count(),
        ..VolumeRow::default()
    }
}

/// Adds the load through one node.
fn add(row: &mut VolumeRow, done: &LiveVolume) {
    let LiveVolume { read, write, .. } = done;
    row.read_seconds = mean((row.reads, row.read_seconds), read);
    row.write_seconds = mean((row.writes, row.write_seconds), write);
    row.reads += read.operations;
    row.writes += write.operations;
    row.bytes_read += read.bytes;
    row.bytes_written += write.bytes;
    // The largest of several: no more than 1 % of all operations took longer.
    let p99 = [read.p99_us, write.p99_us].into_iter().flatten().map(|us| us / 1e6);
    row.p99_seconds = p99.chain(row.p99_seconds).reduce(f64::max);
}

/// The mean latency, combined with that of another node.
fn mean((operations, seconds): (f64, Option<f64>), more: &LiveFlow) -> Option<f64> {
    let Some(us) = more.mean_us else { return seconds };
    let all = operations + more.operations;
    let sum = seconds.unwrap_or(0.0) * operations + us / 1e6 * more.operations;
    (all > 0.0).then(|| sum / all)
}

fn copy_row(volume: &Volume, copy: &VolumeCopy) -> CopyRow {
    let sync = copy.sync.as_ref();
    let total = sync.map(|sync| sync.total_bytes as f64).filter(|total| *total > 0.0);
    let left = sync.map(|sync| sync.left_bytes as f64);
    CopyRow {
        volume: volume.name.clone(),
        node: copy.node,
        state: copy.state.to_string(),
        done: total.zip(left).map(|(total, left)| ((total - left) / total).clamp(0.0, 1.0)),
        bytes_left: left,
        bytes_per_second: sync.map(|sync| sync.bytes_per_second as f64),
        seconds_left: sync.and_then(|sync| sync.seconds_left).map(|seconds| seconds as f64),
        waits: sync.is_some_and(|sync| sync.waits_for.is_some()),
        cause: sync.map(|sync| sync.cause.clone()).unwrap_or_default(),
    }
}

/// The missing nodes, for the head of a screen.
pub(super) fn missing(of: &[Missing]) -> String {
    let each = |one: &Missing| format!("node {} ({})", one.node, one.reason);
    of.iter().map(each).collect::<Vec<_>>().join(", ")
}
