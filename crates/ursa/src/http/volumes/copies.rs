//! The copies of volumes.

use std::collections::{BTreeMap, BTreeSet};

use ::node::control::CheckedCopy;
use ::node::copies::{CopiesStatus, Restraint, StandingEntry, SyncPause};
use api::{CopyCheck, CopyState, CopySync, SyncPaused, SyncRestraint, Verification, VolumeCopy};

/// The copies as the interface shows them.
pub(super) fn shown(status: &CopiesStatus, names: &BTreeMap<u16, String>) -> Vec<VolumeCopy> {
    let here = status.here.map(|(slot, _)| slot.index());
    let copies = status.entry.copies.iter().map(|copy| VolumeCopy {
        node: copy.node,
        node_name: names.get(&copy.node).cloned().unwrap_or_default(),
        slot: copy.slot,
        state: state(copy.standing),
        here: here == Some(usize::from(copy.slot)),
        leaves: copy.leaves.is_some(),
        sync: status.syncs.get(&copy.slot).map(|of| sync(of, status.entry.paused.get(&copy.slot))),
    });
    copies.collect()
}

/// Compares what was found in copies that are in sync: others differ, and may.
pub(super) fn verification(checked: Vec<CheckedCopy>) -> Verification {
    let in_sync = || checked.iter().filter(|checked| checked.copy.standing == StandingEntry::InSync);
    let found: Vec<&Vec<u32>> = in_sync().filter_map(|checked| checked.found.as_ref().ok()).collect();
    let complete = !found.is_empty() && found.len() == in_sync().count();
    let slices = found.iter().map(|found| found.len()).max().unwrap_or_default();
    let differs =
        |slice: &usize| found.iter().map(|found| found.get(*slice)).collect::<BTreeSet<_>>().len() > 1;
    let different_slices: Vec<u16> =
        (0..slices).filter(differs).filter_map(|slice| u16::try_from(slice).ok()).collect();
    Verification { equal: complete && different_slices.is_empty(), different_slices, copies: checks(checked) }
}

fn checks(checked: Vec<CheckedCopy>) -> Vec<CopyCheck> {
    let check = |CheckedCopy { copy, found }| {
        let (checksums, problem) = match found {
            Ok(checksums) => (checksums, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        CopyCheck { node: copy.node, state: state(copy.standing), checksums, problem }
    };
    checked.into_iter().map(check).collect()
}

fn sync(sync: &::node::copies::CopySync, paused: Option<&SyncPause>) -> CopySync {
    CopySync {
        total_bytes: sync.total_bytes,
        left_bytes: sync.left_bytes,
        copied_bytes: sync.copied_bytes,
        bytes_per_second: sync.bytes_per_second,
        seconds_left: sync.seconds_left(),
        cause: sync.cause.clone(),
        held_back_by: sync.held_back_by.map(restraint),
        waits_for: sync.waits_for.clone(),
        paused: paused.map(|pause| SyncPaused { by: pause.by.clone(), since: pause.at }),
    }
}

fn restraint(restraint: Restraint) -> SyncRestraint {
    match restraint {
        Restraint::Hosts => SyncRestraint::Hosts,
        Restraint::NodeLimit => SyncRestraint::NodeLimit,
        Restraint::ClusterLimit => SyncRestraint::ClusterLimit,
        Restraint::Turn => SyncRestraint::Turn,
        Restraint::Paused => SyncRestraint::Paused,
    }
}

fn state(standing: StandingEntry) -> CopyState {
    match standing {
        StandingEntry::InSync => CopyState::InSync,
        StandingEntry::Joining => CopyState::Joining,
        StandingEntry::Outside => CopyState::Outside,
    }
}

#[cfg(test)]
mod tests {
    use ::node::copies::CopyEntry;

    use super::*;

    fn checked(node: u16, standing: StandingEntry, found: Result<&[u32], &str>) -> CheckedCopy {
        let copy = CopyEntry { slot: node as u8 - 1, node, standing, incarnation: 1, made: 1, leaves: None };
        CheckedCopy { copy, found: found.map(<[u32]>::to_vec).map_err(str::to_owned) }
    }

    #[test]
    fn copies_in_sync_are_compared_and_no_others() {
        use StandingEntry::{InSync, Joining};
        let same = [
            checked(1, InSync, Ok(&[7, 8])),
            checked(2, InSync, Ok(&[7, 8])),
            checked(3, Joining, Ok(&[0, 0])),
        ];
        let found = verification(same.to_vec());
        assert!(found.equal && found.different_slices.is_empty(), "{found:?}");
        assert_eq!(found.copies[2].state, CopyState::Joining);

        let other = verification(vec![checked(1, InSync, Ok(&[7, 8])), checked(2, InSync, Ok(&[7, 9]))]);
        assert_eq!((other.equal, other.different_slices), (false, vec![1]));
        let shorter = verification(vec![checked(1, InSync, Ok(&[7, 8])), checked(2, InSync, Ok(&[7]))]);
        assert_eq!((shorter.equal, shorter.different_slices), (false, vec![1]));
    }

    #[test]
    fn a_copy_that_was_not_read_is_not_called_equal() {
        use StandingEntry::{InSync, Outside};
        let silent = verification(vec![checked(1, InSync, Ok(&[7])), checked(2, InSync, Err("it is down"))]);
        assert_eq!((silent.equal, silent.different_slices.len()), (false, 0));
        assert_eq!(silent.copies[1].problem.as_deref(), Some("it is down"));
        assert!(!verification(vec![checked(1, Outside, Ok(&[7]))]).equal, "nothing was compared");
        assert!(
            verification(vec![checked(1, InSync, Ok(&[7])), checked(2, Outside, Err("it is down"))]).equal
        );
    }
}
