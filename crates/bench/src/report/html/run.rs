//! A run on a page: figures, charts, noise, and failures.

use super::escape;
use super::series::html_table;
use crate::quantity::{grouped, micros};
use crate::record::{Direction, Ending, Run};
use crate::report::chart::{Axis, Line, Lines, Scale, Unit, heights};
use crate::report::text::{self, Style};

/// What must not be overlooked, at the top of the page; empty if nothing failed.
pub(super) fn alarm(ending: &Ending) -> String {
    let losses = text::losses(ending, Style::Plain);
    let mut lines = losses.lines();
    let Some(first) = lines.next() else { return String::new() };
    let rest: String = lines.map(|line| format!("<p>{}</p>", escape(line.trim()))).collect();
    format!("<div class=\"card alarm\"><p><strong>{}</strong></p>{rest}</div>", escape(first))
}

/// Everything about a run.
pub(super) fn section(run: &Run) -> String {
    let mut html = tiles(run);
    html.push_str(&table(run));
    html.push_str("<div class=\"charts\">");
    html.push_str(&percentiles(run));
    html.push_str(&rates(run));
    html.push_str(&latencies(run));
    html.push_str(&cpu(run));
    html.push_str("</div>");
    html.push_str(&conditions(run));
    html
}

fn tiles(run: &Run) -> String {
    let mut tiles = vec![(grouped(run.total.iops), "IOPS"), (text::short(run.total.mb_per_s), "MB/s")];
    if let Some(latency) = &run.total.latency {
        tiles.push((micros(latency.p50_us), "median latency"));
        tiles.push((micros(latency.p99_us), "99th percentile"));
    }
    if let Some(cpu) = &run.cpu {
        tiles.push((format!("{:.2} µs", cpu.client.us_per_request), "client CPU per request"));
        if let Some(server) = cpu.server_us_per_request() {
            tiles.push((format!("{server:.2} µs"), "server CPU per request"));
        }
    }
    tiles_of(&tiles)
}

/// The most important values, and their names.
pub(super) fn tiles_of(tiles: &[(String, &str)]) -> String {
    let tile = |(value, name): &(String, &str)| {
        format!("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape(value), escape(name))
    };
    format!("<div class=\"tiles\">{}</div>", tiles.iter().map(tile).collect::<String>())
}

fn table(run: &Run) -> String {
    let head = ["", "IOPS", "MB/s", "mean", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
    let rows = directions(run).into_iter().map(|(name, _, direction)| (row(name, direction), false));
    html_table(&head, rows)
}

fn row(name: &str, direction: &Direction) -> Vec<String> {
    let latency = direction.latency.clone().unwrap_or_default();
    let mut cells = vec![name.to_owned(), grouped(direction.iops), text::short(direction.mb_per_s)];
    cells.push(micros(latency.mean_us));
    cells.extend(latency.shown().map(|(_, value)| micros(value)));
    cells
}

/// Reads, writes and, for a mix, both, with their colors.
fn directions(run: &Run) -> Vec<(&'static str, usize, &Direction)> {
    let all = [("reads", 1, &run.reads), ("writes", 2, &run.writes)];
    let mut shown: Vec<_> = all.into_iter().filter(|(_, _, direction)| direction.latency.is_some()).collect();
    if shown.len() > 1 {
        shown.push(("both", 5, &run.total));
    }
    shown
}

/// Latency by percentile, a step to the right for each nine.
pub(super) fn percentiles(run: &Run) -> String {
    let curve = |direction: &Direction| direction.latency.as_ref().map(|latency| latency.curve.clone());
    let curves: Vec<_> = directions(run)
        .into_iter()
        .take(2)
        .map(|(name, colour, direction)| (name, colour, curve(direction).unwrap_or_default()))
        .collect();
    percentile_chart("Latency by percentile", "percentile of requests", &curves)
}

/// Percentiles and their latencies, with names and colours.
pub(super) type Curve = (&'static str, usize, Vec<(f64, f64)>);

pub(super) fn percentile_chart(title: &str, x_name: &str, curves: &[Curve]) -> String {
    let mut lines = Vec::new();
    let mut end: f64 = 1.0;
    for (name, colour, curve) in curves {
        let Some(((_, max), rest)) = curve.split_last() else { continue };
        let mut points: Vec<(f64, f64)> =
            rest.iter().map(|(percent, micros)| (nines(*percent), *micros)).collect();
        // The highest latency has no percentile on this axis: it is drawn a little to the right of the last
        // one.
        let last = points.last().map_or(0.0, |(at, _)| at + 0.3);
        points.push((last, *max));
        end = end.max(last);
        lines.push(Line::new(name, *colour, points));
    }
    let labels = [
        (50.0, "50 %"),
        (90.0, "90 %"),
        (99.0, "99 %"),
        (99.9, "99.9 %"),
        (99.99, "99.99 %"),
        (99.999, "99.999 %"),
    ];
    let labels = labels.into_iter().map(|(percent, label)| (nines(percent), label.to_owned()));
    let mut labels: Vec<(f64, String)> = labels.filter(|(at, _)| *at < end - 0.5).collect();
    labels.push((end, "max".to_owned()));
    let x = Axis::labelled(Scale::Linear { min: 0.0, max: end }, Unit::Number, labels);
    let y = Axis::new(Scale::log(heights(&lines)), Unit::Micros);
    Lines::new(title, (x_name, x), y, lines).html()
}

/// How many nines a percentile has: 90 has one, 99 two.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-12).log10()
}

/// The time axis of a run and its warm-up.
fn time(run: &Run) -> (Axis, Option<(f64, f64, &'static str)>) {
    let end = run.interval * run.series.len().max(1) as f64;
    let warm_up = run.workload.warm_up.as_secs_f64();
    let axis = Axis::new(Scale::Linear { min: 0.0, max: end }, Unit::Seconds);
    (axis, (warm_up > 0.0).then_some((0.0, warm_up.min(end), "warm-up")))
}

/// Points at the middles of the intervals.
fn over_time(run: &Run, value: impl Fn(&crate::record::Sample) -> f64) -> Vec<(f64, f64)> {
    let at = |number: usize| (number as f64 + 0.5) * run.interval;
    run.series.iter().enumerate().map(|(number, sample)| (at(number), value(sample))).collect()
}

pub(super) fn rates(run: &Run) -> String {
    let (x, shaded) = time(run);
    let mut lines = Vec::new();
    if run.reads.latency.is_some() {
        lines.push(Line::new("reads", 1, over_time(run, |sample| sample.reads)));
    }
    if run.writes.latency.is_some() {
        lines.push(Line::new("writes", 2, over_time(run, |sample| sample.writes)));
    }
    let y = Axis::new(Scale::from_zero(heights(&lines)), Unit::Number);
    Lines { shaded, ..Lines::new("IOPS over time", ("time", x), y, lines) }.html()
}

pub(super) fn latencies(run: &Run) -> String {
    let (x, shaded) = time(run);
    // An interval without an answer has no latency.
    let of = |value: fn(&crate::record::Sample) -> f64| {
        let points = over_time(run, value);
        points.into_iter().filter(|(_, micros)| *micros > 0.0).collect::<Vec<_>>()
    };
    let lines = vec![
        Line::new("average", 3, of(|sample| sample.mean_us)),
        Line::new("p99", 4, of(|sample| sample.p99_us)),
        Line::new("highest", 6, of(|sample| sample.max_us)),
    ];
    let y = Axis::new(Scale::log(heights(&lines)), Unit::Micros);
    Lines { shaded, ..Lines::new("Latency over time", ("time", x), y, lines) }.html()
}

pub(super) fn cpu(run: &Run) -> String {
    let Some(cpu) = run.cpu.as_ref().filter(|cpu| cpu.series.len() > 1) else { return String::new() };
    let (x, shaded) = time(run);
    let points = |value: fn(&crate::record::CpuSample) -> f64| {
        cpu.series.iter().map(|sample| (sample.at, value(sample))).collect::<Vec<_>>()
    };
    let mut lines = vec![Line::new("client", 4, points(|sample| sample.client))];
    if !cpu.servers.is_empty() {
        lines.push(Line::new("server", 3, points(|sample| sample.servers)));
    }
    lines.push(Line::new("all others", 5, points(|sample| sample.others)));
    let y = Axis::new(Scale::from_zero(heights(&lines)), Unit::Percent);
    Lines { shaded, ..Lines::new("CPU use, in percent of one CPU", ("time", x), y, lines) }.html()
}

/// The pattern, the noise, and what a reader should know.
pub(super) fn conditions(run: &Run) -> String {
    let mut rows = vec![("Pattern", run.letters.clone()), ("Measured", format!("{:.1} s", run.seconds))];
    if let Some(cpu) = &run.cpu {
        for (side, process) in std::iter::once(("Client", &cpu.client))
            .chain(cpu.servers.iter().map(|server| ("Server", server)))
        {
            let threads: Vec<String> = process
                .threads
                .iter()
                .map(|thread| format!("{} {:.0} %", thread.name, thread.percent))
                .collect();
            let threads =
                if threads.is_empty() { String::new() } else { format!(": {}", threads.join(", ")) };
            rows.push((
                side,
                format!("{} (pid {}), {:.0} % of a CPU{threads}", process.name, process.pid, process.percent),
            ));
            if let Some(disk) = process.disk.map(|disk| disk.line()).filter(|line| !line.is_empty()) {
                rows.push(("Disks", disk));
            }
        }
    }
    if let Some(noise) = text::noise_line(&run.noise) {
        rows.push(("Noise", noise));
    }
    if let Some(check) = &run.check {
        let (checked, unchecked) = (grouped(check.checked as f64), grouped(check.unchecked as f64));
        rows.push(("Verified", format!("{checked} reads checked, {unchecked} could not be")));
    }
    if let Some(ceiling) = &run.ceiling {
        rows.push(("Ceiling", text::ceiling_line(ceiling).trim_start_matches("Ceiling ").to_owned()));
    }
    rows.extend(run.notes.iter().map(|note| ("Note", note.clone())));
    format!("<div class=\"card\">{}</div>", facts(&rows))
}

/// Names and values.
pub(super) fn facts(rows: &[(&str, String)]) -> String {
    let row = |(name, value): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    format!("<dl class=\"facts\">{}</dl>", rows.iter().map(row).collect::<String>())
}
