//! A client that writes, reads and flushes a part of a volume, and records that in a shadow.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use base::{BlockCount, BlockSize, Lba, Rng};
use initiator::{Error, Lun, Session};

use crate::commands::write_durably;
use crate::content::{SECTOR, Stamp, stamped};
use crate::rig::Shape;
use crate::shadow::Shadow;

/// The number of the volume at this LUN, for stamps.
pub(crate) fn volume_number(lun: u16) -> u64 {
    u64::from(lun) + 1
}

/// A part of a volume, and the client that writes there.
pub(crate) struct Worker {
    pub(crate) client: u64,
    pub(crate) shape: Shape,
    /// Only this client writes these blocks.
    pub(crate) blocks: Range<u64>,
    /// The write cache is off: every acknowledged write is durable.
    pub(crate) write_through: bool,
    pub(crate) shadow: Rc<RefCell<Shadow>>,
    pub(crate) rng: Rng,
    sequence: u64,
}

impl Worker {
    /// `count` workers that share a volume, in parts of equal size that are not aligned to stripes.
    pub(crate) fn share(
        shape: Shape,
        count: u64,
        shadow: &Rc<RefCell<Shadow>>,
        rng: &mut Rng,
    ) -> Vec<Worker> {
        let part = shape.blocks() / count;
        let part_of = |number: u64| number * part..(number + 1) * part;
        (0..count)
            .map(|number| Worker {
                client: rng.next() >> 1,
                shape,
                blocks: part_of(number),
                write_through: false,
                shadow: Rc::clone(shadow),
                rng: rng.fork(),
                sequence: 0,
            })
            .collect()
    }

    fn size(&self) -> BlockSize {
        self.shape.block
    }

    fn sectors(&self, blocks: &Range<u64>) -> Range<u64> {
        let per_block = u64::from(self.size().bytes()) / SECTOR as u64;
        blocks.start * per_block..blocks.end * per_block
    }

    /// A few blocks, or sometimes up to 1.5 MiB, which is on more than one slice.
    fn any_blocks(&mut self) -> Range<u64> {
        let have = self.blocks.end - self.blocks.start;
        let max = if self.rng.one_in(16) { (3 << 19) / u64::from(self.size().bytes()) } else { 8 };
        let count = 1 + self.rng.below(max.min(have));
        let start = self.blocks.start + self.rng.below(have - count + 1);
        start..start + count
    }

    /// Does one random operation.
    pub(crate) async fn step(&mut self, session: &Session) -> Result<(), Error> {
        match self.rng.below(10) {
            0..5 => self.write(session, false).await,
            5 => self.write(session, true).await,
            6 => self.flush(session).await,
            _ => self.read(session).await,
        }
    }

    async fn write(&mut self, session: &Session, durable: bool) -> Result<(), Error> {
        let blocks = self.any_blocks();
        self.sequence += 1;
        let stamp = Stamp { client: self.client, sequence: self.sequence };
        let sectors = self.sectors(&blocks);
        let count = (sectors.end - sectors.start) as usize;
        let data = stamped(volume_number(self.shape.lun), sectors.start, count, stamp);
        self.shadow.borrow_mut().begin_write(sectors.clone(), stamp);
        if durable {
            write_durably(session, self.shape.lun, blocks.start, data, self.size()).await?;
        } else {
            session.write(Lun(self.shape.lun), Lba(blocks.start), data, self.size()).await?;
        }
        self.shadow.borrow_mut().end_write(sectors, stamp, durable || self.write_through);
        Ok(())
    }

    async fn flush(&mut self, session: &Session) -> Result<(), Error> {
        let flush = self.shadow.borrow().begin_flush();
        session.flush(Lun(self.shape.lun)).await?;
        self.shadow.borrow_mut().end_flush(flush);
        Ok(())
    }

    async fn read(&mut self, session: &Session) -> Result<(), Error> {
        let blocks = self.any_blocks();
        let count = BlockCount(blocks.end - blocks.start);
        let data = session.read(Lun(self.shape.lun), Lba(blocks.start), count, self.size()).await?;
        let alive = self.shadow.borrow().check_alive(self.sectors(&blocks).start, &data);
        alive.unwrap_or_else(|broken| panic!("a read found {broken:?}"));
        Ok(())
    }

    /// Works until a command fails, or this many steps are done.
    pub(crate) async fn work(mut self, session: Rc<Session>, steps: u64) -> Result<(), Error> {
        for _ in 0..steps {
            self.step(&session).await?;
        }
        Ok(())
    }
}

/// Reads the whole volume.
pub(crate) async fn read_all(session: &Session, shape: Shape) -> Vec<u8> {
    let step = (1 << 20) / u64::from(shape.block.bytes());
    let mut all = Vec::new();
    for start in (0..shape.blocks()).step_by(step as usize) {
        let count = BlockCount(step.min(shape.blocks() - start));
        all.extend_from_slice(&session.read(Lun(shape.lun), Lba(start), count, shape.block).await.unwrap());
    }
    all
}
