//! CPU time on both sides, and other activity on the machine.

use serde::{Deserialize, Serialize};

/// CPU time during the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// The load generator.
    pub client: Process,
    /// The servers that are processes of this machine.
    pub servers: Vec<Process>,
    /// Samples from the first request on.
    pub series: Vec<CpuSample>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its process ID.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// CPU time in seconds.
    pub seconds: f64,
    /// CPU time as a percentage of one processor.
    pub percent: f64,
    /// CPU time per request, in microseconds.
    pub us_per_request: f64,
    /// What it had its disks do; only of servers, and only if this user may know it.
    #[serde(default)]
    pub disk: Option<DiskUse>,
    /// Its busy threads.
    pub threads: Vec<Thread>,
}

/// What a process had its disks do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Bytes read from disks.
    pub read: u64,
    /// The same for each byte that was read from the target; `None` without reads.
    pub read_per_byte: Option<f64>,
    /// Bytes written to disks.
    pub written: u64,
    /// The same for each byte that was written to the target: the write amplification. `None` without writes.
    pub written_per_byte: Option<f64>,
}

impl DiskUse {
    /// `read` bytes were read from the target, and `written` bytes were written to it.
    pub(crate) fn new(disk_read: u64, read: u64, disk_written: u64, written: u64) -> DiskUse {
        let per_byte = |disk: u64, target: u64| (target > 0).then(|| disk as f64 / target as f64);
        DiskUse {
            read: disk_read,
            read_per_byte: per_byte(disk_read, read),
            written: disk_written,
            written_per_byte: per_byte(disk_written, written),
        }
    }

    /// As a line: `1.02 bytes read per byte read, 2.31 bytes written per byte written`.
    pub fn line(&self) -> String {
        let part = |what: &str, per_byte: Option<f64>| {
            per_byte.map(|bytes| format!("{bytes:.2} bytes {what} per byte {what}"))
        };
        let parts = [part("read", self.read_per_byte), part("written", self.written_per_byte)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// CPU time as a percentage of one processor.
    pub percent: f64,
}

/// CPU times in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuSample {
    /// The end of the interval, in seconds from the first request on.
    pub at: f64,
    /// The load generator, as a percentage of one processor.
    pub client: f64,
    /// All servers together, as a percentage of one processor.
    pub servers: f64,
    /// All other processes, as a percentage of one processor.
    pub others: f64,
}

/// What may have disturbed the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// CPU time of other processes and the kernel, as a percentage of one processor. It includes a server on
    /// this machine that was not found.
    pub others_percent: Option<f64>,
    /// CPU time that the host of a virtual machine took away, as a percentage of one processor.
    pub stolen_percent: Option<f64>,
    /// The standard deviation of the rates of the measured intervals, in percent of their average.
    pub rate_deviation_percent: Option<f64>,
}

impl Process {
    /// CPU time of its busy threads, as percentages of one processor: for Ursa's processes, one per core.
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

/// A table line has room for this many cores.
const CORES_SHOWN_MAX: usize = 8;

impl Cpu {
    /// CPU time of the busy threads of all servers.
    pub fn server_cores(&self) -> String {
        let cores: Vec<String> = self.servers.iter().map(Process::cores).collect();
        if cores.is_empty() { "–".to_owned() } else { cores.join(", ") }
    }

    /// CPU time of all servers per request, in microseconds; `None` if no server is known.
    pub fn server_us_per_request(&self) -> Option<f64> {
        (!self.servers.is_empty()).then(|| self.servers.iter().map(|server| server.us_per_request).sum())
    }
}
