//! Sample API responses for tests: everything is healthy, and each test changes what it is about.

use api::{ClusterNode, CopyState, CopySync, Since, Volume, VolumeCopy, VolumeHealth, VolumeKind};

/// A thick volume of 10 GiB.
pub fn volume(name: &str, copies: Vec<VolumeCopy>) -> Volume {
    Volume {
        id: format!("id of {name}"),
        name: name.into(),
        pool: "default".into(),
        kind: VolumeKind::Thick,
        size: 10 << 30,
        block_size: 512,
        physical_block_size: 4096,
        slices: 1,
        reserved: 10 << 30,
        used: 10 << 30,
        when_full: None,
        compression: None,
        checksums: Some(false),
        compression_ratio_percent: None,
        created: 0,
        clone_of: None,
        naa: "6".into(),
        maps: Vec::new(),
        problem: None,
        health: VolumeHealth::Healthy,
        serving: true,
        copies,
        epoch: None,
        reason: None,
        split_brain_policy: None,
        fork: None,
        losses: Vec::new(),
        comparison: None,
        scrub: None,
    }
}

/// The copy of a node; node 1 is the one that responds.
pub fn copy(slot: usize, node: u16, state: CopyState) -> VolumeCopy {
    VolumeCopy {
        node,
        node_name: format!("server{node}"),
        slot: slot as u8,
        state,
        here: node == 1,
        leaves: false,
        sync: None,
    }
}

/// The resync of a copy that has most of the data and makes progress.
pub fn sync() -> CopySync {
    CopySync {
        total_bytes: 10 << 30,
        left_bytes: 3 << 30,
        copied_bytes: 7 << 30,
        bytes_per_second: 64 << 20,
        seconds_left: Some(48),
        cause: "its node restarted".into(),
        since: Some(Since { at: 880, or_earlier: true }),
        limited_by: None,
        waits_for: None,
        paused: None,
    }
}

/// A node with a vote, without copies.
pub fn node(id: u16) -> ClusterNode {
    ClusterNode {
        id,
        name: format!("server{id}"),
        here: id == 1,
        up: true,
        reached_by: Vec::new(),
        down_since: None,
        version: None,
        cores: None,
        uptime: None,
        authority: id == 1,
        votes: true,
        record_stalled: None,
        leads: id == 1,
        witness: false,
        copies: 0,
        in_sync: 0,
        maintenance: false,
        maintenance_since: None,
        preferred: false,
        link_roles: Default::default(),
        addresses: Vec::new(),
        portals: Vec::new(),
    }
}
