//! Changes of the same blocks take turns in order of arrival.
//!
//! A change of part of a block reads the block first. It must not write back data that another change has
//! replaced meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use base::LbaRange;
use rt::sync::Notify;

/// The changes in progress and those that wait.
#[derive(Default)]
pub(super) struct Turns {
    next: Cell<u64>,
    ranges: RefCell<BTreeMap<u64, LbaRange>>,
    over: Notify,
}

/// A change's turn: when it is dropped, the next change starts.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    /// Waits until no earlier change of these blocks is in progress.
    pub(super) async fn take(&self, range: LbaRange) -> Turn<'_> {
        let number = self.next.replace(self.next.get() + 1);
        self.ranges.borrow_mut().insert(number, range);
        let turn = Turn { turns: self, number };
        while self.is_behind(number, range) {
            self.over.notified().await;
        }
        turn
    }

    fn is_behind(&self, number: u64, range: LbaRange) -> bool {
        self.ranges.borrow().range(..number).any(|(_, other)| other.overlaps(range))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.ranges.borrow_mut().remove(&self.number);
        self.turns.over.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use base::{BlockCount, Lba};
    use rt::sim::World;

    use super::*;

    fn blocks(start: u64, count: u64) -> LbaRange {
        LbaRange::new(Lba(start), BlockCount(count)).unwrap()
    }

    #[test]
    fn the_same_blocks_are_changed_one_after_the_other() {
        let world = World::new(1);
        let node = world.add_node("host", 1, |_| std::future::pending());
        let order = world.block_on(node, rt::CoreId(0), || async {
            let (turns, order) = (Rc::new(Turns::default()), Rc::new(RefCell::new(Vec::new())));
            let changes =
                [("first", 0, 8, 30), ("overlaps", 7, 2, 1), ("elsewhere", 20, 1, 5), ("last", 8, 1, 1)];
            let tasks = changes.map(|(name, start, count, millis)| {
                let (turns, order) = (Rc::clone(&turns), Rc::clone(&order));
                rt::spawn(async move {
                    let _turn = turns.take(blocks(start, count)).await;
                    rt::sleep(Duration::from_millis(millis)).await;
                    order.borrow_mut().push(name);
                })
            });
            rt::join_all(tasks).await;
            assert!(turns.ranges.borrow().is_empty());
            order.take()
        });
        assert_eq!(order, ["elsewhere", "first", "overlaps", "last"]);
    }
}
