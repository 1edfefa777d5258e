//! Merges the events of several nodes into one list.
//!
//! Each node reports what it sees. Reports of several nodes are one event according to [`Event::is_same_as`].

use std::collections::{BTreeMap, VecDeque};

use api::Event;

/// The newest `limit` events, the oldest first. What several nodes report appears once, with the numbers of
/// all of them in `seen_by`.
pub(super) fn merged(mut told: Vec<Event>, limit: usize) -> Vec<Event> {
    // The sort is stable: events of one node keep their order.
    told.sort_by_key(|event| (event.at, event.seen_by.first().copied()));
    let mut events: Vec<Event> = Vec::with_capacity(told.len());
    let mut last: BTreeMap<Kind, usize> = BTreeMap::new();
    for event in told {
        let kind = Kind::of(&event);
        match last.get(&kind).copied().filter(|place| is_same(&events[*place], &event)) {
            Some(place) => events[place].seen_by.extend(event.seen_by),
            None => {
                last.insert(kind, events.len());
                events.push(event);
            }
        }
    }
    let too_many = events.len().saturating_sub(limit);
    events.split_off(too_many)
}

/// The number of sent events that a stream remembers: some 400 bytes each, so at most half a MiB.
const TOLD_MAX: usize = 1024;

/// The events that a stream has sent recently, so that it does not send another node's report of the same
/// again.
#[derive(Default)]
pub(super) struct SentEvents(VecDeque<Event>);

impl SentEvents {
    /// Whether the event has not been sent yet. Remembers it.
    pub(super) fn is_news(&mut self, event: &Event) -> bool {
        if let Some(before) = self.0.iter_mut().find(|before| is_same(before, event)) {
            before.seen_by.extend(&event.seen_by);
            return false;
        }
        if self.0.len() >= TOLD_MAX {
            self.0.pop_front();
        }
        self.0.push_back(event.clone());
        true
    }
}

/// The properties that two reports of one event have in common. Only the last event of a kind can be the
/// same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    revision: Option<u64>,
    /// The node that the event is about.
    node: Option<u16>,
    code: String,
    subject: Option<String>,
    text: String,
}

impl Kind {
    fn of(event: &Event) -> Kind {
        let Event { revision, node, code, subject, text, .. } = event;
        let (code, subject, text) = (code.clone(), subject.clone(), text.clone());
        Kind { revision: *revision, node: *node, code, subject, text }
    }
}

/// Whether `before` is another node's report of the same event. A node reports an event only once.
fn is_same(before: &Event, event: &Event) -> bool {
    let by_another = event.seen_by.iter().all(|node| !before.seen_by.contains(node));
    by_another && before.is_same_as(event)
}

#[cfg(test)]
mod tests {
    use api::Severity;

    use super::*;

    fn event(seen_by: u16, id: u64, at: u64, text: &str) -> Event {
        Event {
            id,
            at,
            severity: Severity::Info,
            code: "volume_created".into(),
            cause: None,
            subject: Some("db".into()),
            subject_id: None,
            text: text.into(),
            action: None,
            node: None,
            revision: None,
            range: None,
            seen_by: vec![seen_by],
        }
    }

    fn of_record(seen_by: u16, at: u64, revision: u64, text: &str) -> Event {
        Event { revision: Some(revision), ..event(seen_by, at, at, text) }
    }

    /// Node 3 is lost.
    fn lost(seen_by: u16, at: u64) -> Event {
        Event { node: Some(3), ..event(seen_by, at, at, "lost") }
    }

    fn shown(events: &[Event]) -> Vec<String> {
        events.iter().map(|event| format!("{} {} {:?}", event.at, event.text, event.seen_by)).collect()
    }

    #[test]
    fn events_of_the_record_appear_once_however_late_a_node_is() {
        let told = vec![
            of_record(2, 900, 7, "a"),
            of_record(1, 100, 7, "a"),
            of_record(1, 100, 8, "a"),
            of_record(1, 100, 7, "b"),
        ];
        let all = merged(told, 10);
        assert_eq!(shown(&all), ["100 a [1, 2]", "100 a [1]", "100 b [1]"]);
        assert_eq!(all[0].id, 100, "it is that of the first one");
    }

    #[test]
    fn simultaneous_observations_of_a_node_appear_once() {
        let told = vec![lost(1, 100), lost(2, 103), lost(1, 106), lost(2, 117)];
        // Node 1 lost it twice; the second time, node 2 noticed it too late.
        assert_eq!(shown(&merged(told, 10)), ["100 lost [1, 2]", "106 lost [1]", "117 lost [2]"]);
        // An event that is neither about a node nor of the record belongs to the node that reports it.
        let own = vec![event(1, 1, 100, "changed"), event(2, 1, 100, "changed")];
        assert_eq!(merged(own, 10).len(), 2);
    }

    #[test]
    fn late_reports_of_other_nodes_are_duplicates_and_repeats_by_one_node_are_not() {
        let mut told = SentEvents::default();
        assert!(told.is_news(&of_record(1, 100, 7, "a")) && told.is_news(&lost(1, 100)));
        assert!(!told.is_news(&of_record(2, 900, 7, "a")) && !told.is_news(&lost(2, 103)));
        assert!(told.is_news(&of_record(2, 901, 7, "a")), "it has told that already");
        assert!(told.is_news(&lost(1, 106)) && !told.is_news(&lost(2, 108)));
        for id in 0..TOLD_MAX as u64 {
            assert!(told.is_news(&event(1, id, 200, "b")));
        }
        assert_eq!(told.0.len(), TOLD_MAX);
        assert!(told.is_news(&of_record(3, 902, 7, "a")), "that is long ago");
    }

    #[test]
    fn the_newest_of_all_are_kept_in_the_order_of_time_and_of_each_node() {
        let first = [event(1, 1, 10, "a"), event(1, 2, 20, "b"), event(1, 3, 20, "c")];
        let second = [event(2, 9, 5, "d"), event(2, 10, 20, "e"), event(2, 11, 30, "f")];
        // The order in which nodes are asked does not matter.
        let told = [second.clone(), first.clone()].concat();
        let all = merged(told, 4);
        let texts: Vec<&str> = all.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["b", "c", "e", "f"]);
        assert_eq!(merged([first, second].concat(), 4), all, "the same whoever is asked");
        assert!(merged(Vec::new(), 4).is_empty());
    }
}
