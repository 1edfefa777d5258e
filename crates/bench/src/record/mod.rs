//! Records of measurements: `--json` writes them, `compare` reads them and reports show them.
//!
//! A record contains everything that its report shows: the exact command, versions, the machine, the noise.
//! Latencies are in microseconds, rates in requests per second, data rates in millions of bytes per second.

mod analysis;
mod copies;
mod cpu;
mod ending;
mod figures;
mod fleet;
mod mail;
mod run;
#[cfg(test)]
pub(crate) mod sample;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use analysis::{Analysis, Compare, CompareRow, PackName, Sweep};
pub use copies::{Copies, CopiesSide};
pub use cpu::{Cpu, CpuSample, DiskUse, Noise, Process, Thread};
pub use ending::{Ending, Loss};
pub use figures::{Direction, LatencyFigures, Sample};
pub use fleet::{Fleet, FleetStep};
pub use mail::{Mail, MailVolume, MailWindow, TaskFigures, Unsteady};
pub use run::{Ceiling, Check, OpenLoop, Run, Subject};

use crate::{Error, machine};

/// The version of the format. It increases when a field changes its meaning or is removed.
pub const FORMAT: u32 = 1;

/// Everything that one command has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: u32,
    /// The arguments of the command.
    pub command: String,
    /// When it started (UTC).
    pub started: String,
    /// The version of `ursa`.
    pub version: String,
    /// The machine that generated the load.
    pub machine: Machine,
    /// The runs, in the order of execution.
    pub runs: Vec<Run>,
    /// The analysis of the runs together, if the command makes one.
    pub analysis: Option<Analysis>,
}

impl Document {
    /// A document about runs of this command on this machine.
    pub fn new(command: String, version: &str, runs: Vec<Run>, analysis: Option<Analysis>) -> Document {
        let started = runs.first().map_or_else(machine::utc_now, |run| run.started.clone());
        let machine = machine::machine();
        Document { format: FORMAT, command, started, version: version.to_owned(), machine, runs, analysis }
    }

    /// Whether everything was measured, and nothing was lost.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(Run::is_clean)
    }

    /// The document as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps with strange keys")
    }

    /// Parses the result of [`Document::to_json`]. `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Parse`], [`Error::Format`].
    pub fn parse(json: &str, path: &Path) -> Result<Document, Error> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_str(json).map_err(|error| Error::Parse(path.into(), error))?;
        if head.format != FORMAT {
            return Err(Error::Format { path: path.into(), format: head.format });
        }
        serde_json::from_str(json).map_err(|error| Error::Parse(path.into(), error))
    }
}

/// The machine that generated the load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and release of the kernel.
    pub kernel: String,
    /// The model of the processor.
    pub processor: String,
    /// The number of processors that this process may use.
    pub processors: usize,
    /// Size of the memory in bytes.
    pub memory_bytes: u64,
}
