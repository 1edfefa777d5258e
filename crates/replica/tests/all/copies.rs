//! Three copies, between which a test decides what arrives.

use std::collections::{BTreeMap, VecDeque};

use base::Chain;
use replica::{
    Activation, Blocks, Command, Config, DirtyMap, Envelope, Geometry, Incarnation, Message, Outcome, Output,
    Payload, Receivers, Replica, Slot,
};

pub const GEOMETRY: Geometry = Geometry { blocks: 48, block_bytes: 8, region_blocks: 6 };
pub const LIFE: Incarnation = Incarnation(1);
/// The region that copies outside miss.
pub const MISSED: u64 = 7;
/// A block in another region.
const BLOCK: u64 = 3;

pub fn slot(number: usize) -> Slot {
    Slot::new(number).unwrap()
}

/// Copies with one byte per block, and their links. Disks are fast; a message arrives when the test delivers
/// it.
pub struct Copies {
    pub copies: Vec<Replica>,
    disks: Vec<Vec<u8>>,
    /// The messages on their way, by sender and receiver; no entry: there is no link.
    links: BTreeMap<(usize, usize), VecDeque<Envelope>>,
    pub told: Vec<(u64, Outcome)>,
    /// How many regions resyncs may still give.
    pub budget: u32,
    /// Pages of the dirty map are not written before [`Copies::write_pages`].
    pub holds_pages: bool,
    /// Those that wait for it, by copy.
    pages: Vec<(usize, usize)>,
}

impl Copies {
    /// Three copies with all links.
    pub fn new(config: &Config) -> Copies {
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
            holds_pages: false,
            pages: Vec::new(),
        };
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            all.connect(one, other);
        }
        all.deliver_all();
        all
    }

    pub fn connect(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.links.insert((from, to), VecDeque::new());
        }
        for (from, to) in [(one, other), (other, one)] {
            self.copies[from].handle_link_up(slot(to));
            self.carry_out(from);
        }
    }

    /// Breaks the link; all on its way is lost.
    pub fn cut(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.links.remove(&(from, to));
            self.copies[from].handle_link_down(slot(to));
            self.carry_out(from);
        }
    }

    /// Starts the copy's process, with this map on its disk and no links.
    pub fn start(&mut self, number: usize, life: Incarnation, map: DirtyMap, config: &Config) {
        (0..3).filter(|other| *other != number).for_each(|other| self.cut(number, other));
        self.copies[number] = Replica::new(slot(number), life, GEOMETRY, map);
        self.activate(number, config, false);
    }

    /// The map as the next opening of the copy finds it on its disk.
    fn noted(&self, number: usize) -> DirtyMap {
        let before = self.copies[number].map();
        let mut map = DirtyMap::new(GEOMETRY.regions());
        (0..GEOMETRY.regions()).for_each(|region| map.mark(region..region + 1, before.get(region)));
        map
    }

    /// Restarts the copy's process; its disk has everything that was noted.
    pub fn restart(&mut self, number: usize, life: Incarnation, config: &Config) {
        let map = self.noted(number);
        self.start(number, life, map, config);
    }

    /// Closes the copy and opens it again, in the same life and over the same links.
    pub fn reopen(&mut self, number: usize, first_number: u64, config: &Config) {
        let map = self.noted(number);
        self.copies[number] = Replica::new(slot(number), LIFE, GEOMETRY, map);
        self.copies[number].count_from(first_number);
        self.activate(number, config, false);
        for other in (0..3).filter(|other| *other != number) {
            if self.links.contains_key(&(number, other)) {
                self.copies[number].handle_link_up(slot(other));
                self.carry_out(number);
            }
        }
    }

    pub fn activate(&mut self, number: usize, config: &Config, kept: bool) {
        self.copies[number].activate(Activation { config: config.clone(), kept });
        self.carry_out(number);
    }

    pub fn tick(&mut self, number: usize) {
        self.copies[number].handle_tick();
        self.carry_out(number);
    }

    /// A host writes this to the block through copy 0.
    pub fn write(&mut self, value: u8) {
        self.write_to(BLOCK, value);
    }

    /// A host writes this to a block of the region that copies outside miss, through copy 0.
    pub fn write_elsewhere(&mut self, value: u8) {
        self.write_to(MISSED * u64::from(GEOMETRY.region_blocks), value);
    }

    fn write_to(&mut self, block: u64, value: u8) {
        let payload = Payload::Data(Chain::copy_of(&[value; 8]));
        let blocks = Blocks::new(block, block + 1);
        self.copies[0].write(Command(value.into()), blocks, payload, 0).unwrap();
        self.carry_out(0);
    }

    /// What each disk holds in the block.
    pub fn block(&self) -> [u8; 3] {
        [0, 1, 2].map(|number| self.disks[number][BLOCK as usize])
    }

    /// Carries out the copy's outputs; its messages are on their way then.
    pub fn carry_out(&mut self, number: usize) {
        let (copy, disk) = (&mut self.copies[number], &mut self.disks[number]);
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
                    disk[indices(apply.blocks)].iter_mut().zip(values).for_each(|(at, value)| *at = value);
                    copy.handle_applied(apply.id, Ok(()));
                }
                Output::WritePage(write) if self.holds_pages => self.pages.push((number, write.page)),
                Output::WritePage(write) => copy.handle_page_written(write.page, Ok(())),
                Output::ReadRegion(read) => {
                    let here = on(disk, read.blocks);
                    copy.handle_region_read(read, Ok(here));
                }
                Output::CompareRegion(compare) => {
                    let here = on(disk, compare.blocks);
                    copy.handle_region_compared(compare, Ok(Some(here)));
                }
                Output::Complete(command, outcome) => self.told.push((command.0, outcome)),
            }
        }
    }

    /// All disks write pages again, and those that waited.
    pub fn write_pages(&mut self) {
        self.holds_pages = false;
        for (number, page) in std::mem::take(&mut self.pages) {
            self.copies[number].handle_page_written(page, Ok(()));
            self.carry_out(number);
        }
    }

    /// Delivers the next message, if there is one.
    pub fn deliver(&mut self, from: usize, to: usize) -> Option<Message> {
        let envelope = self.links.get_mut(&(from, to))?.pop_front()?;
        let message = envelope.message.clone();
        self.copies[to].handle_message(slot(from), envelope);
        self.carry_out(to);
        Some(message)
    }

    /// Delivers everything up to and including the next write.
    pub fn deliver_a_write(&mut self, from: usize, to: usize) {
        while !matches!(self.deliver(from, to).expect("it is on its way"), Message::Invalidate { .. }) {}
    }

    /// Delivers everything between these two, including the answers.
    pub fn deliver_between(&mut self, one: usize, other: usize) {
        while self.deliver(one, other).is_some() || self.deliver(other, one).is_some() {}
    }

    pub fn deliver_all(&mut self) {
        while [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
            .into_iter()
            .any(|(from, to)| self.deliver(from, to).is_some())
        {}
    }
}

fn indices(blocks: Blocks) -> std::ops::Range<usize> {
    blocks.start as usize..blocks.end as usize
}

/// What the disk holds there.
fn on(disk: &[u8], blocks: Blocks) -> Payload {
    let bytes: Vec<u8> = disk[indices(blocks)].iter().flat_map(|value| [*value; 8]).collect();
    Payload::Data(Chain::copy_of(&bytes))
}
