//! Merges the events of several nodes into one list.
//!
//! Each node reports what it sees. Reports of several nodes are one event according to [`Event::is_same_as`].

use std::collections::{BTreeMap, VecDeque};

use api::{Event, EventIdentity};

/// The newest `limit` events, the oldest first. What several nodes report appears once, with the numbers of
/// all of them in `seen_by`.
pub(super) fn merged(mut told: Vec<Event>, limit: usize) -> Vec<Event> {
    // The sort is stable: events of one node keep their order.
    told.sort_by_key(|event| (event.at, event.seen_by.first().copied()));
    let mut events: Vec<Event> = Vec::with_capacity(told.len());
    // Only the last event of an identity can be the same.
    let mut last: BTreeMap<EventIdentity<'_>, usize> = BTreeMap::new();
    for event in &told {
        match last.get(&event.identity()).copied().filter(|place| is_same(&events[*place], event)) {
            Some(place) => events[place].seen_by.extend(&event.seen_by),
            None => {
                last.insert(event.identity(), events.len());
                events.push(event.clone());
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

/// Whether `before` is another node's report of the same event. A node reports an event only once.
fn is_same(before: &Event, event: &Event) -> bool {
    let by_another = event.seen_by.iter().all(|node| !before.seen_by.contains(node));
    by_another && before.is_same_as(event)
}

#[cfg(test)]
mod tests {
    use api::Severity;

    use super::*;

    fn event(seen_by: u16, id: u64, at: u64, subject: &str) -> Event {
        Event {
            id,
            at,
            severity: Severity::Info,
            code: "volume_created".into(),
            cause: None,
            subject: Some(subject.into()),
            subject_id: None,
            subject_node: None,
            map: None,
            text: format!("volume {subject} created"),
            action: None,
            node: None,
            revision: None,
            range: None,
            seen_by: vec![seen_by],
        }
    }

    fn of_record(seen_by: u16, at: u64, revision: u64, subject: &str) -> Event {
        Event { revision: Some(revision), ..event(seen_by, at, at, subject) }
    }

    /// Node 3 is lost.
    fn lost(seen_by: u16, at: u64) -> Event {
        Event { node: Some(3), subject_node: Some(3), ..event(seen_by, at, at, "san3") }
    }

    fn subject(event: &Event) -> &str {
        event.subject.as_deref().unwrap_or_default()
    }

    fn shown(events: &[Event]) -> Vec<String> {
        events.iter().map(|event| format!("{} {} {:?}", event.at, subject(event), event.seen_by)).collect()
    }

    #[test]
    fn what_two_nodes_word_differently_is_one_event_and_what_they_word_alike_may_be_two() {
        // Node 2 does not know the name of node 3, and has learned in another way that it is down.
        let unnamed = Event {
            subject: Some("node 3".into()),
            text: "node 3 is down: its process died".into(),
            cause: Some("died".into()),
            ..lost(2, 101)
        };
        let all = merged(vec![lost(1, 100), unnamed.clone()], 10);
        assert_eq!(shown(&all), ["100 san3 [1, 2]"]);
        let mut sent = SentEvents::default();
        assert!(sent.is_news(&lost(1, 100)) && !sent.is_news(&unnamed));

        let of_volume =
            |seen_by, id: &str| Event { subject_id: Some(id.into()), ..of_record(seen_by, 9, 7, "db") };
        let all = merged(vec![of_volume(1, "11"), of_volume(2, "11"), of_volume(2, "22")], 10);
        assert_eq!(shown(&all), ["9 db [1, 2]", "9 db [2]"], "two volumes of one name");
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
        assert_eq!(shown(&merged(told, 10)), ["100 san3 [1, 2]", "106 san3 [1]", "117 san3 [2]"]);
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
        assert_eq!(all.iter().map(subject).collect::<Vec<_>>(), ["b", "c", "e", "f"]);
        assert_eq!(merged([first, second].concat(), 4), all, "the same whoever is asked");
        assert!(merged(Vec::new(), 4).is_empty());
    }
}
