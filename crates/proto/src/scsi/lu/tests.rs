//! Commands of the unit, as an initiator sees them.

use base::{BlockCount, BlockSize, Chain, Rng};

use crate::scsi::rig::{A, A2, B, Rig, config, nexus, thin};
use crate::scsi::{
    Cdb, LogicalUnit, LuConfig, LuState, Outcome, Refusal, Request, Reset, Sense, SenseKey, Status, Step,
    UnitAttention, operations,
};

const TEST_UNIT_READY: [u8; 6] = [0, 0, 0, 0, 0, 0];

#[test]
fn a_new_nexus_gets_the_unit_attention_once() {
    let mut unit = LogicalUnit::new(config(), LuState::default());
    unit.attach_nexus(A, nexus(A), false);
    unit.attach_nexus(B, nexus(B), true);
    let mut rig = Rig { unit };
    rig.data(A, &[0x12, 0, 0, 0, 96, 0]);
    assert_eq!(rig.code(A, &TEST_UNIT_READY, &[]), 0x2900);
    assert_eq!(rig.status(A, &TEST_UNIT_READY, &[]), Status::Good);
    // REQUEST SENSE reports it as data.
    let sense = rig.data(B, &[0x03, 0, 0, 0, 252, 0]);
    assert_eq!((sense[0], sense[2], sense[12], sense[13]), (0x70, 0x06, 0x29, 0x07));
    let sense = rig.data(B, &[0x03, 1, 0, 0, 252, 0]);
    assert_eq!(sense, [0x72, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.status(B, &TEST_UNIT_READY, &[]), Status::Good);
}

#[test]
fn no_such_command() {
    let mut rig = Rig::new();
    assert_eq!(rig.code(A, &[0xff], &[]), 0x2000);
    assert_eq!(rig.code(A, &[0x5e, 0x1f], &[]), 0x2400);
    assert_eq!(rig.code(A, &[0xa4, 0x0a], &[]), 0x2000);
    // NACA
    assert_eq!(rig.code(A, &[0, 0, 0, 0, 0, 4], &[]), 0x2400);
    // A nexus that was not attached.
    assert_eq!(rig.status(crate::scsi::NexusId(9), &TEST_UNIT_READY, &[]), Status::Busy);
}

#[test]
fn standard_inquiry() {
    let mut rig = Rig::new();
    let bytes = rig.data(A, &[0x12, 0, 0, 2, 0, 0]);
    assert_eq!(bytes.len(), 96);
    assert_eq!(bytes[..5], [0x00, 0x00, 0x06, 0x12, 91]);
    assert_eq!(bytes[5] & !0x08, 0x10);
    assert_eq!(bytes[6..36], *b"\x10\x02URSA    VOLUME          0001");
    assert_eq!(bytes[58..66], [0x00, 0xa0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xc0]);
    for allocation in 0..=96 {
        assert_eq!(rig.data(A, &[0x12, 0, 0, 0, allocation, 0]), bytes[..usize::from(allocation)]);
    }
    assert_eq!(rig.code(A, &[0x12, 0, 1, 0, 96, 0], &[]), 0x2400);
    assert_eq!(rig.code(A, &[0x12, 2, 0, 0, 96, 0], &[]), 0x2400);
    assert_eq!(rig.code(A, &[0x12, 1, 0x81, 0, 96, 0], &[]), 0x2400);
}

#[test]
fn vital_product_data() {
    let mut rig = Rig::new();
    let pages = rig.data(A, &[0x12, 1, 0, 0, 255, 0]);
    assert_eq!(pages, [0, 0, 0, 10, 0x00, 0x80, 0x83, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2]);
    for page in &pages[4..] {
        let bytes = rig.data(A, &[0x12, 1, *page, 0xff, 0xff, 0]);
        assert_eq!(bytes[1], *page);
        assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len() - 4);
    }
    assert_eq!(rig.data(A, &[0x12, 1, 0x80, 0, 255, 0]), b"\x00\x80\x00\x0a0123456789");
    // SIMPSUP and V_SUP; not HEADSUP and ORDSUP.
    assert_eq!(rig.data(A, &[0x12, 1, 0x86, 0, 8, 0]), [0, 0x86, 0, 0x3c, 0, 0x01, 0x01, 0]);
    assert_eq!(rig.data(A, &[0x12, 1, 0xb2, 0, 255, 0]), [0, 0xb2, 0, 4, 0, 0xe4, 0x02, 0]);
    assert_eq!(rig.data(A, &[0x12, 1, 0xb1, 0, 6, 0]), [0, 0xb1, 0, 0x3c, 0, 1]);
    let limits = rig.data(A, &[0x12, 1, 0xb0, 0, 255, 0]);
    assert_eq!(limits.len(), 64);
    assert_eq!(limits[6..8], [0, 8]); // the physical block of 4096 bytes
    assert_eq!(limits[28..36], [0, 0, 0, 8, 0x80, 0, 0, 0]);
}

#[test]
fn device_identification() {
    let mut rig = Rig::new();
    let bytes = rig.data(A2, &[0x12, 1, 0x83, 1, 0, 0]);
    let mut expected = vec![0x01, 0x03, 0, 16];
    expected.extend_from_slice(&[0x62; 16]);
    expected.extend_from_slice(&[0x01, 0x02, 0, 8]);
    expected.extend_from_slice(&[0xe0; 8]);
    expected.extend_from_slice(b"\x02\x01\x00\x22URSA    VOLUME          0123456789");
    expected.extend_from_slice(&[0x51, 0x94, 0, 4, 0, 0, 0, 2]); // relative target port 2
    expected.extend_from_slice(&[0x51, 0x95, 0, 4, 0, 0, 0, 1]); // target port group 1
    expected.extend_from_slice(b"\x53\x98\x00\x24iqn.2025-01.example:disk,t,0x0002\0\0\0");
    expected.extend_from_slice(b"\x53\xa8\x00\x1ciqn.2025-01.example:disk\0\0\0\0");
    assert_eq!(bytes[4..], expected);
}

/// As where a node cannot read what the cluster's record says about another one.
#[test]
fn a_port_whose_portal_group_is_not_known_has_no_name() {
    let mut rig = Rig::new();
    let mut config = config();
    config.port_groups[0].ports[1].portal_group = None;
    rig.unit.reconfigure(config);
    let ports = rig.data(A, &[0x12, 1, 0x88, 0, 255, 0]);
    let mut expected = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40];
    expected.extend_from_slice(b"\x53\x98\x00\x24iqn.2025-01.example:disk,t,0x0001\0\0\0");
    expected.extend_from_slice(&[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ports[4..], expected);
    let identification = rig.data(A2, &[0x12, 1, 0x83, 1, 0, 0]);
    assert!(!identification.windows(2).any(|bytes| bytes == b",t"), "{identification:?}");
}

#[test]
fn mode_sense() {
    let mut rig = Rig::new();
    let caching = rig.data(A, &[0x1a, 0, 0x08, 0, 255, 0]);
    assert_eq!(caching[..15], [31, 0, 0x10, 8, 0x00, 0x02, 0, 0, 0, 0, 2, 0, 0x88, 0x12, 0x04]);
    // Changeable: only WCE.
    assert_eq!(rig.data(A, &[0x1a, 8, 0x48, 0, 255, 0])[4..8], [0x88, 0x12, 0x04, 0]);
    let control = rig.data(A, &[0x1a, 8, 0x0a, 0, 255, 0]);
    assert_eq!(control, [15, 0, 0x10, 0, 0x8a, 0x0a, 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0]);
    let mask = rig.data(A, &[0x1a, 8, 0x4a, 0, 255, 0]);
    assert_eq!(mask[4..], [0x8a, 0x0a, 0x04, 0, 0x08, 0, 0, 0, 0, 0, 0, 0]);
    // All pages: 12 + 16 + 20 + 12 + 12 bytes; with subpages 32 more.
    assert_eq!(rig.data(A, &[0x1a, 8, 0x3f, 0, 255, 0]).len(), 4 + 72);
    assert_eq!(rig.data(A, &[0x1a, 8, 0x3f, 0xff, 255, 0]).len(), 4 + 72 + 32);
    let long = rig.data(A, &[0x5a, 0x10, 0x0a, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(long[..8], [0, 34, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(long[8..24], [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(rig.data(A, &[0x1a, 8, 0x0a, 0, 4, 0]).len(), 4);
    assert_eq!(rig.code(A, &[0x1a, 8, 0x33, 0, 255, 0], &[]), 0x2400);
    assert_eq!(rig.code(A, &[0x1a, 8, 0x0a, 7, 255, 0], &[]), 0x2400);
}

/// A unit whose space is its own reports neither thresholds nor counts.
#[test]
fn only_thin_units_have_thresholds() {
    let mut rig = Rig::with(thin(), LuState::default());
    // Sets of 2^16 blocks (32 MiB); 4.0 %: a threshold of 20 % extends from 18 % to 22 %.
    assert_eq!(rig.data(A, &[0x12, 1, 0xb2, 0, 255, 0]), [0, 0xb2, 0, 4, 16, 0xe4, 0x02, 40]);
    // Read-Write Error Recovery: LBPERE.
    assert_eq!(rig.data(A, &[0x1a, 8, 0x01, 0, 255, 0])[4..], [0x01, 10, 0xc0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0]);
    #[rustfmt::skip]
    assert_eq!(rig.data(A, &[0x1a, 8, 0x1c, 2, 255, 0])[4..], [
        0x5c, 0x02, 0, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0x88, 0x03, 0, 0, 0, 0, 0, 20, // enabled, a percentage, decreasing; of the available space; 20 %
        0x88, 0x03, 0, 0, 0, 0, 0, 10,
        0x88, 0x03, 0, 0, 0, 0, 0, 5,
    ]);
    // None of it can be changed.
    assert_eq!(rig.data(A, &[0x1a, 8, 0x41, 0, 255, 0])[6..], [0; 10]);
    assert_eq!(rig.data(A, &[0x1a, 8, 0x5c, 2, 255, 0])[8..], [0; 36]);
    assert_eq!(rig.data(A, &[0x1a, 8, 0x3f, 0xff, 255, 0]).len(), 4 + 72 + 32 + 40);
    let mut list = rig.data(A, &[0x1a, 8, 0x1c, 2, 255, 0]);
    (list[0], list[2]) = (0, 0);
    assert_eq!(rig.status(A, &[0x15, 0x10, 0, 0, 44, 0], &list), Status::Good);
    list[4 + 16] = 0x08; // ENABLED 0
    assert_eq!(rig.code(A, &[0x15, 0x10, 0, 0, 44, 0], &list), 0x2600);
    let blocks_4096 = LuConfig { block_size: BlockSize::B4096, ..thin() };
    assert_eq!(Rig::with(blocks_4096, LuState::default()).data(A, &[0x12, 1, 0xb2, 0, 255, 0])[4], 13);
    let mut thick = Rig::new();
    assert_eq!(thick.data(A, &[0x1a, 8, 0x01, 0, 255, 0])[11], 0);
    assert_eq!(thick.code(A, &[0x1a, 8, 0x1c, 2, 255, 0], &[]), 0x2400);
}

#[test]
fn log_pages() {
    let mut rig = Rig::with(thin(), LuState::default());
    let sense = |page: u8, first: u8, allocation: u8| [0x4d, 0, page, 0, 0, 0, first, 0, allocation, 0];
    assert_eq!(rig.data(A, &sense(0x00, 0, 255)), [0x00, 0, 0, 2, 0x00, 0x0c]);
    #[rustfmt::skip]
    let all: [u8; 40] = [
        0x8c, 0, 0, 36, // DS
        0, 1, 0x23, 8, 0, 0, 0, 2, 0x02, 0, 0, 0, // available: two sets; shared
        0, 2, 0x23, 8, 0, 0, 0, 2, 0x01, 0, 0, 0, // used: two sets; this unit's
        0, 3, 0x23, 8, 0, 74, 0, 0, 0x02, 0, 0, 0, // available, in percent
    ];
    // PC is ignored.
    for page in [0x0c, 0x4c, 0x8c, 0xcc] {
        assert_eq!(rig.data(A, &sense(page, 0, 255)), all);
    }
    assert_eq!(rig.data(A, &sense(0x4c, 1, 255)), all);
    let last = rig.data(A, &sense(0x4c, 3, 255));
    assert_eq!((&last[..4], &last[4..]), (&[0x8c, 0, 0, 12][..], &all[28..]));
    assert_eq!(rig.data(A, &sense(0x4c, 0, 20)), all[..20]);
    assert_eq!(rig.data(A, &sense(0x4c, 0, 0)), []);
    let field = |rig: &mut Rig, cdb: &[u8]| {
        let sense = rig.run(A, cdb, &[]).sense.unwrap();
        assert_eq!((sense.key, sense.code), (SenseKey::IllegalRequest, 0x2400));
        sense.encode()[17]
    };
    assert_eq!(field(&mut rig, &sense(0x4c, 4, 255)), 5); // PARAMETER POINTER
    assert_eq!(field(&mut rig, &sense(0x4d, 0, 255)), 2);
    assert_eq!(field(&mut rig, &[0x4d, 0x01, 0x4c, 0, 0, 0, 0, 0, 255, 0]), 1); // SP
    assert_eq!(field(&mut rig, &[0x4d, 0, 0x40, 0xff, 0, 0, 0, 0, 255, 0]), 3); // subpages
    let mut thick = Rig::new();
    assert_eq!(thick.data(A, &sense(0x00, 0, 255)), [0x00, 0, 0, 1, 0x00]);
    assert_eq!(field(&mut thick, &sense(0x4c, 0, 255)), 2);
}

#[test]
fn mode_select_is_visible_to_all() {
    let mut rig = Rig::new();
    let list = [0, 0, 0, 0, 0x8a, 0x0a, 0x06, 0x10, 0x08, 0x40, 0, 0, 0xff, 0xff, 0, 0];
    let outcome = rig.run(A, &[0x15, 0x10, 0, 0, 16, 0], &list);
    assert_eq!((outcome.status, outcome.transfer), (Status::Good, 16));
    assert!(rig.unit.state().write_protected());
    assert_eq!(rig.news(A), []);
    assert_eq!(rig.news(B), [0x2a01]);
    // WP is set, and D_SENSE takes effect at once.
    assert_eq!(rig.data(A, &[0x1a, 8, 0x0a, 0, 255, 0])[2], 0x90);
    let outcome = rig.run(A, &[0xff], &[]);
    assert_eq!(outcome.sense.unwrap().encode()[0], 0x72);
    // Nothing was saved: a reset restores it.
    assert_eq!(rig.unit.state().to_durable(), []);
    let reset = rig.unit.reset(Reset::LogicalUnit, nexus(B));
    rig.carry_out(&reset);
    assert!(!rig.unit.state().write_protected());
    assert_eq!(rig.news(A), [0x2903]);
    assert_eq!(rig.news(B), [0x2903]);
}

#[test]
fn saved_parameters_survive() {
    let mut rig = Rig::new();
    let mut list = vec![0, 0, 0, 0, 0x08, 0x12];
    list.resize(24, 0);
    let request = Request {
        nexus: A,
        cdb: Cdb([0x15, 0x11, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        data_out: Chain::copy_of(&list),
    };
    let Step::Change(change) = rig.unit.start(request) else { panic!() };
    let decision = rig.unit.decide(&change);
    assert!(decision.flush && decision.durable, "what was cached is flushed when the cache is turned off");
    let state = LuState::from_durable(&decision.state.unwrap().to_durable()).unwrap();
    assert!(!state.write_cache());
    assert_eq!(Rig::with(config(), state).data(A, &[0x1a, 8, 0x08, 0, 255, 0])[6], 0);
}

#[test]
fn wrong_mode_parameters() {
    let mut rig = Rig::new();
    let good = [0, 0, 0, 0, 0x8a, 0x0a, 0x02, 0x10, 0x00, 0x40, 0, 0, 0xff, 0xff, 0, 0];
    let with = |at: usize, value: u8| {
        let mut list = good;
        list[at] = value;
        list
    };
    let select = [0x15, 0x10, 0, 0, 16, 0];
    for (list, field) in [
        (with(4, 0x09), 4),   // no such page
        (with(5, 0x0b), 5),   // too long
        (with(6, 0x22), 6),   // TST cannot be changed
        (with(13, 0xfe), 13), // nor can BUSY TIMEOUT PERIOD
        (with(3, 1), 3),      // a block descriptor has eight bytes
    ] {
        let sense = rig.run(A, &select, &list).sense.unwrap();
        assert_eq!(sense.code, 0x2600);
        assert_eq!(sense.encode()[16..18], [0, field]);
    }
    assert_eq!(rig.code(A, &[0x15, 0x10, 0, 0, 15, 0], &good), 0x1a00);
    assert_eq!(rig.code(A, &[0x15, 0x10, 0, 0, 3, 0], &good), 0x1a00);
    assert_eq!(rig.code(A, &select, &good[..8]), 0x0e03);
    assert_eq!(rig.code(A, &[0x15, 0x00, 0, 0, 16, 0], &good), 0x2400);
    // A block descriptor with another block size.
    let mut list = vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 16, 0];
    list.extend_from_slice(&good[4..]);
    assert_eq!(rig.code(A, &[0x15, 0x10, 0, 0, 24, 0], &list), 0x2600);
    list[10] = 2;
    assert_eq!(rig.status(A, &[0x15, 0x10, 0, 0, 24, 0], &list), Status::Good);
    assert_eq!(rig.status(A, &[0x15, 0x10, 0, 0, 0, 0], &[]), Status::Good);
}

#[test]
fn a_stopped_unit_is_not_ready() {
    let mut rig = Rig::new();
    assert_eq!(rig.status(A, &[0x1b, 0, 0, 0, 0, 0], &[]), Status::Good);
    assert_eq!(rig.code(B, &TEST_UNIT_READY, &[]), 0x0402);
    rig.data(B, &[0x12, 0, 0, 0, 96, 0]);
    assert_eq!(rig.data(B, &[0x03, 0, 0, 0, 18, 0])[12..14], [0x04, 0x02]);
    assert_eq!(rig.status(B, &[0x1b, 0, 0, 0, 1, 0], &[]), Status::Good);
    assert_eq!(rig.status(A, &TEST_UNIT_READY, &[]), Status::Good);
    assert_eq!(rig.code(A, &[0x1b, 0, 0, 0, 0x30, 0], &[]), 0x2400);
    assert_eq!(rig.code(A, &[0x1b, 0, 0, 0, 0x02, 0], &[]), 0x2400);
}

#[test]
fn a_new_size_is_reported() {
    let mut rig = Rig::new();
    rig.unit.reconfigure(config());
    assert_eq!(rig.news(A), []);
    rig.unit.reconfigure(crate::scsi::LuConfig { blocks: BlockCount(0x40000), ..config() });
    assert_eq!(rig.code(A, &TEST_UNIT_READY, &[]), 0x2a09);
    assert_eq!(rig.status(A, &TEST_UNIT_READY, &[]), Status::Good);
}

/// A copy gets the response that a READ or WRITE by its initiator would get.
#[test]
fn a_copy_is_refused_as_its_initiator_would_be() {
    const START: [u8; 6] = [0x1b, 0, 0, 0, 1, 0];
    const STOP: [u8; 6] = [0x1b, 0, 0, 0, 0, 0];
    let check = |key, code| Err(Refusal::Check(Sense::new(key, code)));
    let mut rig = Rig::new();
    let may = |rig: &Rig| (rig.unit.may_copy_from(&nexus(A)), rig.unit.may_copy_to(&nexus(A)));
    assert_eq!(may(&rig), (Ok(()), Ok(())));
    // Stopped.
    rig.status(B, &STOP, &[]);
    let not_ready = check(SenseKey::NotReady, 0x0402);
    assert_eq!(may(&rig), (not_ready, not_ready));
    rig.status(B, &START, &[]);
    // SWP of the control mode page.
    let mut list = rig.data(B, &[0x1a, 0x08, 0x0a, 0, 255, 0]);
    (list[0], list[2], list[4]) = (0, 0, list[4] & 0x3f);
    list[8] |= 0x08;
    assert_eq!(rig.status(B, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list), Status::Good);
    assert_eq!(may(&rig), (Ok(()), check(SenseKey::DataProtect, 0x2702)));
    // Reservations come first, as for every command.
    rig.status(B, &[0x16, 0, 0, 0, 0, 0], &[]);
    assert_eq!(may(&rig), (Err(Refusal::Conflict), Err(Refusal::Conflict)));
    rig.status(B, &[0x17, 0, 0, 0, 0, 0], &[]);
    list[8] &= !0x08;
    rig.status(B, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list);
    assert_eq!(may(&rig), (Ok(()), Ok(())));
    // Configured read-only.
    rig.unit.reconfigure(LuConfig { read_only: true, ..config() });
    assert_eq!(may(&rig), (Ok(()), check(SenseKey::DataProtect, 0x2700)));
    // A port whose group is in standby.
    let mut standby = config();
    standby.port_groups[0].state = crate::scsi::AccessState::Standby;
    rig.unit.reconfigure(standby);
    let standby = check(SenseKey::NotReady, 0x040b);
    assert_eq!(may(&rig), (standby, standby));
}

#[test]
fn a_group_in_standby_is_not_ready() {
    let mut rig = Rig::new();
    let mut config = config();
    config.port_groups[0].state = crate::scsi::AccessState::Standby;
    rig.unit.reconfigure(config);
    assert_eq!(rig.code(A, &TEST_UNIT_READY, &[]), 0x2a06);
    assert_eq!(rig.code(A, &TEST_UNIT_READY, &[]), 0x040b);
    assert_eq!(rig.data(A, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0])[4], 0x02);
}

/// SPC-4 5.15.2.4: the commands that are executed through a port in each access state, and the response to
/// all others.
#[test]
fn each_access_state_admits_what_it_should() {
    use crate::scsi::AccessState::{
        ActiveNonOptimized, ActiveOptimized, Offline, Standby, Transitioning, Unavailable,
    };
    let always: [&[u8]; 5] = [
        &[0x12, 0, 0, 0, 96, 0],                     // INQUIRY
        &[0x12, 1, 0x83, 0, 255, 0],                 // INQUIRY
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],    // REPORT LUNS
        &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], // REPORT TARGET PORT GROUPS
        &[0x03, 0, 0, 0, 18, 0],                     // REQUEST SENSE
    ];
    let in_standby: [&[u8]; 8] = [
        &[0x1a, 0, 0x3f, 0, 255, 0],                              // MODE SENSE (6)
        &[0x5e, 0, 0, 0, 0, 0, 0, 1, 0, 0],                       // PERSISTENT RESERVE IN, READ KEYS
        &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0],                      // PERSISTENT RESERVE OUT, REGISTER
        &[0x1d, 4, 0, 0, 0, 0],                                   // SEND DIAGNOSTIC
        &[0x4d, 0, 0, 0, 0, 0, 0, 0, 255, 0],                     // LOG SENSE
        &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],                       // READ CAPACITY (10)
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], // READ CAPACITY (16)
        &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],              // REPORT SUPPORTED OPERATION CODES
    ];
    let if_active: [&[u8]; 8] = [
        &[0x00, 0, 0, 0, 0, 0],                                   // TEST UNIT READY
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0],                       // READ (10)
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 0, 0],                       // WRITE (10)
        &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0],                       // SYNCHRONIZE CACHE (10)
        &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], // GET LBA STATUS
        &[0x1b, 0, 0, 0, 1, 0],                                   // START STOP UNIT
        &[0x16, 0, 0, 0, 0, 0],                                   // RESERVE (6)
        &[0x17, 0, 0, 0, 0, 0],                                   // RELEASE (6)
    ];
    for (state, standby, active) in [
        (ActiveOptimized, None, None),
        (ActiveNonOptimized, None, None),
        (Standby, None, Some(0x040b)),
        (Unavailable, Some(0x040c), Some(0x040c)),
        (Offline, Some(0x040c), Some(0x040c)),
        (Transitioning, Some(0x040a), Some(0x040a)),
    ] {
        let mut rig = Rig::new();
        let mut config = config();
        config.port_groups[0].state = state;
        rig.unit.reconfigure(config);
        // Reported once to each nexus.
        if state != ActiveOptimized {
            assert_eq!([A, B, A2].map(|nexus| rig.news(nexus)), [vec![0x2a06], vec![0x2a06], vec![0x2a06]]);
        }
        let expected = always.iter().map(|cdb| (cdb, None));
        let expected = expected.chain(in_standby.iter().map(|cdb| (cdb, standby)));
        let expected = expected.chain(if_active.iter().map(|cdb| (cdb, active)));
        for (cdb, code) in expected {
            let data: &[u8] = if cdb[0] == 0x5f { &[0; 24] } else { &[] };
            let outcome = rig.run(A, cdb, data);
            let found = outcome.sense.map(|sense| (sense.key, sense.code));
            assert_eq!(found, code.map(|code| (SenseKey::NotReady, code)), "{state:?}: {cdb:02x?}");
        }
        // REQUEST SENSE reports it as data: NOT READY, and the code.
        let sense = rig.data(A, &[0x03, 0, 0, 0, 18, 0]);
        let [high, low] = active.unwrap_or(0).to_be_bytes();
        assert_eq!((sense[2], sense[12], sense[13]), (if active.is_some() { 0x02 } else { 0 }, high, low));
    }
}

/// A node that is cut off knows reservations only as they were, so it reports no conflict.
#[test]
fn no_conflict_is_reported_through_an_unavailable_port() {
    let mut rig = Rig::new();
    let register = [[0; 8], [0, 0, 0, 0, 0, 0, 0, 7], [0; 8]].concat();
    let reserve = [[0, 0, 0, 0, 0, 0, 0, 7], [0; 8], [0; 8]].concat();
    assert_eq!(rig.status(B, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &register), Status::Good);
    assert_eq!(rig.status(B, &[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0], &reserve), Status::Good);
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(rig.status(A, &write, &[0; 512]), Status::ReservationConflict);
    assert_eq!(rig.status(A2, &write, &[0; 512]), Status::ReservationConflict);
    let mut two = config();
    let moved = two.port_groups[0].ports.remove(1);
    let state = crate::scsi::AccessState::Unavailable;
    two.port_groups.push(crate::scsi::PortGroup { id: 2, state, preferred: false, ports: vec![moved] });
    rig.unit.reconfigure(two);
    assert_eq!(rig.code(A2, &write, &[0; 512]), 0x2a06);
    assert_eq!(rig.code(A2, &write, &[0; 512]), 0x040c);
    assert_eq!(rig.unit.may_copy_to(&nexus(A2)), Err(Refusal::Check(Sense::new(SenseKey::NotReady, 0x040c))));
    assert_eq!(rig.status(A, &write, &[0; 512]), Status::ReservationConflict);
}

/// A session whose target was just unmapped from the unit may still send a command: it gains no access.
#[test]
fn a_port_that_is_in_no_group_is_as_the_unit_says() {
    let mut rig = Rig::new();
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    rig.unit.reconfigure(LuConfig { port_groups: Vec::new(), ..config() });
    assert_eq!(rig.status(A, &read, &[]), Status::Good);
    let unlisted = crate::scsi::AccessState::Unavailable;
    rig.unit.reconfigure(LuConfig { port_groups: Vec::new(), unlisted, ..config() });
    assert_eq!(rig.code(A, &read, &[]), 0x040c);
    assert_eq!(rig.news(B), []);
}

/// Adding or removing a port does not change the state of the remaining ports.
#[test]
fn another_port_causes_no_unit_attention() {
    let mut rig = Rig::new();
    let mut fewer = config();
    fewer.port_groups[0].ports.remove(1);
    rig.unit.reconfigure(fewer);
    assert_eq!((rig.news(A), rig.news(B)), (vec![], vec![]));
    rig.unit.reconfigure(config());
    assert_eq!((rig.news(A), rig.news(A2)), (vec![], vec![]));
    // Nor does a new group, unless the nexus' own port has moved to it.
    let mut two = config();
    let moved = two.port_groups[0].ports.remove(1);
    let state = crate::scsi::AccessState::ActiveNonOptimized;
    two.port_groups.push(crate::scsi::PortGroup { id: 2, state, preferred: false, ports: vec![moved] });
    rig.unit.reconfigure(two.clone());
    assert_eq!((rig.news(A), rig.news(A2)), (vec![], vec![0x2a06]));
    // The report contains the states of all groups, so every nexus is notified.
    two.port_groups[1].state = crate::scsi::AccessState::ActiveOptimized;
    rig.unit.reconfigure(two.clone());
    assert_eq!((rig.news(A), rig.news(A2)), (vec![0x2a06], vec![0x2a06]));
    two.port_groups[1].preferred = true;
    rig.unit.reconfigure(two);
    assert_eq!((rig.news(A), rig.news(A2)), (vec![0x2a06], vec![0x2a06]));
}

#[test]
fn report_luns_shows_new_units() {
    let mut rig = Rig::new();
    rig.unit.attention(A, UnitAttention::ReportedLunsChanged);
    let luns = rig.data(A, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(luns[..8], [0, 0, 0, 16, 0, 0, 0, 0]);
    assert_eq!(luns[16..], [0, 5, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rig.news(A), []);
    assert_eq!(rig.data(A, &[0xa0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0]), [0; 8]);
    assert_eq!(rig.code(A, &[0xa0, 0, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0], &[]), 0x2400);
}

#[test]
fn report_target_port_groups() {
    let mut rig = Rig::new();
    let group = [0x00, 0xcf, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    let short = rig.data(A, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!((&short[..4], &short[4..]), (&[0, 0, 0, 16][..], &group[..]));
    let long = rig.data(A, &[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!((&long[..8], &long[8..]), (&[0, 0, 0, 20, 0x10, 0, 0, 0][..], &group[..]));
    assert_eq!(rig.data(A, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0]), [0, 0, 0, 16]);
}

/// SPC-4, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: at least four bytes must be allocated.
#[test]
fn report_supported_task_management_functions() {
    let mut rig = Rig::new();
    let report = |repd: u8, allocation: u8| [0xa3, 0x0d, repd, 0, 0, 0, 0, 0, 0, allocation, 0, 0];
    for allocation in 0..4 {
        assert_eq!(rig.code(A, &report(0, allocation), &[]), 0x2400);
        assert_eq!(rig.code(A, &report(0x80, allocation), &[]), 0x2400);
    }
    assert_eq!(rig.data(A, &report(0, 4)), [0xda, 0, 0, 0]);
    assert_eq!(rig.data(A, &report(0x80, 4)), [0xda, 0, 0, 0x0c]);
    assert_eq!(rig.data(A, &report(0x80, 16)).len(), 16);
}

/// What iscsi-test-cu checks in REPORT SUPPORTED OPERATION CODES.
#[test]
fn report_supported_operation_codes() {
    let mut rig = Rig::new();
    let report = |options: u8, opcode: u8, action: u8| {
        [0xa3, 0x0c, options, opcode, 0, action, 0, 0, 0xff, 0xff, 0, 0]
    };
    let all = rig.data(A, &report(0, 0, 0));
    assert_eq!(u32::from_be_bytes([all[0], all[1], all[2], all[3]]) as usize, all.len() - 4);
    assert_eq!(rig.data(A, &report(0x80, 0, 0)).len() - 4, (all.len() - 4) / 8 * 20);
    for descriptor in all[4..].chunks(8) {
        let [opcode, _, _, action, _, flags, _, len] = descriptor.try_into().unwrap();
        let has_action = flags & 1 != 0;
        assert!(has_action || action == 0);
        let (good, bad) = if has_action { (2, 1) } else { (1, 2) };
        assert_eq!(rig.code(A, &report(bad, opcode, action), &[]), 0x2400);
        for options in [good, 3] {
            let one = rig.data(A, &report(options, opcode, action));
            assert_eq!(one[..4], [0, 3, 0, len]);
            assert_eq!(one[4], opcode);
            assert_eq!(one.len(), 4 + usize::from(len));
            assert!(!has_action || one[5] & 0x1f == action);
        }
        let one = rig.data(A, &report(0x80 | good, opcode, action));
        assert_eq!((one[1], one.len()), (0x83, 4 + usize::from(len) + 12));
    }
    assert_eq!(rig.data(A, &report(1, 0xff, 0)), [0, 1, 0, 0]);
    assert_eq!(rig.data(A, &report(2, 0x5e, 0x1f)), [0, 1, 0, 0]);
    assert_eq!(rig.data(A, &report(3, 0x00, 1)), [0, 1, 0, 0]);
}

/// Group numbers, IMMED, and all of CONTROL except NACA: usage data does not include fields that are not
/// evaluated.
#[test]
fn usage_data_claims_the_evaluated_bits() {
    const LBA: [u8; 4] = [0xff; 4];
    let mut rig = Rig::new();
    let mut usage = |opcode: u8| {
        let report = [0xa3, 0x0c, 1, opcode, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
        rig.data(A, &report)[4..].to_vec()
    };
    let of = |parts: &[&[u8]]| parts.concat();
    assert_eq!(usage(0x00), [0, 0, 0, 0, 0, 0x04]);
    assert_eq!(usage(0x1b), [0x1b, 0, 0, 0, 0xf7, 0x04]);
    assert_eq!(usage(0x1d), [0x1d, 0xe0, 0, 0xff, 0xff, 0x04]);
    assert_eq!(usage(0x28), of(&[&[0x28, 0x18], &LBA, &[0, 0xff, 0xff, 0x04]]));
    assert_eq!(usage(0x34), of(&[&[0x34, 0], &LBA, &[0, 0xff, 0xff, 0x04]]));
    assert_eq!(usage(0x35), of(&[&[0x35, 0], &LBA, &[0, 0xff, 0xff, 0x04]]));
    assert_eq!(usage(0x4d), [0x4d, 0x01, 0x3f, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0x04]);
    assert_eq!(usage(0x42), [0x42, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x04]);
    assert_eq!(usage(0x91), of(&[&[0x91, 0], &LBA, &LBA, &LBA, &[0, 0x04]]));
    assert_eq!(usage(0xaa), of(&[&[0xaa, 0x18], &LBA, &LBA, &[0, 0x04]]));
}

#[test]
fn the_table_is_in_order() {
    let mut seen = std::collections::BTreeSet::new();
    let mut last = None;
    for row in &operations::OPERATIONS {
        assert!(!row.name.is_empty());
        assert_eq!(row.usage[0], row.opcode, "{}", row.name);
        assert!(matches!(row.usage.len(), 6 | 10 | 12 | 16), "{}", row.name);
        if let Some(action) = row.service_action {
            assert_eq!(row.usage[1] & 0x1f, action, "{}", row.name);
        }
        assert!(seen.insert((row.opcode, row.service_action)), "{} is there twice", row.name);
        let together = last == Some(row.opcode)
            || !seen
                .range((row.opcode, None)..)
                .any(|(opcode, action)| *opcode == row.opcode && *action != row.service_action);
        assert!(together, "the rows of {:02x}h stand together", row.opcode);
        last = Some(row.opcode);
    }
}

/// Every input gets a response: every operation code and service action, with random fields and data.
#[test]
fn nothing_panics() {
    let mut rng = Rng::new(1);
    let mut rig = Rig::new();
    for round in 0..200u32 {
        for opcode in 0..=255u8 {
            let mut cdb = [0; 16];
            rng.fill(&mut cdb);
            cdb[0] = opcode;
            if !rng.one_in(4) {
                cdb[1] &= 0x1f;
            }
            // Small numbers get further than random ones.
            for at in [2, 3, 5, 6, 7, 10, 11, 12] {
                if !rng.one_in(4) {
                    cdb[at] = 0;
                }
            }
            let known = operations::with_opcode(opcode);
            if let Some(row) = known.get(rng.below(known.len().max(1) as u64) as usize)
                && !rng.one_in(8)
            {
                for (byte, mask) in cdb.iter_mut().zip(row.usage).skip(1) {
                    *byte &= mask;
                }
                if let Some(action) = row.service_action {
                    cdb[1] = cdb[1] & !0x1f | action;
                }
                cdb[row.usage.len() - 1] = 0;
            }
            let mut data = vec![0; rng.below(64) as usize];
            rng.fill(&mut data);
            if rng.one_in(2) {
                let pages = [0x81, 0x82, 0x88, 0x8a, 0x4a, 0x9c, 0x00];
                data.iter_mut().step_by(4).for_each(|byte| *byte = pages[rng.below(7) as usize]);
            }
            let nexus = [A, B, A2][rng.below(3) as usize];
            let outcome: Outcome = rig.run(nexus, &cdb, &data);
            assert_eq!(outcome.sense.is_some(), outcome.status == Status::CheckCondition);
            if let Some(sense) = outcome.sense {
                assert!(sense.encode().len() <= 252);
            }
        }
        if round % 10 == 0 {
            let reset = rig.unit.reset(Reset::Target, nexus(A));
            rig.carry_out(&reset);
        }
    }
}
