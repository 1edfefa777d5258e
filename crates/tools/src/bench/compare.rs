//! `ursa bench compare`.

use std::path::{Path, PathBuf};

use bench::record::{Analysis, Compare as Ratios, Document, Run};
use bench::{Driver, Target, Workload};
use clap::Args;
use cli::Output;

use super::progress::ProgressLine;
use super::report::read;
use super::results::ResultArgs;
use super::rounds::{Side, take_turns};
use super::setup::SetupArgs;
use crate::error::ToolError;

/// Two records.
#[derive(Args, Debug)]
pub struct Compare {
    /// Result to compare with
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// Result to compare
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Repeat the runs of both, alternating, for N rounds; only then is the spread of the ratios known
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl Compare {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let (a, b) = (read(&self.a)?, read(&self.b)?);
        let labels = [label(&self.a, &a), label(&self.b, &b)];
        self.results.check()?;
        let (a, b) = match self.rounds {
            None => (a.runs, b.runs),
            Some(rounds) => {
                for (path, document) in [(&self.a, &a), (&self.b, &b)] {
                    if matches!(document.analysis, Some(Analysis::Mail(_))) {
                        return Err(bench::Error::NotRepeatable(path.clone()).into());
                    }
                }
                self.measure(&a, &b, rounds)?
            }
        };
        let [label_a, label_b] = labels;
        let compare = Ratios::of((label_a, &a), (label_b, &b));
        let runs = a.into_iter().chain(b).collect();
        self.results.record(output, runs, Some(Analysis::Compare(compare)))
    }

    /// Repeats the runs of both records, in turns.
    fn measure(&self, a: &Document, b: &Document, rounds: u32) -> Result<(Vec<Run>, Vec<Run>), ToolError> {
        let mut line = ProgressLine::start();
        let mut sides = [self.side("A", a, &mut line)?, self.side("B", b, &mut line)?];
        take_turns(&mut sides, rounds, &mut line)?;
        let [a, b] = sides.map(|side| side.runs);
        Ok((a, b))
    }

    fn side(&self, name: &str, document: &Document, line: &mut ProgressLine) -> Result<Side, ToolError> {
        let mut workloads: Vec<Workload> = Vec::new();
        for run in &document.runs {
            if !workloads.contains(&run.workload) {
                workloads.push(run.workload.clone());
            }
        }
        let targets: Vec<Target> = document
            .runs
            .first()
            .map(|run| run.subjects.iter().map(|subject| subject.target.clone()).collect())
            .unwrap_or_default();
        line.begin(format!("{name}: "));
        let setup = self.setup.setup(targets)?;
        let driver = Driver::prepare(setup, &workloads, &mut |progress| line.show(progress))?;
        Ok(Side::new(name, driver, workloads))
    }
}

/// Describes a record in a line.
fn label(path: &Path, document: &Document) -> String {
    let targets = document.runs.first().map(|run| {
        let targets: Vec<String> = run.subjects.iter().map(|subject| subject.target.to_string()).collect();
        targets.join(", ")
    });
    format!("{}: {} ({})", path.display(), targets.unwrap_or_default(), document.started)
}
