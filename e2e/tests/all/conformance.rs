//! libiscsi's conformance suite.

use e2e::libiscsi::{Exceptions, Report};
use e2e::{Kind, Server, VolumeSpec};

#[test]
fn iscsi_test_cu_with_512_byte_blocks() {
    suite(512, Kind::Thick);
}

#[test]
fn iscsi_test_cu_with_4096_byte_blocks() {
    suite(4096, Kind::Thick);
}

#[test]
fn iscsi_test_cu_with_512_byte_blocks_in_a_log() {
    suite(512, Kind::Log);
}

#[test]
fn iscsi_test_cu_with_4096_byte_blocks_in_a_log() {
    suite(4096, Kind::Log);
}

fn suite(block_size: u32, kind: Kind) {
    let mut server = Server::start();
    if kind != Kind::Thick && !server.is_ursa() {
        println!("left out: no other target has volumes of this kind");
        return;
    }
    let export = server.create(&VolumeSpec::new("suite", 256 << 20).block_size(block_size).kind(kind));
    let report = Report::of(&export);
    println!("iscsi-test-cu, {kind:?}, blocks of {block_size} bytes: {report}");
    if server.is_ursa() {
        let exceptions = Exceptions::parse(include_str!("../../libiscsi-expected.toml"));
        let surprises = report.surprises(&exceptions, block_size);
        assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
    } else {
        let surprises = report.surprises(&Exceptions::default(), block_size);
        println!("{}", surprises.join("\n"));
    }
}
