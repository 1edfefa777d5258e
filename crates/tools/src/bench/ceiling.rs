//! Arguments about the disks behind the targets, and measurements of what these disks can do.

use std::path::PathBuf;

use bench::record::{Ceiling, Run};
use bench::{Disks, Driver, RawDisk, Setup, Workload};
use clap::Args;
use terms::size::Size;

use super::progress::ProgressLine;
use super::raw::raw_disk;
use super::series::run_all;
use crate::error::ToolError;

/// The disks behind the targets.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ceiling (best possible with these disks)")]
pub struct CeilingArgs {
    /// Measure this disk first, with the same patterns: a device or a file; if missing, a file of --raw-size
    /// is created, and removed at the end
    #[arg(long, value_name = "PATH", conflicts_with_all = ["raw_reads", "raw_writes"])]
    raw: Option<PathBuf>,
    /// Size of the file created for --raw
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    raw_size: Size,
    /// Read IOPS of one disk, if known
    #[arg(long, value_name = "IOPS")]
    raw_reads: Option<f64>,
    /// Write IOPS of one disk, if known
    #[arg(long, value_name = "IOPS")]
    raw_writes: Option<f64>,
    /// Number of such disks
    #[arg(long, value_name = "N", default_value_t = 1)]
    disks: u32,
    /// Number of copies of all data
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: u32,
}

/// The measurements of the disks, for each pattern.
pub struct Raw {
    disks: u32,
    copies: u32,
    /// The rates given for all patterns.
    known: RawDisk,
    measured: Vec<Run>,
}

impl CeilingArgs {
    /// Measures the disk, if one is named: for each pattern, its reads and its writes separately.
    pub fn measure(
        &self,
        setup: &Setup,
        workloads: &[Workload],
        line: &mut ProgressLine,
    ) -> Result<Raw, ToolError> {
        let known = RawDisk { reads: self.raw_reads, writes: self.raw_writes };
        let (disks, copies) = (self.disks, self.copies);
        let Some(path) = &self.raw else { return Ok(Raw { disks, copies, known, measured: Vec::new() }) };
        let mut pure: Vec<Workload> = Vec::new();
        for workload in workloads {
            for write_percent in [0, 100] {
                let wanted = if write_percent == 0 { workload.reads() } else { workload.writes() };
                let one = raw_workload(workload, write_percent);
                if wanted && !pure.contains(&one) {
                    pure.push(one);
                }
            }
        }
        let (setup, _scratch) = raw_disk(path, self.raw_size.0, setup);
        line.begin("raw disk: ".to_owned());
        let mut driver = Driver::prepare(setup, &pure, &mut |progress| line.show(progress))?;
        let measured = run_all(&mut driver, &pure, line)?;
        if measured.iter().all(Run::is_clean) {
            Ok(Raw { disks, copies, known, measured })
        } else {
            Err(ToolError::BenchIncomplete)
        }
    }
}

/// The pattern on a raw disk: the whole disk, with only reads or only writes.
fn raw_workload(workload: &Workload, write_percent: u8) -> Workload {
    Workload { write_percent, base: 0, span: None, verify: false, rate: None, ..workload.clone() }
}

impl Raw {
    /// Adds to each run what part of the disks' rate it reached.
    pub fn mark(&self, runs: &mut [Run]) {
        for run in runs {
            let raw = RawDisk {
                reads: self.rate(&run.workload, 0).or(self.known.reads),
                writes: self.rate(&run.workload, 100).or(self.known.writes),
            };
            let disks = Disks { raw, disks: self.disks, copies: self.copies };
            if raw != (RawDisk { reads: None, writes: None }) {
                run.ceiling = Ceiling::of(disks, run);
            }
        }
    }

    fn rate(&self, workload: &Workload, write_percent: u8) -> Option<f64> {
        let wanted = raw_workload(workload, write_percent);
        self.measured.iter().find(|run| run.workload == wanted).map(|run| run.total.iops)
    }
}
