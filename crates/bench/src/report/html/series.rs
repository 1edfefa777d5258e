//! Several runs on a page: a table, and charts over all of them.

use super::{escape, run};
use crate::quantity::{grouped, micros};
use crate::record::{Compare, CompareRow, Direction, PackName, Run, Sweep};
use crate::report::chart::{Axis, Bar, Bars, Line, Lines, Mark, Scale, Unit};
use crate::report::text::{short, verdict};

/// The patterns of a pack.
pub(super) fn pack(pack: &PackName, runs: &[Run]) -> String {
    format!(
        "<p>{}</p>{}<div class=\"charts\">{}{}{}{}</div>{}",
        escape(&pack.about),
        table(runs, &[]),
        bars("IOPS", runs, |run| run.total.iops),
        bars("MB/s", runs, |run| run.total.mb_per_s),
        latency_bars(runs),
        cpu_bars(runs),
        details(runs),
    )
}

/// One line per run, with the same numbers as in the charts; the runs in `marked` are highlighted.
pub(super) fn table(runs: &[Run], marked: &[usize]) -> String {
    let ceilings = runs.iter().any(|run| run.ceiling.is_some());
    let mut head =
        vec!["pattern", "t x o", "IOPS", "MB/s", "p50", "p99", "p99.9", "client CPU", "server CPU"];
    if ceilings {
        head.extend(["ceiling", "% of it"]);
    }
    let rows = runs.iter().enumerate().map(|(number, run)| {
        let latency = run.total.latency.clone().unwrap_or_default();
        let cpu = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2} µs"));
        let mut cells = vec![
            format!("{}. {}", number + 1, run.name),
            format!("{} x {}", run.workload.threads, run.workload.depth),
            grouped(run.total.iops),
            short(run.total.mb_per_s),
            micros(latency.p50_us),
            micros(latency.p99_us),
            micros(latency.p99_9_us),
            cpu(run.cpu.as_ref().map(|cpu| cpu.client.us_per_request)),
            cpu(run.cpu.as_ref().and_then(|cpu| cpu.server_us_per_request())),
        ];
        if ceilings {
            cells.push(run.ceiling.map_or("–".to_owned(), |ceiling| grouped(ceiling.iops)));
            cells.push(run.ceiling.map_or("–".to_owned(), |ceiling| format!("{:.0} %", ceiling.percent)));
        }
        (cells, marked.contains(&number))
    });
    html_table(&head, rows)
}

/// A table that scrolls if it is too wide.
pub(super) fn html_table(head: &[&str], rows: impl Iterator<Item = (Vec<String>, bool)>) -> String {
    let columns = head.len();
    let head: String = head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let row = |(cells, marked): (Vec<String>, bool)| {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr{}>{cells}</tr>", if marked { " class=\"best\"" } else { "" })
    };
    let rows: Vec<(Vec<String>, bool)> = rows.collect();
    assert!(rows.iter().all(|(cells, _)| cells.len() == columns), "every column has its name");
    let rows: String = rows.into_iter().map(row).collect();
    format!(
        "<div class=\"card scroll\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn names(runs: &[Run]) -> Vec<String> {
    runs.iter().map(|run| run.name.clone()).collect()
}

fn bars(title: &str, runs: &[Run], figure: impl Fn(&Run) -> f64) -> String {
    let values: Vec<Option<f64>> = runs.iter().map(|run| Some(figure(run))).collect();
    let y = Axis::new(Scale::from_zero(values.iter().flatten().copied()), Unit::Number);
    let bars = vec![Bar::from_zero(title, 1, &values)];
    Bars { title, y, x_name: "pattern", groups: names(runs), bars }.html()
}

/// Bars from the median to the 99th percentile, for reads and for writes.
fn latency_bars(runs: &[Run]) -> String {
    let span =
        |direction: &Direction| direction.latency.as_ref().map(|latency| (latency.p50_us, latency.p99_us));
    let reads: Vec<_> = runs.iter().map(|run| span(&run.reads)).collect();
    let writes: Vec<_> = runs.iter().map(|run| span(&run.writes)).collect();
    let all = reads.iter().chain(&writes).flatten().flat_map(|(low, high)| [*low, *high]);
    let y = Axis::new(Scale::log(all), Unit::Micros);
    let bars = vec![
        Bar { name: "reads".to_owned(), colour: 1, spans: reads },
        Bar { name: "writes".to_owned(), colour: 2, spans: writes },
    ];
    let title = "Latency, median to 99th percentile";
    Bars { title, y, x_name: "pattern", groups: names(runs), bars }.html()
}

fn cpu_bars(runs: &[Run]) -> String {
    let client: Vec<Option<f64>> = runs.iter().map(|run| Some(run.cpu.as_ref()?.client.percent)).collect();
    let servers =
        |run: &Run| run.cpu.as_ref().map(|cpu| cpu.servers.iter().map(|server| server.percent).sum());
    let server: Vec<Option<f64>> = runs.iter().map(servers).collect();
    let all = client.iter().chain(&server).flatten().copied();
    let y = Axis::new(Scale::from_zero(all), Unit::Percent);
    let bars = vec![Bar::from_zero("client", 4, &client), Bar::from_zero("server", 3, &server)];
    let title = "CPU use, in percent of one CPU";
    Bars { title, y, x_name: "pattern", groups: names(runs), bars }.html()
}

/// The details of every run, folded.
pub(super) fn details(runs: &[Run]) -> String {
    let one = |(number, one): (usize, &Run)| {
        format!(
            "<details><summary>{}. {}, {} x {}</summary>{}</details>",
            number + 1,
            escape(&one.name),
            one.workload.threads,
            one.workload.depth,
            run::section(one)
        )
    };
    format!("<h2>Each run</h2>{}", runs.iter().enumerate().map(one).collect::<String>())
}

/// Rate and latency by outstanding requests, with a line for each number of threads.
pub(super) fn sweep(sweep: &Sweep, runs: &[Run]) -> String {
    let mut html = String::new();
    if let Some(knee) = sweep.knee.and_then(|knee| runs.get(knee)) {
        let best = sweep.best.and_then(|best| runs.get(best)).map_or(knee.total.iops, |best| best.total.iops);
        html.push_str(&format!(
            "<p>The knee is at <b>{} x {}</b> (threads x outstanding requests): {} IOPS, {:.0} % of the highest. Beyond it, more outstanding requests add more latency than IOPS.</p>",
            knee.workload.threads,
            knee.workload.depth,
            grouped(knee.total.iops),
            100.0 * knee.total.iops / best,
        ));
    }
    html.push_str(&format!(
        "<div class=\"charts\">{}{}</div>",
        rate_chart(sweep, runs),
        latency_chart(sweep, runs)
    ));
    html.push_str(&table(runs, &sweep.knee.into_iter().collect::<Vec<_>>()));
    html + &details(runs)
}

fn by_threads(runs: &[Run], point: impl Fn(&Run) -> Option<(f64, f64)>) -> Vec<Line> {
    let mut threads: Vec<u32> = runs.iter().map(|run| run.workload.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let line = |(number, count): (usize, u32)| Line {
        name: if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") },
        colour: number % 6 + 1,
        points: runs.iter().filter(|run| run.workload.threads == count).filter_map(&point).collect(),
    };
    threads.into_iter().enumerate().map(line).collect()
}

fn knee_mark(sweep: &Sweep, runs: &[Run], point: impl Fn(&Run) -> Option<(f64, f64)>) -> Vec<Mark> {
    let knee = sweep.knee.and_then(|knee| runs.get(knee)).and_then(point);
    knee.map(|at| Mark { at, name: "knee".to_owned() }).into_iter().collect()
}

fn rate_chart(sweep: &Sweep, runs: &[Run]) -> String {
    let point = |run: &Run| Some((run.workload.outstanding() as f64, run.total.iops));
    let outstanding = runs.iter().map(|run| run.workload.outstanding() as f64);
    let lowest = runs.iter().map(|run| run.workload.outstanding()).min().unwrap_or(1);
    let highest = runs.iter().map(|run| run.workload.outstanding()).max().unwrap_or(1);
    let scale = Scale::Log { min: lowest as f64, max: (highest as f64).max(lowest as f64 * 2.0) };
    let mut labels: Vec<u64> = outstanding.map(|value| value as u64).collect();
    labels.sort_unstable();
    labels.dedup();
    let labels = labels.into_iter().map(|value| (value as f64, value.to_string())).collect();
    Lines {
        title: "IOPS",
        x: Axis::labelled(scale, Unit::Number, labels),
        y: Axis::new(Scale::from_zero(runs.iter().map(|run| run.total.iops)), Unit::Number),
        x_name: "outstanding requests",
        lines: by_threads(runs, point),
        shaded: None,
        marks: knee_mark(sweep, runs, point),
    }
    .html()
}

fn latency_chart(sweep: &Sweep, runs: &[Run]) -> String {
    let point = |run: &Run| Some((run.total.iops, run.total.latency.as_ref()?.p50_us));
    let latencies = runs.iter().filter_map(point).map(|(_, micros)| micros);
    Lines {
        title: "Median latency by IOPS",
        x: Axis::new(Scale::from_zero(runs.iter().map(|run| run.total.iops)), Unit::Number),
        y: Axis::new(Scale::log(latencies), Unit::Micros),
        x_name: "IOPS",
        lines: by_threads(runs, point),
        shaded: None,
        marks: knee_mark(sweep, runs, point),
    }
    .html()
}

/// Ratios with their spread.
pub(super) fn compare(compare: &Compare, runs: &[Run]) -> String {
    let names = [("A", compare.a.clone()), ("B", compare.b.clone())];
    let mut html = format!("<div class=\"card\">{}</div>", run::facts(&names));
    let figures = compare.rows.first().map(|row| row.figures().map(|(name, ..)| name)).unwrap_or_default();
    let charts = (0..figures.len()).map(|figure| ratios(compare, figure));
    html.push_str(&format!("<div class=\"charts\">{}</div>", charts.collect::<String>()));
    for row in &compare.rows {
        let rows = row.figures().into_iter().filter_map(|(name, ratio, more_is_better)| {
            let ratio = ratio?;
            let cells = vec![
                name.to_owned(),
                short(ratio.a),
                short(ratio.b),
                format!("{:.3}", ratio.ratio),
                format!("{:.3} to {:.3}", ratio.min, ratio.max),
                ratio.rounds.to_string(),
                verdict(&ratio, more_is_better).to_owned(),
            ];
            Some((cells, ratio.is_certain()))
        });
        html.push_str(&format!("<h3>{}</h3>", escape(&row.name)));
        html.push_str(&html_table(&["", "A", "B", "B/A", "spread", "rounds", "B is"], rows));
    }
    html + &details(runs)
}

/// The spread of a figure's ratios, pattern by pattern; empty if there are none.
fn ratios(compare: &Compare, figure: usize) -> String {
    let of = |row: &CompareRow| row.figures()[figure];
    let Some((name, ..)) = compare.rows.iter().map(of).find(|(_, ratio, _)| ratio.is_some()) else {
        return String::new();
    };
    let spans: Vec<_> =
        compare.rows.iter().map(|row| of(row).1.map(|ratio| (ratio.min, ratio.max))).collect();
    // A ratio of one is always on the chart, as the reference.
    let y = Scale::from_zero(spans.iter().flatten().map(|(_, high)| *high).chain([1.0]));
    Bars {
        title: &format!("{name}: B/A, lowest to highest round"),
        y: Axis::new(y, Unit::Number),
        x_name: "pattern",
        groups: compare.rows.iter().map(|row| row.name.clone()).collect(),
        bars: vec![Bar { name: name.to_owned(), colour: 1, spans }],
    }
    .html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{PackName, sample};

    #[test]
    fn columns_stand_below_their_names() {
        let name = PackName { name: "sql".to_owned(), about: "a test".to_owned() };
        let html = pack(&name, &[sample::run()]);
        let cells = |tag: &str| -> Vec<String> {
            let tag = format!("<{tag}>");
            let cells = html.split(&tag).skip(1);
            cells.map(|cell| cell.split('<').next().unwrap_or_default().to_owned()).collect()
        };
        let (head, cells) = (cells("th"), cells("td"));
        for (name, value) in [("pattern", "1. 4K &lt;random&gt; read"), ("IOPS", "10,000"), ("p50", "99 µs")]
        {
            let column = head.iter().position(|found| found == name).unwrap();
            assert_eq!(cells[column], value, "{name}");
        }
    }

    #[test]
    fn a_comparison_has_a_chart_for_each_figure() {
        let runs = [sample::run(), sample::run()];
        let found = Compare::of(("a".into(), &runs), ("b".into(), &runs));
        let html = compare(&found, &[]);
        assert_eq!(html.matches("<svg").count(), 5, "{html}");
        assert!(html.contains("IOPS: B/A, lowest to highest round"));
    }
}
