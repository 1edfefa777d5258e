//! CPU times from /proc: of processes, of their threads, and of the whole machine (proc(5)).

use std::fs;
use std::time::Duration;

/// The CPU time that a process and its ended threads have used so far; `None` if there is no such process.
pub(crate) fn process_cpu(pid: u32) -> Option<Duration> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|(_, cpu)| cpu)
}

/// Names and CPU times of the current threads of a process.
pub(crate) fn thread_cpu(pid: u32) -> Vec<(u32, String, Duration)> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut times: Vec<(u32, String, Duration)> = threads
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let thread = entry.file_name().to_str()?.parse().ok()?;
            let (name, cpu) = parse_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
            Some((thread, name, cpu))
        })
        .collect();
    times.sort();
    times
}

/// The name and the CPU time of a process or a thread.
fn parse_stat(stat: &str) -> Option<(String, Duration)> {
    // The name may contain any character, including parentheses.
    let (head, fields) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    // Behind the name follow state, ppid, …; utime and stime are fields 14 and 15 of all, counted from one.
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some((name, ticks_to_time(ticks)))
}

fn ticks_to_time(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos((u128::from(ticks) * 1_000_000_000 / u128::from(per_second)) as u64)
}

/// CPU times of all processors together since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Busy with anything, for any process.
    pub(crate) busy: Duration,
    /// Requested, but given to another machine on the same host.
    pub(crate) stolen: Duration,
}

impl Processors {
    pub(crate) fn read() -> Option<Processors> {
        parse_processors(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The CPU times used since `earlier`.
    pub(crate) fn since(self, earlier: Processors) -> Processors {
        Processors {
            busy: self.busy.saturating_sub(earlier.busy),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

fn parse_processors(stat: &str) -> Option<Processors> {
    let fields = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; the time of guests is part of user.
    let [user, nice, system, _, _, irq, softirq, stolen, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(Processors { busy: ticks_to_time(busy), stolen: ticks_to_time(stolen) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "4711 (a b) c) S 1 4711 4711 0 -1 4194560 900 0 0 0 150 50 7 8 20 0 3 0 12345 1 2";
        let (name, cpu) = parse_stat(stat).unwrap();
        assert_eq!((name.as_str(), cpu), ("a b) c", Duration::from_secs(2)));
        assert_eq!(parse_stat("4711 (x) S 1"), None);
    }

    #[test]
    fn processors_add_up() {
        let stat = "cpu  100 20 30 4000 50 6 7 80 9 9\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let processors = parse_processors(stat).unwrap();
        assert_eq!(processors.busy, Duration::from_millis(1630));
        assert_eq!(processors.stolen, Duration::from_millis(800));
    }

    #[test]
    fn this_process_uses_the_processor() {
        let pid = std::process::id();
        assert!(process_cpu(pid).is_some());
        assert!(thread_cpu(pid).iter().any(|(thread, ..)| *thread == pid));
        assert!(Processors::read().unwrap().busy > Duration::ZERO);
        assert_eq!(process_cpu(u32::MAX), None);
    }
}
