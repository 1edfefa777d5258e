//! A copy whose dirty map could not be read: it is marked for all slots.

use replica::{Activation, Config, DirtyMap, Geometry, Incarnation, NodeId, Replica, Revision, Slot, Slots};

const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
const LIFE: Incarnation = Incarnation(1);

fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

/// How many bits the copy has for each slot.
fn bits(copy: &Replica) -> [u64; Slot::MAX] {
    std::array::from_fn(|number| copy.map().count(slot(number)))
}

#[test]
fn bits_for_no_member_are_forgotten() {
    let mut map = DirtyMap::new(GEOMETRY.regions());
    map.mark(0..GEOMETRY.regions(), Slots::ALL);
    let mut copy = Replica::new(slot(0), LIFE, GEOMETRY, map);
    assert_eq!(bits(&copy), [8, 8, 8, 8], "nobody knows yet which there are");
    let three = [1, 2, 3].map(|node| (NodeId(node), LIFE));
    let config = Config::initial(&three, Revision(1)).remove(slot(2)).unwrap();
    copy.activate(Activation { config: config.clone(), kept: false });
    assert_eq!(bits(&copy), [0, 8, 8, 0], "of copies in sync and of one that is lost they stay");
    let dropped = config.drop_copy(slot(2)).unwrap();
    copy.activate(Activation { config: dropped, kept: true });
    assert_eq!(bits(&copy), [0, 8, 0, 0], "of one that was taken away, too, nothing is noted");
}
