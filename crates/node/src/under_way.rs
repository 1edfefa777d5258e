//! Work in the background, at most one task for each thing: what one of them waits for delays no other thing.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The things for which a task is under way.
pub(crate) struct UnderWay<T>(Rc<RefCell<BTreeSet<T>>>);

/// The mark that a task for the thing is under way; dropping it removes the mark.
pub(crate) struct Begun<T: Copy + Ord> {
    thing: T,
    all: Rc<RefCell<BTreeSet<T>>>,
}

impl<T> Default for UnderWay<T> {
    fn default() -> UnderWay<T> {
        UnderWay(Rc::default())
    }
}

impl<T: Copy + Ord + 'static> UnderWay<T> {
    /// Marks the thing; `None` if a task for it is under way.
    pub(crate) fn begin(&self, thing: T) -> Option<Begun<T>> {
        let is_new = self.0.borrow_mut().insert(thing);
        is_new.then(|| Begun { thing, all: Rc::clone(&self.0) })
    }

    /// Whether a task for the thing is under way.
    pub(crate) fn has(&self, thing: &T) -> bool {
        self.0.borrow().contains(thing)
    }

    /// Starts the task for the thing, unless one is under way: then `task` is dropped.
    pub(crate) fn start(&self, thing: T, task: impl Future<Output = ()> + 'static) {
        let Some(begun) = self.begin(thing) else { return };
        rt::spawn(async move {
            task.await;
            drop(begun);
        })
        .detach();
    }
}

impl<T: Copy + Ord> Drop for Begun<T> {
    fn drop(&mut self) {
        self.all.borrow_mut().remove(&self.thing);
    }
}
