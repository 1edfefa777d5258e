//! Pools with log volumes that are full, as QEMU's iSCSI driver sees it; the Linux kernel: `guest_full_pool`.
//!
//! A write that needs space ends with ENOSPC, on which QEMU stops the virtual machine (`werror=enospc`, the
//! default) until it is told to continue, and then sends the write again. Nothing else fails, and the same
//! write succeeds when there is space.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::{Export, Node, program};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// For one command of `qemu-io`.
const LIMIT: Duration = Duration::from_secs(60);
/// What QEMU and dd print for ENOSPC.
const NO_SPACE: &str = "No space left on device";
/// A write that waits for space gets the error after this time.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Two log volumes, each larger than their pool.
pub(super) struct FullPool {
    node: Node,
    pub(super) vm: Export,
    other: Export,
    /// How much of `other` was written, in bytes.
    filled: u64,
}

impl FullPool {
    pub(super) fn new() -> FullPool {
        let node = Node::start();
        let file = path(&node, "small.img");
        node.ursa(&["pool", "create", "small", &file, "--size", "128M"]).expect_ok();
        let create = |name: &str| {
            // What is written shrinks to a quarter, and more than the volume has would fit into the pool.
            let size = ["--size", "1G", "--slices", "1", "--compression", "off"];
            let arguments = ["volume", "create", name, "--kind", "log", "--pool", "small"];
            let made: Value = node.ursa_json(&[&arguments[..], &size].concat());
            let target = made["maps"][0]["target"].as_str().expect("it is mapped").to_owned();
            let lun = made["maps"][0]["lun"].as_u64().expect("it is mapped");
            Export { portals: node.portals().to_vec(), target, lun, chap: None }
        };
        let (vm, other) = (create("vm"), create("other"));
        FullPool { node, vm, other, filled: 0 }
    }

    /// Writes to `other` until not even a small write has space.
    pub(super) fn fill(&mut self) {
        for size in [8 * MIB, MIB, MIB / 8] {
            loop {
                let wrote = qemu_io(&self.other, &write(1, self.filled, size));
                // A part of what was refused may have been written.
                self.filled += size;
                if wrote.ok() {
                    continue;
                }
                assert!(wrote.output.contains(NO_SPACE), "{wrote}");
                break;
            }
        }
        println!("{} MiB had space", self.filled / MIB);
    }

    pub(super) fn add_disk(&self) {
        let file = path(&self.node, "more.img");
        self.node.ursa(&["pool", "add-disk", "small", &file, "--size", "128M"]).expect_ok();
    }
}

fn path(node: &Node, name: &str) -> String {
    node.data_dir().join(name).to_str().expect("our own path").to_owned()
}

fn write(pattern: u8, at: u64, bytes: u64) -> String {
    format!("write -P {pattern} {at} {bytes}")
}

fn command(export: &Export, what: &str) -> Command {
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", "-d", "unmap", "-c", what]).arg(export.url(0));
    command
}

fn qemu_io(export: &Export, what: &str) -> program::Finished {
    program::run(&mut command(export, what), LIMIT)
}

#[track_caller]
fn succeeds(export: &Export, what: &str) {
    let finished = qemu_io(export, what);
    assert!(finished.ok(), "{finished}");
}

#[track_caller]
fn has_no_space(export: &Export, what: &str) {
    let finished = qemu_io(export, what);
    assert!(!finished.ok() && finished.output.contains(NO_SPACE), "{finished}");
}

/// Waits for a child process; returns what it printed to its standard streams.
fn ended(mut child: Child) -> (bool, String) {
    let status = program::wait(&mut child, LIMIT).expect("it ends in time");
    let output = child.wait_with_output().expect("it has ended");
    let text = [output.stdout, output.stderr].concat();
    (status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn qemu_gets_enospc_and_the_same_write_succeeds_when_a_disk_was_added() {
    let mut pool = FullPool::new();
    succeeds(&pool.vm, &write(7, 0, MIB));
    pool.fill();
    let began = Instant::now();
    has_no_space(&pool.vm, &write(8, MIB, MIB));
    assert!(began.elapsed() < WAIT_MAX, "by default, it is told at once");
    succeeds(&pool.vm, &format!("read -P 7 0 {MIB}"));
    succeeds(&pool.other, &format!("read -P 1 0 {MIB}"));
    pool.add_disk();
    succeeds(&pool.vm, &write(8, MIB, MIB));
    succeeds(&pool.vm, &format!("read -P 8 {MIB} {MIB}"));
    succeeds(&pool.vm, &format!("read -P 7 0 {MIB}"));
}

#[test]
fn a_write_waits_for_space_that_another_volume_gives_up() {
    let mut pool = FullPool::new();
    pool.fill();
    let shown = pool.node.ursa_json(&["volume", "set", "vm", "--when-full", "pause"]);
    assert_eq!(shown["when_full"], "pause", "{shown}");
    let began = Instant::now();
    let mut command = command(&pool.vm, &write(8, MIB, MIB));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("qemu-io can be run");
    thread::sleep(Duration::from_secs(3));
    assert!(child.try_wait().expect("it can be asked").is_none(), "it waits");
    succeeds(&pool.other, &format!("read -P 1 0 {MIB}"));
    succeeds(&pool.other, &format!("discard 0 {}", 32 * MIB));
    let (succeeded, output) = ended(child);
    assert!(succeeded && !output.contains(NO_SPACE), "{output}");
    assert!(began.elapsed() < WAIT_MAX, "{:?}", began.elapsed());
    succeeds(&pool.vm, &format!("read -P 8 {MIB} {MIB}"));
}

#[test]
fn a_reserve_has_space_in_a_full_pool() {
    let mut pool = FullPool::new();
    let shown = pool.node.ursa_json(&["volume", "set", "vm", "--reserve", "16M"]);
    assert_eq!(shown["reserved"], 16 * MIB, "{shown}");
    pool.fill();
    for pattern in [7, 8] {
        succeeds(&pool.vm, &write(pattern, 0, 16 * MIB));
        succeeds(&pool.vm, &format!("read -P {pattern} 0 {}", 16 * MIB));
    }
    has_no_space(&pool.other, &write(1, pool.filled, MIB));
    let list = pool.node.ursa(&["volume", "list"]).expect_ok();
    assert!(list.contains("16M reserved"), "{list}");
}
