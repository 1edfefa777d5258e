//! A fleet on a page.

use super::series::{details, html_table};
use crate::quantity::{grouped, micros};
use crate::record::{Cpu, Fleet, FleetStep, Process, Run};
use crate::report::chart::{Axis, Bar, Bars, Line, Lines, Mark, Scale, Unit, heights};
use crate::report::text::short;

/// Totals, gains and processors by the size of the fleet.
pub(super) fn fleet(fleet: &Fleet, runs: &[Run]) -> String {
    let mut html = String::new();
    if let Some(step) = fleet.saturation.and_then(|number| fleet.steps.get(number)) {
        html.push_str(&format!(
            "<p>Saturated with <b>{} clients</b> at {} IOPS: the first total that reaches the 80th percentile of all.</p>",
            step.clients,
            grouped(step.total)
        ));
    }
    html.push_str(&format!(
        "<div class=\"charts\">{}{}{}{}</div>",
        totals(fleet),
        gains(fleet),
        latencies(fleet, runs),
        processors(fleet, runs)
    ));
    html.push_str(&table(fleet, runs));
    html + &details(runs)
}

fn table(fleet: &Fleet, runs: &[Run]) -> String {
    let head = [
        "clients",
        "IOPS",
        "gain per client",
        "MB/s",
        "p50",
        "p99",
        "client µs",
        "server µs",
        "client cores",
        "server cores",
    ];
    let rows = fleet.steps.iter().enumerate().map(|(number, step)| {
        let run = &runs[step.run];
        let latency = run.total.latency.clone().unwrap_or_default();
        let cores = |of: fn(&Cpu) -> String| run.cpu.as_ref().map_or("–".to_owned(), of);
        let cpu = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let cells = vec![
            step.clients.to_string(),
            grouped(step.total),
            grouped(step.gain),
            short(run.total.mb_per_s),
            micros(latency.p50_us),
            micros(latency.p99_us),
            cpu(run.cpu.as_ref().map(|cpu| cpu.client.us_per_request)),
            cpu(run.cpu.as_ref().and_then(Cpu::server_us_per_request)),
            cores(|cpu| cpu.client.cores()),
            cores(Cpu::server_cores),
        ];
        (cells, Some(number) == fleet.saturation)
    });
    html_table(&head, rows)
}

/// The horizontal axis: clients.
fn clients(fleet: &Fleet) -> Axis {
    let last = fleet.steps.last().map_or(1, |step| step.clients);
    let labels = fleet.steps.iter().map(|step| (step.clients as f64, step.clients.to_string())).collect();
    Axis::labelled(Scale::Linear { min: 0.0, max: last as f64 }, Unit::Number, labels)
}

fn points(fleet: &Fleet, value: impl Fn(&FleetStep) -> Option<f64>) -> Vec<(f64, f64)> {
    fleet.steps.iter().filter_map(|step| Some((step.clients as f64, value(step)?))).collect()
}

/// The totals, and the totals if each client added as much as the first one.
fn totals(fleet: &Fleet) -> String {
    let total = points(fleet, |step| Some(step.total));
    let highest = total.iter().map(|(_, total)| *total).fold(0.0, f64::max);
    let first = fleet.steps.first().map_or(0.0, |step| step.total / step.clients as f64);
    // The line of ideal totals ends where it leaves the chart.
    let last = fleet.steps.last().map_or(1.0, |step| step.clients as f64);
    let end = if first > 0.0 { last.min(highest * 1.05 / first) } else { 0.0 };
    let mark = fleet.saturation.and_then(|number| fleet.steps.get(number));
    let mark = mark.map(|step| Mark { at: (step.clients as f64, step.total), name: "saturated".to_owned() });
    let lines = vec![
        Line::new("all clients", 1, total),
        Line::new("linear scaling", 5, vec![(0.0, 0.0), (end, first * end)]),
    ];
    let y = Axis::new(Scale::from_zero([highest * 1.05]), Unit::Number);
    let chart = Lines::new("IOPS of all clients", ("clients", clients(fleet)), y, lines);
    Lines { marks: mark.into_iter().collect(), ..chart }.html()
}

fn gains(fleet: &Fleet) -> String {
    // A falling total has no bar; the table has its value.
    let values: Vec<Option<f64>> = fleet.steps.iter().map(|step| Some(step.gain.max(0.0))).collect();
    Bars {
        title: "IOPS gained per added client",
        y: Axis::new(Scale::from_zero(values.iter().flatten().copied()), Unit::Number),
        x_name: "clients",
        groups: fleet.steps.iter().map(|step| step.clients.to_string()).collect(),
        bars: vec![Bar::from_zero("gain", 1, &values)],
    }
    .html()
}

fn latencies(fleet: &Fleet, runs: &[Run]) -> String {
    let of = |figure: fn(&crate::record::LatencyFigures) -> f64| {
        points(fleet, |step| runs[step.run].total.latency.as_ref().map(figure))
    };
    let lines = vec![
        Line::new("median", 3, of(|latency| latency.p50_us)),
        Line::new("99th percentile", 6, of(|latency| latency.p99_us)),
    ];
    let y = Axis::new(Scale::log(heights(&lines)), Unit::Micros);
    Lines::new("Latency", ("clients", clients(fleet)), y, lines).html()
}

/// The most lines of a side that colors can distinguish.
const LINES_MAX: usize = 3;

/// Every core of both sides; for a side with many cores, the busiest.
fn processors(fleet: &Fleet, runs: &[Run]) -> String {
    let of_run = |step: &FleetStep| runs[step.run].cpu.as_ref();
    let mut lines =
        side(fleet, "client", [4, 6, 5], |step| of_run(step).map(|cpu| std::slice::from_ref(&cpu.client)));
    if lines.is_empty() {
        lines = busiest("client", 4, points(fleet, |step| step.client_core));
    }
    let servers = side(fleet, "server", [3, 1, 2], |step| of_run(step).map(|cpu| cpu.servers.as_slice()));
    lines.extend(match servers.is_empty() {
        true => busiest("server", 3, points(fleet, |step| step.server_core)),
        false => servers,
    });
    let y = Axis::new(Scale::from_zero(heights(&lines).chain([100.0])), Unit::Percent);
    Lines::new("Cores of clients and servers", ("clients", clients(fleet)), y, lines).html()
}

/// A line for each busy thread of a side; none if there are too many.
fn side<'a>(
    fleet: &'a Fleet,
    side: &str,
    colours: [usize; LINES_MAX],
    processes: impl Fn(&FleetStep) -> Option<&'a [Process]>,
) -> Vec<Line> {
    let mut names: Vec<(usize, String)> = Vec::new();
    let threads = |step: &FleetStep| -> Vec<((usize, String), f64)> {
        let all = processes(step).unwrap_or_default().iter().enumerate();
        all.flat_map(|(number, process)| {
            process.threads.iter().map(move |thread| ((number, thread.name.clone()), thread.percent))
        })
        .collect()
    };
    for (name, _) in fleet.steps.iter().flat_map(threads) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > LINES_MAX {
        return Vec::new();
    }
    names.sort();
    let line = |(name, colour): ((usize, String), usize)| Line {
        name: format!("{side} {}", name.1),
        colour,
        // A thread that is not listed used almost no CPU time.
        points: points(fleet, |step| {
            let found = threads(step).into_iter().find(|(other, _)| *other == name);
            Some(found.map_or(0.0, |(_, percent)| percent))
        }),
    };
    names.into_iter().zip(colours).map(line).collect()
}

fn busiest(side: &str, colour: usize, points: Vec<(f64, f64)>) -> Vec<Line> {
    vec![Line { name: format!("{side}, busiest core"), colour, points }]
        .into_iter()
        .filter(|line| !line.points.is_empty())
        .collect()
}
