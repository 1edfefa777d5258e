//! Who has done what, from where, and what became of it.

mod log;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

use api::{AuditEntry, List, Problem, ProvedBy};
use axum::extract::State as Extracted;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use self::writer::Writer;
use super::input::{Parameters, limit_of};
use super::refusal::Refusal;
use super::state::State;
use crate::clock::unix_now;

/// Entries of an answer, unless told otherwise, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// What is longer is cut: of names and paths that a stranger chooses.
const TEXT_BYTES_MAX: usize = 256;

/// The audit log of a node. Cheap to clone.
#[derive(Clone)]
pub(super) struct Audit {
    writer: Writer,
    directory: PathBuf,
}

/// What was done, or tried.
pub(super) struct Deed {
    pub(super) who: String,
    pub(super) by: Option<ProvedBy>,
    pub(super) address: String,
    pub(super) action: String,
    pub(super) status: StatusCode,
    pub(super) code: Option<String>,
}

impl Audit {
    /// The log in this directory. That it cannot be opened is known later, by [`Audit::trouble`].
    ///
    /// # Errors
    /// If there is no thread to have.
    pub(super) fn open(directory: &Path) -> io::Result<Audit> {
        Ok(Audit { writer: Writer::start(directory)?, directory: directory.to_owned() })
    }

    /// Why changes cannot be written down at the moment, if they cannot.
    pub(super) async fn trouble(&self) -> Option<String> {
        Some(self.said(self.writer.trouble().await?))
    }

    /// As [`Audit::trouble`], by what is known.
    pub(super) fn known_trouble(&self) -> Option<String> {
        Some(self.said(self.writer.known_trouble()?))
    }

    fn said(&self, why: String) -> String {
        format!(
            "the audit log in {} cannot be written, and changes by the API are refused until it can be: {why}",
            self.directory.display()
        )
    }

    /// Writes it down.
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

    async fn last(&self, limit: usize, before: u64) -> io::Result<Vec<AuditEntry>> {
        let directory = self.directory.clone();
        let read = tokio::task::spawn_blocking(move || log::last(&directory, limit, before));
        read.await.map_err(io::Error::other)?
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
    /// How many at most: 1 to 1000; 100 unless told otherwise.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Those before the one with this number.
    #[serde(default)]
    before: Option<u64>,
}

/// What was done on this node, and by whom; the newest first.
///
/// Each node has the log of what was asked of it.
#[utoipa::path(
    get, path = "/v1/audit", tag = "access", operation_id = "list_audit",
    params(Window),
    responses(
        (status = OK, description = "Entries", body = List<AuditEntry>),
        (status = BAD_REQUEST, description = "`query_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = INTERNAL_SERVER_ERROR, description = "`audit_unreadable`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn list(
    Extracted(state): Extracted<State>,
    Parameters(window): Parameters<Window>,
) -> Result<axum::Json<List<AuditEntry>>, Refusal> {
    let limit = limit_of(window.limit, LIMIT, LIMIT_MAX)?;
    let items = state.access.audit.last(limit, window.before.unwrap_or(u64::MAX)).await.map_err(|error| {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "audit_unreadable",
            format!("the audit log cannot be read: {error}"),
        )
    })?;
    Ok(axum::Json(List::of(items)))
}
