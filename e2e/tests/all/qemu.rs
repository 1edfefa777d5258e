//! QEMU's iSCSI driver (libiscsi inside).

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::time::Duration;

use e2e::{Server, VolumeSpec, pattern, program};

const LIMIT: Duration = Duration::from_secs(120);
const SIZE: usize = 64 << 20;

fn qemu_img(arguments: &[&OsStr]) -> program::Finished {
    program::run(Command::new("qemu-img").args(arguments), LIMIT)
}

/// Copies an image into an existing volume, a volume into a new file, or a volume into another.
fn convert(source: &(impl AsRef<OsStr> + ?Sized), target: &(impl AsRef<OsStr> + ?Sized)) {
    let mut arguments = ["convert", "-f", "raw", "-O", "raw"].map(OsStr::new).to_vec();
    if target.as_ref().to_string_lossy().starts_with("iscsi:") {
        arguments.push(OsStr::new("-n")); // it is there: do not make it
    }
    arguments.extend([source.as_ref(), target.as_ref()]);
    qemu_img(&arguments).expect_ok();
}

fn round_trip(spec: VolumeSpec) {
    let mut server = Server::start();
    let export = server.create(&spec);
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    // Data, a hole, data: convert skips or unmaps the hole.
    let mut content = pattern::noise(11, SIZE);
    content[SIZE / 4..SIZE / 2].fill(0);
    fs::write(&image, &content).expect("a file can be written");
    convert(&image, &export.url(0));
    let compare = ["compare", "-f", "raw", "-F", "raw"].map(OsStr::new);
    qemu_img(&[&compare[..], &[image.as_ref(), export.url(1).as_ref()]].concat()).expect_ok();
    convert(&export.url(1), &copy);
    assert!(fs::read(&copy).expect("it was written") == content, "what came back differs");
}

#[test]
fn an_image_is_copied_to_a_volume_and_back() {
    round_trip(VolumeSpec::new("image", SIZE as u64));
}

#[test]
fn an_image_is_copied_to_4096_byte_blocks_and_back() {
    round_trip(VolumeSpec::new("image-4k", SIZE as u64).block_size(4096));
}

#[test]
fn an_image_is_copied_to_memory_and_back() {
    round_trip(VolumeSpec::new("image-ram", SIZE as u64).kind(e2e::Kind::Ram));
}

#[test]
fn an_image_is_copied_to_a_log_and_back() {
    round_trip(VolumeSpec::new("image-log", SIZE as u64).kind(e2e::Kind::Log));
}

#[test]
fn a_volume_is_copied_to_another() {
    let mut server = Server::start();
    let source = server.create(&VolumeSpec::new("source", SIZE as u64));
    let target = server.create(&VolumeSpec::new("target", SIZE as u64).block_size(4096));
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
    fs::write(&image, pattern::noise(7, SIZE)).expect("a file can be written");
    convert(&image, &source.url(0));
    convert(&source.url(0), &target.url(1));
    convert(&target.url(0), &copy);
    let (image, copy) = (fs::read(image).expect("it was written"), fs::read(copy).expect("it was written"));
    assert!(image == copy, "the copy differs");
}

#[test]
fn chap_in_the_url_opens_the_volume_and_nothing_else_does() {
    let spec = VolumeSpec::new("secret", SIZE as u64).chap("alice", "correct-horse-battery");
    round_trip(spec.clone());
    let mut server = Server::start();
    let export = server.create(&spec);
    let info = |url: String| qemu_img(&["info", "-f", "raw", &url].map(OsStr::new));
    info(export.url(0)).expect_ok();
    let without = e2e::Export { chap: None, ..export.clone() };
    assert!(!info(without.url(0)).ok(), "no CHAP, and yet it opened");
    let wrong = e2e::Chap { name: "alice".to_owned(), secret: "wrong-horse-battery".to_owned() };
    let wrong = e2e::Export { chap: Some(wrong), ..export };
    assert!(!info(wrong.url(0)).ok(), "a wrong secret, and yet it opened");
}

#[test]
fn bench_runs_deep_and_shallow() {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("bench", SIZE as u64));
    for depth in ["1", "64"] {
        for write in [&[][..], &["-w"], &["-w", "--flush-interval=64"]] {
            let url = export.url(0);
            let arguments = ["bench", "-f", "raw", "-t", "none", "-c", "2000", "-s", "4096", "-d", depth];
            let arguments = [&arguments[..], write, &[url.as_str()]].concat();
            qemu_img(&arguments.into_iter().map(OsStr::new).collect::<Vec<_>>()).expect_ok();
        }
    }
}
