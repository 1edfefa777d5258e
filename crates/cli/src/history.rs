//! `ursa history`.

use std::time::Duration;

use api::{Client, History as Kept, HistoryQuery, HistorySeries, HistoryUnit};
use clap::Args;
use terms::clock::{unix_now, utc};

use super::error::CliError;
use super::output::Output;
use super::table::{Table, say_missing, size};
use crate::duration::parse_duration;

/// What was kept of the last seven days.
#[derive(Args, Debug)]
pub struct History {
    /// Series to show step by step [default: last value, mean and maximum of all series]
    #[arg(value_name = "SERIES")]
    series: Vec<String>,
    /// How far back: 30m, 6h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
    since: Duration,
    /// Maximum number of steps
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=1000))]
    points: u32,
    /// Another node of the cluster, by number, or all
    #[arg(long, value_name = "NUMBER|all")]
    node: Option<String>,
}

impl History {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let to = unix_now();
        let query = HistoryQuery {
            series: self.series.clone(),
            from: Some(to.saturating_sub(self.since.as_secs())),
            to: Some(to),
            points: Some(self.points),
            node: self.node,
        };
        let kept = client.history(&query)?;
        output.show(&kept, |kept| if self.series.is_empty() { summary(kept) } else { steps(kept) })?;
        say_missing(&kept.missing);
        Ok(())
    }
}

const NOTHING: &str = "No data for this period.";

/// The last, mean and maximum value of each series.
fn summary(kept: &Kept) -> String {
    let mut table = Table::new(&["NODE", "SERIES", "POOL", "LAST", "MEAN", "MAX"]);
    for series in &kept.series {
        let known: Vec<f64> = series.points.iter().copied().flatten().collect();
        let mean = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        let shown = |value: Option<f64>| shown(value, series.unit);
        table.row([
            series.node.to_string(),
            series.series.clone(),
            series.pool.clone().unwrap_or_else(|| "-".into()),
            shown(known.last().copied()),
            shown(mean),
            shown(known.iter().copied().reduce(f64::max)),
        ]);
    }
    table.text(NOTHING)
}

/// A table with a row per step and a column per series.
fn steps(kept: &Kept) -> String {
    let mut head = vec!["SINCE".to_owned()];
    head.extend(kept.series.iter().map(name));
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let count = kept.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
    for step in 0..count {
        let point = |series: &HistorySeries| shown(series.points.get(step).copied().flatten(), series.unit);
        let mut row = vec![utc(kept.from + step as u64 * u64::from(kept.step_s))];
        row.extend(kept.series.iter().map(point));
        table.cells(row);
    }
    table.text(NOTHING)
}

/// The title of a series' column.
fn name(series: &HistorySeries) -> String {
    let pool = series.pool.as_ref().map(|pool| format!(" of {pool}")).unwrap_or_default();
    format!("{}:{}{pool}", series.node, series.series)
}

fn shown(value: Option<f64>, unit: HistoryUnit) -> String {
    let Some(value) = value else { return "-".into() };
    match unit {
        HistoryUnit::OperationsPerSecond if value >= 100.0 => format!("{value:.0}"),
        HistoryUnit::OperationsPerSecond => format!("{value:.1}"),
        HistoryUnit::BytesPerSecond | HistoryUnit::Bytes => size(value.round() as u64),
        HistoryUnit::Microseconds => format!("{value:.0}us"),
        HistoryUnit::Ratio => format!("{:.1}%", value * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let series = |node, series: &str, pool: Option<&str>, unit, points: &[Option<f64>]| HistorySeries {
            node,
            node_name: format!("san{node}"),
            series: series.into(),
            pool: pool.map(str::to_owned),
            unit,
            points: points.to_vec(),
        };
        Kept {
            from: 1_800_000_000,
            step_s: 60,
            series: vec![
                series(1, "cpu", None, HistoryUnit::Ratio, &[Some(0.25), None, Some(0.5)]),
                series(2, "pool_used_bytes", Some("fast"), HistoryUnit::Bytes, &[None, None, None]),
            ],
            missing: vec![api::Missing { node: 3, node_name: "san3".into(), reason: "it is down".into() }],
        }
    }

    #[test]
    fn a_summary_has_a_line_a_series() {
        assert_eq!(
            summary(&kept()),
            "NODE  SERIES           POOL  LAST   MEAN   MAX\n\
             1     cpu              -     50.0%  37.5%  50.0%\n\
             2     pool_used_bytes  fast  -      -      -\n"
        );
        let nothing = Kept { series: Vec::new(), ..kept() };
        assert_eq!(summary(&nothing), "No data for this period.\n");
    }

    #[test]
    fn steps_have_a_column_a_series() {
        assert_eq!(
            steps(&kept()),
            "SINCE                 1:cpu  2:pool_used_bytes of fast\n\
             2027-01-15 08:00:00Z  25.0%  -\n\
             2027-01-15 08:01:00Z  -      -\n\
             2027-01-15 08:02:00Z  50.0%  -\n"
        );
    }

    #[test]
    fn figures_are_short() {
        use HistoryUnit::{Bytes, Microseconds, OperationsPerSecond};
        assert_eq!(shown(Some(12.34), OperationsPerSecond), "12.3");
        assert_eq!(shown(Some(12_345.6), OperationsPerSecond), "12346");
        assert_eq!(
            (shown(Some(99.6), Microseconds), shown(Some(4096.0), Bytes)),
            ("100us".into(), "4K".into())
        );
    }
}
