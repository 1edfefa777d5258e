//! A fleet on a page.

use super::series::{details, html_table};
use crate::quantity::{grouped, micros};
use crate::record::{Fleet, FleetStep, Run};
use crate::report::chart::{Axis, Bar, Bars, Line, Lines, Mark, Scale, Unit};
use crate::report::text::short;

/// Totals, gains and processors by the size of the fleet.
pub(super) fn fleet(fleet: &Fleet, runs: &[Run]) -> String {
    let mut html = String::new();
    if let Some(step) = fleet.saturation.and_then(|number| fleet.steps.get(number)) {
        html.push_str(&format!(
            "<p>Saturated with <b>{} clients</b> at {} requests a second: the first total that reaches the 80th percentile of all.</p>",
            step.clients,
            grouped(step.total)
        ));
    }
    html.push_str(&format!(
        "<div class=\"charts\">{}{}{}{}</div>",
        totals(fleet),
        gains(fleet),
        latencies(fleet, runs),
        processors(fleet)
    ));
    html.push_str(&table(fleet, runs));
    html + &details(runs)
}

fn table(fleet: &Fleet, runs: &[Run]) -> String {
    let head = ["clients", "IOPS", "gain a client", "MB/s", "p50", "p99", "client core", "server core"];
    let rows = fleet.steps.iter().enumerate().map(|(number, step)| {
        let run = &runs[step.run];
        let latency = run.total.latency.clone().unwrap_or_default();
        let percent = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0} %"));
        let cells = vec![
            step.clients.to_string(),
            grouped(step.total),
            grouped(step.gain),
            short(run.total.mb_per_s),
            micros(latency.p50_us),
            micros(latency.p99_us),
            percent(step.client_core),
            percent(step.server_core),
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

/// The totals, and what they would be if each client brought as much as the first.
fn totals(fleet: &Fleet) -> String {
    let total = points(fleet, |step| Some(step.total));
    let highest = total.iter().map(|(_, total)| *total).fold(0.0, f64::max);
    let first = fleet.steps.first().map_or(0.0, |step| step.total / step.clients as f64);
    // The line of no loss ends where it leaves the chart.
    let last = fleet.steps.last().map_or(1.0, |step| step.clients as f64);
    let end = if first > 0.0 { last.min(highest * 1.05 / first) } else { 0.0 };
    let mark = fleet.saturation.and_then(|number| fleet.steps.get(number));
    Lines {
        title: "Requests a second of all clients",
        x: clients(fleet),
        y: Axis::new(Scale::from_zero([highest * 1.05]), Unit::Number),
        x_name: "clients",
        lines: vec![
            Line { name: "all clients".to_owned(), colour: 1, points: total },
            Line {
                name: "each as the first".to_owned(),
                colour: 5,
                points: vec![(0.0, 0.0), (end, first * end)],
            },
        ],
        shaded: None,
        marks: mark
            .map(|step| Mark { at: (step.clients as f64, step.total), name: "saturated".to_owned() })
            .into_iter()
            .collect(),
    }
    .html()
}

fn gains(fleet: &Fleet) -> String {
    // A total that falls has no bar; the table says how much it was.
    let values: Vec<Option<f64>> = fleet.steps.iter().map(|step| Some(step.gain.max(0.0))).collect();
    Bars {
        title: "What each added client brought, requests a second",
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
        Line { name: "median".to_owned(), colour: 3, points: of(|latency| latency.p50_us) },
        Line { name: "99th percentile".to_owned(), colour: 6, points: of(|latency| latency.p99_us) },
    ];
    let values: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|(_, micros)| *micros).collect();
    let y = Axis::new(Scale::log(values), Unit::Micros);
    Lines {
        title: "Latency",
        x: clients(fleet),
        y,
        x_name: "clients",
        lines,
        shaded: None,
        marks: Vec::new(),
    }
    .html()
}

fn processors(fleet: &Fleet) -> String {
    let lines = vec![
        Line {
            name: "clients' busiest core".to_owned(),
            colour: 4,
            points: points(fleet, |step| step.client_core),
        },
        Line {
            name: "servers' busiest core".to_owned(),
            colour: 3,
            points: points(fleet, |step| step.server_core),
        },
    ];
    let y = Axis::new(Scale::from_zero([100.0]), Unit::Percent);
    let title = "The busiest core of both sides";
    Lines { title, x: clients(fleet), y, x_name: "clients", lines, shaded: None, marks: Vec::new() }.html()
}
