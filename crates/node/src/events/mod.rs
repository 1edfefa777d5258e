//! Events of a node, for people and programs that watch it.
//!
//! An event is emitted where it happens: where the cluster's record changes, a session ends, a change is
//! complete. Events are kept in order, at most [`KEPT_MAX`]. A reader that takes them in time
//! ([`Control::next_events`]) sees all; otherwise it learns how many it has missed. No code waits for the
//! reader. Conditions without a moment of their own, like a disk that is out of service, are looked for while
//! a reader takes events. Lives on core 0.

pub mod code;
pub mod condition;
mod look;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use base::Instant;
use rt::sync::Notify;
use store::VolumeId;

pub use self::code::{Code, Severity};
use self::look::Seen;
use crate::attach::access::{LunMap, TargetName};
use crate::control::{Beat, Control};
use crate::copies::DiskRange;

/// Events that are kept until they are taken, of some 300 bytes each.
const KEPT_MAX: usize = 1024;

/// Events that are remembered even after they were taken, so that a change is not emitted twice: once because
/// of the record, and once by the code that made it.
const RECENT_MAX: usize = 64;

/// How often to look for conditions that have no moment of their own.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The kind of event.
    pub code: Code,
    /// The name of its subject, or an iSCSI name.
    pub subject: String,
    /// The identity of the volume that it concerns, which stays the same when the volume is renamed; `None`
    /// if it concerns something else.
    pub volume: Option<VolumeId>,
    /// Whether its subject is the node that it concerns, which nodes may know by different names.
    pub is_of_node: bool,
    /// The LUN map that was added or removed; `None` if it concerns something else.
    pub map: Option<MapChange>,
    /// The cause, for programs.
    pub cause: Option<&'static str>,
    /// The number of the node that it concerns; `None`: the node that emits it.
    pub node: Option<u16>,
    /// The revision of the cluster's record that contains it, so that the events of all nodes can be
    /// recognized as one; `None` if only this node knows it, or has noticed it itself.
    pub revision: Option<u64>,
    /// The range that a disk could not read, if that is the cause; `None` if it is not, or if the range is
    /// unknown.
    pub range: Option<DiskRange>,
    /// What has happened, as a sentence for people. Nothing compares it: nodes may word the same event
    /// differently.
    pub text: String,
}

/// A LUN map that was added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapChange {
    /// The target.
    pub target: TargetName,
    /// The map.
    pub map: LunMap,
    /// Whether it was added; `false`: it was removed.
    pub added: bool,
}

impl Event {
    /// An event without a cause, concerning the node that emits it.
    pub fn new(code: Code, subject: impl Into<String>, text: impl Into<String>) -> Event {
        Event {
            code,
            subject: subject.into(),
            volume: None,
            is_of_node: false,
            map: None,
            cause: None,
            node: None,
            revision: None,
            range: None,
            text: text.into(),
        }
    }

    /// An event whose subject is a node: its name, and its number in the cluster.
    pub fn about_node(code: Code, (name, node): (&str, u16), text: impl Into<String>) -> Event {
        Event { is_of_node: true, ..Event::new(code, name, text).of_node(node) }
    }

    /// Sets the volume that it concerns.
    #[must_use]
    pub fn of_volume(self, volume: VolumeId) -> Event {
        Event { volume: Some(volume), ..self }
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(self, cause: &'static str) -> Event {
        Event { cause: Some(cause), ..self }
    }

    /// Sets the node that it concerns.
    #[must_use]
    pub fn of_node(self, node: u16) -> Event {
        Event { node: Some(node), ..self }
    }

    /// Sets the range that a disk could not read.
    #[must_use]
    pub fn where_unread(self, range: Option<DiskRange>) -> Event {
        Event { range, ..self }
    }

    /// Sets the revision of the cluster's record.
    #[must_use]
    pub fn of_revision(self, revision: Option<u64>) -> Event {
        Event { revision, ..self }
    }
}

/// Events that have not been taken yet.
#[derive(Default)]
pub(crate) struct Events {
    kept: RefCell<VecDeque<(Instant, Event)>>,
    /// How many were discarded since the last take.
    missed: Cell<u64>,
    /// The most recent events, taken or not.
    recent: RefCell<VecDeque<(Instant, Event)>>,
    rung: Notify,
    seen: RefCell<Seen>,
}

impl Events {
    /// Emits an event.
    pub(crate) fn tell(&self, event: Event) {
        self.tell_at(rt::now(), event);
    }

    fn tell_at(&self, now: Instant, event: Event) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
            self.missed.set(self.missed.get() + 1);
        }
        kept.push_back((now, event.clone()));
        self.rung.notify();
        let mut recent = self.recent.borrow_mut();
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((now, event));
    }

    /// Like [`Events::tell`], unless the same has happened to the same subject since `since`.
    pub(crate) fn tell_unless_told(&self, since: Instant, event: Event) {
        if !self.is_told(since, &event) {
            self.tell(event);
        }
    }

    fn is_told(&self, since: Instant, event: &Event) -> bool {
        let recent = self.recent.borrow();
        let mut since_then = recent.iter().rev().take_while(|(at, _)| *at >= since);
        since_then.any(|(_, told)| (told.code, &told.subject) == (event.code, &event.subject))
    }
}

/// The events of one take.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// In the order in which they happened, with their age.
    pub events: Vec<(Duration, Event)>,
    /// How many earlier events were discarded.
    pub missed: u64,
}

/// Emits an event of the node whose core 0 runs the caller. Does nothing while the node starts.
pub(crate) fn tell(event: Event) {
    if let Some(control) = Control::try_current() {
        control.events().tell(event);
    }
}

impl Control {
    /// Waits for events, and takes them; none if nothing happens for about a second. Only one caller at a
    /// time.
    pub async fn next_events(self: Rc<Control>) -> Taken {
        self.look_for_events();
        let events = self.events();
        if events.kept.borrow().is_empty() {
            // Who takes them again and again waits from beat to beat.
            let next = Beat::Events.after(rt::now() + LOOK_EVERY / 2, LOOK_EVERY);
            let _ = rt::timeout_at(next, events.rung.until(|| !events.kept.borrow().is_empty())).await;
        }
        let now = rt::now();
        let taken = events.kept.take().into_iter().map(|(at, event)| (now.since(at), event)).collect();
        Taken { events: taken, missed: events.missed.take() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_code_is_there_once_and_in_plain_letters() {
        let names: BTreeSet<&str> = code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), code::ALL.len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        }
    }

    #[test]
    fn each_bad_event_says_what_to_do() {
        for code in code::ALL.iter().filter(|code| code.severity() == Severity::Critical) {
            assert!(code.action().is_some(), "{}", code.as_str());
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_lost_is_counted() {
        let events = Events::default();
        for n in 0..KEPT_MAX + 3 {
            events.tell_at(Instant::default(), Event::new(code::VOLUME_CREATED, format!("v{n}"), "made"));
        }
        assert_eq!(events.kept.borrow().len(), KEPT_MAX);
        assert_eq!(events.kept.borrow()[0].1.subject, "v3");
        assert_eq!((events.missed.get(), events.recent.borrow().len()), (3, RECENT_MAX));
    }

    #[test]
    fn only_events_of_the_same_subject_are_deduplicated() {
        let events = Events::default();
        let second = |at: u64| Instant(at * 1_000_000_000);
        let grown = |name: &str| Event::new(code::VOLUME_RESIZED, name, format!("volume {name} grown"));
        events.tell_at(second(5), grown("db2"));
        assert!(events.is_told(second(5), &grown("db2")));
        assert!(!events.is_told(second(5), &grown("db")), "its name is in the text of the other one");
        assert!(!events.is_told(second(6), &grown("db2")), "it has happened once more");
    }
}
