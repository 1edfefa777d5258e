//! A write that is sent again by a member who has heard late of its end, to others who have forgotten what
//! superseded it (R15, R18).

use std::collections::{BTreeMap, VecDeque};

use base::Chain;
use replica::{
    Activation, Blocks, Command, Config, DirtyMap, Envelope, Geometry, Incarnation, Message, NodeId, Outcome,
    Output, Payload, Receivers, Replica, Revision, Slot,
};

const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
const LIFE: Incarnation = Incarnation(1);
/// The region that copies outside miss.
const MISSED: u64 = 7;
/// In another one.
const BLOCK: u64 = 3;

fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

/// Copies, of each block of which one byte counts, and their links. Disks are fast; a message arrives when
/// the test says so.
struct Copies {
    copies: Vec<Replica>,
    disks: Vec<Vec<u8>>,
    /// What is on its way, by sender and receiver; none: there is no link.
    links: BTreeMap<(usize, usize), VecDeque<Envelope>>,
    told: Vec<(u64, Outcome)>,
    /// Regions that syncs may still give.
    budget: u32,
}

impl Copies {
    /// Three copies that have all links.
    fn new(config: &Config) -> Copies {
        let outside = config.configured().minus(config.members());
        let copies = [0, 1, 2].map(|number| {
            let mut map = DirtyMap::new(GEOMETRY.regions());
            map.mark(MISSED..MISSED + 1, outside);
            let mut copy = Replica::new(slot(number), LIFE, GEOMETRY, map);
            copy.activate(Activation { config: config.clone(), kept: false });
            copy
        });
        let mut all = Copies {
            copies: copies.into(),
            disks: vec![vec![0; GEOMETRY.blocks as usize]; 3],
            links: BTreeMap::new(),
            told: Vec::new(),
            budget: 0,
        };
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            all.connect(one, other);
        }
        all.deliver_all();
        all
    }

    fn connect(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.links.insert((from, to), VecDeque::new());
        }
        for (from, to) in [(one, other), (other, one)] {
            self.copies[from].handle_link_up(slot(to));
            self.carry_out(from);
        }
    }

    /// What is on its way is lost.
    fn cut(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.links.remove(&(from, to));
            self.copies[from].handle_link_down(slot(to));
            self.carry_out(from);
        }
    }

    fn activate(&mut self, number: usize, config: &Config, kept: bool) {
        self.copies[number].activate(Activation { config: config.clone(), kept });
        self.carry_out(number);
    }

    fn tick(&mut self, number: usize) {
        self.copies[number].handle_tick();
        self.carry_out(number);
    }

    /// A host writes this to the block through copy 0.
    fn write(&mut self, value: u8) {
        let payload = Payload::Data(Chain::copy_of(&[value; 8]));
        let blocks = Blocks::new(BLOCK, BLOCK + 1);
        self.copies[0].write(Command(value.into()), blocks, payload, 0).unwrap();
        self.carry_out(0);
    }

    /// What the disks hold in the block.
    fn block(&self) -> [u8; 3] {
        [0, 1, 2].map(|number| self.disks[number][BLOCK as usize])
    }

    /// Does what the copy wants; what it says is on its way then.
    fn carry_out(&mut self, number: usize) {
        let (copy, disk) = (&mut self.copies[number], &mut self.disks[number]);
        let on_disk = |blocks: Blocks| blocks.start as usize..blocks.end as usize;
        self.budget -= copy.begin_regions(self.budget, Receivers::All);
        while let Some(output) = copy.poll() {
            match output {
                Output::Send(to, envelope) => {
                    if let Some(link) = self.links.get_mut(&(number, to.index())) {
                        link.push_back(envelope);
                    }
                }
                Output::Apply(apply) => {
                    let Payload::Data(data) = &apply.payload else { panic!("there are no zeros") };
                    let values = data.to_vec().into_iter().step_by(8);
                    disk[on_disk(apply.blocks)].iter_mut().zip(values).for_each(|(at, value)| *at = value);
                    copy.handle_applied(apply.id, Ok(()));
                }
                Output::WritePage(write) => copy.handle_page_written(write.page, Ok(())),
                Output::ReadRegion(read) => {
                    let bytes: Vec<u8> =
                        disk[on_disk(read.blocks)].iter().flat_map(|value| [*value; 8]).collect();
                    copy.handle_region_read(read, Ok(Payload::Data(Chain::copy_of(&bytes))));
                }
                Output::CompareRegion(_) => unreachable!("all that is given is known to differ"),
                Output::Complete(command, outcome) => self.told.push((command.0, outcome)),
            }
        }
    }

    /// The next message arrives, if there is one.
    fn deliver(&mut self, from: usize, to: usize) -> Option<Message> {
        let envelope = self.links.get_mut(&(from, to))?.pop_front()?;
        let message = envelope.message.clone();
        self.copies[to].handle_message(slot(from), envelope);
        self.carry_out(to);
        Some(message)
    }

    /// All arrives up to the next write.
    fn deliver_a_write(&mut self, from: usize, to: usize) {
        while !matches!(self.deliver(from, to).expect("it is on its way"), Message::Invalidate { .. }) {}
    }

    /// All that is on its way between these arrives, and what is said to it.
    fn deliver_between(&mut self, one: usize, other: usize) {
        while self.deliver(one, other).is_some() || self.deliver(other, one).is_some() {}
    }

    fn deliver_all(&mut self) {
        while [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
            .into_iter()
            .any(|(from, to)| self.deliver(from, to).is_some())
        {}
    }
}

fn three() -> Config {
    Config::initial(&[1, 2, 3].map(|node| (NodeId(node), LIFE)), Revision(1))
}

const BOTH_DONE: [(u64, Outcome); 2] = [(7, Outcome::Done), (8, Outcome::Done)];

/// Two writes of copy 0 reach nobody, and members change. Copy 1 says that it has nothing to bring to its
/// end; then it gets the first write, and for a while nothing more from copy 0. So it sends it again, and
/// copy 2 does not hear of that, nor that it has something to bring to its end. Meanwhile both writes come to
/// their end without that, and copy 2 forgets them. What it hears at last is not newer than what it has
/// forgotten.
#[test]
fn who_has_forgotten_a_write_takes_no_older_one() {
    let mut all = Copies::new(&three());
    all.cut(0, 1);
    all.cut(0, 2);
    all.write(7);
    all.write(8);
    let four = three().add(slot(3), NodeId(4)).unwrap();
    all.activate(1, &four, true);
    all.activate(2, &four, true);
    all.deliver_between(1, 2);
    all.tick(1);
    all.deliver_between(1, 2);
    all.cut(1, 2);

    all.connect(0, 1);
    all.connect(0, 2);
    all.deliver_all();
    all.activate(0, &four, true);
    all.deliver_a_write(0, 1);
    all.cut(0, 1);
    all.deliver_between(0, 2);
    assert_eq!(all.block(), [8, 7, 8]);
    all.tick(1);
    all.tick(1);

    all.connect(0, 1);
    all.deliver_between(0, 1);
    assert_eq!((all.block(), &all.told[..]), ([8, 8, 8], &BOTH_DONE[..]));
    all.deliver_between(0, 2);
    all.tick(0);
    all.deliver_between(0, 2);
    all.tick(2);
    assert!(all.copies[2].is_at_rest(), "it has forgotten them");

    all.connect(1, 2);
    all.deliver_a_write(1, 2);
    assert_eq!(all.block(), [8, 8, 8]);
    all.deliver_all();
    for number in [0, 1, 2, 0, 1, 2] {
        all.tick(number);
        all.deliver_all();
    }
    assert_eq!(all.block(), [8, 8, 8]);
    assert!(all.copies.iter().all(Replica::is_at_rest), "and nobody waits for anything");
}

/// As before, and copy 2 joins: it has had both writes when it asks another copy what is equal, which has
/// forgotten them; in between the first one is sent to it again.
#[test]
fn who_asks_another_source_takes_no_older_write_than_it_has_had() {
    let outside = three().remove(slot(2)).unwrap();
    let mut all = Copies::new(&outside);
    all.cut(0, 1);
    all.cut(0, 2);
    all.write(7);
    all.write(8);
    let joins = outside.admit(slot(2), LIFE).unwrap();
    all.activate(1, &joins, true);
    all.activate(2, &joins, false);
    all.deliver_between(1, 2);

    all.connect(0, 1);
    all.deliver_between(0, 1);
    all.activate(0, &joins, true);
    all.deliver(0, 1);
    all.tick(1);
    while all.deliver(1, 0).is_some() {}
    all.deliver_a_write(0, 1);
    all.cut(0, 1);
    all.tick(1);
    all.tick(1);
    all.cut(1, 2);
    assert_eq!(all.block(), [8, 7, 0]);

    all.connect(0, 2);
    all.deliver_between(0, 2);
    all.connect(0, 1);
    all.deliver_between(0, 1);
    all.cut(0, 1);
    assert_eq!((all.block(), &all.told[..]), ([8, 8, 8], &BOTH_DONE[..]));
    all.tick(0);
    all.deliver_between(0, 2);
    all.tick(2);
    all.deliver_between(0, 2);
    all.cut(0, 2);
    all.tick(0);
    assert!(all.copies[0].is_at_rest(), "it has forgotten them");

    all.connect(1, 2);
    all.deliver_a_write(1, 2);
    all.cut(1, 2);
    all.connect(0, 2);
    all.budget = u32::MAX;
    all.deliver_all();
    assert_eq!(all.block(), [8, 8, 8]);
    assert!(all.copies[0].promotable().contains(slot(2)));
    let promoted = joins.promote(slot(2)).unwrap();
    (0..3).for_each(|number| all.activate(number, &promoted, true));
    all.connect(0, 1);
    all.connect(1, 2);
    all.deliver_all();
    for number in [0, 1, 2, 0, 1, 2] {
        all.tick(number);
        all.deliver_all();
    }
    assert_eq!(all.block(), [8, 8, 8]);
    assert!(all.copies.iter().all(Replica::is_at_rest), "and nobody waits for anything");
}
