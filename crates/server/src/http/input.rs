//! Parses bodies, paths and queries. An error names the field that is wrong.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use super::BODY_BYTES_MAX;
use super::refusal::Refusal;

/// A JSON body.
pub(super) struct Json<T>(pub(super) T);

/// The parameters in the path.
pub(super) struct Segments<T>(pub(super) T);

/// The parameters in the query.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Json<T>, Refusal> {
        // A page of another site cannot send this type without a preflight request (CORS), which this node
        // does not answer.
        if !is_json(request.headers()) {
            let detail = "the request body must be JSON, with Content-Type: application/json";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| unread(&rejection))?;
        parse(&bytes).map(Json)
    }
}

/// The number of newest items to skip, because the caller has them already; fewer than `most`.
///
/// # Errors
/// 400: `skip` is too large, or `until` is missing.
pub(super) fn skip_of(asked: Option<usize>, until: Option<u64>, most: usize) -> Result<usize, Refusal> {
    match (asked, until) {
        (None, _) => Ok(0),
        (Some(skip), Some(_)) if skip < most => Ok(skip),
        (Some(_), _) => {
            let detail = format!("`skip` must be 0 to {}, and requires `until`", most - 1);
            Err(Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail))
        }
    }
}

/// The number of items that the caller wants.
///
/// # Errors
/// 400: the limit is 0 or greater than `most`.
pub(super) fn limit_of(asked: Option<usize>, usual: usize, most: usize) -> Result<usize, Refusal> {
    match asked.unwrap_or(usual.min(most)) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        limit => {
            let detail = format!("`limit` must be 1 to {most}, not {limit}");
            Err(Refusal::new(StatusCode::BAD_REQUEST, "query_invalid", detail))
        }
    }
}

/// Reads a whole body.
///
/// # Errors
/// 413: it is longer than [`BODY_BYTES_MAX`].
pub(super) async fn whole(body: Body) -> Result<Bytes, Refusal> {
    to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let detail = format!("the request body was not read: the limit is {} MiB", BODY_BYTES_MAX >> 20);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn unread(rejection: &BytesRejection) -> Refusal {
    let code = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
        _ => "body_unreadable",
    };
    Refusal::new(rejection.status(), code, rejection.body_text())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // serde also accepts a list for an object, field by field; the API's description says that bodies are
    // objects.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        let detail = "the request body is a list: send an object with named fields";
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "field_invalid", detail));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if !error.is_data() {
            return Refusal::new(
                StatusCode::BAD_REQUEST,
                "json_syntax",
                format!("invalid JSON in request body: {error}"),
            );
        }
        let refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "field_invalid", error.to_string());
        // "." is the whole body: the detail names the field that is missing.
        if path == "." { refusal } else { refusal.field(path) }
    })?;
    let rest = deserializer.end();
    rest.map_err(|error| {
        Refusal::new(StatusCode::BAD_REQUEST, "json_syntax", format!("invalid JSON in request body: {error}"))
    })?;
    Ok(value)
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Segments<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Segments<T>, Refusal> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(segments)) => Ok(Segments(segments)),
            Err(rejection) => Err(Refusal::new(rejection.status(), "path_invalid", rejection.body_text())),
        }
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Parameters<T>, Refusal> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(parameters)) => Ok(Parameters(parameters)),
            Err(rejection) => Err(Refusal::new(rejection.status(), "query_invalid", rejection.body_text())),
        }
    }
}
