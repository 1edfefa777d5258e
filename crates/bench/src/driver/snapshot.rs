//! CPU times at one moment.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::engine::Count;
use crate::machine::{DiskBytes, Processors, own_pid, process_cpu, process_disk, process_name, thread_cpu};
use crate::record::{DiskUse, Process, Thread};

/// Threads that used less than this percentage of a processor are not listed.
const THREAD_PERCENT_MIN: f64 = 1.0;

/// CPU times at one moment, and the work done by then.
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) count: Count,
    pub(super) client: Duration,
    pub(super) servers: Vec<Option<Duration>>,
    disks: Vec<Option<DiskBytes>>,
    pub(super) processors: Option<Processors>,
}

/// CPU times of the threads of all relevant processes: too many to read at every look.
pub(super) type Threads = Vec<Vec<(u32, String, Duration)>>;

impl Snapshot {
    pub(super) fn take(count: Count, servers: &[u32]) -> Snapshot {
        let client = clock_gettime(ClockId::ProcessCPUTime);
        Snapshot {
            at: Instant::now(),
            count,
            client: Duration::new(client.tv_sec as u64, client.tv_nsec as u32),
            servers: servers.iter().map(|pid| process_cpu(*pid)).collect(),
            disks: servers.iter().map(|pid| process_disk(*pid)).collect(),
            processors: Processors::read(),
        }
    }

    /// CPU time of all servers together.
    pub(super) fn servers_cpu(&self) -> Duration {
        self.servers.iter().flatten().sum()
    }

    /// Requests answered by then.
    pub(super) fn requests(&self) -> u64 {
        self.count.requests.iter().sum()
    }
}

/// The threads of this process and of the servers.
pub(super) fn threads(servers: &[u32]) -> Threads {
    std::iter::once(&own_pid()).chain(servers).map(|pid| thread_cpu(*pid)).collect()
}

/// The interval between two snapshots.
pub(super) struct Between<'a> {
    pub(super) from: &'a Snapshot,
    pub(super) to: &'a Snapshot,
}

impl Between<'_> {
    pub(super) fn seconds(&self) -> f64 {
        (self.to.at - self.from.at).as_secs_f64().max(1e-9)
    }

    /// As a percentage of one processor.
    pub(super) fn percent(&self, used: Duration) -> f64 {
        100.0 * used.as_secs_f64() / self.seconds()
    }

    pub(super) fn client(&self) -> Duration {
        self.to.client.saturating_sub(self.from.client)
    }

    pub(super) fn servers(&self) -> Duration {
        self.to.servers_cpu().saturating_sub(self.from.servers_cpu())
    }

    /// CPU time of all other processes; `None` if the machine does not report it.
    pub(super) fn others(&self) -> Option<Duration> {
        let all = self.to.processors?.since(self.from.processors?).busy;
        Some(all.saturating_sub(self.client() + self.servers()))
    }

    pub(super) fn stolen(&self) -> Option<Duration> {
        Some(self.to.processors?.since(self.from.processors?).stolen)
    }

    /// The record of a process that used this much CPU time.
    pub(super) fn process(&self, pid: u32, used: Duration, threads: Vec<Thread>) -> Process {
        let requests = self.to.requests() - self.from.requests();
        Process {
            pid,
            name: process_name(pid).unwrap_or_default(),
            seconds: used.as_secs_f64(),
            percent: self.percent(used),
            us_per_request: used.as_secs_f64() * 1e6 / requests.max(1) as f64,
            disk: None,
            threads,
        }
    }

    /// What a server has had its disks read and write.
    pub(super) fn disk(&self, server: usize) -> Option<DiskUse> {
        let of = |snapshot: &Snapshot| snapshot.disks.get(server).copied().flatten();
        let (before, after) = (of(self.from)?, of(self.to)?);
        let [read, written] = [0, 1].map(|at| self.to.count.bytes[at] - self.from.count.bytes[at]);
        let disk_read = after.read.saturating_sub(before.read);
        Some(DiskUse::new(disk_read, read, after.written.saturating_sub(before.written), written))
    }

    /// The busy threads of a process, from their CPU times before and after.
    pub(super) fn threads(
        &self,
        before: &[(u32, String, Duration)],
        after: &[(u32, String, Duration)],
    ) -> Vec<Thread> {
        let used = |(thread, name, cpu): &(u32, String, Duration)| {
            let earlier = before.iter().find(|(earlier, ..)| earlier == thread).map(|(_, _, cpu)| *cpu);
            let percent = self.percent(cpu.saturating_sub(earlier.unwrap_or_default()));
            (percent >= THREAD_PERCENT_MIN).then(|| Thread { name: name.clone(), percent })
        };
        after.iter().filter_map(used).collect()
    }
}
