//! `ursa bench pack`.

use bench::record::{Analysis, PackName};
use bench::{Driver, PACKS, Pack as Patterns, Target, Workload};
use clap::Args;
use cli::Output;

use super::ceiling::CeilingArgs;
use super::pattern::PatternArgs;
use super::progress::ProgressLine;
use super::results::ResultArgs;
use super::series::run_all;
use super::setup::SetupArgs;
use crate::error::ToolError;

/// The patterns of a published test.
#[derive(Args, Debug)]
#[command(after_help = about())]
pub struct Pack {
    /// Pack: hci-12, nvme-4 or sql
    #[arg(value_name = "PACK", value_parser = find)]
    pack: Patterns,
    /// LUN (`iscsi://PORTAL[:PORT]/IQN/LUN`), file or block device; several are used at once
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
    /// -t: threads per target [default: the pack's]
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// -o: outstanding requests per thread [default: the pack's]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    #[command(flatten)]
    pattern: PatternArgs,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    ceiling: CeilingArgs,
    #[command(flatten)]
    results: ResultArgs,
}

fn about() -> String {
    let packs = PACKS.iter().map(|pack| format!("  {:<7} {}\n", pack.name, pack.about));
    format!("Packs (each sets -b, -w, -r and -s):\n{}", packs.collect::<String>())
}

fn find(name: &str) -> Result<Patterns, String> {
    Patterns::find(name).ok_or_else(|| {
        let names: Vec<&str> = PACKS.iter().map(|pack| pack.name).collect();
        format!("unknown pack; use {}", names.join(", "))
    })
}

impl Pack {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let mut workloads = self.pack.workloads(&self.pattern.workload());
        for workload in &mut workloads {
            let Workload { threads, depth, .. } = workload.clone();
            (workload.threads, workload.depth) =
                (self.threads.unwrap_or(threads), self.depth.unwrap_or(depth));
        }
        let setup = self.setup.setup(self.targets)?;
        self.results.check()?;
        let mut line = ProgressLine::start();
        let raw = self.ceiling.measure(&setup, &workloads, &mut line)?;
        let mut driver = Driver::prepare(setup, &workloads, &mut |progress| line.show(progress))?;
        let mut runs = run_all(&mut driver, &workloads, &mut line)?;
        raw.mark(&mut runs);
        let name = PackName { name: self.pack.name.to_owned(), about: self.pack.about.to_owned() };
        self.results.record(output, runs, Some(Analysis::Pack(name)))
    }
}
