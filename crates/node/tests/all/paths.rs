//! Volumes of several nodes: a target port group for each, and which commands each node executes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Chain, Lba};
use initiator::multipath::What;
use initiator::{Lun, Multipath, MultipathOptions, Search, Session, Transfer, discover};
use node::control::{ControlError, MapSpec, TargetSpec};
use node::{Config, NodeNumber, NodePortals, Paths, VolumeId, Way};
use proto::scsi::AccessState::{self, ActiveNonOptimized, ActiveOptimized, Transitioning, Unavailable};
use proto::scsi::Cdb;
use rt::CoreId;
use rt::sim::NodeId;

use crate::rig::{Rig, Shape, TARGET, Twin, log_in, named};
use crate::seeds::each_seed;

const LUN: u16 = 0;

/// Two nodes of one volume.
struct Pair {
    rig: Rig,
    twin: Twin,
    volume: VolumeId,
}

const FIRST: u64 = 2;
const SECOND: u64 = 7;

fn number(number: u64) -> NodeNumber {
    NodeNumber::new(number).unwrap()
}

/// The paths to a volume of two nodes.
fn paths(own: AccessState, other: u64, state: AccessState) -> Paths {
    Paths { own: Way::new(own), others: BTreeMap::from([(number(other), Way::new(state))]) }
}

fn member(seed: u64) -> Rig {
    let config = Config { node_number: number(FIRST), ..Config::default() };
    Rig::with_config(seed, 2, config)
}

fn volume_of(rig: &Rig, name: &'static str) -> VolumeId {
    rig.control(move |control| async move { control.volume(name).unwrap().info.id })
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let rig = member(seed);
        rig.add(Shape::thick());
        let volume = volume_of(&rig, "thick");
        let twin = rig.add_twin(SECOND);
        Pair { rig, twin, volume }
    }

    fn say(&self, server: NodeId, paths: Paths) {
        let volume = self.volume;
        self.rig.control_on(server, move |control| async move { control.set_paths(volume, paths).await });
    }

    /// Sets the states that both nodes report.
    fn say_both(&self, first: AccessState, second: AccessState) {
        self.say(self.rig.server, paths(first, SECOND, second));
        self.say(self.twin.server, paths(second, FIRST, first));
    }

    /// Runs a client that knows both portals.
    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        client: NodeId,
        function: impl FnOnce(SocketAddr, SocketAddr) -> F + 'static,
    ) -> T {
        let (first, second) = (self.rig.portal, self.twin.portal);
        self.rig.world.block_on(client, CoreId(0), move || function(first, second))
    }
}

/// The data that a command returns.
async fn data(session: &Session, cdb: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 16];
    bytes[..cdb.len()].copy_from_slice(cdb);
    let result = session.command(Lun(LUN), Cdb(bytes), Transfer::In(255)).await.unwrap();
    result.data.unwrap().to_vec()
}

async fn report_target_port_groups(session: &Session) -> Vec<u8> {
    data(session, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]).await
}

/// The designators of VPD 83h for ports and the target, which follow those of the unit.
async fn port_designators(session: &Session) -> Vec<u8> {
    let page = data(session, &[0x12, 1, 0x83, 0, 255, 0]).await;
    let mut at = 4;
    while page[at + 1] & 0x30 == 0 {
        at += 4 + usize::from(page[at + 3]);
    }
    page[at..].to_vec()
}

/// Sense key and code in the response to TEST UNIT READY.
async fn ready(session: &Session) -> Result<(), (u8, u16)> {
    let tested = session.command(Lun(LUN), Cdb([0; 16]), Transfer::None).await;
    tested.map(drop).map_err(|error| error.sense().unwrap())
}

async fn addresses(portal: SocketAddr) -> Vec<String> {
    let targets = discover(portal, &named("looking")).await.unwrap();
    assert_eq!(targets.len(), 1);
    targets[0].addresses.clone()
}

#[test]
fn a_node_alone_is_the_first_group() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    let group = rig.control(|control| async move { control.portal_group() });
    rig.client("client").run(move |portal| async move {
        assert_eq!(addresses(portal).await, [format!("{portal},{group}")]);
        let session = log_in(portal, "client", LUN).await;
        assert_eq!(session.portal_group(), Some(group));
        let expected = [0, 0, 0, 12, 0x00, 0xcf, 0, 1, 0, 0, 0, 1, 0, 0, 1, 1];
        assert_eq!(report_target_port_groups(&session).await, expected);
        let mut expected = vec![0x51, 0x94, 0, 4, 0, 0, 1, 1, 0x51, 0x95, 0, 4, 0, 0, 0, 1];
        expected.extend(port_name(group));
        expected.extend_from_slice(b"\x53\xa8\x00\x1ciqn.2026-01.org.ursa:target\0");
        assert_eq!(port_designators(&session).await, expected);
    });
}

/// The designator of the name of the target's port in a portal group.
fn port_name(group: u16) -> Vec<u8> {
    let mut bytes = vec![0x53, 0x98, 0, 0x28];
    bytes.extend_from_slice(format!("{TARGET},t,0x{group:04x}\0\0\0\0").as_bytes());
    bytes
}

#[test]
fn all_nodes_report_the_same_groups_and_their_own_ports() {
    each_seed(2, |seed| {
        let pair = Pair::new(seed);
        let client = pair.rig.client("client").node;
        let group = |server| pair.rig.control_on(server, |control| async move { control.portal_group() });
        let (first_group, second_group) = (group(pair.rig.server), group(pair.twin.server));
        pair.run(client, move |first, second| async move {
            assert_eq!(addresses(first).await, [format!("{first},{first_group}")]);
            let session = log_in(second, "alone", LUN).await;
            let own = [0, 0, 0, 12, 0x00, 0xcf, 0, 7, 0, 0, 0, 1, 0, 0, 0x07, 0x01];
            assert_eq!(report_target_port_groups(&session).await, own);
        });

        pair.say(pair.rig.server, paths(ActiveOptimized, SECOND, ActiveNonOptimized));
        let preferred = Way { state: ActiveOptimized, preferred: true };
        let others = BTreeMap::from([(number(FIRST), preferred)]);
        pair.say(pair.twin.server, Paths { own: Way::new(ActiveNonOptimized), others });
        for (server, other, portal, group) in [
            (pair.rig.server, SECOND, pair.twin.portal, second_group),
            (pair.twin.server, FIRST, pair.rig.portal, first_group),
        ] {
            // Another node of the cluster that has no copy of the volume is not listed.
            let elsewhere: SocketAddr = "10.99.0.1:3260".parse().unwrap();
            let listens_at = |portal, group| NodePortals { addresses: vec![portal], group };
            let portals = BTreeMap::from([
                (number(other), listens_at(portal, group)),
                (number(200), listens_at(elsewhere, 200)),
            ]);
            pair.rig.control_on(server, |control| async move { control.set_peer_portals(portals).await });
        }
        pair.run(client, move |first, second| async move {
            let (at_first, at_second) =
                (format!("{first},{first_group}"), format!("{second},{second_group}"));
            assert_eq!(addresses(first).await, [at_first.clone(), at_second.clone()]);
            assert_eq!(addresses(second).await, [at_second, at_first]);
            let nodes = [(first, 2, first_group, 0x00), (second, 7, second_group, 0x80)];
            for (portal, node, portal_group, preferred) in nodes {
                let session = log_in(portal, "client", LUN).await;
                assert_eq!(session.portal_group(), Some(portal_group));
                let mut expected = vec![0, 0, 0, 24];
                expected.extend_from_slice(&[preferred, 0xcf, 0, 2, 0, 0, 0, 1, 0, 0, 0x02, 0x01]);
                expected.extend_from_slice(&[0x01, 0xcf, 0, 7, 0, 0, 0, 1, 0, 0, 0x07, 0x01]);
                assert_eq!(report_target_port_groups(&session).await, expected);
                let mut expected = vec![0x51, 0x94, 0, 4, 0, 0, node, 0x01, 0x51, 0x95, 0, 4, 0, 0, 0, node];
                expected.extend(port_name(portal_group));
                expected.extend_from_slice(b"\x53\xa8\x00\x1ciqn.2026-01.org.ursa:target\0");
                assert_eq!(port_designators(&session).await, expected);
                // SCSI ports lists those of both nodes, through either node.
                let ports = data(&session, &[0x12, 1, 0x88, 0, 255, 0]).await;
                assert_eq!(ports[..8], [0, 0x88, 0, 112, 0, 0, 0x02, 0x01]);
                assert_eq!(ports[60..64], [0, 0, 0x07, 0x01]);
                assert_eq!(ports[16..60], port_name(first_group));
                assert_eq!(ports[72..116], port_name(second_group));
            }
        });
    });
}

#[test]
fn each_session_hears_once_of_a_state_that_has_changed() {
    let pair = Pair::new(1);
    let client = pair.rig.client("client").node;
    pair.say_both(ActiveOptimized, ActiveOptimized);
    // Several initiators, on both cores.
    let log_in_all = |portal| async move {
        let mut sessions = Vec::new();
        for name in ["one", "two", "three", "four"] {
            sessions.push(log_in(portal, name, LUN).await);
        }
        sessions
    };
    let sessions = Rc::new(pair.run(client, move |first, _| log_in_all(first)));
    let hear = |expected: Result<(), (u8, u16)>| {
        let sessions = Rc::clone(&sessions);
        pair.run(client, move |_, _| async move {
            for session in &*sessions {
                assert_eq!(ready(session).await, expected);
            }
        });
    };
    hear(Ok(()));
    pair.say_both(ActiveOptimized, ActiveOptimized);
    hear(Ok(()));
    // The other node's state changes, and then this node's own.
    pair.say_both(ActiveOptimized, Unavailable);
    hear(Err((0x06, 0x2a06)));
    hear(Ok(()));
    pair.say_both(Transitioning, Unavailable);
    hear(Err((0x06, 0x2a06)));
    hear(Err((0x02, 0x040a)));
    pair.say_both(Unavailable, ActiveOptimized);
    hear(Err((0x06, 0x2a06)));
    hear(Err((0x02, 0x040c)));
    // A new session gets the attention for its arrival, and no other.
    pair.run(client, |first, _| async move {
        let session = Session::connect(first, TARGET, &named("five")).await.unwrap();
        assert_eq!(ready(&session).await, Err((0x06, 0x2900)));
        assert_eq!(ready(&session).await, Err((0x02, 0x040c)));
        assert_eq!(data(&session, &[0x12, 0, 0, 0, 36, 0]).await[..2], [0, 0]);
        let read = session.read(Lun(LUN), Lba(0), BlockCount(1), BlockSize::B4096).await;
        assert_eq!(read.unwrap_err().sense(), Some((0x02, 0x040c)));
        let groups = report_target_port_groups(&session).await;
        assert_eq!((groups[4], groups[16]), (0x03, 0x00));
    });
    pair.say_both(ActiveNonOptimized, ActiveOptimized);
    hear(Err((0x06, 0x2a06)));
    hear(Ok(()));
}

fn block(byte: u8) -> Chain {
    Chain::copy_of(&vec![byte; 4096])
}

/// What the node at a portal has, whatever states it reports.
async fn first_byte(unit: &Session, lba: u64) -> u8 {
    unit.read(Lun(LUN), Lba(lba), BlockCount(1), BlockSize::B4096).await.unwrap()[0]
}

/// The volume through both nodes.
async fn open(first: SocketAddr, second: SocketAddr) -> Rc<Multipath> {
    let search = Search {
        portals: vec![first, second],
        target: Some(TARGET.into()),
        unit: initiator::multipath::UnitSelector::Lun(Lun(LUN)),
        discover: false,
    };
    Rc::new(Multipath::open(&search, MultipathOptions::default()).await.unwrap())
}

fn in_use(unit: &Multipath) -> Vec<(SocketAddr, bool)> {
    unit.paths().iter().map(|path| (path.name.portal, path.in_use)).collect()
}

/// A host that starts while a node's copy resyncs finds the path through that node, and uses it once it is
/// available.
#[test]
fn a_path_is_found_while_it_is_unavailable() {
    each_seed(2, |seed| {
        let pair = Pair::new(seed);
        let client = pair.rig.client("client").node;
        let (first, second) = (pair.rig.portal, pair.twin.portal);
        pair.say_both(Unavailable, ActiveOptimized);
        let unit = pair.run(client, open);
        pair.rig.world.run_for(Duration::from_secs(1));
        assert_eq!(in_use(&unit), [(first, false), (second, true)]);
        pair.say_both(ActiveOptimized, ActiveOptimized);
        let writer = Rc::clone(&unit);
        pair.run(client, |_, _| async move { writer.write(Lba(0), block(1)).await.unwrap() });
        pair.rig.world.run_for(Duration::from_secs(10));
        assert_eq!(in_use(&unit), [(first, true), (second, true)]);
    });
}

#[test]
fn commands_go_by_another_node_while_one_is_unavailable() {
    each_seed(4, |seed| {
        let pair = Pair::new(seed);
        let client = pair.rig.client("client").node;
        pair.say_both(ActiveOptimized, ActiveNonOptimized);
        let unit = pair.run(client, open);
        let write = |lba: u64, byte: u8| {
            let unit = Rc::clone(&unit);
            pair.run(client, move |_, _| async move {
                let began = rt::now();
                unit.write(Lba(lba), block(byte)).await.unwrap();
                rt::now().since(began)
            })
        };
        let in_use = || in_use(&unit);
        let (first, second) = (pair.rig.portal, pair.twin.portal);
        write(0, 1);
        assert_eq!(in_use(), [(first, true), (second, false)]);

        pair.say_both(Unavailable, ActiveOptimized);
        let took = write(1, 2);
        assert!(took < Duration::from_millis(500), "{took:?}");
        assert_eq!(in_use(), [(first, false), (second, true)]);

        // No path is available for a while: commands wait.
        pair.say_both(Unavailable, Transitioning);
        let waiting =
            {
                let unit = Rc::clone(&unit);
                pair.rig
                    .world
                    .spawn_on(client, CoreId(0), move || async move { unit.write(Lba(2), block(3)).await })
            };
        pair.rig.world.run_for(Duration::from_secs(3));
        assert_eq!(in_use(), [(first, false), (second, false)]);
        pair.say_both(ActiveOptimized, Unavailable);
        pair.rig.world.wait_for(waiting).unwrap().unwrap();
        assert_eq!(in_use(), [(first, true), (second, false)]);
        let events = unit.events();
        assert!(
            !events.iter().any(|event| matches!(event.what, What::Lost(..) | What::Refused(..))),
            "{events:?}"
        );

        // Each block was written through the node whose path was open, and through no other.
        pair.say_both(ActiveOptimized, ActiveOptimized);
        pair.run(client, |first, second| async move {
            for (portal, expected) in [(first, [1, 0, 3]), (second, [0, 2, 0])] {
                let session = log_in(portal, "reader", LUN).await;
                for (lba, byte) in (0..).zip(expected) {
                    assert_eq!(first_byte(&session, lba).await, byte, "block {lba} at {portal}");
                }
            }
        });
    });
}

/// The 257th target of a node has the same port as the first.
#[test]
fn two_targets_of_one_port_do_not_lead_to_one_volume() {
    let rig = Rig::new(1, 2);
    rig.add(Shape::thick());
    rig.add(Shape { lun: 1, ..Shape::ram() });
    rig.control(|control| async move {
        let name = |number: u16| format!("{TARGET}-{number}");
        for number in 2..=257 {
            let spec = TargetSpec { name: name(number), alias: None, chap: None };
            control.create_target(spec).await.unwrap();
        }
        let map = |volume: &'static str, number| {
            let spec = MapSpec { target: name(number), host: "any".into(), lun: None };
            let control = Rc::clone(&control);
            async move { control.map(volume, spec).await }
        };
        let refused = map("thick", 257).await;
        assert!(matches!(refused, Err(ControlError::Invalid { field: "target", .. })), "{refused:?}");
        map("thick", 256).await.unwrap();
        control.unmap(TARGET, 1, None).await.unwrap();
        map("ram", 257).await.unwrap();
    });
}
