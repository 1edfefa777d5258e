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

/// The default `Retry-After` in seconds: what blocks a change lasts as long as another change, or until a
/// node returns.
const RETRY_AFTER_SECONDS: u64 = 2;

/// A refused request.
#[derive(Debug)]
pub struct Refusal {
    problem: Box<Problem>,
    /// After how many seconds a retry makes sense.
    retry_after: Option<u64>,
    /// The ID of the job that continues nevertheless.
    job: Option<String>,
}

/// What a handler answers: JSON, unless it refuses.
pub(super) type Reply<T> = Result<axum::Json<T>, Refusal>;

/// The code of a refusal, attached to its response for the audit log.
#[derive(Clone, Debug)]
pub(super) struct RefusalCode(pub(super) String);

/// Whether this is an attempt that was refused before anything was checked. There may be any number of these.
pub(super) fn was_not_looked_at(code: &str) -> bool {
    matches!(code, "login_throttled" | "login_busy")
}

impl Refusal {
    /// A refusal. `code` is part of the API and does not change; `detail` is for people.
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

    /// Adds a hint: what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.problem.hint = Some(hint.into());
        self
    }

    /// Adds the field of the request that is wrong.
    pub fn field(mut self, field: impl Into<String>) -> Refusal {
        self.problem.field = Some(field.into());
        self
    }

    /// Adds the candidates that were considered and are not suitable.
    pub fn candidates(mut self, candidates: Vec<Candidate>) -> Refusal {
        self.problem.candidates = candidates;
        self
    }

    /// Adds the time after which a retry makes sense.
    pub fn retry_after(mut self, seconds: u64) -> Refusal {
        self.retry_after = Some(seconds);
        self
    }

    /// Adds the ID of the job that continues nevertheless.
    pub fn job(mut self, id: String) -> Refusal {
        self.job = Some(id);
        self
    }

    /// The problem document.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The reason, for programs.
    pub fn code(&self) -> &str {
        &self.problem.code
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "field_invalid", detail).field(field)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, Refusal { problem, retry_after, job }) = (self.status(), self);
        // Attempts that were not checked are not logged: otherwise anybody could fill the log.
        if status.is_server_error() && !was_not_looked_at(&problem.code) {
            tracing::warn!(code = problem.code, detail = problem.detail, "a request failed");
        }
        let code = RefusalCode(problem.code.clone());
        let mut response = (status, axum::Json(problem)).into_response();
        response.extensions_mut().insert(code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110 15.5.2 requires this header. `Bearer` makes no browser ask for a password.
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
