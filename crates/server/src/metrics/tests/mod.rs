use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use node::control::{NodeStatus, ReplicationStats, ScrubEnd, ScrubFound, ScrubStatus, SessionStatus};
use node::copies::{
    Cause, CopyEntry, CopySync, NodeEntry, Restraint, ShapeEntry, StandingEntry, SyncPause, Traffic,
    VerificationEntry, VolumeEntry,
};
use node::member::{CopiesStatus, ForkShown, ForkState};
use node::{Operation, UnitStats, VolumeId};
use rt::CoreId;
use rt::uring::{CoreStats, TURN_BUCKETS, Turns};

use super::process::Process;
use super::snapshot::{Measured, Members, Snapshot};
use super::text::Text;
use super::{cluster, copies, cores, pools, process, record, schedules, scrubs, targets, volumes};

mod deploy;

fn written(write: impl FnOnce(&mut Text)) -> String {
    let mut text = Text::default();
    write(&mut text);
    text.into_string()
}

fn id(n: u16) -> VolumeId {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    VolumeId(id)
}

fn measured(n: u16) -> Measured {
    let found = ScrubFound { bad: 3, repaired: 1, first: Some(40), of_snapshots: 0 };
    let last = Some(ScrubEnd { at: 1_800_000_000, stopped: false, found });
    Measured {
        id: id(n),
        name: format!("v{n}"),
        pool: "default".into(),
        capacity: 1 << 30,
        serving: n != 2,
        scrub: Some(ScrubStatus { last, done: None, next: 1_802_419_200, is_overdue: n == 2 }),
        in_logs: None,
    }
}

fn session(target: Option<&str>) -> SessionStatus {
    SessionStatus {
        tsih: 1,
        initiator: "iqn.2026-11.example:i".into(),
        alias: None,
        isid: [0; 6],
        target: target.map(str::to_owned),
        core: CoreId(0),
        addresses: vec![SocketAddr::from(([127, 0, 0, 1], 9))],
        age: Duration::ZERO,
        traffic: node::control::Traffic::default(),
    }
}

#[test]
fn a_volume_shows_what_it_has_seen() {
    let mut stats = UnitStats::default();
    let read = Operation::Read as usize;
    stats.latency[read].record(Duration::from_micros(5));
    stats.latency[read].record(Duration::from_micros(100));
    stats.latency[read].record(Duration::from_secs(10));
    stats.bytes[read] = 12_288;
    // UNRECOVERED READ ERROR.
    stats.errors.insert((3, 0x1100), 2);
    let snapshot = Snapshot {
        volumes: vec![measured(1), measured(2)],
        stats: [(id(1), stats), (id(2), UnitStats::default())].into(),
        ..Snapshot::default()
    };
    let text = written(|text| volumes::write(text, &snapshot));
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "# HELP ursa_volume_capacity_bytes Size of the volume.",
        "# TYPE ursa_volume_capacity_bytes gauge",
        r#"ursa_volume_capacity_bytes{volume="v1",pool="default"} 1073741824"#,
        r#"ursa_volume_capacity_bytes{volume="v2",pool="default"} 1073741824"#,
        "# HELP ursa_volume_serving Whether hosts can read and write the volume through this node; `id` distinguishes volumes of the same name on nodes that have not joined each other.",
        "# TYPE ursa_volume_serving gauge",
        r#"ursa_volume_serving{volume="v1",id="00010000000000000000000000000000"} 1"#,
        r#"ursa_volume_serving{volume="v2",id="00020000000000000000000000000000"} 0"#,
        "# HELP ursa_volume_operation_duration_seconds Latency of commands: from the arrival of all data of a command to its answer.",
        "# TYPE ursa_volume_operation_duration_seconds histogram",
        r#"ursa_volume_operation_duration_seconds_bucket{volume="v1",operation="read",le="0.000004"} 0"#,
        r#"ursa_volume_operation_duration_seconds_bucket{volume="v1",operation="read",le="0.000008"} 1"#,
    ];
    assert_eq!(lines[..12], expected, "{text}");
    let expected = [
        r#"ursa_volume_operation_duration_seconds_bucket{volume="v1",operation="read",le="4.194304"} 2"#,
        r#"ursa_volume_operation_duration_seconds_bucket{volume="v1",operation="read",le="+Inf"} 3"#,
        r#"ursa_volume_operation_duration_seconds_sum{volume="v1",operation="read"} 10.000105"#,
        r#"ursa_volume_operation_duration_seconds_count{volume="v1",operation="read"} 3"#,
        "# HELP ursa_volume_bytes_total Bytes in the blocks that successful commands addressed.",
        "# TYPE ursa_volume_bytes_total counter",
        r#"ursa_volume_bytes_total{volume="v1",operation="read"} 12288"#,
        "# HELP ursa_volume_errors_total Commands that ended with CHECK CONDITION, by sense key and additional sense code/qualifier.",
        "# TYPE ursa_volume_errors_total counter",
        r#"ursa_volume_errors_total{volume="v1",sense_key="medium_error",code="11/00"} 2"#,
    ];
    assert_eq!(lines[lines.len() - 10..], expected, "{text}");
}

/// A volume with two copies, one of which is out of sync.
fn degraded() -> Snapshot {
    let copy = |slot: u8, standing| CopyEntry {
        slot,
        node: u16::from(slot) + 1,
        standing,
        incarnation: 1,
        made: 1,
        asker: 0,
        leaves: None,
    };
    let entry = VolumeEntry {
        id: id(1).to_string(),
        number: 4,
        name: "v1".into(),
        size: 1 << 30,
        shape: ShapeEntry {
            kind: store::VolumeKind::Thick,
            block_bytes: 512,
            physical_exponent: 3,
            slices: 1,
            created: 0,
        },
        epoch: 2,
        copies: vec![copy(0, StandingEntry::InSync), copy(1, StandingEntry::Outside)],
        sole: false,
        reason: Cause::VolumeCreated,
        dropped: Vec::new(),
        missed: BTreeMap::new(),
        unread: Default::default(),
        paused: [(1, SyncPause { by: "eva".into(), at: 1_800_000_000 })].into(),
        space: Default::default(),
        compression: Default::default(),
        restoring: None,
        restored: None,
        snapshots_above: None,
        clone_of: None,
    };
    let sync = CopySync {
        total_bytes: 3000,
        left_bytes: 2000,
        copied_bytes: 1000,
        bytes_per_second: 500,
        dirtied_per_second: 0,
        cause: Cause::Restarted,
        limited_by: Some(Restraint::ClusterLimit),
        waits_for: None,
        lasts: None,
    };
    let status = CopiesStatus {
        entry,
        here: None,
        serving: true,
        syncs: [(1, sync)].into(),
        policy: None,
        verification: VerificationEntry::default(),
        verify_every: None,
        clone_of: None,
        fork: Some(ForkShown { node: 1, since: 9, state: ForkState::Alone }),
    };
    let traffic = Traffic { writes_sent: 1, writes_received: 2, sync_sent: 3, sync_received: 4 };
    let replication = ReplicationStats {
        traffic: [(2, traffic)].into(),
        synced: [((id(1), 2), 7000)].into(),
        dirtied: [((id(1), 2), 65_536)].into(),
        sync_limit: Some(900),
        sync_budget: Some(300),
    };
    let copies = vec![("v1".to_owned(), status)];
    let different = vec![("v1".to_owned(), 4096)];
    let volumes = vec![Measured { in_logs: Some(store::InLogs::default()), ..measured(1) }];
    let schedules = vec![("hourly".to_owned(), 1_800_000_000)];
    Snapshot { volumes, copies, different, replication, schedules, ..Snapshot::default() }
}

fn member(id: u16, up: bool) -> NodeStatus {
    NodeStatus {
        entry: NodeEntry {
            id,
            name: format!("server{id}"),
            addresses: vec![],
            portals: vec![],
            portal_group: id,
            identity: String::new(),
            witness: false,
            incarnation: 1,
            version: None,
            authority: false,
            cores: None,
            started: None,
            start: 0,
        },
        here: id == 1,
        up,
        reached_by: Vec::new(),
        votes: true,
        stalled: (id == 2).then_some(node::control::Stall::NoSpace),
        leads: id == 1,
        copies: 2,
        in_sync: 1,
        silent: None,
        maintenance: !up,
        maintenance_since: None,
        preferred: false,
        link_roles: Default::default(),
    }
}

#[test]
fn a_node_of_the_cluster_is_up_or_not() {
    let members = Members { nodes: vec![member(1, true), member(2, false)], answers: true };
    let text = written(|text| cluster::write(text, &members));
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "ursa_cluster_record_up 1",
        r#"ursa_node_up{node="1",name="server1"} 1"#,
        r#"ursa_node_up{node="2",name="server2"} 0"#,
        r#"ursa_node_votes{node="1",name="server1"} 1"#,
        r#"ursa_node_votes{node="2",name="server2"} 1"#,
        r#"ursa_node_record_up{node="1",name="server1"} 1"#,
        r#"ursa_node_record_up{node="2",name="server2"} 0"#,
        r#"ursa_node_maintenance{node="1",name="server1"} 0"#,
        r#"ursa_node_maintenance{node="2",name="server2"} 1"#,
        r#"ursa_node_copies{node="1",name="server1"} 2"#,
        r#"ursa_node_copies{node="2",name="server2"} 2"#,
        r#"ursa_node_copies_in_sync{node="1",name="server1"} 1"#,
        r#"ursa_node_copies_in_sync{node="2",name="server2"} 1"#,
    ];
    assert_eq!(samples, expected);
    let leaderless = Members { nodes: vec![member(1, true)], answers: false };
    for members in [leaderless, Members::default()] {
        let text = written(|text| cluster::write(text, &members));
        assert!(text.lines().any(|line| line == "ursa_cluster_record_up 0"), "{text}");
    }
}

#[test]
fn a_copy_that_is_not_in_sync_shows_how_far_it_is() {
    let snapshot = degraded();
    let text = written(|text| copies::write(text, &snapshot));
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        r#"ursa_copy_state{volume="v1",node="1",state="in_sync"} 1"#,
        r#"ursa_copy_state{volume="v1",node="1",state="catching_up"} 0"#,
        r#"ursa_copy_state{volume="v1",node="1",state="out_of_sync"} 0"#,
        r#"ursa_copy_state{volume="v1",node="2",state="in_sync"} 0"#,
        r#"ursa_copy_state{volume="v1",node="2",state="catching_up"} 0"#,
        r#"ursa_copy_state{volume="v1",node="2",state="out_of_sync"} 1"#,
        r#"ursa_volume_different_bytes{volume="v1"} 4096"#,
        r#"ursa_volume_split_brain{volume="v1",state="no"} 0"#,
        r#"ursa_volume_split_brain{volume="v1",state="alone"} 1"#,
        r#"ursa_volume_split_brain{volume="v1",state="split"} 0"#,
        r#"ursa_copy_resync_total_bytes{volume="v1",node="2"} 3000"#,
        r#"ursa_copy_resync_remaining_bytes{volume="v1",node="2"} 2000"#,
        r#"ursa_copy_resync_bytes_per_second{volume="v1",node="2"} 500"#,
        r#"ursa_copy_resync_remaining_seconds{volume="v1",node="2"} 4"#,
        r#"ursa_copy_resync_stalled{volume="v1",node="2"} 0"#,
        r#"ursa_copy_resync_paused{volume="v1",node="2"} 1"#,
        r#"ursa_copy_resync_held_back{volume="v1",node="2",by="cluster_limit"} 1"#,
        r#"ursa_copy_resync_cause{volume="v1",node="2",cause="restarted"} 1"#,
        "ursa_cluster_resync_limit_bytes_per_second 900",
        "ursa_resync_budget_bytes_per_second 300",
        r#"ursa_copy_resynced_bytes_total{volume="v1",node="2"} 7000"#,
        r#"ursa_copy_dirtied_bytes_total{volume="v1",node="2"} 65536"#,
        r#"ursa_replication_bytes_total{node="2",direction="sent",kind="write"} 1"#,
        r#"ursa_replication_bytes_total{node="2",direction="received",kind="write"} 2"#,
        r#"ursa_replication_bytes_total{node="2",direction="sent",kind="sync"} 3"#,
        r#"ursa_replication_bytes_total{node="2",direction="received",kind="sync"} 4"#,
    ];
    assert_eq!(samples, expected);
    assert_eq!(written(|text| copies::write(text, &Snapshot::default())), "");
}

#[test]
fn a_schedule_shows_when_it_has_last_taken_a_snapshot() {
    let snapshot = Snapshot { schedules: vec![("hourly".into(), 1_800_000_000)], ..Snapshot::default() };
    let text = written(|text| schedules::write(text, &snapshot));
    let sample = r#"ursa_snapshot_schedule_last_timestamp_seconds{schedule="hourly"} 1800000000"#;
    assert_eq!(text.lines().last(), Some(sample));
    assert_eq!(written(|text| schedules::write(text, &Snapshot::default())), "");
}

#[test]
fn a_volume_shows_what_its_last_scrub_has_found() {
    let volumes = vec![measured(1), Measured { scrub: None, ..measured(2) }];
    let snapshot = Snapshot { volumes, scrubbed_bytes: 9, ..Snapshot::default() };
    let text = written(|text| scrubs::write(text, &snapshot));
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "ursa_scrub_read_bytes_total 9",
        r#"ursa_scrub_last_timestamp_seconds{volume="v1"} 1800000000"#,
        r#"ursa_scrub_bad_blocks{volume="v1"} 3"#,
        r#"ursa_scrub_unrepaired_blocks{volume="v1"} 2"#,
        r#"ursa_scrub_unfinished{volume="v1"} 0"#,
        r#"ursa_scrub_overdue{volume="v1"} 0"#,
    ];
    assert_eq!(samples, expected, "a RAM volume has none");
}

#[test]
fn a_target_without_a_session_has_a_zero() {
    let snapshot = Snapshot {
        targets: vec!["iqn.2026-11.example:a".into(), "iqn.2026-11.example:b".into()],
        sessions: vec![
            session(Some("iqn.2026-11.example:b")),
            session(None),
            session(Some("iqn.2026-11.example:b")),
            // This target was deleted, and its session is about to end.
            session(Some("iqn.2026-11.example:c")),
        ],
        refused_logins: [(0x0201, 3), (0x0302, 1)].into(),
        ..Snapshot::default()
    };
    let expected = r#"# HELP ursa_sessions Initiators' sessions, by target.
# TYPE ursa_sessions gauge
ursa_sessions{target="iqn.2026-11.example:a"} 0
ursa_sessions{target="iqn.2026-11.example:b"} 2
ursa_sessions{target="iqn.2026-11.example:c"} 1
# HELP ursa_discovery_sessions Discovery sessions.
# TYPE ursa_discovery_sessions gauge
ursa_discovery_sessions 1
# HELP ursa_logins_refused_total Refused logins, by status class and detail (RFC 7143 11.13.5) in hexadecimal.
# TYPE ursa_logins_refused_total counter
ursa_logins_refused_total{status="0201"} 3
ursa_logins_refused_total{status="0302"} 1
"#;
    assert_eq!(written(|text| targets::write(text, &snapshot)), expected);
}

#[test]
fn a_core_is_a_label() {
    let mut turns = Turns { time: Duration::from_millis(250), ..Turns::default() };
    (turns.counts[0], turns.counts[4], turns.counts[TURN_BUCKETS - 1]) = (5, 2, 1);
    turns.longest = Duration::from_micros(120);
    let busy = CoreStats { cpu: Duration::from_millis(1500), enters: 7, turns, ..CoreStats::default() };
    let text = written(|text| cores::write(text, &[CoreStats::default(), busy]));
    for line in [
        r#"ursa_core_cpu_seconds_total{core="0"} 0"#,
        r#"ursa_core_cpu_seconds_total{core="1"} 1.5"#,
        r#"ursa_core_enters_total{core="1"} 7"#,
        r#"ursa_core_turn_seconds_bucket{core="0",le="+Inf"} 0"#,
        r#"ursa_core_turn_seconds_bucket{core="1",le="0.000005"} 5"#,
        r#"ursa_core_turn_seconds_bucket{core="1",le="0.0001"} 7"#,
        r#"ursa_core_turn_seconds_bucket{core="1",le="0.0005"} 7"#,
        r#"ursa_core_turn_seconds_bucket{core="1",le="0.001"} 7"#,
        r#"ursa_core_turn_seconds_bucket{core="1",le="+Inf"} 8"#,
        r#"ursa_core_turn_seconds_sum{core="1"} 0.25"#,
        r#"ursa_core_longest_turn_seconds{core="1"} 0.00012"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in {text}");
    }
}

#[test]
fn a_pool_that_is_not_open_is_down() {
    let state = Err(node::control::NotOpen::Silent(std::time::Duration::ZERO));
    let closed = node::control::PoolStatus { name: "p".into(), paths: vec![], state };
    let text = written(|text| pools::write(text, &[closed]));
    assert!(text.contains("ursa_pool_state{pool=\"p\",state=\"unavailable\"} 1\n"), "{text}");
    assert!(!text.contains("ursa_pool_free_bytes{"), "{text}");
}

/// Requirements of Prometheus: the lines of a family are contiguous and follow its HELP and TYPE, and no
/// series occurs twice.
#[test]
fn a_thousand_busy_volumes_are_well_formed() {
    let mut stats = UnitStats::default();
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        stats.latency[operation as usize].record(Duration::from_micros(50));
        stats.bytes[operation as usize] = 1 << 40;
    }
    let snapshot = Snapshot {
        volumes: (0..1000).map(measured).collect(),
        stats: (0..1000).map(|n| (id(n), stats.clone())).collect(),
        ..Snapshot::default()
    };
    let text = written(|text| {
        volumes::write(text, &snapshot);
        targets::write(text, &snapshot);
    });
    let (mut families, mut series, mut family) = (BTreeSet::new(), BTreeSet::new(), "");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().unwrap();
            assert!(families.insert(family), "{family} comes twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            assert_eq!(kind.split(' ').next(), Some(family));
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with(family) && value.parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(name), "{line} comes twice");
        }
    }
    // Per volume: its capacity, whether it serves, and for each of three operations 22 buckets, the sum, the
    // count and the bytes. And one series without a target.
    assert_eq!(series.len(), 1000 * (2 + 3 * (22 + 2 + 1)) + 1);
}
