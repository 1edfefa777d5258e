//! `ursa bench run`.

use bench::{Driver, Target, Workload};
use clap::Args;
use cli::Output;

use super::ceiling::CeilingArgs;
use super::pattern::PatternArgs;
use super::progress::ProgressLine;
use super::results::ResultArgs;
use super::setup::SetupArgs;
use crate::error::ToolError;

const EXAMPLES: &str = "\
Examples:
  ursa bench run -b4K -t4 -o32 -r -d60 iscsi://10.0.0.7/iqn.2026-11.io.ursa:db/0
  ursa bench run -b 4K -t 4 -o 32 -w 30 -r -d 60 -Sh --overwrite /dev/nvme1n1
  ursa bench run -b8K -o8 -w30 -r -c10G -d60 --verify --html report.html test.dat";

/// One pattern.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// LUN (`iscsi://PORTAL[:PORT][,PORTAL...]/IQN/LUN`), file or block device; several are used at once
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
    /// -t: threads per target
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// -o: outstanding requests per thread
    #[arg(long, value_name = "N", default_value_t = 2)]
    depth: u32,
    #[command(flatten)]
    pattern: PatternArgs,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    ceiling: CeilingArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl Run {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let (threads, depth) = (self.threads, self.depth);
        let workload = Workload { threads, depth, ..self.pattern.workload() };
        let workloads = [workload];
        let setup = self.setup.setup(self.targets)?;
        self.results.check()?;
        let mut line = ProgressLine::start();
        let raw = self.ceiling.measure(&setup, &workloads, &mut line)?;
        let mut driver = Driver::prepare(setup, &workloads, &mut |progress| line.show(progress))?;
        let [workload] = &workloads;
        let mut runs = vec![driver.run(workload, &mut |progress| line.show(progress))?];
        line.clear();
        raw.mark(&mut runs);
        self.results.record(output, runs, None)
    }
}
