//! `ursa bench copies`.

use std::path::PathBuf;
use std::str::FromStr;

use bench::record::{Analysis, Copies as Found};
use bench::{Driver, Setup, Target, Workload};
use clap::Args;
use cli::Output;
use terms::size::Size;

use super::pattern::PatternArgs;
use super::progress::ProgressLine;
use super::raw::raw_disk;
use super::results::ResultArgs;
use super::rounds::{Side, take_turns};
use super::setup::SetupArgs;
use crate::error::ToolError;

const EXAMPLE: &str = "\
Example:
  ursa bench copies -b4K -t1 -o32 -r -w30 --raw /pool/scratch \\
    --target 1=iscsi://10.0.0.7/iqn.2026-11.io.ursa:one/0 --target 2=iscsi://10.0.0.7/iqn.2026-11.io.ursa:two/0";

/// One pattern on a raw disk and on volumes with more and more copies.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub struct Copies {
    /// Raw disk behind the volumes: a device or a file; if missing, a file of --raw-size is created, and
    /// removed at the end
    #[arg(long, value_name = "PATH", required_unless_present = "targets")]
    raw: Option<PathBuf>,
    /// Size of the file created for --raw
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    raw_size: Size,
    /// Volume to measure, with a label; a number is its number of copies; all are compared with the first
    #[arg(long = "target", value_name = "LABEL=TARGET")]
    targets: Vec<Labelled>,
    /// Number of rounds, each of which measures all in turn
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// -t: threads
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

#[derive(Clone, Debug)]
struct Labelled {
    name: String,
    target: Target,
}

impl FromStr for Labelled {
    type Err = String;

    fn from_str(text: &str) -> Result<Labelled, String> {
        let form =
            || format!("{text:?} has no label; use LABEL=TARGET, for example 2=iscsi://10.0.0.7/IQN/0");
        let (label, target) = text.split_once('=').filter(|(label, _)| !label.is_empty()).ok_or_else(form)?;
        let target = target.parse().map_err(|error: bench::InvalidTarget| error.to_string())?;
        Ok(Labelled { name: name(label), target })
    }
}

/// A number is the number of copies.
fn name(label: &str) -> String {
    match label.parse::<u32>() {
        Ok(1) => "1 copy".to_owned(),
        Ok(copies) => format!("{copies} copies"),
        Err(_) => label.to_owned(),
    }
}

impl Copies {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        let workload = Workload { threads: self.threads, depth: self.depth, ..self.pattern.workload() };
        let like = self.setup.setup(Vec::new())?;
        self.results.check()?;
        let mut line = ProgressLine::start();
        let (mut sides, mut scratch) = (Vec::new(), None);
        let mut add = |name: &str, setup: Setup, line: &mut ProgressLine| -> Result<(), ToolError> {
            line.begin(format!("{name}: "));
            let workloads = vec![workload.clone()];
            let driver = Driver::prepare(setup, &workloads, &mut |progress| line.show(progress))?;
            sides.push(Side::new(name, driver, workloads));
            Ok(())
        };
        if let Some(path) = &self.raw {
            let (setup, made) = raw_disk(path, self.raw_size.0, &like);
            scratch = made;
            add("raw disk", setup, &mut line)?;
        }
        for Labelled { name, target } in &self.targets {
            add(name, Setup { targets: vec![target.clone()], ..like.clone() }, &mut line)?;
        }
        take_turns(&mut sides, self.rounds, &mut line)?;
        drop(scratch);
        let (found, runs) = Found::of(sides.into_iter().map(|side| (side.name, side.runs)).collect());
        self.results.record(output, runs, Some(Analysis::Copies(found)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_labels() {
        let labelled: Labelled = "2=iscsi://h/iqn.2026-11.io.ursa:a=b/0".parse().unwrap();
        assert_eq!(labelled.name, "2 copies");
        assert_eq!(labelled.target.to_string(), "iscsi://h:3260/iqn.2026-11.io.ursa:a=b/0");
        assert_eq!(("1 copy", "witness"), (name("1").as_str(), name("witness").as_str()));
        for text in ["/dev/sdb", "=x", "a="] {
            assert!(text.parse::<Labelled>().is_err(), "{text}");
        }
    }
}
