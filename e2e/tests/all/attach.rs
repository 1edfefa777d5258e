//! `ursa attach`: a unit as a file, with a loop device and a file system, and without SCSI in the kernel.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use e2e::attached::{Loop, Mounted, can_mount, run};
use e2e::{Attached, Export, Gate, Kind, Node, VolumeSpec, node, program};
use rustix::fs::{FallocateFlags, SeekFrom as RawSeek, fallocate};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn url(export: &Export, portals: &[String]) -> String {
    format!("iscsi://{}/{}/{}", portals.join(","), export.target, export.lun)
}

fn both_portals(export: &Export) -> String {
    url(export, &export.portals.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// Writes small files with different content, and a large one.
fn fill(directory: &Path) {
    for number in 0..50_u64 {
        let content: Vec<u8> =
            (0..4000 + number).flat_map(|word| (word * 0x9e37_79b9 + number).to_le_bytes()).collect();
        fs::write(directory.join(format!("small-{number}")), content).expect("there is room");
    }
    let large: Vec<u8> = (0..2 * MIB).flat_map(|word| (word ^ 0x5555_aaaa).to_le_bytes()).collect();
    fs::write(directory.join("large"), large).expect("there is room");
}

/// The checksum of all files.
fn checksum(directory: &Path) -> u32 {
    let mut names: Vec<_> =
        fs::read_dir(directory).expect("it is mounted").flatten().map(|entry| entry.path()).collect();
    names.sort();
    let files = names.iter().filter(|path| path.is_file());
    files.fold(0, |sum, path| crc32c::crc32c_append(sum, &fs::read(path).expect("it can be read")))
}

#[test]
fn a_file_system_survives_detaching_and_a_restart_of_the_target() {
    if !can_mount() {
        return;
    }
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("attached", 256 * MIB));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let (place, mounted) = (dir.path().join("unit"), dir.path().join("mounted"));
    fs::create_dir(&mounted).expect("a directory can be made");
    let attached = Attached::new(&both_portals(&export), &place, &[]);
    assert_eq!(fs::metadata(attached.file()).expect("it is there").len(), 256 * MIB);
    let device = Loop::new(&attached.file());
    run("mkfs.ext4", &["-q", device.device()]);
    let mount = Mounted::new(device.device(), &mounted);
    fill(&mounted);
    let expected = checksum(&mounted);
    // The target is gone for a while during writes to files.
    let (copies, from) = (mounted.join("copies"), mounted.clone());
    let writing = thread::spawn(move || {
        for round in 0..4 {
            let copy = copies.join(round.to_string());
            fs::create_dir_all(&copy).expect("there is room");
            run("cp", &["-r", "--", from.join("large").to_str().unwrap(), copy.to_str().unwrap()]);
            run("sync", &["-f", copy.to_str().unwrap()]);
        }
        copies
    });
    thread::sleep(SECOND / 2);
    node.kill();
    thread::sleep(3 * SECOND);
    node.restart();
    let copies = writing.join().expect("a lost path is a stall, and no error");
    for round in 0..4 {
        let copy = fs::read(copies.join(round.to_string()).join("large")).expect("it was written");
        assert!(copy == fs::read(mounted.join("large")).expect("it was written"), "round {round}");
    }
    mount.unmount();
    device.detach();
    attached.detach();

    let attached = Attached::new(&both_portals(&export), &place, &["--read-only"]);
    assert!(File::options().write(true).open(attached.file()).is_err(), "nobody may write");
    let checked = program::run(Command::new("e2fsck").args(["-f", "-n"]).arg(attached.file()), 60 * SECOND);
    assert!(checked.ok(), "{checked}");
    attached.detach();

    let attached = Attached::new(&both_portals(&export), &place, &[]);
    let device = Loop::new(&attached.file());
    let mount = Mounted::new(device.device(), &mounted);
    assert_eq!(checksum(&mounted), expected);
    // A file that is in use is not detached until it is not in use any more.
    let mut attached = attached;
    attached.ask_to_end();
    thread::sleep(2 * SECOND);
    assert!(attached.runs() && attached.log().contains("the file is in use"), "{}", attached.log());
    assert_eq!(checksum(&mounted), expected, "it is served meanwhile");
    mount.unmount();
    device.detach();
    attached.wait();
}

#[test]
fn bytes_are_where_they_were_written() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("bytes", 64 * MIB).block_size(4096));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let attached = Attached::new(&export.url(0), &dir.path().join("unit"), &[]);
    let mut file = File::options().read(true).write(true).open(attached.file()).expect("it is there");
    let mut expected = vec![9_u8; 4 * MIB as usize];
    file.write_all_at(&expected, 0).expect("it can be written");
    // Writes of partial blocks, and across the ends of blocks and requests.
    let mut seed = 1_u64;
    for round in 0..200_u64 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (seed >> 20) as usize % (3 * MIB as usize);
        let len = 1 + (seed >> 50) as usize % if round % 20 == 0 { MIB as usize } else { 9000 };
        let data: Vec<u8> = (0..len).map(|byte| (byte as u64 * 31 + round) as u8).collect();
        file.write_all_at(&data, at as u64).expect("it can be written");
        expected[at..at + len].copy_from_slice(&data);
    }
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 0).expect("it can be read");
    assert!(found == expected);
    // A hole reads as zeros and takes no space any more; its neighbors are untouched.
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1_000_000, 1_500_000)
        .expect("it is supported");
    expected[1_000_000..2_500_000].fill(0);
    file.read_exact_at(&mut found, 0).expect("it can be read");
    assert!(found == expected);
    let hole = rustix::fs::seek(&file, RawSeek::Hole(500_000)).expect("it is supported");
    assert!((1_000_000..2_500_000).contains(&hole), "{hole}");
    let data = rustix::fs::seek(&file, RawSeek::Data(hole)).expect("it is supported");
    assert!((hole + 1..=2_500_000).contains(&data), "{data}");
    // Reads and writes at the end of the file.
    assert_eq!(file.seek(SeekFrom::End(0)).expect("it has an end"), 64 * MIB);
    assert_eq!(file.read(&mut [0; 10]).expect("nothing is there"), 0);
    assert_eq!(file.write(&[1]).expect_err("nothing can be there").raw_os_error(), Some(28), "ENOSPC");
    file.write_all_at(&[7; 5], 64 * MIB - 5).expect("up to the end it can be written");
    assert!(
        file.set_len(MIB).is_err() && fs::metadata(attached.file()).expect("it is there").len() == 64 * MIB
    );
    file.sync_all().expect("it can be flushed");
    drop(file);
    // A killed process leaves a dead mount, which the next one removes.
    attached.kill();
    let attached = Attached::new(&export.url(1), &dir.path().join("unit"), &[]);
    let again = File::open(attached.file()).expect("it is there");
    again.read_exact_at(&mut found, 0).expect("it can be read");
    assert!(found == expected);
    let mut last = [0; 6];
    again.read_exact_at(&mut last, 64 * MIB - 6).expect("it can be read");
    assert_eq!(last, [0, 7, 7, 7, 7, 7]);
    drop(again);
    attached.detach();
}

#[test]
fn a_lost_portal_is_a_stall() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("stalled", 64 * MIB).kind(Kind::Ram));
    let gates: Vec<Gate> = export.portals.iter().map(|portal| Gate::new(*portal)).collect();
    let portals: Vec<String> = gates.iter().map(|gate| gate.address().to_string()).collect();
    let dir = TempDir::new().expect("a temporary directory can be made");
    let attached = Attached::new(&url(&export, &portals), &dir.path().join("unit"), &[]);
    let file = File::options().read(true).write(true).open(attached.file()).expect("it is there");
    for (round, gate) in (1_u8..).zip([&gates[0], &gates[1]]) {
        gate.take_away();
        let began = Instant::now();
        for at in 0..200 {
            file.write_all_at(&[round; 4096], at * 4096).expect("there is another way");
        }
        assert!(began.elapsed() < 10 * SECOND);
        gate.open();
        gate.wait_for_traffic(1, 20 * SECOND);
        thread::sleep(SECOND);
    }
    let mut found = vec![0; 200 * 4096];
    file.read_exact_at(&mut found, 0).expect("it can be read");
    assert!(found.iter().all(|byte| *byte == 2));
    drop(file);
    attached.detach();
}

#[test]
fn what_cannot_be_attached_is_reported() {
    let mut node = Node::start();
    let export = node.create(&VolumeSpec::new("refused", 16 * MIB));
    let dir = TempDir::new().expect("a temporary directory can be made");
    let path = dir.path().to_str().expect("our own path");
    let attach = |url: &str, path: &str| {
        program::run(Command::new(node::binary()).args(["attach", url, "--path", path]), 60 * SECOND)
    };
    fs::write(dir.path().join("file"), "something").expect("it can be written");
    let refused = attach(&export.url(0), path);
    assert!(refused.output.contains("is not empty; choose another directory"), "{refused}");
    let place = dir.path().join("unit");
    let place = place.to_str().expect("our own path");
    let nobody = attach(&format!("iscsi://{}/iqn.2026-11.io.ursa:nobody/0", export.portals[0]), place);
    assert!(!nobody.ok() && nobody.output.contains("NotFound"), "{nobody}");
    assert!(!Path::new(place).exists(), "the directory that was made for it is gone");
    if !Path::new("/dev/ublk-control").exists() {
        let mut device = Command::new(node::binary());
        let refused = program::run(device.args(["attach", &export.url(0), "--ublk"]), 60 * SECOND);
        assert!(!refused.ok() && refused.output.contains("modprobe ublk_drv"), "{refused}");
    }
    assert_eq!(attach("/dev/sda", place).status.and_then(|status| status.code()), Some(2));
}
