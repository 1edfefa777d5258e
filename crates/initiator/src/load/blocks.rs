//! Records what a run has written where, so that it knows what a read must return.

/// One request's worth of space.
#[derive(Clone, Copy, Default)]
struct Block {
    /// The number of the last write that was answered; zero means none.
    written: u32,
    readers: u16,
    writer: bool,
}

/// The right to use a block for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    /// The number of the last write before this request.
    written: u32,
    /// A read; otherwise the write `written + 1`.
    read: bool,
}

impl Claim {
    /// The write whose data a read must return; `None` if this run has not written the block.
    pub(super) fn written(self) -> Option<u64> {
        (self.written > 0).then_some(u64::from(self.written))
    }

    pub(super) fn write(self) -> u64 {
        u64::from(self.written) + 1
    }
}

/// The blocks of the part of the unit that a run uses.
pub(super) struct Blocks(Vec<Block>);

impl Blocks {
    pub(super) fn new(count: u64) -> Blocks {
        Blocks(vec![Block::default(); usize::try_from(count).expect("a unit's blocks fit into memory")])
    }

    /// Claims a block for one request, if possible: many may read it, or one may write it.
    pub(super) fn claim(&mut self, slot: u64, read: bool) -> Option<Claim> {
        let block = &mut self.0[slot as usize];
        if block.writer || (!read && block.readers > 0) {
            return None;
        }
        match read {
            true => block.readers += 1,
            false => block.writer = true,
        }
        Some(Claim { written: block.written, read })
    }

    /// Ends a claim: the request has succeeded.
    pub(super) fn release(&mut self, slot: u64, claim: Claim) {
        let block = &mut self.0[slot as usize];
        match claim.read {
            true => block.readers -= 1,
            false => *block = Block { written: claim.written + 1, ..Block::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_do_not() {
        let mut blocks = Blocks::new(2);
        let first = blocks.claim(1, true).unwrap();
        let second = blocks.claim(1, true).unwrap();
        assert_eq!(first.written(), None);
        assert_eq!(blocks.claim(1, false), None);
        blocks.release(1, first);
        blocks.release(1, second);
        let write = blocks.claim(1, false).unwrap();
        assert_eq!(write.write(), 1);
        assert_eq!((blocks.claim(1, true), blocks.claim(1, false)), (None, None));
        blocks.release(1, write);
        assert_eq!(blocks.claim(1, true).unwrap().written(), Some(1));
        assert_eq!(blocks.claim(0, true).unwrap().written(), None);
    }
}
