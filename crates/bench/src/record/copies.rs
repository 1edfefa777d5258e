//! One pattern on several volumes that differ only in their number of copies.

use serde::{Deserialize, Serialize};

use super::Run;
use crate::ratio::{Ratio, median};

/// One pattern on several volumes, measured in turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Copies {
    /// The sides. The others are compared with the first.
    pub sides: Vec<CopiesSide>,
}

/// One of the volumes. Its figures are medians of its rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesSide {
    /// Its name.
    pub name: String,
    /// The indexes of its runs, in the order of the rounds.
    pub runs: Vec<usize>,
    /// Requests per second. Like the other figures, it is `None` if no round was completed.
    pub iops: Option<f64>,
    /// Millions of bytes per second.
    pub mb_per_s: Option<f64>,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// The 99th percentile.
    pub p99_us: Option<f64>,
    /// CPU time of the client per request.
    pub client_us: Option<f64>,
    /// CPU time of the servers per request; `None` if there are none, or they are unknown.
    pub server_us: Option<f64>,
    /// Requests per second, as a ratio to the first side in the same rounds.
    pub ratio: Option<Ratio>,
}

impl Copies {
    /// The analysis of the runs of each side, in the order of the rounds; and all runs.
    pub fn of(sides: Vec<(String, Vec<Run>)>) -> (Copies, Vec<Run>) {
        // A round that was not completed does not count; it is marked by a zero.
        let rates = |runs: &[Run]| -> Vec<f64> {
            runs.iter().map(|run| if run.is_clean() { run.total.iops } else { 0.0 }).collect()
        };
        let first = sides.first().map(|(_, runs)| rates(runs)).unwrap_or_default();
        let (mut found, mut all) = (Vec::new(), Vec::new());
        for (number, (name, runs)) in sides.into_iter().enumerate() {
            let numbers = (all.len()..all.len() + runs.len()).collect();
            let ratio = if number == 0 { None } else { Ratio::of(&first, &rates(&runs)) };
            found.push(CopiesSide::of(name, numbers, &runs, ratio));
            all.extend(runs);
        }
        (Copies { sides: found }, all)
    }
}

impl CopiesSide {
    fn of(name: String, numbers: Vec<usize>, runs: &[Run], ratio: Option<Ratio>) -> CopiesSide {
        let middle = |figure: fn(&Run) -> Option<f64>| {
            median(runs.iter().filter(|run| run.is_clean()).filter_map(figure).collect())
        };
        CopiesSide {
            name,
            runs: numbers,
            iops: middle(|run| Some(run.total.iops)),
            mb_per_s: middle(|run| Some(run.total.mb_per_s)),
            p50_us: middle(|run| run.total.latency.as_ref().map(|latency| latency.p50_us)),
            p99_us: middle(|run| run.total.latency.as_ref().map(|latency| latency.p99_us)),
            client_us: middle(|run| run.cpu.as_ref().map(|cpu| cpu.client.us_per_request)),
            server_us: middle(|run| run.cpu.as_ref()?.server_us_per_request()),
            ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn all_are_compared_with_the_first_round_by_round() {
        let run = |iops: f64| {
            let mut run = sample::run();
            run.total.iops = iops;
            run
        };
        let raw = vec![run(100.0), run(50.0), run(80.0)];
        let one = vec![run(90.0), run(45.0), sample::lost()];
        let (copies, runs) = Copies::of(vec![("raw disk".into(), raw), ("1 copy".into(), one)]);
        assert_eq!((copies.sides[0].iops, copies.sides[0].ratio), (Some(80.0), None));
        assert_eq!((copies.sides[1].iops, copies.sides[1].runs.as_slice()), (Some(67.5), &[3, 4, 5][..]));
        let ratio = copies.sides[1].ratio.unwrap();
        assert!((ratio.ratio - 0.9).abs() < 1e-9 && ratio.rounds == 2 && runs.len() == 6);
        assert_eq!(Copies::of(vec![("x".into(), vec![sample::lost()])]).0.sides[0].p50_us, None);
    }
}
