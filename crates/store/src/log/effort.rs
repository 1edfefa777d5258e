//! How much of a turn of its core the logs take for compression.

use std::cell::Cell;
use std::rc::Rc;

/// After this many blocks in a turn, no more are begun in it: that is half a millisecond, if all of them are
/// compressed.
const BLOCKS_MAX: usize = 64;

/// Bounds how many blocks the logs of a core compress and decompress in one turn.
///
/// Completions and messages from other cores wait for the end of a turn, which runs hundreds of tasks. So it
/// is not enough that each task pauses now and then.
#[derive(Default)]
pub(super) struct Effort {
    /// The last turn in which there were any, and how many.
    turn: Cell<u64>,
    blocks: Cell<usize>,
}

impl Effort {
    /// That of this core.
    pub(super) fn of_core() -> Rc<Effort> {
        rt::local::<Effort>().unwrap_or_else(|| {
            let effort = Rc::new(Effort::default());
            rt::set_local(Rc::clone(&effort));
            effort
        })
    }

    /// Waits for a turn in which more blocks may be begun.
    pub(super) async fn wait(&self) {
        while !self.may_begin() {
            rt::next_turn().await;
        }
    }

    fn may_begin(&self) -> bool {
        let now = rt::turn();
        if self.turn.replace(now) != now {
            self.blocks.set(0);
        }
        self.blocks.get() < BLOCKS_MAX
    }

    /// Counts blocks that were begun after [`Effort::wait`].
    pub(super) fn spend(&self, blocks: usize) {
        self.blocks.set(self.blocks.get() + blocks);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use rt::CoreId;
    use rt::sim::World;

    use super::*;

    #[test]
    fn many_tasks_share_the_time_of_a_turn() {
        const PART: usize = 10;
        let world = World::new(1);
        let node = world.add_node("node", 1, |_| std::future::pending());
        world.block_on(node, CoreId(0), || async {
            let by_turn: Rc<RefCell<BTreeMap<u64, usize>>> = Rc::default();
            let task = |_| {
                let (effort, by_turn) = (Effort::of_core(), Rc::clone(&by_turn));
                rt::spawn(async move {
                    for _ in 0..20 {
                        effort.wait().await;
                        effort.spend(PART);
                        *by_turn.borrow_mut().entry(rt::turn()).or_default() += PART;
                    }
                })
            };
            let tasks: Vec<rt::Task<()>> = (0..30).map(task).collect();
            for task in tasks {
                task.await;
            }
            let by_turn = by_turn.borrow();
            assert!(by_turn.values().all(|blocks| *blocks < BLOCKS_MAX + PART), "{by_turn:?}");
            assert_eq!(by_turn.values().sum::<usize>(), 30 * 20 * PART);
        });
    }
}
