//! The order of writes that do not know of each other, and writes of which nobody waits for the end.

use base::Chain;
use replica::{
    Activation, Blocks, Command, Config, DirtyMap, Epoch, Geometry, Incarnation, Message, NodeId, Outcome,
    Output, Payload, Replica, Revision, Slot, Timestamp,
};

fn geometry() -> Geometry {
    Geometry::new(64, 4096)
}

fn slot(index: usize) -> Slot {
    Slot::new(index).unwrap()
}

/// The copies of two nodes that are both in sync.
fn two() -> [Replica; 2] {
    let nodes = [(NodeId(1), Incarnation(1)), (NodeId(2), Incarnation(1))];
    let config = Config::initial(&nodes, Revision(1));
    [0, 1].map(|index| {
        let map = DirtyMap::new(geometry().regions());
        let mut replica = Replica::new(slot(index), Incarnation(1), geometry(), map);
        replica.activate(Activation { config: config.clone(), kept: false });
        replica.handle_link_up(slot(1 - index));
        replica
    })
}

/// Writes a block, and says when in the order of all writes.
fn write(replica: &mut Replica, clock: u64) -> Timestamp {
    let payload = Payload::Data(Chain::copy_of(&[0; 4096]));
    replica.write(Command(1), Blocks::new(0, 1), payload, clock).unwrap();
    std::iter::from_fn(|| replica.poll())
        .find_map(|output| match output {
            Output::Send(_, envelope) => match envelope.message {
                Message::Invalidate { ts, .. } => Some(ts),
                _ => None,
            },
            _ => None,
        })
        .unwrap()
}

#[test]
fn of_two_writes_that_do_not_know_of_each_other_the_later_one_is_later() {
    for first in [0, 1] {
        let mut replicas = two();
        let earlier = write(&mut replicas[first], 1_000);
        let later = write(&mut replicas[1 - first], 1_001);
        assert!(earlier < later, "{earlier} {later}");
        assert_eq!(later.epoch, Epoch(1));
        // A clock that is behind does not take a node's own writes back.
        assert!(write(&mut replicas[first], 5) > earlier);
    }
}

#[test]
fn a_write_whose_host_was_answered_goes_on_until_all_have_it() {
    let [mut replica, _] = two();
    let ts = write(&mut replica, 1);
    assert_eq!(replica.last_orphan(), None);
    replica.answer_unknown();
    let answers: Vec<Outcome> = std::iter::from_fn(|| replica.poll())
        .filter_map(|output| match output {
            Output::Complete(_, outcome) => Some(outcome),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [Outcome::Unknown]);
    assert_eq!(replica.last_orphan(), Some(ts), "the other copy may have it");
    assert!(replica.has_orphans_until(ts));
    // The others have gone on without this one.
    let nodes = [(NodeId(1), Incarnation(1)), (NodeId(2), Incarnation(1))];
    let without = Config::initial(&nodes, Revision(1)).remove(slot(0)).unwrap();
    replica.activate(Activation { config: without, kept: false });
    assert!(!replica.has_orphans_until(ts), "what becomes of it the others decide");
}
