//! Properties of this machine, and the time.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base::calendar::{date, time_of_day};

use crate::record::Machine;

/// The properties of this machine.
pub(crate) fn machine() -> Machine {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| field(&text, "model name"));
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal"));
    let kib = |text: String| text.split_ascii_whitespace().next()?.parse::<u64>().ok();
    Machine {
        kernel: format!("Linux {kernel}"),
        processor: processor.unwrap_or_else(|| "unknown".to_owned()),
        processors: processors(),
        memory_bytes: memory.and_then(kib).unwrap_or(0) * 1024,
    }
}

/// The first `NAME : value` of a file of /proc.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// How many processors this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The ID of this process.
pub(crate) fn own_pid() -> u32 {
    std::process::id()
}

pub(crate) fn process_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

pub(crate) fn file_kind(path: &Path) -> &'static str {
    match fs::metadata(path).map(|metadata| metadata.file_type()) {
        Ok(kind) if kind.is_block_device() => "block device",
        _ => "file",
    }
}

/// The date and time, as in `2026-11-21T09:30:00Z`.
pub(crate) fn utc_now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    utc(seconds)
}

fn utc(seconds: u64) -> String {
    let (year, month, day) = date(seconds);
    let (hour, minute, second) = time_of_day(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_795_253_400), "2026-11-21T09:30:00Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn this_machine_is_something() {
        let machine = machine();
        assert!(machine.kernel.starts_with("Linux ") && machine.processors > 0 && machine.memory_bytes > 0);
        assert!(process_name(std::process::id()).is_some());
    }
}
