//! CPU time on both sides, and what else went on.

use serde::{Deserialize, Serialize};

/// CPU time while it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// The load generator.
    pub client: Process,
    /// The servers, where they are processes of this machine.
    pub servers: Vec<Process>,
    /// From the first request on.
    pub series: Vec<CpuSample>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// CPU time, seconds.
    pub seconds: f64,
    /// In percent of one processor.
    pub percent: f64,
    /// CPU time for one request, microseconds.
    pub us_per_request: f64,
    /// Its busy threads.
    pub threads: Vec<Thread>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// In percent of one processor.
    pub percent: f64,
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuSample {
    /// The end of the interval, in seconds from the first request on.
    pub at: f64,
    /// The load generator, in percent of one processor.
    pub client: f64,
    /// The servers together, likewise.
    pub servers: f64,
    /// All others, likewise.
    pub others: f64,
}

/// What may have disturbed the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// What other processes and the kernel used, in percent of one processor. With a server on this machine
    /// that was not found, its share is here.
    pub others_percent: Option<f64>,
    /// What the host of a virtual machine took away, likewise.
    pub stolen_percent: Option<f64>,
    /// The standard deviation of the rates of the intervals that were measured, in percent of their average.
    pub rate_deviation_percent: Option<f64>,
}

impl Process {
    /// What its busy threads used, in percent of a processor each: of Ursa's processes, one a core.
    pub fn cores(&self) -> String {
        let percents = self.threads.iter().map(|thread| format!("{:.0}", thread.percent));
        let percents: Vec<String> = percents.take(CORES_SHOWN_MAX).collect();
        let more = self.threads.len().saturating_sub(CORES_SHOWN_MAX);
        match (percents.is_empty(), more) {
            (true, _) => "–".to_owned(),
            (false, 0) => format!("{} %", percents.join(" ")),
            (false, more) => format!("{} % and {more} more", percents.join(" ")),
        }
    }
}

/// A line of a table has room for so many cores.
const CORES_SHOWN_MAX: usize = 8;

impl Cpu {
    /// What the busy threads of all servers used.
    pub fn server_cores(&self) -> String {
        let cores: Vec<String> = self.servers.iter().map(Process::cores).collect();
        if cores.is_empty() { "–".to_owned() } else { cores.join(", ") }
    }

    /// CPU time of all servers for one request, microseconds; `None` if no server is known.
    pub fn server_us_per_request(&self) -> Option<f64> {
        (!self.servers.is_empty()).then(|| self.servers.iter().map(|server| server.us_per_request).sum())
    }
}
