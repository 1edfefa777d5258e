//! Whether a volume is served, in words.

use api::{ClusterNode, CopyState, Volume, VolumeCopy};

/// Why nobody serves it, if that is so. What the asked node says is of its own copy alone while another one is in sync: then that one serves.
///
/// `nodes`: those of the cluster; none if they are not known.
pub fn unserved<'a>(volume: &'a Volume, nodes: &[ClusterNode]) -> Option<&'a str> {
    let serves_elsewhere = volume.copies.iter().any(|copy| !copy.here && can_serve(copy, nodes));
    volume.problem.as_deref().filter(|_| !serves_elsewhere)
}

/// Whether a copy is in sync, and its node is there. One that others reach is; so is one of which nobody has said that it is down.
pub fn can_serve(copy: &VolumeCopy, nodes: &[ClusterNode]) -> bool {
    let is_down = |node: &ClusterNode| node.id == copy.node && !node.up && node.reached_by.is_empty();
    copy.state == CopyState::InSync && !nodes.iter().any(is_down)
}

/// In a word, for a list. `nodes`: as for [`unserved`].
pub(super) fn state(volume: &Volume, nodes: &[ClusterNode]) -> &'static str {
    let is_resyncing = |copy: &VolumeCopy| {
        copy.sync.as_ref().is_some_and(|sync| sync.waits_for.is_none() && sync.paused.is_none())
    };
    if unserved(volume, nodes).is_some() {
        "UNAVAILABLE"
    } else if volume.fork.as_ref().is_some_and(|fork| fork.split) {
        "SPLIT BRAIN"
    } else if volume.copies.iter().any(is_resyncing) {
        "resyncing"
    } else if volume.problem.is_some() || !volume.copies.iter().all(|copy| can_serve(copy, nodes)) {
        "degraded"
    } else {
        "healthy"
    }
}

/// For a line of its own. `nodes`: as for [`unserved`].
pub(super) fn served(volume: &Volume, nodes: &[ClusterNode]) -> String {
    match (&volume.problem, volume.serving) {
        (Some(problem), _) if unserved(volume, nodes).is_some() => format!("NO: {problem}"),
        (Some(problem), _) => format!("by other nodes, but NOT BY THIS NODE: {problem}"),
        (None, false) if volume.copies.is_empty() => "by the node that has it, not by this node".into(),
        (None, false) if !volume.copies.iter().any(|copy| copy.here) => {
            "not by this node, which has no copy".into()
        }
        (None, false) => "NOT BY THIS NODE NOW: its copy does not serve".into(),
        (None, true) => "yes".into(),
    }
}

/// What to say below a list of volumes of this one; `None`: nothing is wrong with its serving. `nodes`: as for [`unserved`].
pub(super) fn remark(volume: &Volume, nodes: &[ClusterNode]) -> Option<String> {
    volume.problem.as_ref()?;
    let name = &volume.name;
    let is = match unserved(volume, nodes) {
        Some(_) => "is NOT SERVED",
        None => "is served by other nodes, but NOT BY THIS NODE",
    };
    Some(format!("Volume {name} {is}: see `ursa volume show {name}`."))
}

#[cfg(test)]
mod tests {
    use api::VolumeFork;

    use super::*;
    use crate::samples;

    /// Its disk has failed on the node that is asked, which is the first.
    fn failed(copies: &[CopyState]) -> Volume {
        let copies = copies.iter().zip(1..).enumerate();
        let copies = copies.map(|(slot, (state, node))| samples::copy(slot, node, *state)).collect();
        Volume {
            problem: Some("a write to this copy failed".into()),
            serving: false,
            ..samples::volume("db", copies)
        }
    }

    #[test]
    fn a_failed_copy_is_no_loss_while_another_one_is_in_sync() {
        use CopyState::{InSync, OutOfSync};
        for copies in [[OutOfSync, InSync], [InSync, InSync]] {
            let volume = failed(&copies);
            assert_eq!(unserved(&volume, &[]), None);
            assert_eq!(
                served(&volume, &[]),
                "by other nodes, but NOT BY THIS NODE: a write to this copy failed"
            );
            let remark = remark(&volume, &[]).unwrap();
            assert!(remark.starts_with("Volume db is served by other nodes, but NOT BY"), "{remark}");
        }
    }

    #[test]
    fn a_copy_in_sync_does_not_serve_while_its_node_is_down() {
        let volume = failed(&[CopyState::InSync, CopyState::InSync]);
        let second = |up, reached_by| ClusterNode { up, reached_by, ..samples::node(2) };
        assert_eq!(unserved(&volume, &[second(true, Vec::new())]), None);
        let down = [second(false, Vec::new())];
        assert!(unserved(&volume, &down).is_some());
        assert_eq!(served(&volume, &down), "NO: a write to this copy failed");
        assert!(remark(&volume, &down).unwrap().contains("NOT SERVED"));
        assert_eq!(unserved(&volume, &[second(false, vec![3])]), None, "others reach it");
    }

    #[test]
    fn a_failed_copy_is_a_loss_when_no_other_one_is_in_sync() {
        use CopyState::{InSync, OutOfSync};
        for copies in [&[][..], &[InSync], &[InSync, OutOfSync], &[OutOfSync, OutOfSync]] {
            let volume = failed(copies);
            assert!(unserved(&volume, &[]).is_some(), "{copies:?}");
            assert_eq!(served(&volume, &[]), "NO: a write to this copy failed");
            assert_eq!(remark(&volume, &[]).unwrap(), "Volume db is NOT SERVED: see `ursa volume show db`.");
        }
        assert_eq!(remark(&samples::volume("db", Vec::new()), &[]), None);
    }

    #[test]
    fn a_list_says_in_a_word_how_each_volume_is() {
        use CopyState::{InSync, OutOfSync};
        let of = |states: &[CopyState]| Volume { problem: None, serving: true, ..failed(states) };
        assert_eq!(state(&of(&[]), &[]), "healthy");
        assert_eq!(state(&of(&[InSync, InSync]), &[]), "healthy");
        assert_eq!(state(&of(&[InSync, OutOfSync]), &[]), "degraded");
        let down = [ClusterNode { up: false, ..samples::node(2) }];
        assert_eq!(state(&of(&[InSync, InSync]), &down), "degraded");
        assert_eq!(state(&failed(&[OutOfSync, InSync]), &[]), "degraded");
        assert_eq!(state(&failed(&[OutOfSync]), &[]), "UNAVAILABLE");
        let mut resyncs = of(&[InSync, OutOfSync]);
        resyncs.copies[1].sync = Some(samples::sync());
        assert_eq!(state(&resyncs, &[]), "resyncing");
        resyncs.fork = Some(VolumeFork { node: 2, since: 9, split: true });
        assert_eq!(state(&resyncs, &[]), "SPLIT BRAIN");
    }
}
