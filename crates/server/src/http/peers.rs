//! What other nodes of the cluster have, as shown by the queried node.
//!
//! A node asks the others over their links, on which they have authenticated each other; it forwards no
//! caller's credentials. The questions concern what a viewer may see, and this node has checked that the
//! caller is at least a viewer; for the audit log, that it is an administrator. A node that does not answer
//! within [`QUERY_DEADLINE`] is listed as missing in the response.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ::node::control::{QUERY_DEADLINE, QueryFailed};
use ::node::{Control, PeerQueries};
use api::{List, Missing};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::findings::{self, Opened};
use super::inquiries::{About, Inquiries};
use super::live::Live;
use super::refusal::Refusal;
use super::state::State;
use super::{addresses, history, jobs, links, pools, sessions, snapshots, volumes};
use crate::history::History;

/// The handler for questions of other nodes.
pub fn peer_queries(
    history: History,
    live: Arc<Live>,
    opened: Arc<Opened>,
    inquiries: Arc<Inquiries>,
) -> PeerQueries {
    PeerQueries::new(move |control, what| {
        let (history, live, opened) = (history.clone(), Arc::clone(&live), Arc::clone(&opened));
        let inquiries = Arc::clone(&inquiries);
        Box::pin(async move {
            let (kind, rest) = what.split_once(' ').unwrap_or((&what, ""));
            match kind {
                POOLS => serde_json::to_string(&pools::all(&control)).ok(),
                SESSIONS => serde_json::to_string(&sessions::all(&control).await.ok()?).ok(),
                ADDRESSES => serde_json::to_string(&addresses::here(&control)).ok(),
                SNAPSHOTS => serde_json::to_string(&snapshots::here(&control).await?).ok(),
                LINKS => serde_json::to_string(&links::here(&control).await.ok()?).ok(),
                FAULTS => serde_json::to_string(&findings::reports(&control, &opened)).ok(),
                JOBS => serde_json::to_string(&jobs::own(&control)).ok(),
                ENDED_JOBS => serde_json::to_string(&jobs::own_ended(&control)).ok(),
                VOLUMES => serde_json::to_string(&volumes::of_ids(&control, rest).await).ok(),
                LIVE => serde_json::to_string(&live.shown()).ok(),
                HISTORY => history::shown(&control, &history, rest).await,
                EVENTS => Some(inquiries.answer(About::Events, rest).await),
                AUDIT => Some(inquiries.answer(About::Audit, rest).await),
                _ => None,
            }
        })
    })
}

pub(super) const POOLS: &str = "pools";
pub(super) const SESSIONS: &str = "sessions";
pub(super) const LINKS: &str = "links";
pub(super) const ADDRESSES: &str = "addresses";
pub(super) const SNAPSHOTS: &str = "snapshots";
pub(super) const FAULTS: &str = "faults";
pub(super) const JOBS: &str = "jobs";
pub(super) const ENDED_JOBS: &str = "ended-jobs";
pub(super) const VOLUMES: &str = "volumes";
pub(super) const HISTORY: &str = "history";
pub(super) const LIVE: &str = "live";
pub(super) const EVENTS: &str = "events";
pub(super) const AUDIT: &str = "audit";

/// Whose.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Whose {
    /// A node number, or `all`; absent: the queried node.
    #[serde(default)]
    pub(super) node: Option<String>,
}

/// Which nodes a call asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueriedNodes {
    This,
    One(u16),
    All,
}

impl Whose {
    /// The nodes that the parameter selects.
    ///
    /// # Errors
    /// 400: neither a number nor `all`.
    pub(super) fn asked(&self) -> Result<QueriedNodes, Refusal> {
        match self.node.as_deref() {
            None => Ok(QueriedNodes::This),
            Some("all") => Ok(QueriedNodes::All),
            Some(number) => number.parse().map(QueriedNodes::One).map_err(|_| {
                let detail = format!("`node` must be a node number or `all`, not {number:?}");
                Refusal::new(axum::http::StatusCode::BAD_REQUEST, "query_invalid", detail)
            }),
        }
    }
}

impl QueriedNodes {
    /// Whether this node is one of them, and which others are.
    pub(super) fn of(self, control: &Control) -> (bool, Vec<u16>) {
        let here = control.number();
        match self {
            QueriedNodes::This => (true, Vec::new()),
            QueriedNodes::One(node) if here == node => (true, Vec::new()),
            QueriedNodes::One(node) => (false, vec![node]),
            QueriedNodes::All => {
                let others = control.node_names().into_keys().filter(|node| here != *node);
                (true, others.collect())
            }
        }
    }
}

/// The items of these nodes; `own` returns those of this node.
///
/// # Errors
/// A node does not exist.
pub(super) async fn list<T, F>(
    state: &State,
    asked: QueriedNodes,
    kind: &'static str,
    own: impl FnOnce(Rc<Control>) -> F + Clone + Send + 'static,
) -> Result<List<T>, Refusal>
where
    T: DeserializeOwned + Send + 'static,
    F: Future<Output = Result<Vec<T>, ::node::control::ControlError>> + 'static,
{
    let own = move |control: Rc<Control>, is_asked: bool| async move {
        if is_asked { own(control).await } else { Ok(Vec::new()) }
    };
    let (mut items, answers) = gather(state, asked, move |_| kind.to_owned(), own).await?;
    let (theirs, missing) = answers.read::<T>();
    items.extend(theirs);
    Ok(List { items, missing })
}

/// The result of `own`, and the answers of the other nodes. `own` runs on this node in any case; its argument
/// tells whether this node is one of those asked.
///
/// # Errors
/// A node does not exist, and those of `own`.
pub(super) async fn gather<T, F>(
    state: &State,
    asked: QueriedNodes,
    question: impl Fn(u16) -> String + Clone + Send + 'static,
    own: impl FnOnce(Rc<Control>, bool) -> F + Clone + Send + 'static,
) -> Result<(T, Answers), Refusal>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ::node::control::ControlError>> + 'static,
{
    let gather = move |control: Rc<Control>| async move {
        let (is_asked, others) = asked.of(&control);
        let own = own(Rc::clone(&control), is_asked).await?;
        let questions = others.into_iter().map(|node| (node, question(node))).collect();
        Ok((own, ask(&control, questions).await?))
    };
    state.call(gather).await
}

/// Asks other nodes, all at once.
///
/// # Errors
/// A node does not exist.
pub(super) async fn ask(
    control: &Rc<Control>,
    questions: BTreeMap<u16, String>,
) -> Result<Answers, ::node::control::ControlError> {
    if questions.is_empty() {
        return Ok(Answers::default());
    }
    let answers = control.ask_to_show(questions).await?;
    Ok(Answers { answers, names: control.node_names() })
}

/// The answer of one node.
pub(super) struct Theirs<T> {
    pub(super) node: u16,
    pub(super) node_name: String,
    pub(super) has: T,
}

/// The answers of other nodes.
#[derive(Default)]
pub(super) struct Answers {
    /// By node: the answer, or why there is none.
    answers: Vec<(u16, Result<String, QueryFailed>)>,
    names: BTreeMap<u16, String>,
}

impl Answers {
    /// The items of all nodes, and the nodes that did not answer. Parsing may take long, so it must not run
    /// on the node's core.
    pub(super) fn read<T: DeserializeOwned>(self) -> (Vec<T>, Vec<Missing>) {
        let (lists, missing) = self.each(|text| {
            let list: Result<Vec<T>, _> = serde_json::from_str(text);
            list.map_err(|error| format!("its answer cannot be read: {error}"))
        });
        (lists.into_iter().flat_map(|theirs| theirs.has).collect(), missing)
    }

    /// The answer of each node as parsed by `read`, and the nodes that did not answer.
    pub(super) fn each<T, E: ToString>(
        self,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> (Vec<Theirs<T>>, Vec<Missing>) {
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        for (node, answer) in self.answers {
            let node_name = self.names.get(&node).cloned().unwrap_or_default();
            let answer = answer.map_err(|error| error.to_string());
            match answer.and_then(|text| read(&text).map_err(|error| error.to_string())) {
                Ok(has) => all.push(Theirs { node, node_name, has }),
                Err(reason) => missing.push(Missing { node, node_name, reason }),
            }
        }
        (all, missing)
    }
}

const _: () =
    assert!(QUERY_DEADLINE.as_secs() < 30, "a list must not take longer than somebody waits for it");
