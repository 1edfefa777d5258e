//! Why a request was refused: the node's reasons as problem documents (RFC 9457).

mod cluster;
mod control;
mod store;

use std::borrow::Cow;
use std::error::Error;

use ::node::NotRunning;
use api::{Candidate, Problem};
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::jobs::id;

/// When to ask again where nothing better is known, in seconds: what is in the way of a change lasts as long
/// as another change, or a node that returns.
const RETRY_AFTER_SECONDS: u64 = 2;

/// A request was refused.
#[derive(Debug)]
pub struct Refusal {
    problem: Box<Problem>,
    /// After how many seconds it makes sense to ask again.
    retry_after: Option<u64>,
    /// What goes on all the same: the id of a job.
    job: Option<String>,
}

/// Why a request was refused, beside its answer: for the audit log.
#[derive(Clone, Debug)]
pub(super) struct RefusalCode(pub(super) String);

/// Whether these are tries that were sent away before anything was checked; there may be as many as somebody
/// likes.
pub(super) fn was_not_looked_at(code: &str) -> bool {
    matches!(code, "login_throttled" | "login_busy")
}

impl Refusal {
    /// A refusal. `code` is part of the interface and stays; `detail` is for people.
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Refusal {
        let problem = Problem {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Refused").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into().into_owned(),
            hint: None,
            field: None,
            candidates: Vec::new(),
        };
        Refusal { problem: Box::new(problem), retry_after: None, job: None }
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.problem.hint = Some(hint.into());
        self
    }

    /// With the field of the request that is concerned.
    pub fn field(mut self, field: impl Into<String>) -> Refusal {
        self.problem.field = Some(field.into());
        self
    }

    /// With what was looked at and does not do.
    pub fn candidates(mut self, candidates: Vec<Candidate>) -> Refusal {
        self.problem.candidates = candidates;
        self
    }

    /// With when to ask again.
    pub fn retry_after(mut self, seconds: u64) -> Refusal {
        self.retry_after = Some(seconds);
        self
    }

    /// With the job that goes on all the same, by its id.
    pub fn job(mut self, id: String) -> Refusal {
        self.job = Some(id);
        self
    }

    /// The problem document.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Its reason, for programs.
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// Its HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// A field has a value that cannot be.
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "field_invalid", detail).field(field)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, Refusal { problem, retry_after, job }) = (self.status(), self);
        // Whoever likes could fill the log with what is not looked at.
        if status.is_server_error() && !was_not_looked_at(&problem.code) {
            tracing::warn!(code = problem.code, detail = problem.detail, "a request failed");
        }
        let code = RefusalCode(problem.code.clone());
        let mut response = (status, axum::Json(problem)).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110 15.5.2 wants one. No browser asks for a password because of this one.
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ursa\""));
        }
        let of_status = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_SECONDS);
        if let Some(seconds) = retry_after.or(of_status) {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(path) = job.and_then(|id| HeaderValue::try_from(id::path(&id)).ok()) {
            headers.insert(LOCATION, path);
        }
        response
    }
}

impl From<NotRunning> for Refusal {
    fn from(_: NotRunning) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_running", "the node is starting or stopping")
            .hint("try again in a moment")
    }
}

/// An error with its causes.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
