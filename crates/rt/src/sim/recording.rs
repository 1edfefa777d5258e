//! Records what a node does to some of its disks, so that power can be cut at every point afterwards.

use std::cell::RefCell;
use std::rc::Rc;

use super::disk::Content;
use super::image::DiskImage;
use crate::Durability;

/// Something that happened to the recorded disks, in order.
#[derive(Clone)]
pub(super) enum Step {
    /// A disk received a write: from now on parts of it may be on the platter.
    Write { disk: usize, op: u64, offset: u64, content: Content },
    /// A disk received a flush.
    Flush { disk: usize, op: u64 },
    /// The write or flush succeeded.
    Done { op: u64, durability: Durability },
    /// The write was refused, and changed nothing.
    Refused { op: u64 },
    /// The code under test has promised everything up to this mark.
    Ack(u64),
}

pub(super) struct Tape {
    /// The content of the platters at the beginning.
    pub(super) disks: Vec<DiskImage>,
    pub(super) steps: Vec<Step>,
}

/// The operations of some disks from a moment on. Clones write to and read from the same tape.
#[derive(Clone)]
pub struct Recording(pub(super) Rc<RefCell<Tape>>);

impl Recording {
    /// Notes that everything up to `mark` has now been promised to survive. Marks must grow.
    pub fn ack(&self, mark: u64) {
        self.0.borrow_mut().steps.push(Step::Ack(mark));
    }

    /// The number of recorded steps.
    pub fn len(&self) -> usize {
        self.0.borrow().steps.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A drive's access to the tape.
pub(super) struct Tap {
    tape: Rc<RefCell<Tape>>,
    disk: usize,
}

impl Tap {
    pub(super) fn new(recording: &Recording, disk: usize) -> Tap {
        Tap { tape: Rc::clone(&recording.0), disk }
    }

    pub(super) fn write(&self, op: u64, offset: u64, content: Content) {
        self.tape.borrow_mut().steps.push(Step::Write { disk: self.disk, op, offset, content });
    }

    pub(super) fn flush(&self, op: u64) {
        self.tape.borrow_mut().steps.push(Step::Flush { disk: self.disk, op });
    }

    pub(super) fn done(&self, op: u64, durability: Durability) {
        self.tape.borrow_mut().steps.push(Step::Done { op, durability });
    }

    pub(super) fn refused(&self, op: u64) {
        self.tape.borrow_mut().steps.push(Step::Refused { op });
    }
}
