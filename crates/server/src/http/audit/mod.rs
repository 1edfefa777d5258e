//! The audit log: who did what, from where, and with what result.

mod log;
mod writer;

use std::cmp::Reverse;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::node::Control;
use api::{AuditEntry, List, ProvedBy};
use axum::http::StatusCode;
use serde::Deserialize;
use terms::clock::unix_now;
use utoipa::IntoParams;

pub(super) use self::log::AuditFilter;
pub(super) use self::writer::AuditTrouble;
use self::writer::Writer;
use super::input::{Parameters, limit_of, skip_of};
use super::inquiries::{self, Inquiry, Unanswered};
use super::peers::{self, PeerQuery, QueriedNodes, Theirs, Whose};
use super::refusal::{Refusal, Reply};
use super::state::State;

/// The number of entries of a response: the default, and the maximum.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// The length to which names and paths are truncated, since a stranger may choose them.
const TEXT_BYTES_MAX: usize = 256;

/// The audit log of a node. Cheap to clone.
#[derive(Clone)]
pub(super) struct Audit {
    writer: Writer,
    directory: PathBuf,
}

/// What was done or attempted.
pub(super) struct Deed {
    pub(super) who: String,
    pub(super) by: Option<ProvedBy>,
    pub(super) address: String,
    pub(super) action: String,
    pub(super) status: StatusCode,
    pub(super) code: Option<String>,
}

impl Audit {
    /// The log in this directory. If it cannot be opened, [`Audit::trouble`] reports it.
    pub(super) fn open(directory: &Path) -> io::Result<Audit> {
        Ok(Audit { writer: Writer::start(directory)?, directory: directory.to_owned() })
    }

    /// Why changes cannot be written at the moment, if so.
    pub(super) async fn trouble(&self) -> Option<String> {
        Some(self.said(self.writer.trouble().await?))
    }

    /// The directory, and why the log cannot be written, as of the last attempt.
    pub(super) fn known_error(&self) -> Option<(PathBuf, AuditTrouble)> {
        Some((self.directory.clone(), self.writer.known_trouble()?))
    }

    fn said(&self, why: AuditTrouble) -> String {
        format!(
            "cannot write the audit log in {}; changes through the API are refused until it can be written: {why}",
            self.directory.display()
        )
    }

    pub(super) async fn write(&self, deed: Deed) {
        let entry = AuditEntry {
            id: 0,
            at: unix_now(),
            who: cut(deed.who),
            by: deed.by,
            address: deed.address,
            action: cut(deed.action),
            status: deed.status.as_u16(),
            code: deed.code,
            node: None,
            node_name: None,
        };
        tracing::info!(
            who = entry.who,
            address = entry.address,
            action = entry.action,
            status = entry.status,
            "audit"
        );
        self.writer.write(entry).await;
    }

    async fn last(&self, wanted: AuditFilter) -> io::Result<Vec<AuditEntry>> {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || log::last(&directory, wanted));
        read.await.map_err(io::Error::other)?
    }

    /// Answers a question of another node.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) async fn shown(&self, wanted: AuditFilter) -> Result<Vec<AuditEntry>, Unanswered> {
        let wanted = AuditFilter { limit: wanted.limit.min(LIMIT_MAX), ..wanted };
        self.last(wanted).await.map_err(|error| {
            tracing::warn!(%error, "the audit log cannot be read for another node");
            Unanswered::AuditUnreadable((&error).into())
        })
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

/// Which entries.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Window {
    /// Maximum number of entries: 1 to 1000; default 100.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Only entries before the one with this number, of a single node.
    #[serde(default)]
    before: Option<u64>,
    /// Only entries until then, in seconds since 1970.
    #[serde(default)]
    until: Option<u64>,
    /// With `until`: skip the newest N of these, which you have already; with `limit`, 1000 at most.
    #[serde(default)]
    #[param(minimum = 0, maximum = 999)]
    skip: Option<usize>,
    /// A node number, or `all`; absent: the queried node.
    #[serde(default)]
    node: Option<String>,
}

/// The audit log of the queried node, or of others: who changed what, and when; newest first.
///
/// Each node logs the requests that it received. With `node=all`, the logs of all nodes are merged by time.
/// To page back, pass the number of the last entry as `before`, or for all nodes its time as `until`, and as
/// `skip` the number of entries of that second that you have; without `skip` these are repeated.
#[utoipa::path(
    get, path = "/v1/audit", tag = "access", operation_id = "list_audit",
    params(Window),
    responses(
        (status = OK, description = "Entries", body = List<AuditEntry>),
        (status = INTERNAL_SERVER_ERROR, description = "`audit_unreadable`"),
    ),
)]
pub(super) async fn list(state: State, Parameters(window): Parameters<Window>) -> Reply<List<AuditEntry>> {
    let Window { limit, before, until, skip, node } = window;
    let asked = Whose { node }.asked()?;
    if asked == QueriedNodes::All && before.is_some() {
        let detail =
            "each node numbers its own entries: use `before` with a single node, `until` with all nodes";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail));
    }
    let skip = skip_of(skip, until, LIMIT_MAX)?;
    // Each node also has to return the entries that are skipped.
    let wanted = AuditFilter { limit: limit_of(limit, LIMIT, LIMIT_MAX - skip)? + skip, before, until };
    if asked == QueriedNodes::This {
        return Ok(axum::Json(List::of(rest(own(&state, wanted).await?, skip))));
    }
    let query = move |_: u16| PeerQuery::Inquiry(Inquiry::Audit(wanted));
    let me = |control: Rc<Control>, is_asked: bool| async move { Ok((is_asked, control.number_and_name())) };
    let ((of_this, me), answers) = peers::gather(&state, asked, query, me).await?;
    let (theirs, missing) = answers.each(inquiries::read::<Vec<AuditEntry>>);
    let mut lists = Vec::new();
    if of_this {
        lists.push(of_node(me, own(&state, wanted).await?));
    }
    let named = |theirs: Theirs<_>| of_node((theirs.node, theirs.node_name), theirs.has);
    lists.extend(theirs.into_iter().map(named));
    Ok(axum::Json(List { items: rest(merged(lists, wanted.limit), skip), missing }))
}

/// Without the newest `skip` entries.
fn rest(mut entries: Vec<AuditEntry>, skip: usize) -> Vec<AuditEntry> {
    entries.drain(..skip.min(entries.len()));
    entries
}

/// The entries of this node's log.
async fn own(state: &State, wanted: AuditFilter) -> Result<Vec<AuditEntry>, Refusal> {
    state.access.audit.last(wanted).await.map_err(|error| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "audit_unreadable",
            format!("the audit log cannot be read: {error}"),
        )
    })
}

fn of_node((node, name): (u16, String), entries: Vec<AuditEntry>) -> Vec<AuditEntry> {
    let named = |entry: AuditEntry| AuditEntry { node: Some(node), node_name: Some(name.clone()), ..entry };
    entries.into_iter().map(named).collect()
}

/// The newest `limit` entries of these logs, the newest first.
fn merged(logs: Vec<Vec<AuditEntry>>, limit: usize) -> Vec<AuditEntry> {
    let mut entries: Vec<AuditEntry> = logs.into_iter().flatten().collect();
    // The sort is stable: entries of one node keep their order.
    entries.sort_by_key(|entry| (Reverse(entry.at), entry.node));
    entries.truncate(limit);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(node: u16, of: &[(u64, u64)]) -> Vec<AuditEntry> {
        let entry = |(id, at): &(u64, u64)| AuditEntry { id: *id, at: *at, ..log::example("login") };
        of_node((node, format!("san{node}")), of.iter().map(entry).collect())
    }

    #[test]
    fn the_newest_of_all_logs_are_kept_the_newest_first() {
        let first = entries(1, &[(9, 30), (8, 20), (7, 20), (6, 10)]);
        let second = entries(2, &[(3, 25), (2, 20), (1, 5)]);
        let shown = |logs: Vec<Vec<AuditEntry>>, limit| -> Vec<String> {
            let entries = merged(logs, limit).into_iter();
            entries.map(|entry| format!("{} {}", entry.node_name.unwrap_or_default(), entry.id)).collect()
        };
        let newest = ["san1 9", "san2 3", "san1 8", "san1 7", "san2 2"];
        assert_eq!(shown(vec![first.clone(), second.clone()], 5), newest);
        assert_eq!(shown(vec![second, first], 5), newest, "the same whoever is asked");
        assert!(shown(Vec::new(), 5).is_empty());
    }
}
