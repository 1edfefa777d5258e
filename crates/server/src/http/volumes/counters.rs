//! Counters of a volume on one node: operations, bytes and latencies.

use std::rc::Rc;

use ::node::{Control, Operation, UnitStats, bucket_bound};
use api::{FlowCounters, LatencyBucket, VolumeCounters};

use crate::http::input::{Parameters, Segments};
use crate::http::node_param::OfNode;
use crate::http::refusal::Reply;
use crate::http::state::State;

/// I/O counters of a volume on a node: operations, bytes, and a latency histogram, since the node began to
/// serve it.
///
/// From the queried node; if it does not have the volume, from a node that does.
#[utoipa::path(
    get, path = "/v1/volumes/{name}/counters", tag = "volumes", operation_id = "show_counters",
    params(("name" = String, Path, description = "Volume name or ID"), OfNode),
    responses(
        (status = OK, description = "The counters", body = VolumeCounters),
        (status = NOT_FOUND, description = "`volume_not_found`, `node_not_found`"),
    ),
)]
pub(in crate::http) async fn show(
    state: State,
    Segments(name): Segments<String>,
    Parameters(OfNode { node }): Parameters<OfNode>,
) -> Reply<VolumeCounters> {
    let count = move |control: Rc<Control>| async move {
        control.check_is_here(node)?;
        let id = control.volume(&name)?.info.id;
        Ok((control.number(), control.volume_stats(id).await?))
    };
    let (node, stats) = state.call(count).await?;
    let [read, write] = [Operation::Read, Operation::Write].map(|operation| counted(&stats, operation));
    Ok(axum::Json(VolumeCounters { node, read, write }))
}

fn counted(stats: &UnitStats, operation: Operation) -> FlowCounters {
    let latency = &stats.latency[operation as usize];
    let mut operations = 0;
    let bucket = |(index, count): (usize, &u64)| {
        operations += count;
        LatencyBucket { bound: bucket_bound(index).map(|bound| bound.as_secs_f64()), operations }
    };
    FlowCounters {
        latencies: latency.counts.iter().enumerate().map(bucket).collect(),
        operations: latency.count(),
        seconds: latency.sum as f64 / 1e9,
        bytes: stats.bytes[operation as usize],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_bucket_has_those_of_the_ones_before_it() {
        let mut stats = UnitStats::default();
        for micros in [10, 30, 1000] {
            stats.latency[Operation::Write as usize].record(Duration::from_micros(micros));
        }
        stats.bytes[Operation::Write as usize] = 12288;
        let found = counted(&stats, Operation::Write);
        assert_eq!((found.operations, found.bytes), (3, 12288));
        assert!((found.seconds - 0.00104).abs() < 1e-9, "{found:?}");
        let within = |seconds: f64| {
            let fits = |bucket: &&LatencyBucket| bucket.bound.is_some_and(|bound| bound >= seconds);
            found.latencies.iter().find(fits).map(|bucket| bucket.operations)
        };
        assert_eq!((within(0.000_032), within(0.0005), within(0.002)), (Some(2), Some(2), Some(3)));
        let last = found.latencies.last().unwrap();
        assert_eq!((last.bound, last.operations), (None, 3));
        assert_eq!(counted(&stats, Operation::Read).operations, 0);
    }
}
