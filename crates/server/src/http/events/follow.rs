//! The events of several nodes, as one stream.
//!
//! Nodes only answer questions and send nothing on their own: the queried node asks each of them once per
//! second for the events since its last answer. So a reader misses nothing that a node still has, even if
//! that node is cut off for a while. For each reader, the queried node only keeps its position on each node
//! ([`Place`]) and the events that it sent recently ([`SentEvents`]).
//!
//! The events of one round are sent in the order of their times. If a node has more events than an answer
//! holds, later events of other nodes wait for the next round. After each round the reader receives its
//! position, so that it can continue there after a reconnect: a round that it received in part is then sent
//! again as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ::node::Control;
use api::{Event, Missing};
use axum::http::StatusCode;
use serde::Serialize;
use terms::clock::unix_now;

use super::filter::EventFilter;
use super::merge::{SentEvents, merged};
use super::ring::Page;
use super::{Gap, LIMIT_MAX, Question};
use crate::http::inquiries;
use crate::http::peers::{self, QueriedNodes};
use crate::http::refusal::Refusal;
use crate::http::state::State;
use crate::http::stream::{Gone, Messages};

/// The interval between questions.
const EVERY: Duration = Duration::from_secs(1);

/// The position of a reader in the events of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// When the reader began, in seconds since 1970. From a node without an entry in `after`, it receives
    /// events since then, by that node's clock.
    since: u64,
    /// By node: the number of the last event that the reader has received or skipped.
    after: BTreeMap<u16, u64>,
}

impl Place {
    /// The position after this event of one node.
    pub(super) fn of_one(node: u16, after: u64) -> Place {
        Place { since: unix_now(), after: [(node, after)].into() }
    }

    /// Parses what [`Place::written`] writes for all nodes.
    ///
    /// # Errors
    /// 400: the text is not such a position.
    pub(super) fn of_all(text: &str) -> Result<Place, Refusal> {
        let mut parts = text.split(',');
        let since: Option<u64> = parts.next().and_then(|since| since.parse().ok());
        let of_node = |part: &str| -> Option<(u16, u64)> {
            let (node, after) = part.split_once(':')?;
            Some((node.parse().ok()?, after.parse().ok()?))
        };
        let after: Option<BTreeMap<u16, u64>> = parts.map(of_node).collect();
        match (since, after) {
            (Some(since), Some(after)) if !after.is_empty() => Ok(Place { since, after }),
            _ => Err(unreadable(text)),
        }
    }

    /// The position as text, with which a reader continues here; `None`: it has no position on the node yet.
    fn written(&self, asked: QueriedNodes) -> Option<String> {
        match asked {
            // The node's own event number, as in other calls about one node.
            QueriedNodes::One(node) => self.after.get(&node).map(u64::to_string),
            QueriedNodes::This | QueriedNodes::All => {
                let of_node = |(node, after): (&u16, &u64)| format!(",{node}:{after}");
                Some(self.since.to_string() + &self.after.iter().map(of_node).collect::<String>())
            }
        }
    }

    /// The question to a node. `begins`: the reader wants only future events.
    fn question(&self, node: u16, begins: bool) -> Question {
        let (after, limit) = match begins {
            true => (None, 0),
            // From a node that has not answered yet: all events it has. Those before the reader's beginning
            // are skipped here.
            false => (Some(self.after.get(&node).copied().unwrap_or(0)), LIMIT_MAX),
        };
        // The filter is applied here and not by the node, so that the reader's position moves past unwanted
        // events.
        Question { after, until: None, limit, skip: 0, wanted: EventFilter::default() }
    }
}

/// The refusal of a `Last-Event-ID` that is not from a stream of these nodes.
pub(super) fn unreadable(text: &str) -> Refusal {
    let detail = format!(
        "`Last-Event-ID` must be an `id` from a stream with the same `node`: an event number for one node, a position on each node for all nodes; not {text:?}"
    );
    Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail)
        .hint("omit it to start with the next event")
}

/// A message of the stream.
enum Message {
    Event(Event),
    Gap(Gap),
    /// A node no longer answers, so its events are missing from now on.
    Missing(Missing),
    /// The node answers again. The events in between follow.
    Back(Back),
}

/// A node that answers again.
#[derive(Serialize)]
struct Back {
    node: u16,
    node_name: String,
}

/// What is sent next.
struct Round {
    messages: Vec<Message>,
    /// Whether a node has more events already.
    is_more: bool,
}

/// The state of a reader's stream.
struct Course {
    place: Place,
    told: SentEvents,
    /// The nodes that did not answer the last question.
    missing: BTreeMap<u16, Missing>,
    /// Nodes that were new to the reader, and whose next events may still be older than its beginning.
    passing: BTreeSet<u16>,
    wanted: EventFilter,
}

impl Course {
    fn from(place: Place, wanted: EventFilter) -> Course {
        Course {
            place,
            told: SentEvents::default(),
            missing: BTreeMap::new(),
            passing: BTreeSet::new(),
            wanted,
        }
    }

    /// The messages that follow from these answers.
    fn next(&mut self, pages: BTreeMap<u16, Page>, missing: Vec<Missing>) -> Round {
        let mut messages = self.who_answers(&pages, missing);
        let full = pages.values().filter(|page| page.items.len() >= LIMIT_MAX);
        let horizon = full.filter_map(|page| page.items.last()).map(|last| last.at).min();
        let mut events = Vec::new();
        for (node, page) in pages {
            let (known, told) = (self.place.after.get(&node).copied(), page.items.len());
            if let (true, Some(after)) = (page.gap, known) {
                messages.push(Message::Gap(Gap { node: Some(node), after }));
            }
            let (mut items, next) = until(horizon, page, known.is_some());
            let has_more = told >= LIMIT_MAX || items.len() < told;
            if self.passing.remove(&node) || known.is_none() {
                items.retain(|event| event.at >= self.place.since);
                if has_more {
                    self.passing.insert(node);
                }
            }
            if let Some(next) = next {
                self.place.after.insert(node, next);
            }
            events.extend(items.into_iter().filter(|event| self.wanted.has(event)));
        }
        let news = merged(events, usize::MAX).into_iter().filter(|event| self.told.is_news(event));
        messages.extend(news.map(Message::Event));
        Round { messages, is_more: horizon.is_some() }
    }

    /// The messages about nodes that no longer answer, or answer again. Drops the positions on nodes that
    /// have been removed.
    fn who_answers(&mut self, pages: &BTreeMap<u16, Page>, missing: Vec<Missing>) -> Vec<Message> {
        let back = pages.keys().filter_map(|node| self.missing.get(node)).map(|one| {
            let Missing { node, node_name, .. } = one.clone();
            Message::Back(Back { node, node_name })
        });
        let silent = missing.iter().filter(|one| !self.missing.contains_key(&one.node));
        let messages = back.chain(silent.cloned().map(Message::Missing)).collect();
        self.missing = missing.into_iter().map(|one| (one.node, one)).collect();
        self.place.after.retain(|node, _| pages.contains_key(node) || self.missing.contains_key(node));
        messages
    }
}

/// The events of a node up to this time, and the position after them; `None`: the node is asked for all of
/// them again.
///
/// The node that determines the time is not cut short: its last event is of that time.
fn until(horizon: Option<u64>, page: Page, is_known: bool) -> (Vec<Event>, Option<u64>) {
    let Page { mut items, next, .. } = page;
    let count = match horizon {
        None => items.len(),
        Some(until) => items.iter().rposition(|event| event.at <= until).map_or(0, |place| place + 1),
    };
    let rest = items.split_off(count);
    let next = match (items.last(), rest.first()) {
        (_, None) => Some(next),
        (Some(last), Some(_)) => Some(last.id),
        // The reader has a position already; a gap before this event was reported just now.
        (None, Some(first)) => is_known.then(|| first.id.saturating_sub(1)),
    };
    (items, next)
}

/// The stream of one reader.
pub(super) struct Follower {
    state: State,
    asked: QueriedNodes,
    course: Course,
    /// The messages that follow from the first answers.
    first: Round,
}

impl Follower {
    /// Begins a stream of the wanted events of these nodes, from this position; without one, from the next
    /// event.
    ///
    /// # Errors
    /// A node does not exist.
    pub(super) async fn begin(
        state: &State,
        asked: QueriedNodes,
        place: Option<Place>,
        wanted: EventFilter,
    ) -> Result<Follower, Refusal> {
        let begins = place.is_none();
        let place = place.unwrap_or_else(|| Place { since: unix_now(), after: BTreeMap::new() });
        let mut course = Course::from(place, wanted);
        let first = course.ask(state, asked, begins).await?;
        Ok(Follower { state: state.clone(), asked, course, first })
    }

    /// Sends all events.
    ///
    /// # Errors
    /// [`Gone`]: the reader is gone, the named node no longer exists, or this node has stopped.
    pub(super) async fn send_all(self, messages: Messages) -> Result<(), Gone> {
        let Follower { state, asked, mut course, first: mut round } = self;
        let mut place = None;
        loop {
            let is_more = round.is_more;
            for message in round.messages {
                send(&messages, &message).await?;
            }
            let now = course.place.written(asked);
            if let Some(now) = now.as_ref().filter(|_| now != place) {
                messages.send_place(now).await?;
            }
            place = now;
            if !is_more {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = state.events.closed() => return Ok(()),
                }
            }
            round = course.ask(&state, asked, false).await.map_err(|_| Gone)?;
        }
    }
}

impl Course {
    /// Asks the nodes, and returns the messages that follow.
    async fn ask(&mut self, state: &State, asked: QueriedNodes, begins: bool) -> Result<Round, Refusal> {
        let place = self.place.clone();
        let query = move |node: u16| place.question(node, begins).query();
        let me = |control: Rc<Control>, is_asked: bool| async move { Ok((is_asked, control.number())) };
        let ((of_this, me), answers) = peers::gather(state, asked, query, me).await?;
        let (theirs, missing) = answers.each(inquiries::read::<Page>);
        let mut pages: BTreeMap<u16, Page> =
            theirs.into_iter().map(|theirs| (theirs.node, theirs.has)).collect();
        if of_this {
            pages.insert(me, self.place.question(me, begins).answer(&state.events));
        }
        Ok(self.next(pages, missing))
    }
}

async fn send(messages: &Messages, message: &Message) -> Result<(), Gone> {
    match message {
        Message::Event(event) => messages.send("event", None, event).await,
        Message::Gap(gap) => messages.send("gap", None, gap).await,
        Message::Missing(missing) => messages.send("missing", None, missing).await,
        Message::Back(back) => messages.send("back", None, back).await,
    }
}

#[cfg(test)]
mod tests {
    use api::Severity;

    use super::*;

    fn event(node: u16, id: u64, at: u64, revision: Option<u64>) -> Event {
        Event {
            id,
            at,
            severity: Severity::Info,
            code: "volume_created".into(),
            cause: None,
            subject: Some("db".into()),
            subject_id: None,
            subject_node: None,
            map: None,
            text: "volume db created".into(),
            action: None,
            node: None,
            revision,
            range: None,
            seen_by: vec![node],
        }
    }

    fn page(items: Vec<Event>) -> Page {
        let next = items.last().map_or(0, |last| last.id);
        Page { items, gap: false, next }
    }

    /// `count` events of node 1, one per second from this time, each of a different revision.
    fn many(at: u64, count: usize) -> Page {
        page((0..count as u64).map(|n| event(1, 1 + n, at + n, Some(10_000 + n))).collect())
    }

    fn course(after: &[(u16, u64)]) -> Course {
        let place = Place { since: 100, after: after.iter().copied().collect() };
        Course::from(place, EventFilter::default())
    }

    fn missing(node: u16) -> Missing {
        Missing { node, node_name: format!("san{node}"), reason: "it is late".into() }
    }

    fn shown(round: &Round) -> Vec<String> {
        let text = |message: &Message| match message {
            Message::Event(event) => format!("{} {} {:?}", event.at, event.id, event.seen_by),
            Message::Gap(gap) => format!("gap {:?} {}", gap.node, gap.after),
            Message::Missing(missing) => format!("missing {}", missing.node),
            Message::Back(back) => format!("back {} {}", back.node, back.node_name),
        };
        round.messages.iter().map(text).collect()
    }

    #[test]
    fn events_of_nodes_are_streamed_once_and_in_order_of_time() {
        let mut course = course(&[(1, 10), (2, 70)]);
        let of_1 = page(vec![event(1, 11, 101, Some(5)), event(1, 12, 104, Some(6))]);
        let of_2 = page(vec![event(2, 71, 102, Some(5)), event(2, 72, 103, None)]);
        let round = course.next([(1, of_1), (2, of_2)].into(), Vec::new());
        assert_eq!(shown(&round), ["101 11 [1, 2]", "103 72 [2]", "104 12 [1]"]);
        assert!(!round.is_more);
        // Node 2 learns of revision 6 later than node 1.
        let of_2 = page(vec![event(2, 73, 105, Some(6)), event(2, 74, 105, Some(7))]);
        let of_1 = Page { items: Vec::new(), gap: false, next: 12 };
        let round = course.next([(1, of_1), (2, of_2)].into(), Vec::new());
        assert_eq!(shown(&round), ["105 74 [2]"]);
        assert_eq!(course.place.after, [(1, 12), (2, 74)].into());
    }

    #[test]
    fn a_silent_node_is_reported_once_and_catches_up_when_it_is_back() {
        let mut course = course(&[(1, 10), (2, 70)]);
        let of_1 = || BTreeMap::from([(1, Page { items: Vec::new(), gap: false, next: 10 })]);
        assert_eq!(shown(&course.next(of_1(), vec![missing(2)])), ["missing 2"]);
        assert_eq!(shown(&course.next(of_1(), vec![missing(2)])), Vec::<String>::new());
        assert_eq!(course.place.after[&2], 70, "where it was");
        let of_2 = Page { gap: true, ..page(vec![event(2, 200, 90, None)]) };
        let round = course.next(of_1().into_iter().chain([(2, of_2)]).collect(), Vec::new());
        assert_eq!(shown(&round), ["back 2 san2", "gap Some(2) 70", "90 200 [2]"], "it was restarted");
        assert_eq!(shown(&course.next(of_1(), vec![missing(2)])), ["missing 2"], "again");
        assert!(course.next(of_1(), Vec::new()).messages.is_empty(), "it was taken out of the cluster");
        assert_eq!(course.place.after, [(1, 10)].into());
    }

    #[test]
    fn a_node_not_seen_before_sends_events_newer_than_the_reader() {
        let mut course = course(&[(1, 10)]);
        let of_2 = page(vec![event(2, 70, 99, None), event(2, 71, 100, None)]);
        let round = course.next([(2, of_2)].into(), Vec::new());
        assert_eq!(shown(&round), ["100 71 [2]"]);
        assert_eq!(course.place.after[&2], 71);
        // More events than an answer holds; the reader began in the middle of the second one.
        let round = course.next([(3, many(0, LIMIT_MAX))].into(), Vec::new());
        let last = LIMIT_MAX as u64;
        assert_eq!((shown(&round).len(), round.is_more), (LIMIT_MAX - 100, true));
        course.place.since = last + 5;
        let more = page(vec![event(3, last + 1, last + 4, None), event(3, last + 2, last + 5, None)]);
        let round = course.next([(3, more)].into(), Vec::new());
        assert_eq!(shown(&round), [format!("{} {} [3]", last + 5, last + 2)]);
        let set_back = page(vec![event(3, last + 3, 7, None)]);
        assert_eq!(shown(&course.next([(3, set_back)].into(), Vec::new())).len(), 1, "it is new for sure");
        let question = course.place.question(4, false);
        assert_eq!((question.after, question.limit), (Some(0), LIMIT_MAX));
        let question = course.place.question(4, true);
        assert_eq!((question.after, question.limit), (None, 0));
    }

    #[test]
    fn while_one_has_more_than_an_answer_others_wait() {
        let mut course = course(&[(1, 0), (2, 0), (3, 5)]);
        let last = 200 + LIMIT_MAX as u64 - 1;
        let of_2 = [(70, 201), (71, last + 1), (72, last + 2)].map(|(id, at)| event(2, id, at, None));
        let of_2 = page(of_2.to_vec());
        let of_3 = Page { gap: true, ..page(vec![event(3, 90, last + 1, None)]) };
        let pages = [(1, many(200, LIMIT_MAX)), (2, of_2), (3, of_3)];
        let round = course.next(pages.into(), Vec::new());
        let told = shown(&round);
        assert!(round.is_more);
        assert_eq!(told.len(), 1 + LIMIT_MAX + 1);
        assert_eq!(told[..4], ["gap Some(3) 5", "200 1 [1]", "201 2 [1]", "201 70 [2]"]);
        assert_eq!(
            course.place.after,
            [(1, LIMIT_MAX as u64), (2, 70), (3, 89)].into(),
            "the gap is told once"
        );
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = Place { since: 1_800_000_000, after: [(1, 1_887_436_800_000_017), (12, 9)].into() };
        let text = place.written(QueriedNodes::All).unwrap();
        assert_eq!(text, "1800000000,1:1887436800000017,12:9");
        assert_eq!(Place::of_all(&text).unwrap(), place);
        assert_eq!(place.written(QueriedNodes::One(12)).unwrap(), "9");
        assert_eq!(place.written(QueriedNodes::One(3)), None);
        for text in ["", "17", "17,", "17,1", "17,1:x", "x,1:2", "17,70000:2", "17;1:2"] {
            assert_eq!(Place::of_all(text).unwrap_err().code(), "query_invalid", "{text}");
        }
    }
}
