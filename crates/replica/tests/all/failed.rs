//! A copy whose disk fails to write.

use base::{Chain, Instant};
use replica::{
    Activation, Blocks, Command, Config, DirtyMap, DiskFailed, Geometry, Incarnation, Leases, NodeId,
    Outcome, Output, Payload, Replica, Revision, Slot, Terms, Unreadable, Unwritable,
};

const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
const LIFE: Incarnation = Incarnation(1);
const BLOCK: Blocks = Blocks { start: 3, end: 4 };
const OTHER: Blocks = Blocks { start: 4, end: 5 };

fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

/// The first of two copies; the configuration says whether the second one is in sync.
fn copy(config: &Config) -> Replica {
    let mut copy = Replica::new(slot(0), LIFE, GEOMETRY, DirtyMap::new(GEOMETRY.regions()));
    copy.activate(Activation { config: config.clone(), kept: false });
    copy
}

fn two() -> Config {
    Config::initial(&[(NodeId(1), LIFE), (NodeId(2), LIFE)], Revision(1))
}

fn write(copy: &mut Replica, command: u64) -> Result<(), Unwritable> {
    copy.write(Command(command), BLOCK, Payload::Data(Chain::copy_of(&[7; 8])), command)
}

/// Writes the pages of the dirty map, and returns the data writes and the answers to hosts.
fn work(copy: &mut Replica) -> (Vec<replica::ApplyId>, Vec<Outcome>) {
    let (mut applies, mut told) = (Vec::new(), Vec::new());
    while let Some(output) = copy.poll() {
        match output {
            Output::WritePage(write) => copy.handle_page_written(write.page, Ok(())),
            Output::Apply(apply) => applies.push(apply.id),
            Output::Complete(_, outcome) => told.push(outcome),
            _ => {}
        }
    }
    (applies, told)
}

fn readable(copy: &Replica, blocks: Blocks) -> Result<(), Unreadable> {
    let now = Instant(10_000_000_000);
    copy.readable(now, &Leases::new(Instant(0), LIFE, Terms::default()), blocks).map(|_| ())
}

#[test]
fn alone_it_is_read_but_for_what_was_being_written() {
    let mut copy = copy(&two().remove(slot(1)).unwrap());
    write(&mut copy, 1).unwrap();
    let (applies, told) = work(&mut copy);
    assert!(told.is_empty());
    copy.handle_applied(applies[0], Err(DiskFailed));
    assert_eq!(work(&mut copy), (vec![], vec![Outcome::Unknown]));
    assert_eq!(readable(&copy, OTHER), Ok(()));
    assert_eq!(readable(&copy, BLOCK), Err(Unreadable::Failed), "it is there, and may not last");
    assert_eq!(write(&mut copy, 3), Err(Unwritable::Failed));
}

#[test]
fn with_others_in_sync_it_is_not_read_until_they_are_gone() {
    let mut copy = copy(&two());
    write(&mut copy, 1).unwrap();
    let (applies, _) = work(&mut copy);
    copy.handle_applied(applies[0], Err(DiskFailed));
    assert_eq!(readable(&copy, OTHER), Err(Unreadable::Failed));
    let alone = two().remove(slot(1)).unwrap();
    copy.activate(Activation { config: alone.clone(), kept: true });
    assert_eq!(work(&mut copy), (vec![], vec![Outcome::Unknown]));
    assert_eq!(readable(&copy, OTHER), Ok(()), "nobody else has what it has");
    assert_eq!(readable(&copy, BLOCK), Err(Unreadable::Failed));
    copy.activate(Activation { config: alone, kept: false });
    assert_eq!(
        readable(&copy, OTHER),
        Err(Unreadable::Failed),
        "it does not know any more what was being written"
    );
}
