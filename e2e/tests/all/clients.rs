//! libiscsi's small tools.

use std::process::Command;
use std::time::Duration;

use e2e::{Server, VolumeSpec, program};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn tool(name: &str, arguments: &[&str]) -> program::Finished {
    program::run(Command::new(name).args(arguments), LIMIT)
}

#[test]
fn iscsi_ls_finds_the_target_through_both_portals() {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("listed", 64 * MIB));
    for portal in &export.portals {
        let list = tool("iscsi-ls", &["--show-luns", &format!("iscsi://{portal}")]).expect_ok();
        assert!(list.contains(&format!("Target:{}", export.target)), "{list}");
        assert!(list.contains(&format!("Portal:{portal}")), "{portal} is not in {list}");
        assert!(list.contains("DIRECT_ACCESS"), "{list}");
    }
}

#[test]
fn iscsi_inq_reads_the_identity() {
    let mut server = Server::start();
    let one = server.create(&VolumeSpec::new("one", 64 * MIB));
    let two = server.create(&VolumeSpec::new("two", 64 * MIB));
    let standard = tool("iscsi-inq", &[&one.url(0)]).expect_ok();
    assert!(standard.contains("Peripheral Qualifier:CONNECTED"), "{standard}");
    assert!(standard.contains("Peripheral Device Type:DIRECT_ACCESS"), "{standard}");
    // The unit is the same through both portals; another volume is another unit.
    let page = |url: &str| tool("iscsi-inq", &["--evpd=1", "--pagecode=131", url]).expect_ok();
    let names = |url: &str| unit_designators(&page(url));
    assert!(!names(&one.url(0)).is_empty());
    assert_eq!(names(&one.url(0)), names(&one.url(1)));
    assert_ne!(names(&one.url(0)), names(&two.url(0)));
    let serial = |url: &str| tool("iscsi-inq", &["--evpd=1", "--pagecode=128", url]).expect_ok();
    assert_eq!(serial(&one.url(0)), serial(&one.url(1)));
    assert_ne!(serial(&one.url(0)), serial(&two.url(0)));
}

/// The designators in iscsi-inq's output that name the unit, not a port.
fn unit_designators(page: &str) -> Vec<String> {
    let all = page.split("DEVICE DESIGNATOR").skip(1);
    let unit = all.filter(|designator| designator.contains("Association:(0)"));
    unit.map(|designator| designator.lines().skip(1).collect()).collect()
}

#[test]
fn iscsi_readcapacity16_reports_both_block_sizes() {
    let mut server = Server::start();
    for (name, block_size, blocks) in [("small-blocks", 512, 131_072), ("large-blocks", 4096, 16_384)] {
        let export = server.create(&VolumeSpec::new(name, 64 * MIB).block_size(block_size));
        let answer = tool("iscsi-readcapacity16", &[&export.url(0)]).expect_ok();
        assert!(answer.contains(&format!("RETURNED LOGICAL BLOCK ADDRESS:{}", blocks - 1)), "{answer}");
        assert!(answer.contains(&format!("LOGICAL BLOCK LENGTH IN BYTES:{block_size}")), "{answer}");
        assert!(answer.contains("Total size:67108864"), "{answer}");
    }
}

#[test]
fn iscsi_swp_protects_and_releases() {
    let mut server = Server::start();
    let export = server.create(&VolumeSpec::new("protected", 64 * MIB));
    let url = &export.url(0);
    assert!(tool("iscsi-swp", &[url]).expect_ok().contains("SWP:0"));
    tool("iscsi-swp", &["--swp=on", url]).expect_ok();
    assert!(tool("iscsi-swp", &[&export.url(1)]).expect_ok().contains("SWP:1"), "the other path sees it");
    tool("iscsi-swp", &["--swp=off", url]).expect_ok();
    assert!(tool("iscsi-swp", &[url]).expect_ok().contains("SWP:0"));
}
