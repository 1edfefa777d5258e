//! The copies of volumes as the API shows them.

use std::collections::BTreeMap;

use ::node::copies::{Restraint, StandingEntry, SyncPause};
use ::node::member::CopiesStatus;
use api::{CopyState, CopySync, SyncPaused, SyncRestraint, VolumeCopy};
use terms::same_names::same_names;

use crate::http::since::since;

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

fn sync(sync: &::node::copies::CopySync, paused: Option<&SyncPause>) -> CopySync {
    CopySync {
        total_bytes: sync.total_bytes,
        left_bytes: sync.left_bytes,
        copied_bytes: sync.copied_bytes,
        bytes_per_second: sync.bytes_per_second,
        seconds_left: sync.seconds_left(),
        cause: sync.cause.to_string(),
        since: sync.lasts.map(since),
        limited_by: sync.limited_by.map(restraint),
        waits_for: sync.waits_for.as_ref().map(ToString::to_string),
        paused: paused.map(|pause| SyncPaused { by: pause.by.clone(), since: pause.at }),
    }
}

same_names! {
    pub(in crate::http) fn restraint(Restraint) -> SyncRestraint {
        Hosts, NodeLimit, ClusterLimit, Turn, Paused
    }
}

fn state(standing: StandingEntry) -> CopyState {
    match standing {
        StandingEntry::InSync => CopyState::InSync,
        StandingEntry::Joining => CopyState::CatchingUp,
        StandingEntry::Outside => CopyState::OutOfSync,
    }
}
