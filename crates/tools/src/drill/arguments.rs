//! `ursa drill` and `ursa demo`.

use std::path::PathBuf;
use std::time::Duration;

use api::VolumeKind;
use clap::{Args, ValueEnum};
use cli::{OnDisk, Output, Table, asked_kind_on_disk, size};
use initiator::Policy;
use terms::size::Size;

use super::{Cycle, DrillError, Event, Limits, News, Plan, Record, Scenario, Shape};
use crate::error::ToolError;

const EXAMPLES: &str = "\
Examples:
  ursa drill crash-node
  ursa drill pause --node 2 --policy round-robin,queue-depth,service-time
  ursa drill crash-node --witness --cycles 200
  ursa drill black-out --kind log
A drill does not touch nodes that already run on this machine. It starts its own on free ports of 127.0.0.1,
and stops them at the end.";

/// The size of a demo's volume: enough to see a resync, and small enough not to wait long.
const DEMO_SIZE: Size = Size(256 << 20);

/// How a host spreads its requests over paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathPolicy {
    /// Use all paths in turn
    RoundRobin,
    /// Use the path with the fewest outstanding requests
    QueueDepth,
    /// Use the path with the shortest expected service time
    ServiceTime,
    /// Stay on the path used last while it works
    MostRecentlyUsed,
}

impl PathPolicy {
    fn named(self) -> (String, Policy) {
        let policy = match self {
            PathPolicy::RoundRobin => Policy::RoundRobin(1),
            PathPolicy::QueueDepth => Policy::LeastQueueDepth,
            PathPolicy::ServiceTime => Policy::ServiceTime,
            PathPolicy::MostRecentlyUsed => Policy::MostRecentlyUsed,
        };
        let value = self.to_possible_value();
        (value.as_ref().map_or("", |value| value.get_name()).to_owned(), policy)
    }
}

/// Inject faults, and judge.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Drill {
    /// Fault to inject
    scenario: Scenario,
    /// Number of nodes, each with a copy of the volume [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=4))]
    nodes: Option<u8>,
    /// Use two nodes with copies, and a witness
    #[arg(long, conflicts_with = "nodes")]
    witness: bool,
    /// Kind of the volume [default: thick; log for `rot` and `full`, which require it]
    #[arg(long, value_enum)]
    kind: Option<OnDisk>,
    /// Use a RAM volume
    #[arg(long, conflicts_with = "kind")]
    ram: bool,
    /// Run without the processes that report a node's death: the others wait for its leases, as after the
    /// loss of a machine
    #[arg(long)]
    no_watcher: bool,
    /// Directory for the nodes' data; must not exist yet, and is removed unless the drill fails [default: a
    /// new one in $TMPDIR]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the volume; at least 128M for `full`
    #[arg(long, value_name = "SIZE", default_value_t = DEMO_SIZE)]
    size: Size,
    /// Node to inject the fault on [default: 1, which created the cluster]
    #[arg(long, value_name = "N")]
    node: Option<u16>,
    /// Drop traffic and connections across a cut link, instead of delivering the traffic when the link is
    /// restored
    #[arg(long)]
    lossy: bool,
    /// Duration of the fault, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u32,
    /// Number of cycles for each path policy
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    cycles: u32,
    /// Path policy of the load; several, separated by commas, run one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "queue-depth")]
    policy: Vec<PathPolicy>,
    /// Outstanding requests per path
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Read percentage
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    reads: u8,
    /// Longest response time allowed, in milliseconds [default: 1500; 250 if no node with a copy is
    /// affected; 5000 for `full`]
    #[arg(long, value_name = "MILLISECONDS")]
    stall_max: Option<u32>,
    /// Seed of the load: the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// One node is killed, and hosts notice no more than a short stall.
#[derive(Args, Debug)]
pub struct Demo {
    /// Use two nodes with copies, and a witness
    #[arg(long)]
    witness: bool,
}

impl Drill {
    /// Runs it, and prints what happened.
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let own = self.scenario.cluster();
        if own.is_some() && (self.nodes.is_some() || self.node.is_some() || self.witness) {
            return Err(DrillError::OwnCluster(self.scenario).into());
        }
        let chosen = match self.witness {
            true => (2, 0, true),
            false => (self.nodes.unwrap_or(3), 0, false),
        };
        let (copies, others, witness) = own.unwrap_or(chosen);
        let kind = match self.kind {
            Some(kind) => asked_kind_on_disk(kind),
            None if self.ram => VolumeKind::Ram,
            None if self.scenario.needs_log() => VolumeKind::Log,
            None => VolumeKind::Thick,
        };
        let stall = self.stall_max.map(|millis| Duration::from_millis(millis.into()));
        let stall = stall.or(self.scenario.stall_max());
        let limits = Limits::default();
        let plan = Plan {
            scenario: self.scenario,
            shape: Shape {
                copies,
                others,
                beats_apart: self.scenario.has_beats_apart(),
                witness,
                lossy: self.lossy,
                kind,
                small_pools: self.scenario.fills_pools(),
                watchers: !self.no_watcher,
                size: self.size.0.max(self.scenario.size_min()),
                directory: self.dir.unwrap_or_else(own_directory),
            },
            harm: Duration::from_secs(self.seconds.into()),
            cycles: self.cycles,
            policies: self.policy.into_iter().map(PathPolicy::named).collect(),
            depth: self.depth.into(),
            read_percent: self.reads,
            node: self.node.unwrap_or(1),
            limits: Limits { stall: stall.unwrap_or(limits.stall), ..limits },
            seed: self.seed,
        };
        carry_out(&plan, output)
    }
}

impl Demo {
    /// Runs it, and prints what happened.
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let drill = Drill {
            scenario: Scenario::CrashNode,
            nodes: None,
            witness: self.witness,
            kind: None,
            ram: false,
            no_watcher: false,
            dir: None,
            size: DEMO_SIZE,
            node: None,
            lossy: false,
            seconds: 5,
            cycles: 1,
            policy: vec![PathPolicy::QueueDepth],
            depth: 8,
            reads: 50,
            stall_max: None,
            seed: 1,
        };
        drill.run(output)
    }
}

fn own_directory() -> PathBuf {
    std::env::temp_dir().join(format!("ursa-drill-{}", std::process::id()))
}

fn carry_out(plan: &Plan, output: &Output) -> Result<(), ToolError> {
    let cycles = u64::from(plan.cycles) * plan.policies.len() as u64;
    output.done(&plan_text(plan))?;
    // For a long drill, only the progress is shown; the events of each cycle are in its record.
    let brief = cycles > 3;
    let mut printed = Ok(());
    let record = plan.carry_out(&mut |news| {
        let line = match news {
            News::Stage(stage) => format!("{stage} ..."),
            News::Event(event) if !brief => event_text(event),
            News::Event(_) => return,
            News::Cycle(cycle) if brief && cycle.passed() => brief_text(cycle),
            News::Cycle(cycle) => cycle_text(cycle),
        };
        if let Err(error) = output.done(&line) {
            printed = Err(error);
        }
    })?;
    printed?;
    output.show(&record, |record| if brief { summary(record) } else { String::new() })?;
    match record.kept {
        None => Ok(()),
        Some(kept) => Err(ToolError::DrillFailed(kept)),
    }
}

fn plan_text(plan: &Plan) -> String {
    let witness = if plan.shape.witness { " and a witness" } else { "" };
    let nodes = plan.shape.copies + plan.shape.others;
    let kind = match plan.shape.kind {
        usual if usual == VolumeKind::default() => String::new(),
        kind => format!(" {}", kind.name()),
    };
    let pools = match plan.shape.small_pools {
        true => format!(" in pools of {}", size(plan.shape.pool_bytes())),
        false => String::new(),
    };
    format!(
        "{scenario}: {nodes} nodes{witness} on 127.0.0.1, a {size}{kind} volume with {copies} copies{pools};\n\
         4 KiB requests, {depth} outstanding per path, {reads} % reads, all of them verified",
        scenario = plan.scenario,
        copies = plan.shape.copies,
        size = size(plan.shape.size),
        depth = plan.depth,
        reads = plan.read_percent,
    )
}

fn event_text(event: &Event) -> String {
    let sign = if event.ms < 0 { '-' } else { '+' };
    let millis = event.ms.unsigned_abs();
    format!("{:>10}  {}", format!("{sign}{}.{:03} s", millis / 1000, millis % 1000), event.text)
}

fn cycle_text(cycle: &Cycle) -> String {
    let checks = cycle.checks.iter().map(|check| {
        let mark = if check.passed { "ok" } else { "FAILED" };
        format!("  {mark:<6}  {}\n", check.found)
    });
    let verdict = if cycle.passed() { "passed" } else { "FAILED" };
    format!("\n{}verdict: {verdict}", checks.collect::<String>())
}

fn brief_text(cycle: &Cycle) -> String {
    let seconds =
        |millis: Option<i64>| millis.map_or("-".into(), |millis| format!("{:.3} s", millis as f64 / 1e3));
    format!(
        "cycle {} {} passed: longest wait {:.3} s, out of sync after {}, in sync after {}, {} requests",
        cycle.number,
        cycle.policy,
        cycle.stall_ms as f64 / 1e3,
        seconds(cycle.out_ms),
        seconds(cycle.sync_ms),
        cycle.requests,
    )
}

fn summary(record: &Record) -> String {
    let mut table = Table::new(&["POLICY", "CYCLES", "PASSED", "LONGEST WAIT", "LONGEST RESYNC"]);
    let mut policies: Vec<&str> = Vec::new();
    for cycle in &record.cycles {
        if !policies.contains(&cycle.policy.as_str()) {
            policies.push(&cycle.policy);
        }
    }
    for policy in policies {
        let of = || record.cycles.iter().filter(|cycle| cycle.policy == policy);
        let seconds =
            |millis: Option<u64>| millis.map_or("-".into(), |millis| format!("{:.3} s", millis as f64 / 1e3));
        table.row([
            policy.to_owned(),
            of().count().to_string(),
            of().filter(|cycle| cycle.passed()).count().to_string(),
            seconds(of().map(|cycle| cycle.stall_ms).max()),
            seconds(of().filter_map(|cycle| u64::try_from(cycle.sync_ms?).ok()).max()),
        ]);
    }
    format!("\n{}", table.text("No cycles."))
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Kind, Moved};
    use super::*;

    fn cycle(policy: &str, stall_ms: u64, passed: bool) -> Cycle {
        Cycle {
            number: 2,
            policy: policy.into(),
            silence_ms: 900,
            stall_ms,
            out_ms: Some(430),
            sync_ms: Some(2_100),
            requests: 4_000,
            moved: Moved::default(),
            rot: None,
            full: None,
            events: Vec::new(),
            checks: vec![Check { passed, found: "all 3 copies are identical".into() }],
        }
    }

    #[test]
    fn events_and_verdicts_show_what_was_found() {
        let event = Event { ms: 1_042, kind: Kind::Out, node: Some(1), text: "n1 is out of sync".into() };
        assert_eq!(event_text(&event), "  +1.042 s  n1 is out of sync");
        assert_eq!(event_text(&Event { ms: -7, ..event }), "  -0.007 s  n1 is out of sync");
        assert_eq!(
            cycle_text(&cycle("round-robin", 1_000, false)),
            "\n  FAILED  all 3 copies are identical\nverdict: FAILED"
        );
        assert_eq!(
            brief_text(&cycle("round-robin", 1_042, true)),
            "cycle 2 round-robin passed: longest wait 1.042 s, out of sync after 0.430 s, in sync after 2.100 s, 4000 requests"
        );
        let cycles = vec![
            cycle("round-robin", 1_042, true),
            cycle("queue-depth", 7, true),
            cycle("round-robin", 3, false),
        ];
        let (scenario, kind) = (Scenario::CrashNode, VolumeKind::default());
        let record = Record { scenario, kind, cycles, passed: false, kept: None };
        assert_eq!(
            summary(&record),
            "
POLICY       CYCLES  PASSED  LONGEST WAIT  LONGEST RESYNC
round-robin  2       1       1.042 s       2.100 s
queue-depth  1       1       0.007 s       2.100 s
"
        );
    }
}
