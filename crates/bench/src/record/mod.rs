//! Records of measurements: what `--json` writes, `compare` reads and reports show.
//!
//! A record says everything that its report says: the exact command, versions, the machine, the noise.
//! Latencies are in microseconds, rates in requests a second, data rates in millions of bytes a second.

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
pub use cpu::{Cpu, CpuSample, Noise, Process, Thread};
pub use ending::{Ending, Loss};
pub use figures::{Direction, LatencyFigures, Sample};
pub use fleet::{Fleet, FleetStep};
pub use mail::{Mail, MailVolume, MailWindow, TaskFigures, Unsteady};
pub use run::{Ceiling, Check, OpenLoop, Run, Subject};

use crate::{Error, machine};

/// The version of the format: goes up when a field changes its meaning or goes away.
pub const FORMAT: u32 = 1;

/// All that one command has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: u32,
    /// The arguments, as they were given.
    pub command: String,
    /// When it began (UTC).
    pub started: String,
    /// The version of `ursa`.
    pub version: String,
    /// Where the load came from.
    pub machine: Machine,
    /// The runs, in the order in which they were made.
    pub runs: Vec<Run>,
    /// What they say together, if they were made for that.
    pub analysis: Option<Analysis>,
}

impl Document {
    /// Of runs that were made on this machine by this command.
    pub fn new(command: String, version: &str, runs: Vec<Run>, analysis: Option<Analysis>) -> Document {
        let started = runs.first().map_or_else(machine::utc_now, |run| run.started.clone());
        let machine = machine::machine();
        Document { format: FORMAT, command, started, version: version.to_owned(), machine, runs, analysis }
    }

    /// Whether all that was to be measured was, and nothing was lost.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(Run::is_clean)
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps with strange keys")
    }

    /// From what [`Document::to_json`] gave. `path` is for errors.
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

/// The machine that the load came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and release.
    pub kernel: String,
    /// The model.
    pub processor: String,
    /// How many this process may use.
    pub processors: usize,
    /// Bytes.
    pub memory_bytes: u64,
}
