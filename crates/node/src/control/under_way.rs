//! Tasks in the background, at most one for each thing: what one of them waits for delays no other thing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The things for which a task is under way.
pub(super) struct UnderWay<T>(Rc<RefCell<BTreeSet<T>>>);

impl<T> Default for UnderWay<T> {
    fn default() -> UnderWay<T> {
        UnderWay(Rc::default())
    }
}

impl<T: Copy + Ord + 'static> UnderWay<T> {
    /// Starts the task for the thing, unless one is under way: then `task` is dropped.
    pub(super) fn start(&self, thing: T, task: impl Future<Output = ()> + 'static) {
        if !self.0.borrow_mut().insert(thing) {
            return;
        }
        let under_way = Rc::clone(&self.0);
        rt::spawn(async move {
            task.await;
            under_way.borrow_mut().remove(&thing);
        })
        .detach();
    }
}
