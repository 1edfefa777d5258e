//! A fleet as text.

use super::columns::Columns;
use super::{Style, losses, short};
use crate::grouped;
use crate::record::{Cpu, Fleet, Run};

/// One line per size, and where the servers are saturated.
pub(super) fn fleet(fleet: &Fleet, runs: &[Run], style: Style) -> String {
    let mut text = runs
        .first()
        .map(|run| format!("{}\n\n", style.bold(&format!("Fleet: {run_name} each", run_name = run.name))))
        .unwrap_or_default();
    let head = [
        "clients",
        "IOPS",
        "gain per client",
        "MB/s",
        "p50 µs",
        "p99 µs",
        "client µs",
        "server µs",
        "client cores",
        "server cores",
        "",
    ];
    let mut table = Columns::new(&head);
    for (number, step) in fleet.steps.iter().enumerate() {
        let run = &runs[step.run];
        let latency = run.total.latency.clone().unwrap_or_default();
        let micros = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let cores = |of: fn(&Cpu) -> String| run.cpu.as_ref().map_or("–".to_owned(), of);
        let mut notes = Vec::new();
        if Some(number) == fleet.saturation {
            notes.push("saturated");
        }
        if Some(number) == fleet.best {
            notes.push("highest");
        }
        table.row(vec![
            step.clients.to_string(),
            grouped(step.total),
            grouped(step.gain),
            short(run.total.mb_per_s),
            short(latency.p50_us),
            short(latency.p99_us),
            micros(run.cpu.as_ref().map(|cpu| cpu.client.us_per_request)),
            micros(run.cpu.as_ref().and_then(|cpu| cpu.server_us_per_request())),
            cores(|cpu| cpu.client.cores()),
            cores(Cpu::server_cores),
            notes.join(", "),
        ]);
    }
    text.push_str(&table.text());
    if let Some(step) = fleet.saturation.and_then(|number| fleet.steps.get(number)) {
        text.push_str(&format!(
            "\nSaturated with {} clients at {} IOPS: the first total that reaches the 80th percentile of all.\n",
            step.clients,
            grouped(step.total)
        ));
    }
    text + &runs.iter().map(|run| losses(&run.ending, style)).collect::<String>()
}
