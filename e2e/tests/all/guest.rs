//! The Linux kernel's initiator, dm-multipath, file systems and reservations, in a guest.

use std::thread;
use std::time::Duration;

use e2e::{Export, Guest, Node, Server, VolumeSpec};

const MIB: u64 = 1 << 20;

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../guest/scripts/", $name, ".sh"))
    };
}
pub(crate) use script;

#[test]
fn two_portals_carry_ext4_on_multipath_and_fstrim_gives_space_back() {
    file_system("ext4", 512);
}

#[test]
fn two_portals_carry_xfs_on_multipath_and_fstrim_gives_space_back() {
    file_system("xfs", 4096);
}

fn file_system(kind: &str, block_size: u32) {
    let mut server = Server::start();
    // The smallest XFS is 300 MiB.
    let export = server.create(&VolumeSpec::new(kind, 512 * MIB).block_size(block_size));
    let Some(guest) = Guest::start(kind) else { return };
    guest.run(&export, "", script!("attach")).expect_ok();
    guest.run(&export, &format!("FS={kind}"), script!("file-system")).expect_ok();
    check_trim(&server, &guest, &export);
}

#[test]
fn open_iscsi_finds_a_target_and_both_prove_themselves_by_chap() {
    const TARGET: &str = "iqn.2026-11.io.ursa:mutual";
    let (user, secret) = ("alice", "correct-horse-battery");
    let (target_user, target_secret) = ("unit", "staple-of-the-target");
    let mut node = Node::start();
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), target_secret).expect("it can be written");
    let path = file.path().to_str().expect("our own path");
    node.ursa(&["target", "create", TARGET, "--chap-user", target_user, "--chap-secret-file", path])
        .expect_ok();
    let export = node.create(&VolumeSpec::new("mutual", 64 * MIB).chap(user, secret));
    assert_eq!(export.target, TARGET, "the volume is in the target that knows a secret");
    let Some(guest) = Guest::start("chap") else { return };
    let secrets =
        format!("USER={user} SECRET={secret} TARGET_USER={target_user} TARGET_SECRET={target_secret}");
    guest.run(&export, &secrets, script!("chap")).expect_ok();
}

#[test]
fn a_server_that_dies_and_returns_twice_under_io_loses_nothing() {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("restarted", 64 * MIB));
    let Some(guest) = Guest::start("restarted") else { return };
    guest.run(&export, "", script!("attach")).expect_ok();
    guest.run(&export, "", script!("write-through")).expect_ok();
    for _ in 0..2 {
        server.kill();
        thread::sleep(Duration::from_secs(2));
        guest.run(&export, "", script!("through-stat")).expect_ok();
        server.restart();
        thread::sleep(Duration::from_secs(5));
    }
    guest.run(&export, "", script!("through-end")).expect_ok();
}

#[test]
fn a_block_device_by_ublk_is_a_disk_like_others() {
    const BYTES: u64 = 256 * MIB;
    const BLOCK: u32 = 4096;
    /// The exit code of a script that found no ublk.
    const MISSING: i32 = 77;
    let mut server = Server::Node(Node::start());
    let export = server.create(&VolumeSpec::new("ublk", BYTES).block_size(BLOCK));
    let Some(guest) = Guest::start("ublk") else { return };
    guest.bring_program();
    let common = format!("LUN={} BYTES={BYTES} BLOCK={BLOCK}\n{}", export.lun, script!("ublk"));
    let used = guest.run(&export, &common, script!("ublk-use"));
    if used.status.and_then(|status| status.code()) == Some(MISSING) {
        println!("skipped: {}", used.output.trim());
        return;
    }
    used.expect_ok();
    check_trim(&server, &guest, &export);
    guest.run(&export, &common, script!("ublk-end")).expect_ok();
}

/// Checks that a file system returns freed space: 96 MiB are written to it, deleted and trimmed.
fn check_trim(server: &Server, guest: &Guest, export: &Export) {
    let before = server.disk_bytes();
    guest.run(export, "", script!("fill")).expect_ok();
    let full = server.disk_bytes();
    guest.run(export, "", script!("trim")).expect_ok();
    let after = server.disk_bytes();
    println!("on the disk: {} MiB, filled {} MiB, trimmed {} MiB", before / MIB, full / MIB, after / MIB);
    assert!(full > before + 64 * MIB, "96 MiB were written, but the disk went from {before} to {full} bytes");
    assert!(
        after < full - 80 * MIB,
        "96 MiB were given back, but the disk went from {full} to {after} bytes"
    );
}

#[test]
fn persistent_reservations_between_two_hosts() {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("reserved", 64 * MIB));
    let Some(guest) = Guest::start("reserved") else { return };
    guest.run(&export, "", script!("two-hosts")).expect_ok();
    guest.run(&export, "", script!("reservations")).expect_ok();
    if server.is_ursa() {
        // tgt forgets them when it ends.
        guest.run(&export, "", script!("reserve-for-good")).expect_ok();
        server.kill_and_restart();
        guest.run(&export, "", script!("still-reserved")).expect_ok();
    }
}
