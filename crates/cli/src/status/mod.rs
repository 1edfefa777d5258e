//! `ursa status`: the node, its findings, what can still be lost, and what to do, on one screen.

mod exposure;
mod screen;
#[cfg(test)]
mod tests;

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread::{self, ScopedJoinHandle};

use api::{
    Client, ClientError, ClusterNode, CopyState, CopySync, Finding, Missing, Node, Pool, Severity, Target,
    Volume,
};
use clap::Args;
use serde::Serialize;
use terms::clock::unix_now;
use terms::exit;

use super::error::CliError;
use super::output::Output;

/// How to show it.
#[derive(Args, Debug)]
pub struct Status {
    /// Print one line and exit with 0: healthy, 1: unknown (no answer), 2: critical, 3: warning
    #[arg(long)]
    check: bool,
}

/// What the node reports.
#[derive(Debug)]
struct Observed {
    node: Node,
    /// The nodes of its cluster; empty if it takes no part in it.
    nodes: Vec<ClusterNode>,
    /// The findings, the worst first.
    findings: Vec<Finding>,
    /// The pools of all nodes; the same holds for volumes and sessions.
    pools: Vec<Pool>,
    volumes: Vec<Volume>,
    targets: Vec<Target>,
    sessions: usize,
    /// Nodes whose pools, volumes or sessions are missing, by number.
    missing: Vec<Missing>,
    /// The time of the request, in seconds since 1970.
    asked_at: u64,
}

/// The report for programs.
#[derive(Serialize)]
struct Report<'a> {
    health: &'static str,
    findings: &'a [Finding],
    node: &'a Node,
    /// The nodes of its cluster; empty if it takes no part in it.
    cluster: &'a [ClusterNode],
    /// Volumes with copies that are not in sync.
    degraded: Vec<&'a str>,
    /// The progress of their resyncs.
    syncs: Vec<Sync<'a>>,
    /// What the loss of each node would do now.
    losses: Vec<String>,
    /// The pools of all nodes; the same holds for volumes and sessions.
    pools: &'a [Pool],
    volumes: usize,
    targets: usize,
    sessions: usize,
    /// Nodes whose pools, volumes or sessions are missing.
    missing: &'a [Missing],
}

/// A copy that is not in sync.
#[derive(Serialize)]
struct Sync<'a> {
    volume: &'a str,
    node: u16,
    #[serde(flatten)]
    sync: &'a CopySync,
}

impl Status {
    /// Shows the status. With `--check`, the exit code is the worst severity.
    pub fn main(self, client: &Client, output: &Output) -> ExitCode {
        match self.run(client, output) {
            Ok(worst) if self.check => ExitCode::from(exit_code(worst)),
            Ok(_) => ExitCode::SUCCESS,
            Err(error) if self.check => {
                exit::code(Err(error));
                ExitCode::from(NOT_ASKED)
            }
            Err(error) => exit::code(Err(error)),
        }
    }

    fn run(&self, client: &Client, output: &Output) -> Result<Severity, CliError> {
        let node = client.node()?;
        // Each request may wait two seconds for a node that does not respond, so they run in parallel.
        let (volumes, findings, pools, sessions) = thread::scope(|scope| {
            let findings = scope.spawn(|| client.findings());
            let pools = scope.spawn(|| client.pools_of("all"));
            let sessions = scope.spawn(|| client.sessions_of("all"));
            (client.volumes(), joined(findings), joined(pools), joined(sessions))
        });
        let (volumes, pools, sessions) = (volumes?, pools?, sessions?);
        let mut missing = [volumes.missing, pools.missing, sessions.missing].concat();
        missing.sort_by_key(|one| one.node);
        missing.dedup_by_key(|one| one.node);
        let observed = Observed {
            node,
            nodes: cluster(client)?,
            findings: findings?,
            pools: pools.items,
            volumes: volumes.items,
            targets: client.targets()?,
            sessions: sessions.items.len(),
            missing,
            asked_at: unix_now(),
        };
        output.show(&observed.report(), |report| match self.check {
            true => screen::line(&observed),
            false => screen::text(&observed, report),
        })?;
        Ok(observed.worst())
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn health(worst: Severity) -> &'static str {
    match worst {
        Severity::Info => "healthy",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

/// The exit code of `ursa status --check`.
fn exit_code(worst: Severity) -> u8 {
    match worst {
        Severity::Info => 0,
        Severity::Critical => 2,
        Severity::Warning => 3,
    }
}

/// The exit code with `--check` if the status could not be read.
const NOT_ASKED: u8 = 1;

impl Observed {
    /// The severity of the worst finding.
    fn worst(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Info)
    }

    fn report(&self) -> Report<'_> {
        let is_degraded = |volume: &&Volume| volume.copies.iter().any(|copy| copy.state != CopyState::InSync);
        Report {
            health: health(self.worst()),
            findings: &self.findings,
            node: &self.node,
            cluster: &self.nodes,
            degraded: self.volumes.iter().filter(is_degraded).map(|volume| volume.name.as_str()).collect(),
            syncs: self.syncs().collect(),
            losses: exposure::lines(self),
            pools: &self.pools,
            volumes: self.volumes.len(),
            targets: self.targets.len(),
            sessions: self.sessions,
            missing: &self.missing,
        }
    }

    fn syncs(&self) -> impl Iterator<Item = Sync<'_>> {
        self.volumes.iter().flat_map(|volume| {
            let copies = volume.copies.iter();
            copies.filter_map(|copy| {
                Some(Sync { volume: &volume.name, node: copy.node, sync: copy.sync.as_ref()? })
            })
        })
    }
}

/// The error code of a node that knows no other nodes. Why it takes no part in its cluster is among its
/// findings.
const NO_NODES: &str = "cluster_unavailable";

/// The nodes of the node's cluster; empty if it takes no part in it.
pub(crate) fn cluster(client: &Client) -> Result<Vec<ClusterNode>, ClientError> {
    match client.cluster_nodes() {
        Err(error) if error.problem().is_some_and(|problem| problem.code == NO_NODES) => Ok(Vec::new()),
        nodes => nodes,
    }
}
