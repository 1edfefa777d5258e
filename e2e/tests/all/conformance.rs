//! libiscsi's conformance suite.

use e2e::libiscsi::{Exceptions, Report};
use e2e::{Server, VolumeSpec};

#[test]
fn iscsi_test_cu_with_512_byte_blocks() {
    suite(512);
}

#[test]
fn iscsi_test_cu_with_4096_byte_blocks() {
    suite(4096);
}

fn suite(block_size: u32) {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("suite", 256 << 20).block_size(block_size));
    let report = Report::of(&export);
    println!("iscsi-test-cu, blocks of {block_size} bytes: {report}");
    if server.is_ursa() {
        let exceptions = Exceptions::parse(include_str!("../../libiscsi-expected.toml"));
        let surprises = report.surprises(&exceptions, block_size);
        assert!(surprises.is_empty(), "{} surprises:\n{}", surprises.len(), surprises.join("\n"));
    } else {
        let surprises = report.surprises(&Exceptions::default(), block_size);
        println!("{}", surprises.join("\n"));
    }
}
