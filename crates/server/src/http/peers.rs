//! What other nodes of the cluster have, as shown by the queried node, and what nodes ask each other for.
//!
//! A node asks the others over their links, on which they have authenticated each other; it forwards no
//! caller's credentials. The queries concern what a viewer may see, and this node has checked that the
//! caller is at least a viewer; for the audit log, that it is an administrator. A node that does not answer
//! within [`QUERY_DEADLINE`] is listed as missing in the response.
//!
//! Queries ([`PeerQuery`]) are not forwarded calls of the API. Their answers contain codes and facts, which
//! the queried node words or combines, and they do not wait for the forwarded changes in progress, which may
//! take minutes.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use ::node::control::{QUERY_DEADLINE, QueryFailed};
use ::node::copies::Refused;
use ::node::{Control, PeerRequests};
use api::{List, Missing};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::findings::{self, Opened};
use super::forwarding::{ForwardedCall, Forwarding};
use super::inquiries::{Inquiries, Inquiry};
use super::live::Live;
use super::refusal::Refusal;
use super::state::State;
use super::{addresses, history, jobs, links, pools, sessions, snapshots, volumes};
use crate::history::History;

/// A request that a node sends to another one.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PeerRequest {
    /// Execute a call that the sender received: see [`super::forwarding`].
    Call(ForwardedCall),
    /// Show what the receiver has.
    Show(PeerQuery),
}

/// What a node asks another one to show: that node's own only.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PeerQuery {
    Pools,
    Sessions,
    Links,
    Addresses,
    Snapshots,
    Faults,
    Jobs,
    EndedJobs,
    /// The volumes with these IDs, without those that have no copy on the node.
    Volumes(Vec<String>),
    History(history::Question),
    Live,
    Inquiry(Inquiry),
}

impl PeerRequest {
    /// The request as text for the other node.
    pub(super) fn written(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written as JSON")
    }
}

/// What the HTTP interface shares with core 0, where requests of other nodes arrive. Cheap to clone.
#[derive(Clone)]
pub struct Shared {
    /// The rates and latencies of the last seven days.
    pub history: History,
    /// Current rates and latencies.
    pub live: Arc<Live>,
    /// What the HTTP interface knows, as needed to report faults.
    pub opened: Arc<Opened>,
    /// Questions about events and the audit log.
    pub inquiries: Arc<Inquiries>,
    /// Calls that other nodes forward to this one.
    pub forwarding: Arc<Forwarding>,
}

impl Shared {
    /// That of the node with this data directory. Starts its history.
    pub fn start(data_dir: &Path) -> Shared {
        Shared {
            history: History::start(data_dir),
            live: Arc::default(),
            opened: Arc::default(),
            inquiries: Arc::default(),
            forwarding: Arc::default(),
        }
    }

    /// The handler for requests of other nodes.
    pub fn peer_requests(&self) -> PeerRequests {
        let shared = self.clone();
        PeerRequests::new(move |control, request| {
            let shared = shared.clone();
            Box::pin(async move {
                match serde_json::from_str(&request) {
                    Ok(PeerRequest::Call(call)) => shared.forwarding.execute(call).await,
                    Ok(PeerRequest::Show(query)) => {
                        shared.show(&control, query).await.ok_or(Refused::UnknownRequest)
                    }
                    Err(_) => Err(Refused::UnknownRequest),
                }
            })
        })
    }

    /// The answer to a query, as text; `None` if there is none.
    async fn show(&self, control: &Control, query: PeerQuery) -> Option<String> {
        match query {
            PeerQuery::Pools => serde_json::to_string(&pools::all(control)).ok(),
            PeerQuery::Sessions => serde_json::to_string(&sessions::all(control).await.ok()?).ok(),
            PeerQuery::Links => serde_json::to_string(&links::here(control).await.ok()?).ok(),
            PeerQuery::Addresses => serde_json::to_string(&addresses::here(control)).ok(),
            PeerQuery::Snapshots => serde_json::to_string(&snapshots::here(control).await?).ok(),
            PeerQuery::Faults => serde_json::to_string(&findings::reports(control, &self.opened)).ok(),
            PeerQuery::Jobs => serde_json::to_string(&jobs::own(control)).ok(),
            PeerQuery::EndedJobs => serde_json::to_string(&jobs::own_ended(control)).ok(),
            PeerQuery::Volumes(ids) => serde_json::to_string(&volumes::of_ids(control, &ids).await).ok(),
            PeerQuery::History(question) => history::shown(control, &self.history, &question).await,
            PeerQuery::Live => serde_json::to_string(&self.live.shown()).ok(),
            PeerQuery::Inquiry(inquiry) => Some(self.inquiries.answer(inquiry).await),
        }
    }
}

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
    query: PeerQuery,
    own: impl FnOnce(Rc<Control>) -> F + Clone + Send + 'static,
) -> Result<List<T>, Refusal>
where
    T: DeserializeOwned + Send + 'static,
    F: Future<Output = Result<Vec<T>, ::node::control::ControlError>> + 'static,
{
    let own = move |control: Rc<Control>, is_asked: bool| async move {
        if is_asked { own(control).await } else { Ok(Vec::new()) }
    };
    let (mut items, answers) = gather(state, asked, move |_| query.clone(), own).await?;
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
    query: impl Fn(u16) -> PeerQuery + Clone + Send + 'static,
    own: impl FnOnce(Rc<Control>, bool) -> F + Clone + Send + 'static,
) -> Result<(T, Answers), Refusal>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ::node::control::ControlError>> + 'static,
{
    let gather = move |control: Rc<Control>| async move {
        let (is_asked, others) = asked.of(&control);
        let own = own(Rc::clone(&control), is_asked).await?;
        let queries = others.into_iter().map(|node| (node, query(node))).collect();
        Ok((own, ask(&control, queries).await?))
    };
    state.call(gather).await
}

/// Asks other nodes, all at once.
///
/// # Errors
/// A node does not exist.
pub(super) async fn ask(
    control: &Rc<Control>,
    queries: BTreeMap<u16, PeerQuery>,
) -> Result<Answers, ::node::control::ControlError> {
    if queries.is_empty() {
        return Ok(Answers::default());
    }
    let written = |(node, query)| (node, PeerRequest::Show(query).written());
    let answers = control.ask_to_show(queries.into_iter().map(written).collect()).await?;
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What version 1 sends. Later versions must read it: add requests, and change none.
    #[test]
    fn requests_of_version_1_are_read_and_keep_what_they_say() {
        let plain =
            ["pools", "sessions", "links", "addresses", "snapshots", "faults", "jobs", "ended-jobs", "live"];
        let window = json!({"from": 1_790_000_000, "step": 10, "points": 361});
        let wanted = json!({"subject": "db", "severity": "warning"});
        let with_fields = [
            json!({"volumes": ["00000000000000000000000000000001"]}),
            json!({"history": {"window": window, "series": ["cpu", "read_bytes"]}}),
            json!({"inquiry": {"events": {"after": 7, "until": null, "limit": 100, "wanted": wanted}}}),
            json!({"inquiry": {"audit": {"limit": 100, "before": null, "until": 1_790_000_000}}}),
        ];
        let shown = plain.map(Value::from).into_iter().chain(with_fields).map(|query| json!({"show": query}));
        let call = json!({"call": {
            "method": "PATCH", "target": "/v1/volumes/db", "content_type": "application/json", "body": "{}",
            "caller": {"name": "eva", "role": "operator", "by": "session"}, "asked": "san3",
        }});
        for sent in shown.chain([call]) {
            let read: PeerRequest = serde_json::from_value(sent.clone()).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&read.written()).unwrap(), sent);
        }
        assert!(serde_json::from_value::<PeerRequest>(json!({"show": "a-later-query"})).is_err());
    }
}
