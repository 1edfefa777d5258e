//! Cuts the power at every point of a recording.
//!
//! At each point the platters hold everything that completed flushes and durable writes have bound to them,
//! and any subset of the 512-byte sectors of the other writes that the disks had received. [`for_each_cut`]
//! yields each state that could be found afterwards, with what had been promised by then. Record in one
//! world, and recover each cut in a new one:
//!
//! ```
//! # use std::path::Path;
//! # use base::Buf;
//! # use rt::{CoreId, Disk, Durability, sim::{Subsets, World, for_each_cut}};
//! # async fn write(byte: u8) {
//! #     let disk = Disk::open(Path::new("/disk"), Default::default()).await.unwrap();
//! #     disk.write(0, Buf::copy_of(&[byte; 512]).share(), Durability::Durable).await.unwrap();
//! # }
//! # async fn recover() -> u64 {
//! #     let disk = Disk::open(Path::new("/disk"), Default::default()).await.unwrap();
//! #     disk.read(0, Buf::zeroed(512)).await.unwrap()[0].into()
//! # }
//! let world = World::new(1);
//! let node = world.add_node("a", 1, |_| std::future::pending());
//! world.add_disk(node, "/disk", 4096, 512);
//! let recording = world.record_disk(node, "/disk");
//! let acks = recording.clone();
//! world.block_on(node, CoreId(0), move || async move {
//!     write(1).await;
//!     acks.ack(1);
//! });
//! for_each_cut(&recording, Subsets::default(), |cut| {
//!     let world = World::new(2);
//!     let node = world.add_node("a", 1, |_| std::future::pending());
//!     world.put_disk(node, "/disk", cut.images[0].clone());
//!     let found = world.block_on(node, CoreId(0), recover);
//!     assert!(found >= cut.acked, "{cut}");
//! });
//! ```

use std::fmt;
use std::ops::Range;

use base::Rng;

use super::disk::Content;
use super::image::DiskImage;
use super::recording::{Recording, Step};
use crate::Durability;

/// How many subsets of the unflushed sectors are tried at each point.
#[derive(Clone, Copy, Debug)]
pub struct Subsets {
    /// Of up to this many sectors every subset is tried. Of more, two to this power are tried: none, all, and
    /// others drawn from the seed.
    pub bits: u32,
    /// Draws the other subsets.
    pub seed: u64,
}

impl Default for Subsets {
    /// 64 at each point.
    fn default() -> Subsets {
        Subsets { bits: 6, seed: 1 }
    }
}

/// A state that could be found after a power cut.
pub struct Cut {
    /// The contents of the disks, in the order in which they were passed to `record_disks`.
    pub images: Vec<DiskImage>,
    /// The highest mark that had been acknowledged; 0: none.
    pub acked: u64,
    /// The number of steps of the recording before the cut.
    pub at: usize,
    /// The number of the subset at this point.
    pub subset: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut at step {}, subset {}, acknowledged up to {}", self.at, self.subset, self.acked)
    }
}

/// A write that is not completely bound to the platter yet.
struct Pending {
    disk: usize,
    op: u64,
    offset: u64,
    content: Content,
    /// It has completed, so a flush that begins now covers it.
    done: bool,
    /// It certainly survives. It is only kept because older writes below it may not.
    certain: bool,
}

/// The state of the disks at a point of the recording.
struct Platters {
    bound: Vec<DiskImage>,
    /// Completed writes in the order of their completion, then writes under way in the order in which they
    /// began.
    pending: Vec<Pending>,
    /// The flushes under way, with the writes that each covers.
    flushes: Vec<(u64, Vec<u64>)>,
    acked: u64,
}

impl Platters {
    /// Takes a step; returns whether that changed what could be found.
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Write { disk, op, offset, content } => {
                let (disk, op, offset, content) = (*disk, *op, *offset, content.clone());
                self.pending.push(Pending { disk, op, offset, content, done: false, certain: false });
                true
            }
            Step::Flush { disk, op } => {
                let covered = self.pending.iter().filter(|write| write.disk == *disk && write.done);
                self.flushes.push((*op, covered.map(|write| write.op).collect()));
                false
            }
            Step::Done { op, durability } => match self.flushes.iter().position(|(flush, _)| flush == op) {
                Some(flush) => {
                    let (_, covered) = self.flushes.remove(flush);
                    for write in self.pending.iter_mut().filter(|write| covered.contains(&write.op)) {
                        write.certain = true;
                    }
                    self.bind();
                    true
                }
                None => {
                    self.complete(*op, *durability == Durability::Durable);
                    self.bind();
                    *durability == Durability::Durable
                }
            },
            Step::Refused { op } => {
                self.pending.retain(|write| write.op != *op);
                false
            }
            Step::Ack(mark) => {
                self.acked = self.acked.max(*mark);
                true
            }
        }
    }

    fn complete(&mut self, op: u64, durable: bool) {
        let at = self.pending.iter().position(|write| write.op == op).expect("it began before it was done");
        let mut write = self.pending.remove(at);
        write.done = true;
        write.certain = durable;
        let behind = self.pending.iter().take_while(|write| write.done).count();
        self.pending.insert(behind, write);
    }

    /// Binds the certain writes that have no uncertain ones of the same disk below them.
    fn bind(&mut self) {
        let mut uncertain = vec![false; self.bound.len()];
        let bound = &mut self.bound;
        self.pending.retain(|write| {
            if !write.certain || uncertain[write.disk] {
                uncertain[write.disk] = true;
                return true;
            }
            write.content.apply(&mut bound[write.disk], write.offset, 0..write.content.len());
            false
        });
    }

    /// The parts that may or may not survive: (index of the write, range within it).
    fn parts(&self) -> Vec<(usize, Range<u64>)> {
        let uncertain = self.pending.iter().enumerate().filter(|(_, write)| !write.certain);
        uncertain.flat_map(|(index, write)| write.content.parts().map(move |part| (index, part))).collect()
    }

    /// What is found if those of the uncertain parts survive for which `survives` returns true.
    fn images(&self, parts: &[(usize, Range<u64>)], survives: impl Fn(usize) -> bool) -> Vec<DiskImage> {
        let mut images = self.bound.clone();
        let mut next = parts.iter().enumerate().peekable();
        for (index, write) in self.pending.iter().enumerate() {
            let image = &mut images[write.disk];
            if write.certain {
                write.content.apply(image, write.offset, 0..write.content.len());
            }
            while let Some((number, (_, part))) = next.next_if(|(_, (of, _))| *of == index) {
                if survives(number) {
                    write.content.apply(image, write.offset, part.clone());
                }
            }
        }
        images
    }
}

/// Calls `check` for each state of the disks that a power cut at any point of the recording could leave.
/// Returns how many there were.
pub fn for_each_cut(recording: &Recording, subsets: Subsets, mut check: impl FnMut(&Cut)) -> u64 {
    assert!(subsets.bits < 32, "2^{} subsets are too many", subsets.bits);
    let tape = recording.0.borrow();
    let mut platters =
        Platters { bound: tape.disks.clone(), pending: Vec::new(), flushes: Vec::new(), acked: 0 };
    let mut rng = Rng::new(subsets.seed);
    let mut count = 0;
    for at in 0..=tape.steps.len() {
        let changed = at == 0 || platters.take(&tape.steps[at - 1]);
        if !changed {
            continue;
        }
        let parts = platters.parts();
        let exhaustive = parts.len() <= subsets.bits as usize;
        for subset in 0..1_u64 << parts.len().min(subsets.bits as usize) {
            let images = if exhaustive {
                platters.images(&parts, |part| subset >> part & 1 == 1)
            } else {
                let drawn = draw(subset, parts.len(), &mut rng);
                platters.images(&parts, |part| drawn[part])
            };
            check(&Cut { images, acked: platters.acked, at, subset });
            count += 1;
        }
    }
    count
}

/// A subset of many parts: none, all, all but one, one only, or any.
fn draw(subset: u64, parts: usize, rng: &mut Rng) -> Vec<bool> {
    let one = rng.below(parts as u64) as usize;
    match (subset, rng.below(4)) {
        (0, _) => vec![false; parts],
        (1, _) => vec![true; parts],
        (_, 0) => (0..parts).map(|part| part != one).collect(),
        (_, 1) => (0..parts).map(|part| part == one).collect(),
        _ => (0..parts).map(|_| rng.one_in(2)).collect(),
    }
}
