//! `ursa bench fleet`.

use bench::record::{Analysis, Fleet as Steps, Run};
use bench::{Driver, Target, Workload, has_stopped_growing};
use clap::Args;
use cli::Output;

use super::pattern::PatternArgs;
use super::progress::ProgressLine;
use super::results::ResultArgs;
use super::setup::SetupArgs;
use crate::error::ToolError;

const EXAMPLE: &str = "\
Example, with a shell that counts in braces:
  ursa bench fleet -b4K -o32 -r iscsi://10.0.0.7/iqn.2026-11.io.ursa:vm{1..20}/0";

/// Clients, one after the other, until nothing is gained.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct Fleet {
    /// Volumes, one per client, in the order in which the clients start
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<Target>,
    /// Clients to add per step
    #[arg(long, value_name = "N", default_value_t = 1)]
    step: usize,
    /// Continue to the last client, even if total IOPS no longer grow
    #[arg(long)]
    all: bool,
    /// -t: threads per client
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// -o: outstanding requests per thread
    #[arg(long, value_name = "N", default_value_t = 32)]
    depth: u32,
    #[command(flatten)]
    pattern: PatternArgs,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl Fleet {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let (threads, depth) = (self.threads, self.depth);
        let workload = Workload { threads, depth, ..self.pattern.workload() };
        let volumes = self.targets.len();
        let setup = self.setup.setup(self.targets)?;
        self.results.check()?;
        let mut line = ProgressLine::start();
        let workloads = std::slice::from_ref(&workload);
        let mut driver = Driver::prepare(setup, workloads, &mut |progress| line.show(progress))?;
        let (mut clients, mut runs): (Vec<usize>, Vec<Run>) = (Vec::new(), Vec::new());
        for count in sizes(volumes, self.step) {
            line.begin(format!("{count} of {volumes} clients: "));
            clients.push(count);
            runs.push(driver.run_clients(&workload, count, &mut |progress| line.show(progress))?);
            let totals: Vec<f64> = runs.iter().map(|run| run.total.iops).collect();
            let broken = runs.last().is_some_and(|run| !run.is_clean());
            if broken || (!self.all && has_stopped_growing(&totals)) {
                break;
            }
        }
        line.begin(String::new());
        line.clear();
        let fleet = Analysis::Fleet(Steps::of(&clients, &runs));
        self.results.record(output, runs, Some(fleet))
    }
}

/// One client first, then multiples of `step`, and finally all.
fn sizes(volumes: usize, step: usize) -> Vec<usize> {
    let mut sizes = vec![1];
    while let Some(last) = sizes.last().copied().filter(|last| *last < volumes) {
        let next = if last == 1 { step.max(2) } else { last + step.max(1) };
        sizes.push(next.min(volumes));
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn a_fleet_grows_to_the_last_volume() {
        assert_eq!(sizes(4, 1), [1, 2, 3, 4]);
        assert_eq!(sizes(20, 5), [1, 5, 10, 15, 20]);
        assert_eq!(sizes(7, 4), [1, 4, 7]);
        assert_eq!(sizes(1, 3), [1]);
    }
}
