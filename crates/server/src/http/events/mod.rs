//! Events: what has happened, as a list and as a stream. `docs/use/events.md` lists them.

mod filter;
mod follow;
mod merge;
mod ring;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::node::Control;
use ::node::events::condition::Condition;
use ::node::events::{Code, Event as Happened, Severity, Taken};
use api::Events;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use terms::clock::unix_now;
use utoipa::IntoParams;

use self::filter::EventFilter;
use self::follow::{Follower, Place, unreadable};
use self::merge::merged;
use self::ring::Page;
use super::access::Caller;
use super::findings::{self, Opened};
use super::guard::Peer;
use super::input::{Parameters, limit_of, skip_of};
use super::inquiries::{self, Inquiry};
use super::peers::{self, PeerQuery, QueriedNodes, Whose};
use super::refusal::{Refusal, Reply};
use super::state::State;
use super::stream::{self, Gone, Messages, Reader};

pub use self::ring::Ring;
pub(super) use self::ring::shown_severity;

/// The node has begun to serve.
const NODE_STARTED: Code = Code::new("node_started", Severity::Info, None);
/// Logins from an address, or to an account, are delayed.
pub(super) const LOGIN_THROTTLED: Code = Code::new(
    "login_throttled",
    Severity::Warning,
    Some("check `ursa audit`: someone is guessing passwords, or has forgotten one"),
);
/// Changes are refused, since the audit log could not record who made them.
pub(super) const AUDIT_UNAVAILABLE: Code = Code::new(
    "audit_unavailable",
    Condition::AuditUnavailable.severity(),
    Some(
        "check the node's data directory and its disk: changes through the API are refused until the audit log can be written",
    ),
);
/// The API does not answer other machines, since it has no certificate.
pub(super) const CERTIFICATE_UNAVAILABLE: Code = Code::new(
    "certificate_unavailable",
    Condition::CertificateUnavailable.severity(),
    Some(
        "repair the certificate named in the text and restart the node: until then its API serves programs on its own machine only",
    ),
);
/// More events have occurred than are kept.
const EVENTS_DROPPED: Code =
    Code::new("events_dropped", Severity::Warning, Some("see the node's log for the rest"));

/// Codes of events that do not come from the node's control.
#[cfg(test)]
const OWN: [Code; 5] =
    [NODE_STARTED, LOGIN_THROTTLED, AUDIT_UNAVAILABLE, CERTIFICATE_UNAVAILABLE, EVENTS_DROPPED];

/// How often this node checks its own faults, to note since when each lasts.
const FAULTS_EVERY: Duration = Duration::from_secs(1);

/// For how long the node's control waits for events before it answers that there are none. Each answer wakes
/// this thread, and each question a core.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// The number of events of a response: the default, and the maximum.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// Takes events from the node's control for as long as it runs.
pub(super) async fn take_all(state: State) {
    let text = format!("{} serves", state.name);
    let mut started = Some(Happened::new(NODE_STARTED, &state.name, text));
    let (mut known, mut checked) = (None, None);
    loop {
        let opened = Arc::clone(&state.opened);
        let next = move |control: Rc<Control>| wait_for_events(control, opened, known, checked);
        let Ok(answer) = state.node.call(next).await else { return state.events.close() };
        let taken = answer.taken;
        (known, checked) = (Some(answer.number), answer.checked);
        state.events.is_of(answer.number);
        if let Some(started) = started.take() {
            state.events.tell(Duration::ZERO, started);
            if let Some(why) = &state.access.no_certificate {
                let text = format!("the API does not answer other machines: {why}");
                let happened = Happened::new(CERTIFICATE_UNAVAILABLE, &state.name, text);
                state.events.tell(Duration::ZERO, happened);
            }
            if let Some(why) = state.access.audit.trouble().await {
                let happened = Happened::new(AUDIT_UNAVAILABLE, &state.name, why);
                state.events.tell(Duration::ZERO, happened);
            }
        }
        if taken.missed > 0 {
            let text = format!("events lost before this one: {}", taken.missed);
            state.events.tell(Duration::ZERO, Happened::new(EVENTS_DROPPED, "", text).because("lost"));
        }
        for (age, event) in taken.events {
            state.events.tell(age, event);
        }
        state.events.tell_left_out();
    }
}

/// What the node's control answers.
struct Answer {
    taken: Taken,
    /// The node's number.
    number: u16,
    /// When the node's faults were last checked.
    checked: Option<Instant>,
}

/// Waits for events, and checks the node's faults meanwhile. Answers at once if the node has another number
/// than the one that is known.
///
/// It stays on the node's core, which wakes for its own work: an idle node does not wake for this.
async fn wait_for_events(
    control: Rc<Control>,
    opened: Arc<Opened>,
    known: Option<u16>,
    mut checked: Option<Instant>,
) -> Answer {
    let until = Instant::now() + ASKED_FOR;
    let mut taken = Taken::default();
    loop {
        let number = control.number();
        let is_news = !taken.events.is_empty() || taken.missed > 0 || known != Some(number);
        if is_news || Instant::now() >= until {
            return Answer { taken, number, checked };
        }
        let is_due = checked.is_none_or(|at| at.elapsed() >= FAULTS_EVERY);
        taken = Rc::clone(&control).next_events().await;
        if is_due {
            opened.first_seen.note(unix_now(), &findings::reports(&control, &opened));
            checked = Some(Instant::now());
        }
    }
}

/// Which events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Window {
    /// Only events after the one with this number, of a single node; 0: from the oldest stored; absent: the
    /// newest.
    #[serde(default)]
    after: Option<u64>,
    /// The newest events until then, in seconds since 1970; not with `after`.
    #[serde(default)]
    until: Option<u64>,
    /// With `until`: skip the newest N of these, which you have already; with `limit`, 1000 at most.
    #[serde(default)]
    #[param(minimum = 0, maximum = 999)]
    skip: Option<usize>,
    /// Maximum number of events: 1 to 1000; default 100.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// A node number, or `all`; absent: the queried node.
    #[serde(default)]
    node: Option<String>,
    /// Only events with this `subject` (the name that it had at the time) or `subject_id` (a volume ID,
    /// whatever the volume's name was).
    #[serde(default)]
    #[param(max_length = 4096)]
    subject: Option<String>,
    /// Minimum severity.
    #[serde(default)]
    #[param(inline)]
    severity: Option<api::Severity>,
}

/// A question about events, as it is sent to other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Question {
    after: Option<u64>,
    until: Option<u64>,
    /// Including the events that are skipped: each node has to return them, too.
    limit: usize,
    /// How many of the newest events are skipped after the answers are merged.
    #[serde(skip)]
    skip: usize,
    wanted: EventFilter,
}

/// Why `after` cannot be used for all nodes.
const OF_EACH: &str =
    "each node numbers its own events: use `after` with a single node, `until` with all nodes";

fn invalid(detail: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail)
}

impl Question {
    /// # Errors
    /// 400: what cannot be asked for.
    fn of(window: &Window, asked: QueriedNodes) -> Result<Question, Refusal> {
        let Window { after, until, .. } = *window;
        let skip = skip_of(window.skip, until, LIMIT_MAX)?;
        let limit = limit_of(window.limit, LIMIT, LIMIT_MAX - skip)? + skip;
        let wanted = EventFilter::of(window.subject.clone(), window.severity)?;
        match (after, until, asked) {
            (Some(_), _, QueriedNodes::All) => Err(invalid(OF_EACH)),
            (Some(_), Some(_), _) => Err(invalid(
                "`after` and `until` cannot be combined: `after` continues from an event, `until` goes back from a time",
            )),
            _ => Ok(Question { after, until, limit, skip, wanted }),
        }
    }

    /// The question for other nodes.
    fn query(self) -> PeerQuery {
        PeerQuery::Inquiry(Inquiry::Events(self))
    }

    /// The answer to a question of another node.
    pub(super) fn shown(self, ring: &Ring) -> Page {
        Question { limit: self.limit.min(LIMIT_MAX), ..self }.answer(ring)
    }

    fn answer(&self, ring: &Ring) -> Page {
        match self.until {
            Some(until) => ring.until(until, self.limit, &self.wanted),
            None => ring.after(self.after, self.limit, &self.wanted),
        }
    }

    /// Without the newest `skip` events.
    fn rest(&self, mut events: Events) -> Events {
        if self.skip == 0 {
            return events;
        }
        events.items.truncate(events.items.len().saturating_sub(self.skip));
        if let (Some(next), Some(newest)) = (&mut events.next, events.items.last()) {
            *next = newest.id;
        }
        events
    }
}

/// Events, oldest first.
///
/// The queried node reports changes of the cluster's record, which all nodes see, and events of its own
/// sessions, pools and disks. It keeps the last 4,096 events. With `node=all`, events of all nodes are merged
/// by time; an event reported by several nodes is listed once, with the nodes in `seen_by`. To page back,
/// pass the time of the oldest event as `until`, and as `skip` the number of events of that second that you
/// have; without `skip` these are repeated.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", operation_id = "list_events",
    params(Window),
    responses(
        (status = OK, description = "Events", body = Events),
    ),
)]
pub(super) async fn list(state: State, Parameters(window): Parameters<Window>) -> Reply<Events> {
    let asked = Whose { node: window.node.clone() }.asked()?;
    let question = Question::of(&window, asked)?;
    if asked == QueriedNodes::This {
        return Ok(Json(question.rest(of_one(Some(question.answer(&state.events))))));
    }
    let query = question.clone().query();
    let ask = move |_: u16| query.clone();
    let me = |_: Rc<Control>, is_asked: bool| async move { Ok(is_asked) };
    let (of_this, answers) = peers::gather(&state, asked, ask, me).await?;
    let (theirs, missing) = answers.each(inquiries::read::<Page>);
    let own = of_this.then(|| question.answer(&state.events));
    let mut pages = theirs.into_iter().map(|answer| answer.has).chain(own);
    Ok(Json(question.rest(match asked {
        QueriedNodes::All => {
            let items = merged(pages.flat_map(|page| page.items).collect(), question.limit);
            Events { items, gap: false, next: None, missing }
        }
        QueriedNodes::This | QueriedNodes::One(_) => Events { missing, ..of_one(pages.next()) },
    })))
}

/// The answer of one node, if there is one.
fn of_one(page: Option<Page>) -> Events {
    let next = page.as_ref().map(|page| page.next);
    let (items, gap) = page.map(|page| (page.items, page.gap)).unwrap_or_default();
    Events { items, gap, next, missing: Vec::new() }
}

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Beginning {
    /// Start after the event with this number, of a single node; absent: with the next new event. A
    /// `Last-Event-ID` header takes precedence.
    #[serde(default)]
    after: Option<u64>,
    /// A node number, or `all`; absent: the queried node.
    #[serde(default)]
    node: Option<String>,
    /// Only events with this `subject` (the name that it has at the time) or `subject_id` (a volume ID,
    /// whatever the volume's name is).
    #[serde(default)]
    #[param(max_length = 4096)]
    subject: Option<String>,
    /// Minimum severity.
    #[serde(default)]
    #[param(inline)]
    severity: Option<api::Severity>,
}

/// Streams events of the queried node as they happen (server-sent events); with `node`, those of another node
/// or of all nodes.
///
/// Messages `event` contain an event as in `GET /v1/events`. A message `gap` (`{node, after}`) says that
/// events after the given one are no longer stored. The stream ends with the session, the token or the role
/// that it was requested with. A node has at most 48 streams, 16 per user or token.
///
/// With `node`, nodes are polled once a second. An event reported by several nodes is sent once; `seen_by`
/// lists those that have reported it by then. A message `missing` (`{node, node_name, reason}`) says that a
/// node's events do not arrive from now on, and a message `back` (`{node, node_name}`) that they do again,
/// including those that it has seen meanwhile. The reader's position (`id`, to be sent back as
/// `Last-Event-ID`) follows the events in a message of its own; with `node=all` it is one position for all
/// nodes: a reader that resumes there misses nothing, and may receive a few events again.
#[utoipa::path(
    get, path = "/v1/events/stream", tag = "events", operation_id = "stream_events",
    params(
        Beginning,
        ("last-event-id" = Option<String>, Header, description = "The last `id` received: for one node an event number, for all nodes an opaque text"),
    ),
    responses(
        (status = OK, description = "Messages", body = String, content_type = "text/event-stream"),
        (status = SERVICE_UNAVAILABLE, description = "`too_many_streams`"),
    ),
)]
pub(super) async fn follow(
    state: State,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Parameters(Beginning { after, node, subject, severity }): Parameters<Beginning>,
) -> Result<Response, Refusal> {
    let asked = Whose { node }.asked()?;
    let wanted = EventFilter::of(subject, severity)?;
    // Some readers send an empty header while they have no position yet.
    let last = headers.get("last-event-id").filter(|id| !id.is_empty());
    let last = last.map(|id| id.to_str().unwrap_or_default().to_owned());
    let reader = Reader { caller, peer, headers };
    let place = match (asked, last) {
        (QueriedNodes::All, _) if after.is_some() => return Err(invalid(OF_EACH)),
        (QueriedNodes::All, last) => last.map(|text| Place::of_all(&text)).transpose()?,
        (asked, last) => {
            let number = |text: String| text.parse::<u64>().map_err(|_| unreadable(&text));
            let after = last.map(number).transpose()?.or(after);
            let QueriedNodes::One(node) = asked else {
                let of_state = state.clone();
                let send = move |messages| send_all(of_state, messages, after, wanted);
                return stream::answer(&state, reader, send);
            };
            after.map(|after| Place::of_one(node, after))
        }
    };
    let follower = Follower::begin(&state, asked, place, wanted).await?;
    stream::answer(&state, reader, move |messages| follower.send_all(messages))
}

/// The message that reports a gap.
#[derive(Serialize)]
struct Gap {
    /// The node whose events are missing; `None`: the queried one.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u16>,
    /// The event after which the reader wanted to continue.
    after: u64,
}

async fn send_all(
    state: State,
    messages: Messages,
    after: Option<u64>,
    wanted: EventFilter,
) -> Result<(), Gone> {
    let mut newest = state.events.watch();
    let mut after = after.unwrap_or_else(|| state.events.after(None, 0, &wanted).next);
    loop {
        let closed = newest.borrow_and_update().is_none();
        loop {
            let events = state.events.after(Some(after), LIMIT_MAX, &wanted);
            if events.gap {
                messages.send("gap", None, &Gap { node: None, after }).await?;
            }
            after = events.next;
            if events.items.is_empty() {
                break;
            }
            for event in events.items {
                messages.send("event", Some(event.id), &event).await?;
            }
        }
        if closed || newest.changed().await.is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::node::events::code;

    use super::*;

    /// Rows of the tables in `docs/use/events.md`: code, severity.
    fn documented() -> BTreeMap<String, String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/use/events.md");
        let text = std::fs::read_to_string(path).unwrap();
        let mut rows = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let before = rows.insert(cells[1].trim_matches('`').to_owned(), cells[2].to_owned());
            assert_eq!(before, None, "{line} is there twice");
        }
        rows
    }

    #[test]
    fn the_page_has_every_code_and_no_other() {
        let codes = code::ALL.iter().chain(&OWN);
        let severity = |code: &Code| format!("{:?}", code.severity()).to_lowercase();
        let codes: BTreeMap<String, String> =
            codes.map(|code| (code.as_str().to_owned(), severity(code))).collect();
        assert_eq!(codes.len(), code::ALL.len() + OWN.len(), "a code is there twice");
        assert_eq!(documented(), codes, "docs/use/events.md and the code differ");
    }
}
