//! Copies of volumes: their states, the progress of resyncs, and the replication traffic between nodes.

use std::collections::BTreeMap;

use node::VolumeId;
use node::control::ReplicationStats;
use node::copies::{CopySync, Restraint, StandingEntry, Traffic};
use node::member::ForkState;

use super::snapshot::Snapshot;
use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    if snapshot.copies.is_empty() && snapshot.replication.traffic.is_empty() {
        return;
    }
    states(text, snapshot);
    compared(text, snapshot);
    forks(text, snapshot);
    syncs(text, snapshot);
    limits(text, snapshot);
    synced(text, snapshot);
    traffic(text, snapshot);
}

fn compared(text: &mut Text, snapshot: &Snapshot) {
    if snapshot.different.is_empty() {
        return;
    }
    let help = "Bytes in which copies are known to differ. The value stays until a complete verify finds another one.";
    let mut family = text.family("ursa_volume_different_bytes", Kind::Gauge, help);
    for (volume, bytes) in &snapshot.different {
        family.sample(&[("volume", volume)], *bytes);
    }
}

fn states(text: &mut Text, snapshot: &Snapshot) {
    let help = "State of the copy: in_sync (it has every acknowledged write), catching_up (it takes new writes and is being resynced), out_of_sync (it misses writes).";
    let mut family = text.family("ursa_copy_state", Kind::Gauge, help);
    for (volume, status) in &snapshot.copies {
        for copy in &status.entry.copies {
            let node = copy.node.to_string();
            for (state, standing) in [
                ("in_sync", StandingEntry::InSync),
                ("catching_up", StandingEntry::Joining),
                ("out_of_sync", StandingEntry::Outside),
            ] {
                let labels = [("volume", volume.as_str()), ("node", &node), ("state", state)];
                family.sample(&labels, u8::from(copy.standing == standing));
            }
        }
    }
}

fn forks(text: &mut Text, snapshot: &Snapshot) {
    let help = "Whether a node has continued alone with the volume: no, alone (not resolved yet), split (split brain: both sides have data that the other lacks).";
    let mut family = text.family("ursa_volume_split_brain", Kind::Gauge, help);
    for (volume, status) in &snapshot.copies {
        let now = status.fork.as_ref().map(|fork| fork.state);
        for (state, fork) in
            [("no", None), ("alone", Some(ForkState::Alone)), ("split", Some(ForkState::Split))]
        {
            family.sample(&[("volume", volume), ("state", state)], u8::from(now == fork));
        }
    }
}

fn syncs(text: &mut Text, snapshot: &Snapshot) {
    let syncs: Vec<(&str, String, &CopySync)> = snapshot
        .copies
        .iter()
        .flat_map(|(volume, status)| {
            status.entry.copies.iter().filter_map(|copy| {
                Some((volume.as_str(), copy.node.to_string(), status.syncs.get(&copy.slot)?))
            })
        })
        .collect();
    if syncs.is_empty() {
        return;
    }
    let mut gauge = |name, help, value: fn(&CopySync) -> Option<u64>| {
        let mut family = text.family(name, Kind::Gauge, help);
        for (volume, node, sync) in &syncs {
            if let Some(value) = value(sync) {
                family.sample(&[("volume", volume), ("node", node)], value);
            }
        }
    };
    let help =
        "Total bytes to copy in the resync of a copy, including what hosts have written since it began.";
    gauge("ursa_copy_resync_total_bytes", help, |sync| Some(sync.total_bytes));
    gauge("ursa_copy_resync_remaining_bytes", "Bytes left to copy in the resync.", |sync| {
        Some(sync.left_bytes)
    });
    let help = "Rate of the resync over the last five seconds.";
    gauge("ursa_copy_resync_bytes_per_second", help, |sync| Some(sync.bytes_per_second));
    let help = "Time remaining for the resync at the current rate; absent if unknown.";
    gauge("ursa_copy_resync_remaining_seconds", help, CopySync::seconds_left);
    let help = "Whether the resync is stalled: `ursa volume show` says what it waits for.";
    gauge("ursa_copy_resync_stalled", help, |sync| Some(u64::from(sync.waits_for.is_some())));
    let help = "Whether the resync is paused: it does not run until it is resumed.";
    let mut family = text.family("ursa_copy_resync_paused", Kind::Gauge, help);
    for (volume, status) in &snapshot.copies {
        for copy in status.entry.copies.iter().filter(|copy| status.syncs.contains_key(&copy.slot)) {
            let paused = status.entry.paused.contains_key(&copy.slot);
            family.sample(&[("volume", volume), ("node", &copy.node.to_string())], u8::from(paused));
        }
    }
    let help = "What limits the rate of the resync: hosts, node_limit, cluster_limit, turn, paused; always 1; absent if only disks and network limit it.";
    let mut family = text.family("ursa_copy_resync_held_back", Kind::Gauge, help);
    for (volume, node, sync) in &syncs {
        if let Some(restraint) = sync.limited_by {
            family.sample(&[("volume", volume), ("node", node), ("by", name(restraint))], 1);
        }
    }
    let help = "Why the copy missed writes: a cause as in events; always 1.";
    let mut family = text.family("ursa_copy_resync_cause", Kind::Gauge, help);
    for (volume, node, sync) in &syncs {
        family.sample(&[("volume", volume), ("node", node), ("cause", sync.cause.code())], 1);
    }
}

fn name(restraint: Restraint) -> &'static str {
    match restraint {
        Restraint::Hosts => "hosts",
        Restraint::NodeLimit => "node_limit",
        Restraint::ClusterLimit => "cluster_limit",
        Restraint::Turn => "turn",
        Restraint::Paused => "paused",
    }
}

fn limits(text: &mut Text, snapshot: &Snapshot) {
    let mut gauge = |name, help, value: Option<u64>| {
        if let Some(value) = value {
            text.family(name, Kind::Gauge, help).sample(&[], value);
        }
    };
    let help = "Resync limit of all nodes together; absent if there is none.";
    gauge("ursa_cluster_resync_limit_bytes_per_second", help, snapshot.replication.sync_limit);
    let help = "Resync limit of this node now: its share of the cluster's limit, or its own setting.";
    gauge("ursa_resync_budget_bytes_per_second", help, snapshot.replication.sync_budget);
}

fn synced(text: &mut Text, snapshot: &Snapshot) {
    let ReplicationStats { synced, dirtied, .. } = &snapshot.replication;
    let mut counter = |name, help, of_copies: &BTreeMap<(VolumeId, u16), u64>| {
        let mut family = text.family(name, Kind::Counter, help);
        for volume in &snapshot.volumes {
            for ((_, node), bytes) in of_copies.iter().filter(|((id, _), _)| *id == volume.id) {
                family.sample(&[("volume", &volume.name), ("node", &node.to_string())], bytes);
            }
        }
    };
    let help = "Bytes that this node has sent to a copy on another node to resync it.";
    counter("ursa_copy_resynced_bytes_total", help, synced);
    let help = "Bytes of regions that host writes have added to the resync of a copy that takes no writes yet: regions that were equal, or copied already.";
    counter("ursa_copy_dirtied_bytes_total", help, dirtied);
}

fn traffic(text: &mut Text, snapshot: &Snapshot) {
    let help = "Bytes of volume data to and from each other node, for host writes and for resyncs.";
    let mut family = text.family("ursa_replication_bytes_total", Kind::Counter, help);
    for (node, traffic) in &snapshot.replication.traffic {
        let Traffic { writes_sent, writes_received, sync_sent, sync_received } = traffic;
        for (direction, kind, bytes) in [
            ("sent", "write", writes_sent),
            ("received", "write", writes_received),
            ("sent", "sync", sync_sent),
            ("received", "sync", sync_received),
        ] {
            let node = node.to_string();
            family.sample(&[("node", &node), ("direction", direction), ("kind", kind)], bytes);
        }
    }
}
