//! The process, under the names that Prometheus' own libraries use.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::text::{Kind, Text};

/// What the kernel reports about the process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    /// Resident memory in bytes.
    resident: Option<u64>,
    /// Open file descriptors.
    open_files: Option<u64>,
    /// The limit of open file descriptors; `None`: there is none.
    open_files_max: Option<u64>,
    /// CPU time of all threads, in seconds.
    cpu: f64,
}

impl Process {
    pub(super) fn current() -> Process {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Process {
            resident: std::fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status)),
            // One of them is the descriptor of the directory itself.
            open_files: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|files| files.count().saturating_sub(1) as u64),
            open_files_max: getrlimit(Resource::Nofile).current,
            cpu: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        }
    }
}

/// `VmRSS:     12345 kB`; proc_pid_status(5): kB are KiB.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

pub(super) fn write(text: &mut Text, process: &Process, started: SystemTime) {
    let help = "CPU time of the process, all threads.";
    text.family("process_cpu_seconds_total", Kind::Counter, help).sample(&[], process.cpu);
    let mut gauge = |name, help, value: Option<u64>| {
        if let Some(value) = value {
            text.family(name, Kind::Gauge, help).sample(&[], value);
        }
    };
    gauge("process_resident_memory_bytes", "Resident memory of the process.", process.resident);
    gauge("process_open_fds", "Open file descriptors.", process.open_files);
    gauge("process_max_fds", "Limit of open file descriptors.", process.open_files_max);
    let started = started.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
    gauge("process_start_time_seconds", "When the node began to serve, in seconds since 1970.", started);
}

#[cfg(test)]
mod tests {
    use super::{Process, resident};

    #[test]
    fn the_resident_set_is_in_kibibytes() {
        assert_eq!(resident("Name:\tursa\nVmRSS:\t    2048 kB\nRssAnon:\t 1 kB\n"), Some(2_097_152));
        assert_eq!(resident("Name:\tursa\n"), None);
        let process = Process::current();
        assert!(process.resident.unwrap() > 1 << 20 && process.open_files.unwrap() >= 3);
        assert!(
            process.open_files_max.is_none_or(|most| most >= process.open_files.unwrap())
                && process.cpu > 0.0
        );
    }
}
