//! The order of writes that do not know of each other, and writes for whose end no host waits.

use base::Chain;
use replica::{
    Activation, Blocks, Command, Config, DirtyMap, Envelope, Epoch, Geometry, Incarnation, Message, NodeId,
    Outcome, Output, Payload, Replica, Revision, RoundId, Slot, Timestamp,
};

fn geometry() -> Geometry {
    Geometry::new(64, 4096)
}

fn slot(index: usize) -> Slot {
    Slot::new(index).unwrap()
}

/// The copies of two nodes, both in sync.
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

/// Writes a block, and returns the place of the write in the order.
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
fn independent_writes_keep_their_order() {
    for first in [0, 1] {
        let mut replicas = two();
        let earlier = write(&mut replicas[first], 1_000);
        let later = write(&mut replicas[1 - first], 1_001);
        assert!(earlier < later, "{earlier} {later}");
        assert_eq!(later.epoch, Epoch(1));
        // A clock that is behind does not order a node's own writes backwards.
        assert!(write(&mut replicas[first], 5) > earlier);
    }
}

#[test]
fn an_acknowledged_write_continues_until_all_have_it() {
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
    // The others have continued without this one.
    let nodes = [(NodeId(1), Incarnation(1)), (NodeId(2), Incarnation(1))];
    let without = Config::initial(&nodes, Revision(1)).remove(slot(0)).unwrap();
    replica.activate(Activation { config: without, kept: false });
    assert!(!replica.has_orphans_until(ts), "what becomes of it the others decide");
}

/// Carries out the copy's outputs; returns its messages and the number of its data writes.
fn carry_out(copy: &mut Replica) -> (Vec<(Slot, Envelope)>, u32) {
    let (mut said, mut written) = (Vec::new(), 0);
    while let Some(output) = copy.poll() {
        match output {
            Output::Send(to, envelope) => said.push((to, envelope)),
            Output::WritePage(write) => copy.handle_page_written(write.page, Ok(())),
            Output::Apply(apply) => {
                written += 1;
                copy.handle_applied(apply.id, Ok(()));
            }
            _ => panic!("no host asks for anything, and nothing is synced"),
        }
    }
    (said, written)
}

/// The blocks of a write cannot be read until it is everywhere: the loss of its coordinator must not cost a
/// host more than the change of members.
#[test]
fn orphans_of_a_lost_coordinator_are_everywhere_after_a_change_of_members() {
    let three = Config::initial(&[1, 2, 3].map(|node| (NodeId(node), Incarnation(1))), Revision(1));
    let mut copies = [1, 2].map(|index| {
        let map = DirtyMap::new(geometry().regions());
        let mut copy = Replica::new(slot(index), Incarnation(1), geometry(), map);
        copy.activate(Activation { config: three.clone(), kept: false });
        copy
    });
    let block = Blocks::new(0, 1);
    let message = Message::Invalidate {
        round: RoundId(1),
        ts: Timestamp { epoch: Epoch(1), counter: 1, slot: slot(0) },
        blocks: block,
        payload: Payload::Data(Chain::copy_of(&[7; 4096])),
    };
    copies[0].handle_message(slot(0), Envelope { epoch: Epoch(1), incarnation: Incarnation(1), message });
    assert_eq!(carry_out(&mut copies[0]).1, 1);
    assert_eq!(carry_out(&mut copies[1]).1, 0, "it was never sent");
    assert!(!copies[0].is_settled(block));

    let without = three.remove(slot(0)).unwrap();
    copies.iter_mut().for_each(|copy| copy.activate(Activation { config: without.clone(), kept: true }));
    let mut written = [0, 0];
    for index in [0, 1, 0, 1] {
        // A few milliseconds later, before a [`replica::TICK`] is over.
        copies[0].validate();
        let (said, writes) = carry_out(&mut copies[index]);
        written[index] += writes;
        said.into_iter().for_each(|(_, it)| copies[1 - index].handle_message(slot(index + 1), it));
    }
    assert_eq!(written, [0, 1]);
    assert!(copies.iter().all(|copy| copy.is_settled(block)));
}

/// Hosts of other nodes, whose writes overlap all the time, must not keep a command waiting.
#[test]
fn what_is_left_to_finish_does_not_include_what_came_later() {
    let [mut replica, _] = two();
    let both = Blocks::new(0, 2);
    let ts = |counter: u64| Timestamp { epoch: Epoch(1), counter, slot: slot(1) };
    let hear = |replica: &mut Replica, message: Message| {
        replica.handle_message(slot(1), Envelope { epoch: Epoch(1), incarnation: Incarnation(1), message });
        carry_out(replica);
    };
    let invalidate = |counter: u64| Message::Invalidate {
        round: RoundId(counter),
        ts: ts(counter),
        blocks: Blocks::new(counter - 1, counter),
        payload: Payload::Data(Chain::copy_of(&[7; 4096])),
    };
    assert_eq!(replica.last_unsettled(both), None);
    hear(&mut replica, invalidate(1));
    let last = replica.last_unsettled(both);
    assert_eq!((last, replica.last_unsettled(Blocks::new(1, 2))), (Some(ts(1)), None));
    hear(&mut replica, invalidate(2));
    assert!(replica.has_unsettled_until(both, ts(1)));
    hear(&mut replica, Message::Validate { writes: vec![(Blocks::new(0, 1), ts(1))] });
    assert!(!replica.has_unsettled_until(both, ts(1)));
    assert!(!replica.is_settled(both) && replica.has_unsettled_until(both, ts(2)));
    let own = write(&mut replica, 1);
    assert!(own > ts(2) && replica.has_unsettled_until(Blocks::new(0, 1), own));
    assert!(!replica.has_unsettled_until(Blocks::new(0, 1), ts(2)));
    assert_eq!(replica.last_unsettled(both), Some(own));
}
