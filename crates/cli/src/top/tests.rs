use std::time::{Duration, Instant};

use api::{CopyState, List, LiveCore, LiveFlow, LiveSample, LiveVolume, Missing, Session};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use terms::samples;

use super::frame::{Frame, Sample};
use super::live::Live;
use super::screen::{Screen, lines, text};
use super::view::{KeyAction, View, Views, bytes, count};

/// A node's metrics after this many seconds of constant load on `db`: per second, 1,000 reads of 4 KiB and
/// 100 writes of 64 KiB.
fn metrics(seconds: u64) -> String {
    let mut text = format!(
        r#"ursa_build_info{{version="0.1.0",name="server1"}} 1
ursa_findings{{severity="critical"}} 0
ursa_findings{{severity="warning"}} 0
ursa_node_up{{node="1",name="server1"}} 1
ursa_node_up{{node="2",name="server2"}} 0
ursa_volume_serving{{volume="db",id="1"}} 1
ursa_volume_serving{{volume="idle",id="2"}} 1
ursa_volume_serving{{volume="away",id="3"}} 0
ursa_copy_state{{volume="db",node="1",state="in_sync"}} 1
ursa_copy_state{{volume="db",node="1",state="catching_up"}} 0
ursa_copy_state{{volume="db",node="1",state="out_of_sync"}} 0
ursa_copy_state{{volume="db",node="2",state="in_sync"}} 0
ursa_copy_state{{volume="db",node="2",state="catching_up"}} 0
ursa_copy_state{{volume="db",node="2",state="out_of_sync"}} 1
ursa_copy_resync_total_bytes{{volume="db",node="2"}} 10737418240
ursa_copy_resync_remaining_bytes{{volume="db",node="2"}} 3221225472
ursa_copy_resync_bytes_per_second{{volume="db",node="2"}} 67108864
ursa_copy_resync_remaining_seconds{{volume="db",node="2"}} 48
ursa_copy_resync_stalled{{volume="db",node="2"}} 0
ursa_copy_resync_cause{{volume="db",node="2",cause="restarted"}} 1
ursa_volume_bytes_total{{volume="db",operation="read"}} {}
ursa_volume_bytes_total{{volume="db",operation="write"}} {}
ursa_core_cpu_seconds_total{{core="0"}} {}
ursa_core_polling_seconds_total{{core="0"}} {}
ursa_core_enters_total{{core="0"}} {}
ursa_core_completions_total{{core="0"}} {}
ursa_core_cpu_seconds_total{{core="1"}} 5
ursa_core_polling_seconds_total{{core="1"}} 5
"#,
        seconds * 1000 * 4096,
        seconds * 100 * 65_536,
        seconds as f64 * 0.75,
        seconds as f64 * 0.25,
        seconds * 2000,
        seconds * 1100,
    );
    let duration = "ursa_volume_operation_duration_seconds";
    // 990 of 1,000 reads take 64 to 128 us; all writes take 256 to 512 us.
    for (operation, counts, sum) in
        [("read", [0, 990, 1000, 1000, 1000], 0.1), ("write", [0, 0, 0, 100, 100], 0.04)]
    {
        for (bound, count) in ["0.000064", "0.000128", "0.000256", "0.000512", "+Inf"].iter().zip(counts) {
            text += &format!(
                "{duration}_bucket{{volume=\"db\",operation=\"{operation}\",le=\"{bound}\"}} {}\n",
                count * seconds
            );
        }
        text +=
            &format!("{duration}_sum{{volume=\"db\",operation=\"{operation}\"}} {}\n", sum * seconds as f64);
        text +=
            &format!("{duration}_count{{volume=\"db\",operation=\"{operation}\"}} {}\n", counts[4] * seconds);
    }
    text
}

fn session(commands: u64) -> Session {
    Session {
        tsih: 1,
        initiator: "iqn.2026-11.example:host1".into(),
        alias: None,
        isid: "1".into(),
        target: Some("iqn.2026-11.io.ursa:db".into()),
        core: 1,
        addresses: vec!["10.0.0.9:40000".into()],
        age: 100 + commands / 1000,
        commands,
        bytes_received: commands * 48,
        bytes_sent: commands * 4096,
        node: 1,
        node_name: "server1".into(),
    }
}

/// The rates over two seconds of this load.
fn frame() -> Frame {
    let start = Instant::now();
    let before = Sample::new(start, &metrics(10), vec![session(10_000)]);
    let after = Sample::new(start + Duration::from_secs(2), &metrics(12), vec![session(12_000)]);
    Frame::between(&before, &after)
}

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

#[test]
fn volumes_are_shown_by_their_load() {
    let expected = "\
server1, ursa 0.1.0, 1 of 2 nodes up
1000 reads/s, 100 writes/s; 3.9M/s read, 6.2M/s written
[volumes]  copies   paths   cores
VOLUME   IOPS*   READS   WRITES   READ/S   WRITTEN/S   READ   WRITE    P99
db        1100    1000      100     3.9M        6.2M  100us   400us  484us
away         0       0        0        0           0      -       -      -
idle         0       0        0        0           0      -       -      -
";
    let shown = text(&frame(), &Views::new(View::Volumes));
    // The bound for 1,089 of 1,100 operations: 89 of the 100 writes, which are spread over 256 to 512 us.
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn copies_that_are_not_in_sync_come_first() {
    let shown = text(&frame(), &Views::new(View::Copies));
    let table: Vec<&str> = shown.lines().skip(3).collect();
    assert_eq!(
        table,
        [
            "VOLUME   NODE   STATE*        DONE   LEFT   RATE/S   TO GO  CAUSE",
            "db       2      out of sync   70 %     3G      64M     48s  its node restarted",
            "db       1      in sync          -      -        -       -",
        ]
    );
}

#[test]
fn paths_and_cores_have_rates() {
    let shown = text(&frame(), &Views::new(View::Paths));
    let table: Vec<&str> = shown.lines().skip(3).collect();
    assert_eq!(
        table,
        [
            "INITIATOR                  FROM            TARGET                  CORE     AGE  COMMANDS*   RECEIVED/S   SENT/S",
            "iqn.2026-11.example:host1  10.0.0.9:40000  iqn.2026-11.io.ursa:db  1      1m52s       1000        46.9K     3.9M",
        ]
    );
    let shown = text(&frame(), &Views::new(View::Cores));
    let table: Vec<&str> = shown.lines().skip(3).collect();
    assert_eq!(
        table,
        [
            "CORE*   BUSY   POLLING   ENTERS/S   COMPLETIONS/S",
            "0       50 %      25 %       2000            1100",
            "1        0 %       0 %          0               0",
        ]
    );
}

#[test]
fn a_node_that_was_started_again_has_no_rates_below_zero() {
    let start = Instant::now();
    let before = Sample::new(start, &metrics(100), vec![session(100_000)]);
    let again = Session { isid: "2".into(), ..session(500) };
    let after = Sample::new(start + Duration::from_secs(1), &metrics(1), vec![again]);
    let frame = Frame::between(&before, &after);
    assert_eq!((frame.volumes[1].volume.as_str(), frame.volumes[1].reads), ("db", 1000.0));
    assert_eq!(frame.paths[0].commands, 500.0);
    let nothing = Frame::between(&after, &after);
    assert!(nothing.volumes.iter().all(|row| row.reads == 0.0 && row.p99_seconds.is_none()));
}

#[test]
fn the_screen_has_keys_and_says_what_is_wrong() {
    let mut terminal = Terminal::new(TestBackend::new(80, 8)).unwrap();
    let mut frame = frame();
    frame.findings = 2;
    let mut views = Views::new(View::Volumes);
    let mut shown = |frame: &Frame, views: &Views, trouble: Option<&str>| {
        let screen = |onto: &mut ratatui::Frame<'_>| {
            onto.render_widget(Screen { frame, views, trouble, keys: true }, onto.area());
        };
        terminal.draw(screen).unwrap();
        lines(terminal.backend().buffer())
    };
    let first = shown(&frame, &views, None);
    assert!(first.contains("2 FINDINGS: ursa status") && first.contains("q quit"), "{first}");
    assert_eq!(first.lines().count(), 8);
    assert!(first.contains("space pause"), "the keys fit: {first}");
    let silent = shown(&frame, &views, Some("NO ANSWER for 9s"));
    assert!(silent.contains("NO ANSWER for 9s"), "{silent}");
    views.press(key(KeyCode::Char(' ')), 3, 3);
    let paused = shown(&frame, &views, None);
    assert!(paused.contains("PAUSED"), "{paused}");
    let empty = shown(&Frame::default(), &Views::new(View::Paths), None);
    assert!(empty.contains("No sessions."), "{empty}");
}

#[test]
fn a_narrow_screen_keeps_its_numbers() {
    let mut frame = frame();
    frame.volumes[0].volume = "a-volume-with-a-name-of-sixty-three-letters-and-not-one-more-ok".into();
    for width in [20, 60, 80] {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).unwrap();
        let views = Views::new(View::Volumes);
        let screen = |onto: &mut ratatui::Frame<'_>| {
            let screen = Screen { frame: &frame, views: &views, trouble: None, keys: true };
            onto.render_widget(screen, onto.area());
        };
        terminal.draw(screen).unwrap();
        let shown = lines(terminal.backend().buffer());
        assert!(width < 80 || shown.contains("484us"), "{shown}");
    }
}

#[test]
fn keys_sort_switch_scroll_and_leave() {
    let frame = frame();
    let mut views = Views::new(View::Volumes);
    let names = |views: &Views| {
        let rows = views.grid(&frame).rows;
        rows.into_iter().map(|(cells, _)| cells[0].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&views), ["db", "away", "idle"]);
    for (code, expected) in [
        (KeyCode::Char('r'), ["away", "idle", "db"]),
        (KeyCode::Char('<'), ["away", "db", "idle"]),
        (KeyCode::Char('r'), ["idle", "db", "away"]),
        // Left of the first column is the last, and right of the last is the first.
        (KeyCode::Left, ["db", "away", "idle"]),
        (KeyCode::Right, ["away", "db", "idle"]),
    ] {
        assert_eq!(views.press(key(code), 10, 3), KeyAction::Stay);
        assert_eq!(names(&views), expected, "{code:?}");
    }
    for (code, shown) in [
        (KeyCode::Tab, View::Copies),
        (KeyCode::Char('o'), View::Cores),
        (KeyCode::Tab, View::Volumes),
        (KeyCode::BackTab, View::Cores),
        (KeyCode::Char('3'), View::Paths),
    ] {
        views.press(key(code), 10, 3);
        assert_eq!(views.shown, shown);
    }
    for (code, first) in [
        (KeyCode::PageDown, 10),
        (KeyCode::Down, 11),
        (KeyCode::End, 90),
        (KeyCode::Down, 90),
        (KeyCode::PageUp, 80),
        (KeyCode::Up, 79),
        (KeyCode::Home, 0),
        (KeyCode::Up, 0),
    ] {
        views.press(key(code), 10, 100);
        assert_eq!(views.first, first, "{code:?}");
    }
    assert_eq!(views.press(key(KeyCode::Char('q')), 1, 1), KeyAction::Leave);
    assert_eq!(views.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), 1, 1), KeyAction::Leave);
    assert_eq!(views.shown, View::Paths, "Control-C is not `c`");
}

#[test]
fn figures_are_short() {
    let counts = [0.0, 0.5, 99.6, 1234.0, 123_456.0, 2_345_678.0].map(count);
    assert_eq!(counts, ["0", "0.5", "100", "1234", "123.5k", "2.35M"]);
    let sizes = [0.0, 999.0, 4_096_000.0, 10_737_418_240.0].map(bytes);
    assert_eq!(sizes, ["0", "999", "3.9M", "10G"]);
}

/// A second of a node: `db` is read, with this latency in microseconds.
fn sample(node: u16, reads: f64, us: f64) -> LiveSample {
    let (mean_us, p99_us) = (Some(us), Some(2.0 * us));
    let read = LiveFlow { operations: reads, bytes: reads * 4096.0, mean_us, p99_us };
    let db = LiveVolume { id: "id of db".into(), name: "db".into(), read, write: LiveFlow::default() };
    let cores = vec![LiveCore { cpu: 0.75, polling: 0.25 }];
    LiveSample { seconds: 1.0, node, cores, volumes: vec![db], ..LiveSample::default() }
}

/// What nodes 1 and 2 report; `own` has a single copy, on node 2.
fn others(node: Option<u16>, samples: Vec<LiveSample>) -> Frame {
    let copies = vec![samples::copy(0, 1, CopyState::InSync), samples::copy(1, 2, CopyState::OutOfSync)];
    let db = samples::volume("db", copies);
    let own = samples::volume("own", vec![samples::copy(0, 2, CopyState::InSync)]);
    let reading = |commands: u64| {
        let live = Live {
            node,
            samples: List {
                items: samples.clone(),
                missing: vec![Missing { node: 3, node_name: "server3".into(), reason: "it is late".into() }],
            },
            volumes: vec![db.clone(), own.clone()].into(),
            nodes: vec![samples::node(1), samples::node(2)],
            findings: 0,
        };
        (live, vec![Session { node: 2, ..session(commands) }])
    };
    let start = Instant::now();
    let [before, after] = [(start, 1000), (start + Duration::from_secs(1), 1500)].map(|(at, commands)| {
        let (live, sessions) = reading(commands);
        Sample::live(at, live, sessions)
    });
    Frame::between(&before, &after)
}

#[test]
fn figures_of_all_nodes_are_summed_up() {
    let frame = others(None, vec![sample(1, 100.0, 100.0), sample(2, 300.0, 200.0)]);
    let expected = "\
all nodes, 2 of 2 nodes up   MISSING: node 3 (it is late)
400 reads/s, 0 writes/s; 1.6M/s read, 0/s written
[volumes]  copies   paths   cores
VOLUME   IOPS*   READS   WRITES   READ/S   WRITTEN/S   READ   WRITE    P99
db         400     400        0     1.6M           0  175us       -  400us
own          0       0        0        0           0      -       -      -
";
    let shown = text(&frame, &Views::new(View::Volumes));
    assert_eq!(shown, expected, "\n{shown}");
    let volumes: Vec<(bool, usize, usize)> =
        frame.volumes.iter().map(|row| (row.serving, row.copies, row.copies_in_sync)).collect();
    assert_eq!(volumes, [(true, 2, 1), (true, 1, 1)]);
    assert_eq!((frame.copies[1].node, frame.copies[1].state.as_str()), (2, "out_of_sync"));
    assert_eq!((frame.paths[0].node, frame.paths[0].commands), (Some(2), 500.0));
    let shown = text(&frame, &Views::new(View::Cores));
    let table: Vec<&str> = shown.lines().skip(3).collect();
    assert_eq!(
        table,
        [
            "CORE*   BUSY   POLLING   ENTERS/S   COMPLETIONS/S",
            "1:0     50 %      25 %          -               -",
            "2:0     50 %      25 %          -               -",
        ]
    );
}

#[test]
fn figures_of_one_node_are_its_own() {
    let frame = others(Some(1), vec![sample(1, 100.0, 100.0)]);
    assert_eq!(frame.node, "node 1 (server1)");
    assert_eq!(frame.volumes.iter().map(|row| row.volume.as_str()).collect::<Vec<_>>(), ["db"]);
    assert_eq!((frame.paths[0].node, frame.cores[0].node), (None, None), "there is one");
    let second = others(Some(2), Vec::new());
    let served: Vec<(&str, bool)> =
        second.volumes.iter().map(|row| (row.volume.as_str(), row.serving)).collect();
    assert_eq!(served, [("db", false), ("own", true)], "its copy is not in sync");
}
