//! Where logs keep what on the disks of a pool, found by its content (`docs/formats/log.md`): what a fault
//! may hit.
//!
//! The content does not say what is still needed. What is hit may be a leftover.

use std::collections::BTreeMap;

use base::{Rng, crc32c};
use rt::sim::DiskImage;

use crate::cluster::LOG_SEGMENT_BYTES;
use crate::media::Spot;

const SLOT: usize = 4096;
const QUARTER: usize = 1024;
const LEAF_GRAIN: usize = 64;

/// Bytes before the lists of a root, and before the entries of a head.
const HEADER: usize = 64;
const RUN: usize = 8;
const REPLAY: usize = 16;
const ENTRY: usize = 24;
/// Bytes before the LZ4 block of a compressed block.
const PACKED_HEADER: usize = 6;

/// A byte of each of these that its checksum covers.
const IN_HEAD: u64 = 40;
const IN_ROOT: u64 = 40;
const IN_LEAF: u64 = 40;
const IN_STATE: u64 = 40;

/// What was found: see the module.
#[derive(Default)]
pub struct Parts {
    roots: Vec<Root>,
    heads: Vec<Head>,
    leaves: Vec<Spot>,
    states: Vec<State>,
}

/// A root: one of two mirrors.
struct Root {
    at: Spot,
    log: Vec<u8>,
    number: u64,
    sequence: u64,
    is_state_twice: bool,
    /// Segment and generation of what a recovery scans.
    replay: Vec<(u64, u64)>,
}

/// A slot of the state of this root.
struct State {
    at: Spot,
    root: u64,
}

/// A record.
struct Head {
    at: Spot,
    generation: u64,
    segment: u64,
    /// Its slot in the segment, and how many slots of data follow.
    slot: u64,
    slots: u64,
    is_of_hosts: bool,
    sequence: u64,
    durable_below: u64,
    blocks: Vec<Block>,
}

/// A block of a record that lies where the record put it.
struct Block {
    /// Branch and number.
    key: (u64, u64),
    /// The last byte of what is stored.
    last: Spot,
    /// It lies in the head's own slot, whose checksum covers it, too.
    is_in_head: bool,
}

/// What a recovery makes of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is in the map, or not needed any more.
    Merged,
    /// It is replayed, and a record says that it is durable.
    Replayed,
    /// It is replayed if it is whole. Nobody can tell whether it has rotted, or a power cut has torn it.
    Tail,
}

/// Where the next record of hosts will be written.
pub struct Next {
    /// The rest of its segment: index of the disk, and bytes there.
    pub disk: usize,
    /// See above.
    pub range: std::ops::Range<u64>,
    /// How far away other segments on that disk are.
    pub others: Vec<i64>,
}

impl Parts {
    /// What these disks hold of logs.
    pub fn find(images: &[DiskImage]) -> Parts {
        let mut parts = Parts::default();
        for (disk, image) in images.iter().enumerate() {
            for (offset, len) in image.allocated(0, image.size()) {
                let mut bytes = vec![0; len as usize];
                image.read(offset, &mut bytes);
                parts.add(disk, offset, &bytes);
            }
        }
        parts
    }

    fn add(&mut self, disk: usize, offset: u64, bytes: &[u8]) {
        for at in (0..bytes.len() / SLOT).map(|slot| slot * SLOT) {
            let (slot, spot) = (&bytes[at..at + SLOT], Spot { disk, at: offset + at as u64 });
            if slot.starts_with(b"URSALOGR") && is_whole(slot) {
                self.roots.push(Root::decode(slot, spot));
            } else if slot.starts_with(b"URSALREC") && is_whole(slot) {
                self.heads.push(Head::decode(&bytes[at..], spot));
            } else if number(slot, 0, 4) == u64::from(crc32c(&slot[4..])) {
                self.states.push(State { at: spot, root: number(slot, 8, 8) });
            } else {
                let grains =
                    (0..SLOT).step_by(LEAF_GRAIN).filter(|grain| slot[*grain..].starts_with(b"ULEF"));
                self.leaves.extend(grains.map(|grain| behind(spot, grain as u64)));
            }
        }
    }

    /// The newest root of each log, with both of its mirrors.
    fn newest_roots(&self) -> BTreeMap<&[u8], Vec<&Root>> {
        let mut newest: BTreeMap<&[u8], Vec<&Root>> = BTreeMap::new();
        for root in &self.roots {
            let mirrors = newest.entry(root.log.as_slice()).or_default();
            if mirrors.first().is_none_or(|other| other.number < root.number) {
                mirrors.clear();
            }
            if mirrors.first().is_none_or(|other| other.number == root.number) {
                mirrors.push(root);
            }
        }
        newest
    }

    /// All records, and what a recovery makes of them.
    fn records(&self) -> Vec<(&Head, Fate)> {
        let roots: Vec<&Root> =
            self.newest_roots().into_values().filter_map(|it| it.first().copied()).collect();
        let root_of = |head: &Head| {
            let scans = |root: &&&Root| root.replay.contains(&(head.segment, head.generation));
            roots.iter().find(scans).filter(|root| head.sequence >= root.sequence).copied()
        };
        let mut said: BTreeMap<&[u8], u64> = BTreeMap::new();
        for head in &self.heads {
            if let Some(root) = root_of(head) {
                let said = said.entry(root.log.as_slice()).or_default();
                *said = head.durable_below.max(*said);
            }
        }
        let fate = |head: &Head| match root_of(head) {
            None => Fate::Merged,
            Some(root) if head.sequence < said[&root.log[..]] => Fate::Replayed,
            Some(_) => Fate::Tail,
        };
        self.heads.iter().map(|head| (head, fate(head))).collect()
    }

    /// The newest record that has each block.
    fn newest_records(&self) -> BTreeMap<(u64, u64), u64> {
        let mut newest = BTreeMap::new();
        for (head, block) in self.heads.iter().flat_map(|head| head.blocks.iter().map(move |it| (head, it))) {
            let known = newest.entry(block.key).or_default();
            *known = head.sequence.max(*known);
        }
        newest
    }

    /// A byte of a block, and of each other place where the same block lies, or lay. If these rot, the log
    /// opens, and never takes what is there for the block.
    ///
    /// Mostly a block that a recovery replays, and that was not written since.
    pub fn any_block(&self, rng: &mut Rng) -> Vec<Spot> {
        let may_rot = |block: &Block, fate: Fate| match fate {
            Fate::Merged => true,
            Fate::Replayed => !block.is_in_head,
            Fate::Tail => false,
        };
        let records = self.records();
        let blocks: Vec<(&Block, &Head, Fate)> = records
            .iter()
            .flat_map(|(head, fate)| head.blocks.iter().map(move |block| (block, *head, *fate)))
            .filter(|(block, _, fate)| may_rot(block, *fate))
            .collect();
        let newest = self.newest_records();
        let current = blocks.iter().filter(|(block, head, fate)| {
            *fate == Fate::Replayed && newest.get(&block.key) == Some(&head.sequence)
        });
        let current = current.max_by_key(|(_, head, _)| head.sequence).filter(|_| !rng.one_in(4));
        let drawn = current.or_else(|| any(&blocks, rng));
        let Some((Block { key, .. }, ..)) = drawn else { return Vec::new() };
        blocks.iter().filter(|(block, ..)| block.key == *key).map(|(block, ..)| block.last).collect()
    }

    /// A byte of a head without which a recovery must not open the log: the newest one that has a block which
    /// was not written since, if there is one.
    pub fn newest_head(&self) -> Option<Spot> {
        let newest = self.newest_records();
        let is_current =
            |head: &Head| head.blocks.iter().any(|block| newest.get(&block.key) == Some(&head.sequence));
        let replayed = self.records().into_iter().filter(|(_, fate)| *fate == Fate::Replayed);
        let found = replayed.max_by_key(|(head, _)| (is_current(head), head.sequence));
        found.map(|(head, _)| behind(head.at, IN_HEAD))
    }

    /// A byte of each leaf.
    pub fn all_leaves(&self) -> Vec<Spot> {
        self.leaves.iter().map(|at| behind(*at, IN_LEAF)).collect()
    }

    /// A byte of one copy of the state of some log, if each state is there twice.
    pub fn any_state(&self, rng: &mut Rng) -> Option<Spot> {
        let roots = self.newest_roots();
        let newest: Vec<&Root> = roots.into_values().filter_map(|mirrors| mirrors.first().copied()).collect();
        let of_newest = |state: &&State| newest.iter().any(|root| root.number == state.root);
        let states: Vec<&State> = self.states.iter().filter(of_newest).collect();
        let state = any(&states, rng).filter(|_| newest.iter().all(|root| root.is_state_twice));
        state.map(|state| behind(state.at, IN_STATE))
    }

    /// A byte of one mirror of the root of some log.
    pub fn any_root(&self, rng: &mut Rng) -> Option<Spot> {
        let newest: Vec<Vec<&Root>> = self.newest_roots().into_values().collect();
        // While it is being written, there may be one.
        let mirrors = any(&newest, rng).filter(|mirrors| mirrors.len() == 2)?;
        any(mirrors, rng).map(|root| behind(root.at, IN_ROOT))
    }

    /// Where the next record of hosts goes in some log, if its segment is known.
    pub fn next_record(&self, rng: &mut Rng) -> Option<Next> {
        let mut newest: BTreeMap<(u64, u64), &Head> = BTreeMap::new();
        let hosts =
            self.records().into_iter().filter(|(head, fate)| *fate != Fate::Merged && head.is_of_hosts);
        for (head, _) in hosts {
            let last = newest.entry((head.segment, head.generation)).or_insert(head);
            if last.sequence < head.sequence {
                *last = head;
            }
        }
        let newest: Vec<&Head> = newest.into_values().collect();
        let last = newest.iter().max_by_key(|head| head.sequence).filter(|_| rng.one_in(2)).copied();
        let last = last.or_else(|| any(&newest, rng).copied())?;
        let (begin, end) = (last.base(), last.base() + LOG_SEGMENT_BYTES);
        let range = last.at.at + (1 + last.slots) * SLOT as u64..end;
        let on_disk = self.heads.iter().filter(|head| head.at.disk == last.at.disk);
        let mut others: Vec<i64> = on_disk.map(|head| head.base() as i64 - begin as i64).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|by| by.unsigned_abs() >= LOG_SEGMENT_BYTES);
        (!range.is_empty()).then_some(Next { disk: last.at.disk, range, others })
    }
}

impl Root {
    fn decode(slot: &[u8], at: Spot) -> Root {
        let [first, replayed, second] = [56, 58, 60].map(|at| number(slot, at, 2) as usize);
        let lists = HEADER + (first + second) * RUN;
        let replay = (0..replayed).map(|index| lists + index * REPLAY);
        Root {
            at,
            log: slot[16..32].to_vec(),
            number: number(slot, 32, 8),
            sequence: number(slot, 40, 8),
            is_state_twice: second > 0,
            replay: replay.map(|at| (number(slot, at, 4), number(slot, at + 8, 8))).collect(),
        }
    }
}

impl Head {
    /// Decodes a head. `bytes` begin with it.
    fn decode(bytes: &[u8], at: Spot) -> Head {
        let entries = number(bytes, 48, 2) as usize;
        let mut blocks = Vec::new();
        // In quarters of slots.
        let mut end = (HEADER + entries * ENTRY).div_ceil(QUARTER);
        for entry in (0..entries).map(|index| &bytes[HEADER + index * ENTRY..][..ENTRY]) {
            let quarters = match entry[10] {
                1 | 2 => 4,
                129 | 130 => 2,
                193 | 194 => 1,
                _ => continue,
            };
            let start = end.next_multiple_of(quarters) * QUARTER;
            end = start / QUARTER + quarters;
            let stored = bytes.get(start..end * QUARTER);
            let len = stored.and_then(|stored| intact_len(stored, number(entry, 15, 4)));
            blocks.extend(len.map(|len| Block {
                key: (number(entry, 0, 4), number(entry, 4, 6)),
                last: behind(at, (start + len - 1) as u64),
                is_in_head: start < SLOT,
            }));
        }
        Head {
            at,
            generation: number(bytes, 16, 8),
            segment: number(bytes, 52, 4),
            slot: number(bytes, 56, 2),
            slots: number(bytes, 50, 2),
            is_of_hosts: bytes[14] == 1,
            sequence: number(bytes, 24, 8),
            durable_below: number(bytes, 32, 8),
            blocks,
        }
    }

    /// Where its segment begins on the disk.
    fn base(&self) -> u64 {
        self.at.at.saturating_sub(self.slot * SLOT as u64)
    }
}

/// How many bytes are stored of a block with this checksum; `None`: something else is there by now.
fn intact_len(stored: &[u8], crc: u64) -> Option<usize> {
    if stored.len() == SLOT {
        return (u64::from(crc32c(stored)) == crc).then_some(SLOT);
    }
    let end = PACKED_HEADER + number(stored, 0, 2) as usize;
    let packed = stored.get(PACKED_HEADER..end)?;
    (u64::from(crc32c(packed)) == number(stored, 2, 4)).then_some(end)
}

/// Whether a root or a head has its checksum.
fn is_whole(slot: &[u8]) -> bool {
    let mut covered = slot.to_vec();
    covered[8..12].fill(0);
    number(slot, 8, 4) == u64::from(crc32c(&covered))
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut all = [0; 8];
    all[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(all)
}

fn behind(spot: Spot, bytes: u64) -> Spot {
    Spot { at: spot.at + bytes, ..spot }
}

fn any<'a, T>(all: &'a [T], rng: &mut Rng) -> Option<&'a T> {
    if all.is_empty() { None } else { all.get(rng.below(all.len() as u64) as usize) }
}
