//! A unit through several portals of a real node, which are lost in turn.

use std::process::Command;
use std::thread;
use std::time::Duration;

use e2e::{Gate, Kind, Node, VolumeSpec, node, program};
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

/// Until a portal that is back has its share of the load again: it is tried again within five seconds.
const BACK_LIMIT: Duration = Duration::from_secs(20);

/// What a silent path costs at most (docs/why/multipath.md), and time for a busy machine.
const STALL_US_MAX: f64 = 10_000_000.0;

/// Longer than it takes until a silent session is given up.
const SILENCE: Duration = Duration::from_secs(10);

#[test]
fn a_verified_run_survives_the_loss_of_each_portal() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("two-ways", 64 * MIB).kind(Kind::Ram));
    let gates: Vec<Gate> = export.portals.iter().map(|portal| Gate::new(*portal)).collect();
    let portals: Vec<String> = gates.iter().map(|gate| gate.address().to_string()).collect();
    let url = format!("iscsi://{}/{}/{}", portals.join(","), export.target, export.lun);
    let dir = TempDir::new().expect("a temporary directory can be made");
    let json = dir.path().join("result.json");
    let file = json.to_str().expect("our own path").to_owned();
    let running = thread::spawn(move || {
        let pattern = ["-b4K", "-o16", "-w40", "-r", "-d75", "-W0", "--verify", "--precondition", "random"];
        let mut command = Command::new(node::binary());
        command.args(["bench", "run"]).args(pattern).args(["--json", &file, &url]);
        program::run(&mut command, 120 * SECOND)
    });
    gates.iter().for_each(|gate| gate.wait_for_traffic(MIB, 30 * SECOND));
    for (gate, other) in [(&gates[0], &gates[1]), (&gates[1], &gates[0])] {
        gate.take_away();
        other.wait_for_traffic(8 * MIB, BACK_LIMIT);
        gate.open();
        gate.wait_for_traffic(MIB, BACK_LIMIT);
        gate.stall();
        thread::sleep(SILENCE);
        other.wait_for_traffic(8 * MIB, BACK_LIMIT);
        gate.open();
        gate.wait_for_traffic(MIB, BACK_LIMIT);
    }
    assert!(!running.is_finished(), "all of this happened while it ran");
    running.join().expect("running it does not panic").expect_ok();
    let record = std::fs::read_to_string(json).expect("the record was written");
    let record: Value = serde_json::from_str(&record).expect("a record is JSON");
    let run = &record["runs"][0];
    assert_eq!(run["complete"], true);
    assert_eq!(run["check"]["unchecked"], 0, "every read was compared");
    for direction in ["reads", "writes"] {
        let latency = run[direction]["latency"]["max_us"].as_f64().expect("it is a number");
        assert!(latency < STALL_US_MAX, "one of the {direction} took {latency} µs");
    }
}
