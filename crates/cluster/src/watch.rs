//! Watches: they receive every committed change in order and skip none. A watch that asks for changes which
//! are no longer kept, or takes them too slowly, receives the whole record and continues from there.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::error::Error;
use crate::limits::{HISTORY_BYTES_MAX, HISTORY_CHANGES_MAX, WATCH_CHANGES_MAX};
use crate::transaction::{Revision, Versioned};

/// All keys and values as of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Everything {
    /// The last transaction that took effect.
    pub revision: Revision,
    /// The values by key.
    pub entries: BTreeMap<String, Versioned>,
}

impl Everything {
    /// Applies `change`, which must be later.
    pub fn change(&mut self, change: &Change) {
        assert!(change.revision > self.revision, "changes come in order");
        self.revision = change.revision;
        for (key, value) in &change.writes {
            match value {
                Some(value) => {
                    let entry = Versioned { value: Arc::clone(value), revision: change.revision };
                    self.entries.insert(key.clone(), entry);
                }
                None => {
                    self.entries.remove(key);
                }
            }
        }
    }
}

/// The writes of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The transaction's revision.
    pub revision: Revision,
    /// Keys and new values; `None`: the key was deleted. Each key appears once; the order has no meaning.
    pub writes: Vec<(String, Option<Arc<[u8]>>)>,
}

impl Change {
    fn bytes(&self) -> usize {
        let value = |value: &Option<Arc<[u8]>>| value.as_ref().map_or(0, |value| value.len());
        self.writes.iter().map(|(key, it)| key.len() + value(it)).sum()
    }
}

/// What a watch receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Start again from this state: the changes between the last event and this one are not reported one by
    /// one.
    Everything(Arc<Everything>),
    /// The next change.
    Change(Arc<Change>),
}

impl Event {
    /// How far the watcher has seen with this event.
    pub fn revision(&self) -> Revision {
        match self {
            Event::Everything(everything) => everything.revision,
            Event::Change(change) => change.revision,
        }
    }
}

/// Follows the record until it is dropped.
pub struct Watch(Arc<Queue>);

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    waker: Option<Waker>,
    /// The engine has stopped: there will be no more events.
    ended: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no code panics while it holds the queue")
    }
}

impl Watch {
    /// The next event, or [`Error::Stopped`] if the engine has stopped.
    ///
    /// It arrives when something changes; a caller that cannot wait for that sets a deadline.
    pub async fn next(&mut self) -> Result<Event, Error> {
        poll_fn(|context| {
            let mut waiting = self.0.lock();
            if let Some(event) = waiting.events.pop_front() {
                return Poll::Ready(Ok(event));
            }
            if waiting.ended {
                return Poll::Ready(Err(Error::Stopped));
            }
            waiting.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The next event, for a thread that may block; `None`: nothing changed within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        let waiting = self.0.lock();
        let nothing = |waiting: &mut Waiting| waiting.events.is_empty() && !waiting.ended;
        let (mut waiting, _) = self
            .0
            .arrived
            .wait_timeout_while(waiting, timeout, nothing)
            .expect("no code panics while it holds the queue");
        match waiting.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None if waiting.ended => Err(Error::Stopped),
            None => Ok(None),
        }
    }
}

/// All watches of one engine, and the recent changes for watches that start in the past.
pub(crate) struct Watches {
    history: VecDeque<Arc<Change>>,
    bytes: usize,
    /// The history has all changes after this revision.
    since: Revision,
    feeds: Vec<Feed>,
}

/// The engine's side of a watch.
struct Feed {
    queue: Arc<Queue>,
    /// The revision that the watcher started from or has received since; only later changes are sent.
    after: Revision,
}

impl Watches {
    /// The watches of a record whose last change is `revision`.
    pub(crate) fn new(revision: Revision) -> Watches {
        Watches { history: VecDeque::new(), bytes: 0, since: revision, feeds: Vec::new() }
    }

    pub(crate) fn count(&mut self) -> usize {
        self.feeds.retain(Feed::is_watched);
        self.feeds.len()
    }

    /// Starts a watch of all changes after `after`, past and future; `now` is the whole record.
    pub(crate) fn watch(&mut self, after: Revision, now: &Everything) -> Watch {
        let queue = Arc::new(Queue { waiting: Mutex::default(), arrived: Condvar::new() });
        let mut feed = Feed { queue: Arc::clone(&queue), after };
        if after < self.since {
            feed.start_again(now);
        } else {
            for change in &self.history {
                feed.change(change, now);
            }
        }
        self.feeds.push(feed);
        Watch(queue)
    }

    /// Sends a change to all watches. `now` is the whole record after it.
    pub(crate) fn change(&mut self, change: Change, now: &Everything) {
        let change = Arc::new(change);
        self.feeds.retain(Feed::is_watched);
        for feed in &mut self.feeds {
            feed.change(&change, now);
        }
        self.bytes += change.bytes();
        self.history.push_back(change);
        while self.history.len() > HISTORY_CHANGES_MAX || self.bytes > HISTORY_BYTES_MAX {
            let oldest = self.history.pop_front().expect("nothing has no bytes");
            self.bytes -= oldest.bytes();
            self.since = oldest.revision;
        }
    }

    /// Replaces the record by another state; the changes that led there are unknown.
    pub(crate) fn replaced(&mut self, now: &Everything) {
        self.history.clear();
        self.bytes = 0;
        self.since = now.revision;
        self.feeds.retain(Feed::is_watched);
        for feed in self.feeds.iter_mut().filter(|feed| feed.after < now.revision) {
            feed.start_again(now);
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for feed in &self.feeds {
            feed.tell(|waiting| waiting.ended = true);
        }
    }
}

impl Feed {
    /// Whether the watcher still holds the queue.
    fn is_watched(&self) -> bool {
        Arc::strong_count(&self.queue) > 1
    }

    fn change(&mut self, change: &Arc<Change>, now: &Everything) {
        if change.revision <= self.after {
            return;
        }
        if self.queue.lock().events.len() >= WATCH_CHANGES_MAX {
            return self.start_again(now);
        }
        self.after = change.revision;
        self.tell(|waiting| waiting.events.push_back(Event::Change(Arc::clone(change))));
    }

    fn start_again(&mut self, now: &Everything) {
        self.after = now.revision;
        self.tell(|waiting| {
            waiting.events.clear();
            waiting.events.push_back(Event::Everything(Arc::new(now.clone())));
        });
    }

    fn tell(&self, what: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.queue.lock();
        what(&mut waiting);
        let waker = waiting.waker.take();
        drop(waiting);
        self.queue.arrived.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grow(now: &mut Everything, watches: &mut Watches, value: usize) {
        let writes = vec![("k".to_owned(), Some(vec![7; value].into()))];
        let change = Change { revision: Revision(now.revision.0 + 1), writes };
        now.change(&change);
        watches.change(change, now);
    }

    fn seen(watch: &mut Watch) -> Vec<(bool, u64)> {
        let events = std::iter::from_fn(|| watch.wait(Duration::ZERO).unwrap());
        events.map(|event| (matches!(event, Event::Change(_)), event.revision().0)).collect()
    }

    #[test]
    fn a_watch_begins_where_it_is_asked_to() {
        let (mut now, mut watches) = (Everything::default(), Watches::new(Revision(0)));
        (0..3).for_each(|_| grow(&mut now, &mut watches, 1));
        let mut all = watches.watch(Revision(0), &now);
        let mut some = watches.watch(Revision(2), &now);
        let mut future = watches.watch(Revision(4), &now);
        (0..2).for_each(|_| grow(&mut now, &mut watches, 1));
        assert_eq!(seen(&mut all), [1, 2, 3, 4, 5].map(|revision| (true, revision)));
        assert_eq!(seen(&mut some), [3, 4, 5].map(|revision| (true, revision)));
        assert_eq!(seen(&mut future), [(true, 5)], "it had seen 4 elsewhere");
        assert_eq!(watches.count(), 3);
        drop((all, some));
        assert_eq!(watches.count(), 1);
        drop(watches);
        assert_eq!(future.wait(Duration::ZERO), Err(Error::Stopped));
    }

    #[test]
    fn a_watch_from_before_the_kept_changes_starts_over() {
        let (mut now, mut watches) = (Everything::default(), Watches::new(Revision(0)));
        // 8 MiB are 31.99 of these: the last 31 are kept.
        (0..40).for_each(|_| grow(&mut now, &mut watches, 262_144));
        let mut late = watches.watch(Revision(8), &now);
        let mut just = watches.watch(Revision(9), &now);
        assert_eq!(seen(&mut late), [(false, 40)]);
        assert_eq!(seen(&mut just).len(), 31);
        grow(&mut now, &mut watches, 1);
        assert_eq!(seen(&mut late), [(true, 41)]);
        now.revision = Revision(60);
        watches.replaced(&now);
        assert_eq!(seen(&mut just), [(false, 60)], "and what it had not taken is part of it");
    }

    #[test]
    fn a_slow_watcher_starts_over() {
        let (mut now, mut watches) = (Everything::default(), Watches::new(Revision(0)));
        let mut slow = watches.watch(Revision(0), &now);
        (0..4097).for_each(|_| grow(&mut now, &mut watches, 1));
        assert_eq!(seen(&mut slow), [(false, 4097)]);
        grow(&mut now, &mut watches, 1);
        assert_eq!(seen(&mut slow), [(true, 4098)]);
    }
}
