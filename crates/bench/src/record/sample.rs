//! A record for tests.

use super::{
    Check, Cpu, CpuSample, Direction, DiskUse, Document, Ending, LatencyFigures, Loss, Mail, MailVolume,
    MailWindow, Noise, Process, Run, Sample, Subject, TaskFigures,
};
use crate::{Role, Workload};

/// A run with 10,000 reads per second for ten seconds, of 100 µs each.
pub(crate) fn run() -> Run {
    let curve = vec![(0.0, 90.0), (90.0, 120.0), (99.0, 400.0), (100.0, 5000.0)];
    let latency = LatencyFigures {
        mean_us: 100.0,
        deviation_us: 9.0,
        min_us: 90.0,
        p50_us: 99.0,
        p90_us: 120.0,
        p95_us: 130.0,
        p99_us: 400.0,
        p99_9_us: 1000.0,
        p99_99_us: 3000.0,
        max_us: 5000.0,
        curve,
    };
    let reads = Direction {
        requests: 100_000,
        bytes: 409_600_000,
        iops: 10_000.0,
        mb_per_s: 40.96,
        latency: Some(latency),
    };
    let process = |pid, us_per_request| Process {
        pid,
        name: "ursa".to_owned(),
        seconds: us_per_request / 10.0,
        percent: us_per_request,
        us_per_request,
        disk: (pid == 2).then(|| DiskUse::new(512_000_000, 409_600_000, 0, 0)),
        threads: Vec::new(),
    };
    let workload = Workload { block: 4096, ..Workload::default() };
    Run {
        name: "4K <random> read".to_owned(),
        letters: workload.letters(),
        workload,
        subjects: vec![Subject {
            target: "iscsi://10.0.0.7/iqn.2026-11.io.ursa:db/0".parse().expect("it is a URL"),
            identity: "URSA VOLUME 0.1".to_owned(),
            size: 1 << 30,
            block: 512,
        }],
        started: "2026-11-21T09:30:00Z".to_owned(),
        seconds: 10.0,
        total: reads.clone(),
        reads,
        writes: Direction::default(),
        interval: 1.0,
        series: vec![Sample { reads: 10_000.0, mean_us: 100.0, max_us: 5000.0, ..Sample::default() }; 15],
        cpu: Some(Cpu {
            client: process(1, 2.0),
            servers: vec![process(2, 3.0)],
            series: (1..=15)
                .map(|at| CpuSample { at: f64::from(at), client: 2.0, servers: 3.0, others: 0.5 })
                .collect(),
        }),
        noise: Noise {
            others_percent: Some(1.0),
            stolen_percent: Some(0.0),
            rate_deviation_percent: Some(2.5),
        },
        check: Some(Check { checked: 100_000, unchecked: 0 }),
        open_loop: None,
        ceiling: None,
        ending: Ending { complete: true, ..Ending::default() },
        notes: vec!["Take care.".to_owned()],
    }
}

/// The same run, whose target is lost at the end.
pub(crate) fn lost() -> Run {
    let run = run();
    let loss = Loss {
        target: run.subjects[0].target.clone(),
        at: 7.0,
        last_answer: Some(6.5),
        request: "write at byte 4096".to_owned(),
        reason: "session ended: the target closed the connection".to_owned(),
        wrong_data: false,
    };
    let ending = Ending { complete: false, losses: vec![loss], unanswered_reads: 3, unanswered_writes: 2 };
    Run { ending, ..run }
}

/// A mail server with 2,000 users, steady after six of sixty seconds.
pub(crate) fn mail() -> Mail {
    let run = run();
    let task = |name: &str, tasks: u64| TaskFigures {
        name: name.to_owned(),
        tasks,
        rate: tasks as f64 / 54.0,
        late: 0,
        latency: run.reads.latency.clone(),
    };
    let names = crate::mail::KINDS.iter().map(|kind| task(kind.name, u64::from(kind.share) * 4));
    let window = |number: i32| MailWindow {
        until: f64::from(number) * 3.0,
        rate: 9.1,
        mean_us: Some(9000.0),
        p95_us: Some(12_000.0),
        send_p95_us: (number % 3 > 0).then_some(13_000.0),
    };
    let volume = |role| MailVolume {
        role,
        target: run.subjects[0].target.clone(),
        start: 0,
        size: 1 << 30,
        reads: run.reads.clone(),
        writes: super::Direction::default(),
    };
    Mail {
        users: 2000,
        tasks_a_day: 131,
        day: 28_800.0,
        compression: 1.0,
        due_rate: 9.1,
        steady: Some(6.0),
        unsteady: None,
        from: 6.0,
        to: 60.0,
        band_percent: (4.0, 5.0),
        all: task("all tasks", 524),
        tasks: names.collect(),
        windows: (1..=20).map(window).collect(),
        volumes: vec![volume(Role::Database1), volume(Role::Database2), volume(Role::Log)],
        never_begun: 0,
    }
}

pub(crate) fn document(runs: Vec<Run>) -> Document {
    Document::new("ursa bench run '<target>'".to_owned(), "1.2.3", runs, None)
}

#[test]
fn a_record_is_read_as_it_was_written() {
    use std::path::Path;

    let document = document(vec![run(), lost()]);
    let path = Path::new("a.json");
    assert_eq!(Document::parse(&document.to_json(), path).unwrap(), document);
    let other = document.to_json().replace("\"format\":1", "\"format\":99");
    assert!(matches!(Document::parse(&other, path), Err(crate::Error::Format { format: 99, .. })));
    assert!(matches!(Document::parse("{}", path), Err(crate::Error::Parse(..))));
}
