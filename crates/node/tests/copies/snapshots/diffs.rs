//! What differs between two snapshots of a volume: exactly what reads differently, whichever copy is asked.

use node::control::{DiffSpec, ForwardOutcome, Request, SnapshotDiff};
use node::{PeerAnswer, PeerRequests};
use store::ChangedRange;

use super::*;

/// Blocks in which logs compare.
const BLOCK: u64 = 4096;

fn spec(since: &str, snapshot: &str) -> DiffSpec {
    DiffSpec { volume: NAME.into(), since: Some(since.into()), snapshot: snapshot.into() }
}

impl Cluster {
    /// What a node's copy has in a snapshot.
    pub(super) fn content(&self, index: usize, name: &'static str) -> Vec<u8> {
        self.control(index, move |control| async move {
            let stripe = control.volume(NAME).unwrap().info.stripe;
            assert_eq!(stripe.slices(), 2, "one on each core");
            let size = control.snapshot(name).unwrap().volumes[0].size;
            let at = VolumeAt { volume: NAME.into(), snapshot: name.into() };
            let mut all = Vec::new();
            for start in (0..size).step_by(MIB as usize) {
                let len = ByteLen(MIB.min(size - start));
                all.extend(control.read_snapshot_here(&at, ByteOffset(start), len).await.unwrap().to_vec());
            }
            all
        })
    }

    fn page(
        &self,
        index: usize,
        spec: DiffSpec,
        offset: u64,
        limit: usize,
    ) -> Result<SnapshotDiff, ControlError> {
        self.control(index, move |control| async move { control.snapshot_diff(&spec, offset, limit).await })
    }

    /// All that differs, in pages of this many ranges.
    fn diff(&self, index: usize, since: &str, snapshot: &str, limit: usize) -> Vec<ChangedRange> {
        let (mut offset, mut all) = (0, Vec::new());
        loop {
            let page = self.page(index, spec(since, snapshot), offset, limit).unwrap();
            assert_eq!((page.since.as_deref(), page.snapshot.as_str()), (Some(since), snapshot));
            assert!(page.ranges.len() <= limit);
            all.extend(page.ranges);
            let Some(next) = page.next else { return all };
            assert!(next > offset && next < page.size, "it makes progress");
            offset = next;
        }
    }

    /// Compares what a node's copy says, in pages of several sizes, with what it reads, block by block.
    fn assert_diff(&self, index: usize, since: &'static str, snapshot: &'static str) {
        let (mut was, is) = (self.content(index, since), self.content(index, snapshot));
        was.resize(is.len(), 0);
        let pairs = was.chunks(BLOCK as usize).zip(is.chunks(BLOCK as usize));
        let kinds = pairs.map(|(was, is)| (was != is).then(|| is.iter().all(|byte| *byte == 0)));
        let expected: Vec<Option<bool>> = kinds.collect();
        for limit in [1, 7, 4096] {
            let (mut found, mut last) = (vec![None; expected.len()], 0);
            for range in self.diff(index, since, snapshot, limit) {
                let (start, end) = (range.offset.0, range.offset.0 + range.len.0);
                assert!(start >= last && start < end, "in order, and apart");
                assert!(start.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK), "whole blocks");
                found[(start / BLOCK) as usize..(end / BLOCK) as usize].fill(Some(range.is_zeroed));
                last = end;
            }
            assert_eq!(found, expected, "from {since} to {snapshot}, through node {}", index + 1);
        }
        assert!(expected.iter().any(Option::is_some), "something differs");
    }
}

#[test]
fn what_differs_is_what_reads_differently() {
    each_seed(3, |seed| {
        let mut rng = Rng::new(seed);
        let cluster = Cluster::new(seed, 2, 2);
        cluster.add_volume(VolumeKind::Log, 2);
        let mut blocks = Shape::thick().blocks();
        let mut change = |blocks: u64| {
            let mut values = Vec::new();
            for _ in 0..12 {
                // Some are written with what they have already.
                let (first, value) = (rng.below(blocks), rng.below(3));
                // Some runs continue in the other slice.
                let end = (first + 1 + rng.below(40)).min(blocks);
                values.extend((first..end).map(|lba| (lba, value)));
            }
            cluster.write_values(rng.below(2) as usize, values);
        };
        change(blocks);
        cluster.take(0, &[NAME], "first").unwrap();
        change(blocks);
        cluster.take(1, &[NAME], "second").unwrap();
        let larger = ByteLen(blocks * BLOCK + MIB);
        cluster.control(0, move |control| async move {
            control.grow_volume(NAME, larger).await.map(drop).unwrap()
        });
        cluster.world.run_for(Duration::from_secs(1));
        blocks = larger.0 / BLOCK;
        change(blocks);
        cluster.write_values(0, vec![(blocks - 1, 9)]);
        cluster.take(0, &[NAME], "third").unwrap();
        change(blocks);
        for index in 0..2 {
            for (since, snapshot) in [("first", "second"), ("second", "third"), ("first", "third")] {
                cluster.assert_diff(index, since, snapshot);
            }
            // Back: of what has grown since, nothing is there.
            let size = Shape::thick().blocks() * BLOCK;
            assert_eq!(cluster.page(index, spec("third", "first"), 0, 1).unwrap().size, size);
            let all = cluster.diff(index, "third", "first", 4096);
            assert!(all.iter().all(|range| range.offset.0 + range.len.0 <= size));
            assert!(cluster.diff(index, "second", "second", 9).is_empty());
        }
        assert_eq!(cluster.diff(0, "first", "third", 9), cluster.diff(1, "first", "third", 9));
    });
}

/// Only a node whose copy has both can compare them.
#[test]
fn a_node_is_asked_that_has_both_snapshots() {
    let execute = |_, _| -> PeerAnswer { Box::pin(async { Ok("executed".to_owned()) }) };
    let config = Config { peer_requests: PeerRequests::new(execute), ..Config::default() };
    let cluster = Cluster::with_config(1, 2, 2, &config);
    cluster.add_volume(VolumeKind::Log, 2);
    let forwarded = |index: usize, since: &'static str, snapshot: &'static str| {
        cluster.control(index, move |control| async move {
            let request = Request { text: "diff".into(), changes: false };
            control.forward_diff(&spec(since, snapshot), &request).await
        })
    };
    cluster.write_values(0, vec![(0, 1)]);
    cluster.take(0, &[NAME], "both").unwrap();
    cluster.world.crash(cluster.servers[1]);
    cluster.world.run_for(Duration::from_secs(5));
    cluster.write_values(0, vec![(5, 1)]);
    cluster.take(0, &[NAME], "only-first").unwrap();
    cluster.start(1);
    cluster.wait_until_in_sync(0, 2);
    cluster.wait_until_all_serve();
    assert!(matches!(forwarded(0, "both", "only-first"), ForwardOutcome::Stays));
    let outcome = forwarded(1, "both", "only-first");
    assert!(matches!(&outcome, ForwardOutcome::Answered(text) if text == "executed"), "{outcome:?}");
    let refused = cluster.page(1, spec("both", "only-first"), 0, 9);
    assert!(matches!(refused, Err(ControlError::NotCompared { node: 2, .. })), "{refused:?}");
    cluster.assert_diff(0, "both", "only-first");

    cluster.world.crash(cluster.servers[0]);
    cluster.world.run_for(Duration::from_secs(5));
    cluster.take(1, &[NAME], "only-second").unwrap();
    let outcome = forwarded(1, "both", "only-first");
    assert!(matches!(outcome, ForwardOutcome::Refused(_)), "{outcome:?}");
    cluster.start(0);
    cluster.wait_until_in_sync(1, 2);
    cluster.wait_until_all_serve();
    for index in 0..2 {
        // It says so itself.
        assert!(matches!(forwarded(index, "only-first", "only-second"), ForwardOutcome::Stays));
        let refused = cluster.page(index, spec("only-first", "only-second"), 0, 9);
        assert!(matches!(refused, Err(ControlError::NoCopyHasBoth { .. })), "{refused:?}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let cluster = Cluster::new(1, 2, 2);
    cluster.add_volume(VolumeKind::Log, 2);
    cluster.add_other_volume();
    cluster.take(0, &[NAME], "first").unwrap();
    cluster.take(0, &[OTHER], "second").unwrap();
    let refused = cluster.page(0, spec("first", "second"), 0, 9);
    let lacks = matches!(&refused, Err(ControlError::NotInSnapshot { snapshot, .. }) if snapshot == "second");
    assert!(lacks, "{refused:?}");
    for (volume, since, snapshot) in
        [("none", "first", "first"), (NAME, "none", "first"), (NAME, "first", "none")]
    {
        let since = Some(since.into());
        let spec = DiffSpec { volume: volume.into(), since, snapshot: snapshot.into() };
        let refused = cluster.page(0, spec, 0, 9);
        assert!(
            matches!(&refused, Err(ControlError::NotFound { name, .. }) if name == "none"),
            "{refused:?}"
        );
    }
    let size = Shape::thick().blocks() * BLOCK;
    assert!(cluster.page(0, spec("first", "first"), size, 9).unwrap().ranges.is_empty());
    let behind = cluster.page(0, spec("first", "first"), size + 1, 9);
    assert!(matches!(behind, Err(ControlError::Invalid { field: "offset", .. })), "{behind:?}");
    cluster.delete_snapshot(0, "first").unwrap();
    assert!(matches!(cluster.page(0, spec("1", "1"), 0, 9), Err(ControlError::NotFound { .. })));
}
