//! The latencies of a volume's reads and writes.

use api::{FlowCounters, VolumeCounters};

use crate::table::Table;

/// The histogram as a table: operations that took longer than the row above, up to this row's time.
///
/// Empty rows at the start and the end are omitted.
pub fn histogram(counters: &VolumeCounters) -> String {
    let VolumeCounters { read, write, .. } = counters;
    let [reads, writes] = [read, write].map(counts);
    let rows = reads.len().max(writes.len());
    let count = |counts: &[u64], row: usize| counts.get(row).copied().unwrap_or(0);
    let has_some = |row: &usize| count(&reads, *row) + count(&writes, *row) > 0;
    let first = (0..rows).find(has_some).unwrap_or(rows);
    let end = (0..rows).rfind(has_some).map_or(first, |last| last + 1);
    let mut table = Table::new(&["LATENCY", "READS", "%", "WRITES", "%"]);
    for row in first..end {
        let (some_reads, some_writes) = (count(&reads, row), count(&writes, row));
        table.row([
            bound(if reads.len() == rows { read } else { write }, row),
            some_reads.to_string(),
            share(some_reads, read.operations),
            some_writes.to_string(),
            share(some_writes, write.operations),
        ]);
    }
    format!("{}\nSince node {} began to serve it.\n", table.text("No reads or writes."), counters.node)
}

/// The number of operations in each bucket, not cumulative.
fn counts(flow: &FlowCounters) -> Vec<u64> {
    let so_far: Vec<u64> = flow.latencies.iter().map(|bucket| bucket.operations).collect();
    let before = std::iter::once(&0).chain(&so_far);
    so_far.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect()
}

fn bound(flow: &FlowCounters, row: usize) -> String {
    let seconds = |row: usize| flow.latencies.get(row).and_then(|bucket| bucket.bound);
    match (seconds(row), row.checked_sub(1).and_then(seconds)) {
        (Some(bound), _) => format!("up to {}", time(bound)),
        (None, Some(before)) => format!("over {}", time(before)),
        (None, None) => "any".into(),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        small if small < 1e-3 => format!("{:.0} us", small * 1e6),
        middle if middle < 1.0 => format!("{:.1} ms", middle * 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

fn share(count: u64, of: u64) -> String {
    if of == 0 { "-".into() } else { format!("{:.1}", 100.0 * count as f64 / of as f64) }
}

#[cfg(test)]
mod tests {
    use api::LatencyBucket;

    use super::*;

    fn flow(counts: [u64; 4]) -> FlowCounters {
        let bounds = [Some(32e-6), Some(1.024e-3), Some(2.0), None];
        let bucket = |(bound, operations)| LatencyBucket { bound, operations };
        FlowCounters {
            operations: counts[3],
            latencies: bounds.into_iter().zip(counts).map(bucket).collect(),
            ..FlowCounters::default()
        }
    }

    #[test]
    fn each_row_has_what_took_longer_than_the_one_above() {
        let counters = VolumeCounters { node: 2, read: flow([0, 30, 30, 40]), write: flow([0, 0, 0, 0]) };
        assert_eq!(
            histogram(&counters),
            "\
LATENCY       READS  %     WRITES  %
up to 1.0 ms  30     75.0  0       -
up to 2.0 s   0      0.0   0       -
over 2.0 s    10     25.0  0       -

Since node 2 began to serve it.
"
        );
    }

    #[test]
    fn no_operations_are_reported_as_such() {
        for none in [FlowCounters::default(), flow([0; 4])] {
            let idle = VolumeCounters { node: 1, read: none.clone(), write: none };
            assert_eq!(histogram(&idle), "No reads or writes.\n\nSince node 1 began to serve it.\n");
        }
    }
}
