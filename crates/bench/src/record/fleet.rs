//! A fleet of clients, each with a volume of its own.

use serde::{Deserialize, Serialize};

use super::{Process, Run};
use crate::saturation::{gains, saturation};

/// A fleet that grew step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// The steps, each with more clients than the previous one.
    pub steps: Vec<FleetStep>,
    /// The step from which on the servers count as saturated: the first that reaches the 80th percentile of
    /// all totals.
    pub saturation: Option<usize>,
    /// The step with the highest total.
    pub best: Option<usize>,
}

/// One size of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStep {
    /// The number of clients.
    pub clients: usize,
    /// The index of its run.
    pub run: usize,
    /// Requests per second of all clients.
    pub total: f64,
    /// The growth of the total per added client.
    pub gain: f64,
    /// The busiest thread of the clients' process, as a percentage of a processor.
    pub client_core: Option<f64>,
    /// The busiest thread of the servers, as a percentage of a processor.
    pub server_core: Option<f64>,
}

impl Fleet {
    /// The analysis of runs with these numbers of clients; incomplete runs do not count.
    pub fn of(clients: &[usize], runs: &[Run]) -> Fleet {
        let counted: Vec<(usize, usize)> = clients
            .iter()
            .copied()
            .enumerate()
            .filter(|(number, _)| runs.get(*number).is_some_and(Run::is_clean))
            .collect();
        let totals: Vec<f64> = counted.iter().map(|(number, _)| runs[*number].total.iops).collect();
        let sizes: Vec<(usize, f64)> =
            counted.iter().map(|(_, clients)| *clients).zip(totals.iter().copied()).collect();
        let steps = counted.iter().zip(gains(&sizes)).zip(&totals).map(|(((run, clients), gain), total)| {
            let cpu = runs[*run].cpu.as_ref();
            FleetStep {
                clients: *clients,
                run: *run,
                total: *total,
                gain,
                client_core: cpu.and_then(|cpu| busiest(std::slice::from_ref(&cpu.client))),
                server_core: cpu.and_then(|cpu| busiest(&cpu.servers)),
            }
        });
        let best = (0..totals.len()).max_by(|one, other| totals[*one].total_cmp(&totals[*other]));
        Fleet { steps: steps.collect(), saturation: saturation(&totals), best }
    }
}

/// The CPU time of the busiest thread of some processes, as a percentage of one processor.
fn busiest(processes: &[Process]) -> Option<f64> {
    let threads = processes.iter().flat_map(|process| &process.threads);
    threads.map(|thread| thread.percent).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Thread, sample};

    #[test]
    fn a_fleet_has_its_gains_and_its_saturation() {
        let run = |iops: f64| {
            let mut run = sample::run();
            run.total.iops = iops;
            run
        };
        let mut runs = [run(100.0), run(195.0), run(200.0), sample::lost()];
        let cpu = runs[1].cpu.as_mut().unwrap();
        cpu.servers[0].threads = [30.0, 80.0].map(|percent| Thread { name: "core".into(), percent }).to_vec();
        let fleet = Fleet::of(&[1, 2, 4, 8], &runs);
        assert_eq!(fleet.steps.iter().map(|step| step.gain).collect::<Vec<_>>(), [100.0, 95.0, 2.5]);
        assert_eq!((fleet.saturation, fleet.best), (Some(2), Some(2)));
        assert_eq!(fleet.steps[1].server_core, Some(80.0));
    }
}
