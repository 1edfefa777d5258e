//! The analysis of several runs.

use serde::{Deserialize, Serialize};

use super::{Copies, Fleet, Mail, Run};
use crate::knee::{Point, knee};
use crate::ratio::Ratio;

/// The analysis of several runs. A run is identified by its index in the document's list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Analysis {
    /// Threads and depths of one pattern.
    Sweep(Sweep),
    /// The patterns of a published test.
    Pack(PackName),
    /// Two records, side by side.
    Compare(Compare),
    /// Increasing numbers of clients.
    Fleet(Fleet),
    /// A simulated mail server.
    Mail(Box<Mail>),
    /// One pattern on volumes with different numbers of copies.
    Copies(Copies),
}

/// Threads and depths of one pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The run from which more load no longer pays.
    pub knee: Option<usize>,
    /// The run with the highest rate.
    pub best: Option<usize>,
}

impl Sweep {
    /// The analysis of these runs; incomplete ones do not count.
    pub fn of(runs: &[Run]) -> Sweep {
        let counted: Vec<(usize, &Run)> = runs.iter().enumerate().filter(|(_, run)| run.is_clean()).collect();
        let point = |(_, run): &(usize, &Run)| Point {
            outstanding: run.workload.outstanding(),
            rate: run.total.iops,
        };
        let points: Vec<Point> = counted.iter().map(point).collect();
        let best = counted.iter().max_by(|(_, one), (_, other)| one.total.iops.total_cmp(&other.total.iops));
        Sweep { knee: knee(&points).map(|number| counted[number].0), best: best.map(|(number, _)| *number) }
    }
}

/// The pack of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackName {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: String,
}

/// Two records, side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    /// What the first record is.
    pub a: String,
    /// What the second record is.
    pub b: String,
    /// The patterns that both have.
    pub rows: Vec<CompareRow>,
}

/// One pattern of both records, as ratios of the second to the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareRow {
    /// The pattern.
    pub name: String,
    /// Requests per second.
    pub iops: Option<Ratio>,
    /// Median latency.
    pub p50_us: Option<Ratio>,
    /// The 99th percentile.
    pub p99_us: Option<Ratio>,
    /// CPU time of the client per request.
    pub client_us: Option<Ratio>,
    /// CPU time of the servers per request.
    pub server_us: Option<Ratio>,
}

impl CompareRow {
    /// Compares the runs of one pattern, in the order of the rounds.
    pub fn of(name: String, a: &[&Run], b: &[&Run]) -> CompareRow {
        let ratio = |figure: fn(&Run) -> Option<f64>| {
            // A round without the figure does not count; it is marked by a zero.
            let figures = |runs: &[&Run]| -> Vec<f64> {
                runs.iter().map(|run| figure(run).filter(|_| run.is_clean()).unwrap_or(0.0)).collect()
            };
            Ratio::of(&figures(a), &figures(b))
        };
        CompareRow {
            name,
            iops: ratio(|run| Some(run.total.iops)),
            p50_us: ratio(|run| run.total.latency.as_ref().map(|latency| latency.p50_us)),
            p99_us: ratio(|run| run.total.latency.as_ref().map(|latency| latency.p99_us)),
            client_us: ratio(|run| run.cpu.as_ref().map(|cpu| cpu.client.us_per_request)),
            server_us: ratio(|run| run.cpu.as_ref()?.server_us_per_request()),
        }
    }

    /// The figures, with their names and whether a higher value is better.
    pub fn figures(&self) -> [(&'static str, Option<Ratio>, bool); 5] {
        [
            ("IOPS", self.iops, true),
            ("p50", self.p50_us, false),
            ("p99", self.p99_us, false),
            ("client CPU", self.client_us, false),
            ("server CPU", self.server_us, false),
        ]
    }
}

impl Compare {
    /// Compares the runs of two records: runs of the same pattern belong together, in the order of execution.
    pub fn of(a: (String, &[Run]), b: (String, &[Run])) -> Compare {
        let mut names: Vec<String> = Vec::new();
        for run in a.1 {
            let name = run.workload.to_string();
            if !names.contains(&name) && b.1.iter().any(|other| other.workload.to_string() == name) {
                names.push(name);
            }
        }
        let rows = names.into_iter().map(|name| {
            let of = |runs: &'_ [Run]| -> Vec<Run> {
                runs.iter().filter(|run| run.workload.to_string() == name).cloned().collect()
            };
            let (a, b) = (of(a.1), of(b.1));
            CompareRow::of(name, &a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>())
        });
        Compare { rows: rows.collect(), a: a.0, b: b.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    fn run(threads: u32, depth: u32, iops: f64) -> Run {
        let mut run = sample::run();
        (run.workload.threads, run.workload.depth, run.total.iops) = (threads, depth, iops);
        run
    }

    #[test]
    fn a_sweep_marks_its_knee() {
        let runs = [run(1, 1, 10e3), run(1, 8, 70e3), run(2, 32, 81e3), sample::lost()];
        assert_eq!(Sweep::of(&runs), Sweep { knee: Some(1), best: Some(2) });
        assert_eq!(Sweep::of(&[sample::lost()]), Sweep { knee: None, best: None });
    }

    #[test]
    fn records_are_compared_pattern_by_pattern() {
        let a = [run(1, 1, 100.0), run(1, 8, 500.0), run(1, 1, 110.0), run(9, 9, 1.0)];
        let b = [run(1, 8, 600.0), run(1, 1, 150.0), run(1, 1, 165.0)];
        let compare = Compare::of(("a".into(), &a), ("b".into(), &b));
        let names: Vec<&str> = compare.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["4K sequential read, 1 x 1", "4K sequential read, 1 x 8"]);
        let iops = compare.rows[0].iops.unwrap();
        assert!((iops.ratio - 1.5).abs() < 1e-9 && iops.rounds == 2 && iops.is_certain());
        assert_eq!(compare.rows[0].server_us.unwrap().ratio, 1.0);
    }
}
