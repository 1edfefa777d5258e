//! Copies as text.

use super::columns::Columns;
use super::{Style, losses, short};
use crate::grouped;
use crate::record::{Copies, CopiesSide, Run};

/// One line per volume, compared with the first.
pub(super) fn copies(copies: &Copies, runs: &[Run], style: Style) -> String {
    let mut text = runs
        .first()
        .map(|run| format!("{}\n{}\n\n", style.bold(&run.workload.to_string()), run.letters))
        .unwrap_or_default();
    let mut table = Columns::new(&HEAD);
    copies.sides.iter().for_each(|side| table.row(row(side)));
    text.push_str(&table.text());
    text + &runs.iter().map(|run| losses(&run.ending, style)).collect::<String>()
}

/// The column names of a table of copies.
pub(crate) const HEAD: [&str; 10] =
    ["", "IOPS", "% of first", "spread", "rounds", "MB/s", "p50 µs", "p99 µs", "client µs", "server µs"];

/// A row of such a table.
pub(crate) fn row(side: &CopiesSide) -> Vec<String> {
    let dash = || "-".to_owned();
    let number = |value: Option<f64>| value.map_or_else(dash, short);
    let cpu = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.2}"));
    vec![
        side.name.clone(),
        side.iops.map_or_else(dash, grouped),
        side.ratio.map_or_else(dash, |ratio| format!("{:.1} %", 100.0 * ratio.ratio)),
        side.ratio.map_or_else(dash, |ratio| format!("{:.1} to {:.1}", 100.0 * ratio.min, 100.0 * ratio.max)),
        side.runs.len().to_string(),
        number(side.mb_per_s),
        number(side.p50_us),
        number(side.p99_us),
        cpu(side.client_us),
        cpu(side.server_us),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sample;

    #[test]
    fn each_has_a_line() {
        let mut one = sample::run();
        one.total.iops = 7500.0;
        let sides = vec![("raw disk".into(), vec![sample::run()]), ("1 copy".into(), vec![one])];
        let (found, runs) = Copies::of(sides);
        let text = copies(&found, &runs, Style::Plain);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[4][..5], ["raw", "disk", "10,000", "-", "-"]);
        assert_eq!(lines[5][..8], ["1", "copy", "7,500", "75.0", "%", "75.0", "to", "75.0"]);
    }
}
