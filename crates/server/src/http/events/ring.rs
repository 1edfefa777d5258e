//! The events that a node keeps in memory.
//!
//! They are numbered without gaps. The first number after a start is derived from the time, so it is above
//! all numbers from before a restart. So a reader that names the last event it has seen learns whether it has
//! missed any.
//!
//! The ring has the number of the node, which all of its events get when they are read: a node that joins a
//! cluster gets another number, and its events are its own all the same. What they say in terms of the former
//! cluster is translated then ([`Remembered::translate`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::node::events::Event as Happened;
use ::node::events::code::{INITIATOR_DENIED, JOIN_REFUSED, Severity as NodeSeverity};
use api::{DiskRange, Event, MapChange, Severity};
use serde::{Deserialize, Serialize};
use terms::clock::unix_now;
use terms::same_names::same_names;
use tokio::sync::watch;

use super::filter::EventFilter;
use super::{EVENTS_DROPPED, LOGIN_THROTTLED};

/// The number of events that are kept: some 400 bytes each, so 2 MiB.
pub(super) const EVENTS_MAX: usize = 4096;

/// The first event number is the time in seconds times this. No node has as many events per second.
const NUMBERS_PER_SECOND: u64 = 1 << 20;

/// The number of events of one code per minute, so that one code cannot push out all others. The limit is
/// lower for events that unauthenticated clients can cause.
const OF_CODE_MAX: usize = 512;
const UNAUTHENTICATED_MAX: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// The events of a node; see the module.
pub struct Ring {
    kept: Mutex<Remembered>,
    /// The number of the newest event; `None`: there will be no more.
    newest: watch::Sender<Option<u64>>,
}

/// Some of a node's events, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Page {
    pub(super) items: Vec<Event>,
    /// Whether events after the named one have been dropped, or the named one is not an event of this node.
    pub(super) gap: bool,
    /// The number of the last event in `items`, or of the newest event if there are no more.
    pub(super) next: u64,
}

struct Remembered {
    events: VecDeque<Event>,
    node: u16,
    /// The number of the next event.
    next: u64,
    /// The number of events of each code since `since`, kept or not.
    counted: BTreeMap<&'static str, usize>,
    since: Instant,
}

impl Ring {
    /// An empty ring of a node that started at this time.
    pub fn new(unix_seconds: u64) -> Ring {
        let next = unix_seconds * NUMBERS_PER_SECOND;
        let (events, counted) = (VecDeque::new(), BTreeMap::new());
        let kept = Remembered { events, node: 1, next, counted, since: Instant::now() };
        Ring { kept: Mutex::new(kept), newest: watch::Sender::new(Some(next - 1)) }
    }

    /// Notes the number of the node. If it has another one than before, the node has joined a cluster.
    pub(super) fn is_of(&self, node: u16) {
        let mut kept = self.kept();
        let before = std::mem::replace(&mut kept.node, node);
        if before != node {
            kept.translate(before);
        }
    }

    /// Adds an event that happened this long ago.
    pub(in crate::http) fn tell(&self, age: Duration, event: Happened) {
        let mut kept = self.kept();
        kept.end_minute();
        let max = most_in_a_minute(event.code.as_str());
        let count = kept.counted.entry(event.code.as_str()).or_default();
        *count += 1;
        if *count <= max {
            kept.push(age, event);
        }
        self.newest.send_replace(Some(kept.next - 1));
    }

    /// At the end of a minute, adds events that say how many were omitted in it.
    pub(super) fn tell_left_out(&self) {
        let mut kept = self.kept();
        let before = kept.next;
        kept.end_minute();
        if kept.next != before {
            self.newest.send_replace(Some(kept.next - 1));
        }
    }

    /// There will be no more events: streams end.
    pub fn close(&self) {
        self.newest.send_replace(None);
    }

    /// Waits until there will be no more events.
    pub(in crate::http) async fn closed(&self) {
        // The sender is part of `self`, so it is not dropped meanwhile.
        let _ = self.newest.subscribe().wait_for(Option::is_none).await;
    }

    /// Notifies of new events: the number of the newest, `None` at the end.
    pub(super) fn watch(&self) -> watch::Receiver<Option<u64>> {
        self.newest.subscribe()
    }

    /// At most `limit` of the wanted events after the one with this number; without a number, the newest.
    pub(super) fn after(&self, after: Option<u64>, limit: usize, wanted: &EventFilter) -> Page {
        let kept = self.kept();
        let (last, oldest) = (kept.next - 1, kept.next - kept.events.len() as u64);
        let (skipped, gap) = match after {
            // A reader that has seen nothing yet gets what is there.
            None | Some(0) => (0, false),
            Some(after) if after > last || after + 1 < oldest => (0, true),
            Some(after) => ((after + 1 - oldest) as usize, false),
        };
        let found = kept.events.iter().skip(skipped).filter(|event| wanted.has(event));
        let items = kept.told(match after {
            None => newest(found, limit),
            Some(_) => found.take(limit).cloned().collect(),
        });
        // With fewer than `limit` items, all events were searched.
        let next = items.last().filter(|_| items.len() >= limit).map_or(last, |event| event.id);
        Page { gap, next, items }
    }

    /// The newest wanted events up to this time, in seconds since 1970; at most `limit`.
    pub(super) fn until(&self, until: u64, limit: usize, wanted: &EventFilter) -> Page {
        let kept = self.kept();
        let happened = kept.events.iter().filter(|event| event.at <= until && wanted.has(event));
        let items = kept.told(newest(happened, limit));
        Page { gap: false, next: items.last().map_or(kept.next - 1, |event| event.id), items }
    }

    fn kept(&self) -> MutexGuard<'_, Remembered> {
        // Each statement leaves the contents consistent, even if its thread panics later.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    /// The events as they are told: with the number of this node, which reports them.
    fn told(&self, mut events: Vec<Event>) -> Vec<Event> {
        for event in &mut events {
            event.seen_by = vec![self.node];
            // A change of the record belongs to all nodes, so it is not about the node that reports it.
            event.node = event.node.or(event.revision.is_none().then_some(self.node));
        }
        events
    }

    /// Makes the events those of a node that has joined a cluster, and had the number `before` until then.
    ///
    /// Two records count their revisions independently, and another node has the former number in this
    /// cluster. Otherwise an event would be mistaken for another node's report of something else.
    fn translate(&mut self, before: u16) {
        let now = self.node;
        let translated = |node: u16| if node == before { now } else { node };
        for event in &mut self.events {
            event.revision = None;
            event.node = event.node.map(translated);
            event.subject_node = event.subject_node.map(translated);
            if let Some(range) = &mut event.range {
                range.node = translated(range.node);
            }
        }
    }

    fn push(&mut self, age: Duration, event: Happened) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        let Happened { code, subject, volume, is_of_node, map, cause, node, revision, range, text } = event;
        self.events.push_back(Event {
            id: self.next,
            at: unix_now().saturating_sub(age.as_secs()),
            severity: shown_severity(code.severity()),
            code: code.as_str().to_owned(),
            cause: cause.map(str::to_owned),
            subject: Some(subject).filter(|subject| !subject.is_empty()),
            subject_id: volume.map(|id| id.to_string()),
            subject_node: node.filter(|_| is_of_node),
            map: map.map(|change| Box::new(shown_map(change))),
            text,
            action: code.action().map(str::to_owned),
            node,
            revision,
            range: range.map(|range| Box::new(shown_range(range))),
            seen_by: Vec::new(),
        });
        self.next += 1;
    }

    fn end_minute(&mut self) {
        if self.since.elapsed() < MINUTE {
            return;
        }
        self.since = Instant::now();
        for (code, count) in std::mem::take(&mut self.counted) {
            let max = most_in_a_minute(code);
            if count > max {
                let dropped = count - max;
                let events = if dropped == 1 { "event" } else { "events" };
                let text = format!("omitted here: {dropped} more {code} {events} within a minute");
                self.push(Duration::ZERO, Happened::new(EVENTS_DROPPED, code, text).because("too_many"));
            }
        }
    }
}

fn shown_range(range: ::node::copies::DiskRange) -> DiskRange {
    let ::node::copies::DiskRange { node, pool, disk, offset, len, lba, blocks } = range;
    DiskRange { node, pool, disk, offset, len, lba, blocks }
}

fn shown_map(change: ::node::events::MapChange) -> MapChange {
    let ::node::events::MapChange { target, map, added } = change;
    MapChange { target: target.to_string(), lun: map.lun, host: map.host.to_string(), added }
}

/// The number of events of this code that are kept per minute.
fn most_in_a_minute(code: &str) -> usize {
    let is_unauthenticated =
        [INITIATOR_DENIED, JOIN_REFUSED, LOGIN_THROTTLED].iter().any(|of| of.as_str() == code);
    if is_unauthenticated { UNAUTHENTICATED_MAX } else { OF_CODE_MAX }
}

/// The last `limit` of these, in their order.
fn newest<'a>(events: impl DoubleEndedIterator<Item = &'a Event>, limit: usize) -> Vec<Event> {
    let mut items: Vec<Event> = events.rev().take(limit).cloned().collect();
    items.reverse();
    items
}

same_names! {
    pub(in crate::http) fn shown_severity(NodeSeverity) -> Severity { Info, Warning, Critical }
}

#[cfg(test)]
mod tests {
    use ::node::access::{LunMap, TargetName};
    use ::node::events::code::{
        HOST_CREATED, MAPS_CHANGED, NODE_JOINED, NODE_LOST, VOLUME_CREATED, VOLUME_RENAMED,
    };
    use store::VolumeId;

    use super::*;

    const START: u64 = 1_800_000_000;

    const ALL: EventFilter = EventFilter { subject: None, severity: None };

    fn made(name: &str) -> Happened {
        Happened::new(VOLUME_CREATED, name, "it was made")
    }

    fn subjects(events: &Page) -> Vec<&str> {
        events.items.iter().filter_map(|event| event.subject.as_deref()).collect()
    }

    #[test]
    fn a_reader_that_names_its_last_event_misses_none() {
        let ring = Ring::new(START);
        ring.is_of(2);
        let nothing = ring.after(None, 10, &ALL);
        assert_eq!((nothing.items.len(), nothing.gap), (0, false));
        for name in ["a", "b", "c"] {
            ring.tell(Duration::ZERO, made(name));
        }
        let newest = ring.after(None, 2, &ALL);
        assert_eq!((subjects(&newest), newest.gap), (vec!["b", "c"], false));
        let all = ring.after(Some(nothing.next), 10, &ALL);
        assert_eq!((subjects(&all), all.gap), (vec!["a", "b", "c"], false));
        assert_eq!(all.items[0].node, Some(2));
        let page = ring.after(Some(nothing.next), 2, &ALL);
        assert_eq!(subjects(&page), ["a", "b"]);
        assert_eq!(subjects(&ring.after(Some(page.next), 2, &ALL)), ["c"]);
        assert_eq!(subjects(&ring.after(Some(all.next), 2, &ALL)), Vec::<&str>::new());
        assert_eq!(ring.after(Some(all.next), 2, &ALL).next, all.next);
    }

    #[test]
    fn events_of_the_record_concern_only_the_node_they_name() {
        let ring = Ring::new(START);
        ring.tell(Duration::ZERO, made("a").of_revision(Some(7)));
        ring.tell(Duration::ZERO, made("b").of_revision(Some(8)).of_node(3));
        ring.tell(Duration::ZERO, made("c"));
        ring.is_of(1);
        let page = ring.after(None, 10, &ALL);
        let said = page.items.into_iter().map(|event| (event.node, event.revision, event.seen_by));
        let expected = [(None, Some(7), vec![1]), (Some(3), Some(8), vec![1]), (Some(1), None, vec![1])];
        assert_eq!(said.collect::<Vec<_>>(), expected);
    }

    /// Two machines that were set up by one script have the same revisions, and both were node 1.
    #[test]
    fn events_before_a_node_joined_are_not_mistaken_for_those_of_the_cluster() {
        let told = |ring: &Ring| {
            ring.tell(Duration::ZERO, Happened::new(HOST_CREATED, "esx", "created").of_revision(Some(7)));
            let joined = Happened::about_node(NODE_JOINED, ("san", 1), "joined");
            ring.tell(Duration::ZERO, joined.of_revision(Some(2)));
            ring.tell(Duration::ZERO, Happened::about_node(NODE_LOST, ("san", 1), "down"));
            ring.tell(Duration::ZERO, made("own"));
        };
        let (cluster, joined) = (Ring::new(START), Ring::new(START));
        told(&cluster);
        told(&joined);
        joined.is_of(2);
        let (ours, theirs) = (cluster.after(None, 10, &ALL).items, joined.after(None, 10, &ALL).items);
        for (our, their) in ours.iter().zip(&theirs) {
            assert!(!our.is_same_as(their), "{our:?} {their:?}");
            assert_eq!((their.node, their.revision, &*their.seen_by), (Some(2), None, &[2][..]));
        }
        assert_eq!(theirs[2].subject_node, Some(2), "it is known there by its new number");
        // What happens from now on is the cluster's.
        for ring in [&cluster, &joined] {
            ring.tell(Duration::ZERO, Happened::new(HOST_CREATED, "kvm", "created").of_revision(Some(9)));
        }
        let newest = |ring: &Ring| ring.after(None, 1, &ALL).items.remove(0);
        assert!(newest(&cluster).is_same_as(&newest(&joined)));
    }

    #[test]
    fn events_before_a_time_are_read_backwards() {
        let ring = Ring::new(START);
        for (name, age) in [("a", 300), ("b", 200), ("c", 100)] {
            ring.tell(Duration::from_secs(age), made(name));
        }
        let now = unix_now();
        assert_eq!(subjects(&ring.until(now, 2, &ALL)), ["b", "c"]);
        let older = ring.until(now - 150, 2, &ALL);
        assert_eq!((subjects(&older), older.next), (vec!["a", "b"], older.items[1].id));
        assert_eq!(subjects(&ring.until(now - 1000, 2, &ALL)), Vec::<&str>::new());
    }

    #[test]
    fn wanted_events_are_found_among_all_others() {
        let ring = Ring::new(START);
        let nothing = ring.after(None, 10, &ALL).next;
        let tell = |event| ring.tell(Duration::from_secs(100), event);
        tell(made("db"));
        tell(Happened::new(LOGIN_THROTTLED, "10.0.0.1", "slowed"));
        (0..100).for_each(|n| tell(made(&n.to_string())));
        let of = |subject: &str| EventFilter { subject: Some(subject.into()), ..ALL };
        let (now, last) = (unix_now(), ring.after(None, 1, &ALL).next);
        for page in [ring.after(None, 1, &of("db")), ring.until(now, 1, &of("db"))] {
            assert_eq!(subjects(&page), ["db"]);
        }
        // A filtered query returns only wanted events, and moves its position past the others.
        let page = ring.after(Some(nothing), 10, &of("db"));
        assert_eq!((subjects(&page), page.next, page.gap), (vec!["db"], last, false));
        let page = ring.after(Some(page.next), 10, &of("db"));
        assert_eq!((page.items.len(), page.next), (0, last));
        let page = ring.after(Some(nothing), 1, &of("db"));
        assert_eq!((subjects(&page), page.next), (vec!["db"], nothing + 1), "there may be more of it");

        let at_least = |severity| EventFilter { severity: Some(severity), ..ALL };
        assert_eq!(subjects(&ring.after(None, 10, &at_least(Severity::Warning))), ["10.0.0.1"]);
        assert!(ring.after(None, 10, &at_least(Severity::Critical)).items.is_empty());
        assert_eq!(ring.after(None, usize::MAX, &at_least(Severity::Info)).items.len(), 102);
    }

    #[test]
    fn a_volume_is_found_by_its_identity_whatever_it_was_called() {
        let ring = Ring::new(START);
        let (one, other) = (VolumeId([1; 16]), VolumeId([2; 16]));
        let tell = |event| ring.tell(Duration::ZERO, event);
        tell(made("db").of_volume(one));
        tell(Happened::new(VOLUME_RENAMED, "mail", "volume db renamed to mail").of_volume(one));
        tell(made("db").of_volume(other));
        tell(made("db"));
        let of = |subject: String| {
            let wanted = EventFilter { subject: Some(subject), ..ALL };
            ring.after(None, 10, &wanted).items
        };
        let ids = |events: Vec<Event>| -> Vec<u64> {
            events.iter().map(|event| event.id - START * NUMBERS_PER_SECOND).collect()
        };
        assert_eq!(ids(of(one.to_string())), [0, 1]);
        assert_eq!(ids(of(other.to_string())), [2]);
        assert_eq!(ids(of("db".into())), [0, 2, 3], "by the name that they had then");
        assert_eq!(of("mail".into())[0].subject_id, Some(one.to_string()));
    }

    #[test]
    fn facts_that_identify_an_event_reach_its_readers() {
        let map = LunMap { lun: 3, volume: VolumeId([1; 16]), host: "esx".parse().unwrap() };
        let target: TargetName = "iqn.2026-01.org.example:db".parse().unwrap();
        let change = ::node::events::MapChange { target: target.clone(), map, added: true };
        let lost_as = |name: &str| Happened::about_node(NODE_LOST, (name, 3), format!("{name} is down"));
        let told_by = |node, lost: Happened| {
            let ring = Ring::new(START);
            ring.is_of(node);
            ring.tell(Duration::ZERO, lost);
            let mapped = Happened::new(MAPS_CHANGED, target.as_str(), "mapped").of_revision(Some(7));
            ring.tell(Duration::ZERO, Happened { map: Some(change.clone()), ..mapped });
            ring.after(None, 10, &ALL).items
        };
        let (first, second) = (told_by(1, lost_as("san3")), told_by(2, lost_as("node 3")));
        assert_eq!((first[0].subject_node, first[1].subject_node), (Some(3), None));
        let map =
            first[1].map.as_deref().map(|map| (map.target.as_str(), map.lun, map.host.as_str(), map.added));
        assert_eq!(map, Some((target.as_str(), 3, "esx", true)));
        assert!(first[0].is_same_as(&second[0]), "node 2 does not know the name of node 3");
        assert!(first[1].is_same_as(&second[1]));
    }

    #[test]
    fn a_gap_is_reported() {
        let old = Ring::new(START);
        old.tell(Duration::ZERO, made("a"));
        let seen = old.after(None, 1, &ALL).next;
        let ring = Ring::new(START + 1);
        assert!(ring.after(Some(seen), 10, &ALL).gap, "of an earlier life");
        assert!(Ring::new(START - 1).after(Some(seen), 10, &ALL).gap, "the clock was set back");
        assert!(!ring.after(Some(0), 10, &ALL).gap);
        let first = ring.after(None, 1, &ALL).next;
        for n in 0..EVENTS_MAX {
            ring.kept().counted.clear();
            ring.tell(Duration::ZERO, made(&n.to_string()));
        }
        assert!(!ring.after(Some(first), 10, &ALL).gap);
        ring.tell(Duration::ZERO, made("one more"));
        let rest = ring.after(Some(first), usize::MAX, &ALL);
        assert!(rest.gap && rest.items.len() == EVENTS_MAX);
    }

    #[test]
    fn one_kind_does_not_evict_others_and_its_gap_is_reported() {
        let ring = Ring::new(START);
        for n in 0..OF_CODE_MAX + 5 {
            ring.tell(Duration::ZERO, made(&n.to_string()));
        }
        for _ in 0..UNAUTHENTICATED_MAX + 1 {
            ring.tell(Duration::ZERO, Happened::new(LOGIN_THROTTLED, "10.0.0.1", "slowed"));
        }
        assert_eq!(ring.after(None, usize::MAX, &ALL).items.len(), OF_CODE_MAX + UNAUTHENTICATED_MAX);
        ring.tell_left_out();
        assert_eq!(
            ring.after(None, usize::MAX, &ALL).items.len(),
            OF_CODE_MAX + UNAUTHENTICATED_MAX,
            "not yet"
        );
        ring.kept().since -= MINUTE;
        ring.tell_left_out();
        let told: Vec<String> = ring.after(None, 2, &ALL).items.into_iter().map(|event| event.text).collect();
        assert_eq!(told[0], "omitted here: 1 more login_throttled event within a minute");
        assert_eq!(told[1], "omitted here: 5 more volume_created events within a minute");
    }
}
