//! Why a request was refused: the node's reasons as problem documents (RFC 9457).

mod cluster;
mod control;
mod store;

use std::borrow::Cow;
use std::error::Error;

use ::node::NotRunning;
use api::Problem;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

/// A request was refused.
#[derive(Debug)]
pub struct Refusal(Box<Problem>);

impl Refusal {
    /// A refusal. `code` is part of the interface and stays; `detail` is for people.
    pub fn new(status: StatusCode, code: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Refusal {
        Refusal(Box::new(Problem {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Refused").into(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.into().into_owned(),
            hint: None,
            field: None,
        }))
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.0.hint = Some(hint.into());
        self
    }

    /// With the field of the request that is concerned.
    pub fn field(mut self, field: impl Into<String>) -> Refusal {
        self.0.field = Some(field.into());
        self
    }

    /// Its reason, for programs.
    pub fn code(&self) -> &str {
        &self.0.code
    }

    /// Its HTTP status.
    #[cfg(test)]
    pub fn status(&self) -> u16 {
        self.0.status
    }

    /// A field has a value that cannot be.
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "field_invalid", detail).field(field)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::warn!(code = self.0.code, detail = self.0.detail, "a request failed");
        }
        let mut response = (status, axum::Json(self.0)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
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
