//! Whether any node serves a volume: the one place where it is determined, for lists, single volumes and
//! findings.

use api::{ClusterNode, CopyState, Volume, VolumeCopy, VolumeHealth};

/// Why no node serves a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Unserved<'a> {
    /// The only node that could serve the volume reports this problem.
    Problem(&'a str),
    /// No node with a copy in sync responds.
    NotReached,
    /// No copy is in sync.
    NoneInSync,
}

/// Why no node serves the volume; `None`: one does. `nodes`: the nodes of the cluster; empty if unknown.
///
/// A problem is about the queried node's copy. It does not count while another node with a copy in sync
/// serves the volume.
pub(in crate::http) fn unserved<'a>(volume: &'a Volume, nodes: &[ClusterNode]) -> Option<Unserved<'a>> {
    let copies = &volume.copies;
    let serves_elsewhere = copies.iter().any(|copy| !copy.here && can_serve(copy, nodes));
    if let Some(problem) = volume.problem.as_deref().filter(|_| !serves_elsewhere) {
        return Some(Unserved::Problem(problem));
    }
    if copies.is_empty() || copies.iter().any(|copy| can_serve(copy, nodes)) {
        return None;
    }
    let any_in_sync = copies.iter().any(|copy| copy.state == CopyState::InSync);
    Some(if any_in_sync { Unserved::NotReached } else { Unserved::NoneInSync })
}

/// Whether a copy is in sync and its node is up. A node also counts as up if other nodes reach it, or if
/// nothing is known about it.
fn can_serve(copy: &VolumeCopy, nodes: &[ClusterNode]) -> bool {
    let is_down = |node: &ClusterNode| node.id == copy.node && !node.up && node.reached_by.is_empty();
    copy.state == CopyState::InSync && !nodes.iter().any(is_down)
}

/// The health of a volume. `nodes`: as for [`unserved`].
pub(super) fn health(volume: &Volume, nodes: &[ClusterNode]) -> VolumeHealth {
    let is_resyncing = |copy: &VolumeCopy| {
        let running = copy.sync.as_ref().filter(|sync| sync.waits_for.is_none() && sync.paused.is_none());
        copy.state != CopyState::InSync && running.is_some()
    };
    match &volume.fork {
        Some(fork) if fork.split => VolumeHealth::SplitBrain,
        _ if unserved(volume, nodes).is_some() => VolumeHealth::Unavailable,
        Some(_) => VolumeHealth::ContinuedAlone,
        None if volume.copies.iter().any(is_resyncing) => VolumeHealth::Resyncing,
        None if volume.problem.is_some() => VolumeHealth::Degraded,
        None if volume.copies.iter().any(|copy| !can_serve(copy, nodes)) => VolumeHealth::Degraded,
        None => VolumeHealth::Healthy,
    }
}

#[cfg(test)]
mod tests {
    use CopyState::{InSync, OutOfSync};
    use api::VolumeFork;
    use terms::samples;

    use super::*;

    /// A volume whose disk has failed on the queried node, which has the first copy.
    fn failed(copies: &[CopyState]) -> Volume {
        let copies = copies.iter().zip(1..).enumerate();
        let copies = copies.map(|(slot, (state, node))| samples::copy(slot, node, *state)).collect();
        Volume {
            problem: Some("a write to this copy failed".into()),
            serving: false,
            ..samples::volume("db", copies)
        }
    }

    const FAILED: Option<Unserved<'_>> = Some(Unserved::Problem("a write to this copy failed"));

    #[test]
    fn a_failed_copy_does_not_count_as_a_loss_while_another_one_is_in_sync() {
        for copies in [[OutOfSync, InSync], [InSync, InSync]] {
            assert_eq!(unserved(&failed(&copies), &[]), None);
        }
        for copies in [&[][..], &[InSync], &[InSync, OutOfSync], &[OutOfSync, OutOfSync]] {
            assert_eq!(unserved(&failed(copies), &[]), FAILED, "{copies:?}");
        }
    }

    #[test]
    fn a_copy_in_sync_does_not_serve_while_its_node_is_down() {
        let volume = failed(&[InSync, InSync]);
        let second = |up, reached_by| [ClusterNode { up, reached_by, ..samples::node(2) }];
        assert_eq!(unserved(&volume, &second(true, Vec::new())), None);
        assert_eq!(unserved(&volume, &second(false, Vec::new())), FAILED);
        assert_eq!(unserved(&volume, &second(false, vec![3])), None, "others reach it");
        let elsewhere = Volume { problem: None, copies: volume.copies[1..].into(), ..volume };
        assert_eq!(unserved(&elsewhere, &second(false, Vec::new())), Some(Unserved::NotReached));
        let behind = Volume { problem: None, ..failed(&[OutOfSync]) };
        assert_eq!(unserved(&behind, &[]), Some(Unserved::NoneInSync));
    }

    #[test]
    fn health_names_the_worst() {
        let of = |states: &[CopyState]| Volume { problem: None, serving: true, ..failed(states) };
        assert_eq!(health(&of(&[]), &[]), VolumeHealth::Healthy);
        assert_eq!(health(&of(&[InSync, InSync]), &[]), VolumeHealth::Healthy);
        assert_eq!(health(&of(&[InSync, OutOfSync]), &[]), VolumeHealth::Degraded);
        let down = [ClusterNode { up: false, ..samples::node(2) }];
        assert_eq!(health(&of(&[InSync, InSync]), &down), VolumeHealth::Degraded);
        assert_eq!(health(&failed(&[OutOfSync, InSync]), &[]), VolumeHealth::Degraded);
        assert_eq!(health(&failed(&[OutOfSync]), &[]), VolumeHealth::Unavailable);
        let mut resyncs = of(&[InSync, OutOfSync]);
        resyncs.copies[1].sync = Some(samples::sync());
        assert_eq!(health(&resyncs, &[]), VolumeHealth::Resyncing);
        resyncs.fork = Some(VolumeFork { node: 2, since: 9, split: false });
        assert_eq!(health(&resyncs, &[]), VolumeHealth::ContinuedAlone);
        let split = VolumeFork { node: 2, since: 9, split: true };
        let split = Volume { fork: Some(split), ..failed(&[OutOfSync]) };
        assert_eq!(health(&split, &[]), VolumeHealth::SplitBrain);
    }
}
