//! Several runs, one per line.

use super::columns::Columns;
use super::{losses, short};
use crate::grouped;
use crate::ratio::Ratio;
use crate::record::{Compare, PackName, Run, Sweep};
use crate::report::text::Style;

/// The patterns of a pack.
pub(super) fn pack(pack: &PackName, runs: &[Run], style: Style) -> String {
    format!("{}: {}\n\n{}", style.bold(&pack.name), pack.about, runs_table(runs, style))
}

/// Runs, one per line, and their failures.
pub(super) fn runs_table(runs: &[Run], style: Style) -> String {
    let ceilings = runs.iter().any(|run| run.ceiling.is_some());
    let mut head = vec![
        "",
        "t x o",
        "IOPS",
        "MB/s",
        "mean µs",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "client µs",
        "server µs",
    ];
    if ceilings {
        head.extend(["ceiling", "% of it"]);
    }
    let mut table = Columns::new(&head);
    for run in runs {
        let latency = run.total.latency.clone().unwrap_or_default();
        let mut row = vec![
            run.name.clone(),
            format!("{} x {}", run.workload.threads, run.workload.depth),
            grouped(run.total.iops),
            short(run.total.mb_per_s),
            short(latency.mean_us),
            short(latency.p50_us),
            short(latency.p99_us),
            short(latency.p99_9_us),
            cpu_cell(run.cpu.as_ref().map(|cpu| cpu.client.us_per_request)),
            cpu_cell(run.cpu.as_ref().and_then(|cpu| cpu.server_us_per_request())),
        ];
        if ceilings {
            row.push(run.ceiling.map(|ceiling| grouped(ceiling.iops)).unwrap_or_else(dash));
            row.push(run.ceiling.map(|ceiling| format!("{:.0} %", ceiling.percent)).unwrap_or_else(dash));
        }
        table.row(row);
    }
    table.text() + &runs.iter().map(|run| losses(&run.ending, style)).collect::<String>()
}

fn cpu_cell(micros: Option<f64>) -> String {
    micros.map(|micros| format!("{micros:.2}")).unwrap_or_else(dash)
}

fn dash() -> String {
    "-".to_owned()
}

/// A matrix of rates and one of latencies: threads by row, depths by column.
pub(super) fn sweep(sweep: &Sweep, runs: &[Run], style: Style) -> String {
    let mut text = runs.first().map(|run| format!("{}\n", style.bold(&run.name))).unwrap_or_default();
    text.push_str("\nIOPS by threads and queue depth (* knee, + highest)\n");
    text.push_str(&matrix(sweep, runs, |run| grouped(run.total.iops)));
    text.push_str("\nMedian latency, µs\n");
    text.push_str(&matrix(sweep, runs, |run| latency(run, |latency| latency.p50_us)));
    text.push_str("\n99th percentile latency, µs\n");
    text.push_str(&matrix(sweep, runs, |run| latency(run, |latency| latency.p99_us)));
    if let Some(run) = sweep.knee.and_then(|knee| runs.get(knee)) {
        let of_best =
            sweep.best.and_then(|best| runs.get(best)).map(|best| 100.0 * run.total.iops / best.total.iops);
        text.push_str(&format!(
            "\nKnee at {} x {}: {} IOPS, {:.0} % of the highest, at a median of {} µs.\nBeyond it, more outstanding requests add more latency than IOPS.\n",
            run.workload.threads,
            run.workload.depth,
            grouped(run.total.iops),
            of_best.unwrap_or(100.0),
            latency(run, |latency| latency.p50_us),
        ));
    }
    text + &runs.iter().map(|run| losses(&run.ending, style)).collect::<String>()
}

fn latency(run: &Run, figure: fn(&crate::record::LatencyFigures) -> f64) -> String {
    run.total.latency.as_ref().map(|latency| short(figure(latency))).unwrap_or_else(dash)
}

fn matrix(sweep: &Sweep, runs: &[Run], cell: impl Fn(&Run) -> String) -> String {
    let mut depths: Vec<u32> = runs.iter().map(|run| run.workload.depth).collect();
    let mut threads: Vec<u32> = runs.iter().map(|run| run.workload.threads).collect();
    for list in [&mut depths, &mut threads] {
        list.sort_unstable();
        list.dedup();
    }
    let head: Vec<String> = depths.iter().map(u32::to_string).collect();
    let head: Vec<&str> = std::iter::once("t \\ o").chain(head.iter().map(String::as_str)).collect();
    let mut table = Columns::new(&head);
    for count in threads {
        let mut row = vec![count.to_string()];
        for depth in &depths {
            let of_cell = |run: &&Run| (run.workload.threads, run.workload.depth) == (count, *depth);
            let number = runs.iter().position(|run| of_cell(&run));
            let mark = match number {
                Some(_) if number == sweep.knee => "*",
                Some(_) if number == sweep.best => "+",
                _ => "",
            };
            row.push(number.map(|number| cell(&runs[number]) + mark).unwrap_or_default());
        }
        table.row(row);
    }
    table.text()
}

/// Ratios with their spread.
pub(super) fn compare(compare: &Compare, style: Style) -> String {
    let mut text = format!("{}\nA  {}\nB  {}\n", style.bold("B compared with A"), compare.a, compare.b);
    for row in &compare.rows {
        text.push_str(&format!("\n{}\n", style.bold(&row.name)));
        let mut table = Columns::new(&["", "A", "B", "B/A", "lowest", "highest", "rounds", ""]);
        for (name, ratio, more_is_better) in row.figures() {
            let Some(ratio) = ratio else { continue };
            let number = |value: f64| short(value);
            table.row(vec![
                name.to_owned(),
                number(ratio.a),
                number(ratio.b),
                format!("{:.3}", ratio.ratio),
                format!("{:.3}", ratio.min),
                format!("{:.3}", ratio.max),
                ratio.rounds.to_string(),
                verdict(&ratio, more_is_better).to_owned(),
            ]);
        }
        text.push_str(&table.text());
    }
    if compare.rows.is_empty() {
        text.push_str("\nThe results have no pattern in common.\n");
    }
    text
}

/// What a ratio of B to A means for B.
pub(crate) fn verdict(ratio: &Ratio, more_is_better: bool) -> &'static str {
    match (ratio.rounds, ratio.is_certain()) {
        (1, _) => "one round: no spread",
        (_, false) => "within the noise",
        (_, true) if (ratio.ratio > 1.0) == more_is_better => "better",
        (_, true) => "worse",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn a_sweep_is_a_matrix() {
        let run = |threads, depth, iops| {
            let mut run = sample::run();
            (run.workload.threads, run.workload.depth, run.total.iops) = (threads, depth, iops);
            run
        };
        let runs = [run(1, 1, 1000.0), run(1, 8, 7000.0), run(2, 8, 7500.0)];
        let text = sweep(&Sweep::of(&runs), &runs, Style::Plain);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(3).take(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [vec!["t", "\\", "o", "1", "8"], vec!["1", "1,000", "7,000*"], vec!["2", "7,500+"]]);
        assert!(text.contains("Knee at 1 x 8: 7,000 IOPS, 93 % of the highest"), "{text}");
    }

    #[test]
    fn a_ratio_says_what_it_proves() {
        let ratio = |ratio, min, max, rounds| Ratio { a: 1.0, b: ratio, ratio, min, max, rounds };
        assert_eq!(verdict(&ratio(1.2, 1.1, 1.3, 3), true), "better");
        assert_eq!(verdict(&ratio(1.2, 1.1, 1.3, 3), false), "worse");
        assert_eq!(verdict(&ratio(0.8, 0.7, 0.9, 3), false), "better");
        assert_eq!(verdict(&ratio(1.2, 0.9, 1.3, 3), true), "within the noise");
        assert_eq!(verdict(&ratio(1.2, 1.2, 1.2, 1), true), "one round: no spread");
    }

    #[test]
    fn ceilings_are_shown_if_known() {
        let mut with = sample::run();
        let raw = crate::RawDisk { reads: Some(20_000.0), writes: None };
        with.ceiling = crate::record::Ceiling::of(crate::Disks { raw, disks: 1, copies: 1 }, &with);
        assert!(runs_table(&[with], Style::Plain).lines().nth(1).is_some_and(|line| {
            line.split_whitespace().collect::<Vec<_>>().ends_with(&["20,000", "50", "%"])
        }));
        assert!(!runs_table(&[sample::run()], Style::Plain).contains("ceiling"));
    }
}
