//! `ursa bench sweep`.

use bench::record::{Analysis, Sweep as Found};
use bench::{Driver, Target, Workload};
use clap::Args;
use cli::Output;

use super::pattern::PatternArgs;
use super::progress::ProgressLine;
use super::results::ResultArgs;
use super::series::run_all;
use super::setup::SetupArgs;
use crate::error::ToolError;

/// One pattern with many threads and depths.
#[derive(Args, Debug)]
pub struct Sweep {
    /// LUN (`iscsi://PORTAL[:PORT]/IQN/LUN`), file or block device; several are used at once
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
    /// -t: threads per target
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8")]
    threads: Vec<u32>,
    /// -o: outstanding requests per thread
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
    depth: Vec<u32>,
    #[command(flatten)]
    pattern: PatternArgs,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl Sweep {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let like = self.pattern.workload();
        let cell = |threads: u32| {
            let like = &like;
            self.depth.iter().map(move |depth| Workload { threads, depth: *depth, ..like.clone() })
        };
        let workloads: Vec<Workload> = self.threads.iter().copied().flat_map(cell).collect();
        let setup = self.setup.setup(self.targets)?;
        self.results.check()?;
        let mut line = ProgressLine::start();
        let mut driver = Driver::prepare(setup, &workloads, &mut |progress| line.show(progress))?;
        let runs = run_all(&mut driver, &workloads, &mut line)?;
        let sweep = Found::of(&runs);
        self.results.record(output, runs, Some(Analysis::Sweep(sweep)))
    }
}
