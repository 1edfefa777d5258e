//! Executes a `POST` with an `Idempotency-Key` only once: a caller that did not get the response repeats the
//! request and gets the same response.
//!
//! Each caller has keys of its own. The same key with a different request is refused: the response belongs to
//! the first request. A failure of the server (5xx) is not remembered, so that the caller can try again.
//! Secrets are not remembered either. Nothing is kept across a restart of the node, and other nodes do not
//! know of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::access::Caller;
use super::input::whole;
use super::refusal::Refusal;

/// The name of the header. Only `POST`s that need a role take it: others have no caller to whom the key could
/// belong.
pub(super) const KEY: &str = "Idempotency-Key";
/// Marks a response that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The longest key. A UUID has 36 bytes.
pub(super) const KEY_BYTES_MAX: usize = 128;
/// The number of keys that are remembered, and how long. With [`ANSWER_BYTES_MAX`] they take at most 16 MiB;
/// a typical response has some 1 KiB.
const KEYS_MAX: usize = 1024;
const VALID: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest response that is remembered.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Calls whose responses contain secrets.
const SECRET: [&str; 2] = ["/v1/tokens", "/v1/cluster/tokens"];

/// The responses by caller and key.
#[derive(Default)]
pub struct Answers(Mutex<BTreeMap<(String, String), Entry>>);

struct Entry {
    /// The digest of path and body.
    request: [u8; 32],
    began: Instant,
    /// `None`: the request is in progress.
    answer: Option<Answer>,
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    location: Option<HeaderValue>,
    /// `None`: the body is not remembered.
    body: Option<Bytes>,
}

/// A request in progress. Its key is released on drop unless the response was kept.
struct UnderWay<'a> {
    answers: &'a Answers,
    name: (String, String),
    is_kept: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.answers.entries().remove(&self.name);
        }
    }
}

impl Answers {
    /// Executes a request with `act`, unless it has a key and was executed before.
    pub(super) async fn once<F: Future<Output = Response>>(
        &self,
        caller: &Caller,
        request: Request,
        act: impl FnOnce(Request) -> F,
    ) -> Response {
        let key = match key_of(request.method(), request.headers()) {
            Ok(None) => return act(request).await,
            Ok(Some(key)) => key,
            Err(refusal) => return refusal.into_response(),
        };
        let (parts, body) = request.into_parts();
        let body = match whole(body).await {
            Ok(body) => body,
            Err(refusal) => return refusal.into_response(),
        };
        let digest = Sha256::new().chain_update(parts.uri.to_string()).chain_update([0]).chain_update(&body);
        let name = (format!("{}/{}", caller.by, caller.name), key);
        let mut under_way = match self.begin(Instant::now(), name, digest.finalize().into()) {
            Ok(Begun::Now(under_way)) => under_way,
            Ok(Begun::Before(answer)) => return replay(answer),
            Err(refusal) => return refusal.into_response(),
        };
        let has_secret = SECRET.contains(&parts.uri.path());
        let response = act(Request::from_parts(parts, Body::from(body))).await;
        if response.status().is_server_error() {
            return response;
        }
        let (parts, body) = response.into_parts();
        // The body is complete: this node has created it.
        let Ok(body) = to_bytes(body, usize::MAX).await else {
            return Response::from_parts(parts, Body::empty());
        };
        let answer = Answer {
            status: parts.status,
            content_type: parts.headers.get(CONTENT_TYPE).cloned(),
            location: parts.headers.get(LOCATION).cloned(),
            body: (body.len() <= ANSWER_BYTES_MAX && !has_secret).then(|| body.clone()),
        };
        if let Some(entry) = self.entries().get_mut(&under_way.name) {
            entry.answer = Some(answer);
            under_way.is_kept = true;
        }
        Response::from_parts(parts, Body::from(body))
    }

    fn begin(&self, now: Instant, name: (String, String), request: [u8; 32]) -> Result<Begun<'_>, Refusal> {
        let mut entries = self.entries();
        entries.retain(|_, entry| entry.answer.is_none() || now.duration_since(entry.began) < VALID);
        match entries.get(&name) {
            Some(entry) if entry.request != request => {
                let detail = "this Idempotency-Key was already used for a different request";
                return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
                    .hint("use a new key for each request"));
            }
            Some(Entry { answer: Some(answer), .. }) => return Ok(Begun::Before(answer.clone())),
            Some(Entry { answer: None, .. }) => {
                let detail = "the request with this Idempotency-Key is in progress";
                return Err(
                    Refusal::new(StatusCode::CONFLICT, "idempotency_under_way", detail).retry_after(1)
                );
            }
            None => {}
        }
        if entries.len() >= KEYS_MAX {
            let done = entries.iter().filter(|(_, entry)| entry.answer.is_some());
            let oldest = done.min_by_key(|(_, entry)| entry.began).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else {
                let detail = format!("{KEYS_MAX} requests with an Idempotency-Key are in progress");
                return Err(
                    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_keys", detail).retry_after(5)
                );
            };
            entries.remove(&oldest);
        }
        entries.insert(name.clone(), Entry { request, began: now, answer: None });
        Ok(Begun::Now(UnderWay { answers: self, name, is_kept: false }))
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<(String, String), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Begun<'a> {
    Now(UnderWay<'a>),
    Before(Answer),
}

fn key_of(method: &Method, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next().filter(|_| *method == Method::POST) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    if values.next().is_some() || text.is_empty() || text.len() > KEY_BYTES_MAX {
        let detail = format!(
            "an Idempotency-Key must have 1 to {KEY_BYTES_MAX} printable characters, and be given once"
        );
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "idempotency_key_invalid", detail));
    }
    Ok(Some(text.to_owned()))
}

fn replay(answer: Answer) -> Response {
    let Some(body) = answer.body else {
        let detail = "the request with this Idempotency-Key was carried out; its response is not kept";
        return Refusal::new(StatusCode::CONFLICT, "already_done", detail)
            .hint("a secret is shown only once: delete the object, and create another one with a new key")
            .into_response();
    };
    let mut response = (answer.status, body).into_response();
    response.headers_mut().remove(CONTENT_TYPE);
    if let Some(content_type) = answer.content_type {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    if let Some(location) = answer.location {
        response.headers_mut().insert(LOCATION, location);
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> (String, String) {
        ("token/a".into(), key.into())
    }

    fn done(answers: &Answers, now: Instant, key: &str) {
        let Ok(Begun::Now(mut begun)) = answers.begin(now, name(key), [1; 32]) else { panic!("{key}") };
        let body = Some(Bytes::new());
        let answer = Answer { status: StatusCode::CREATED, content_type: None, location: None, body };
        answers.entries().get_mut(&begun.name).unwrap().answer = Some(answer);
        begun.is_kept = true;
    }

    #[test]
    fn a_key_is_good_for_one_request_and_for_a_day() {
        let (answers, now) = (Answers::default(), Instant::now());
        let begun = answers.begin(now, name("k"), [1; 32]).ok().unwrap();
        let again = answers.begin(now, name("k"), [1; 32]).err().unwrap();
        assert_eq!(again.code(), "idempotency_under_way");
        // It failed.
        drop(begun);
        done(&answers, now, "k");
        assert!(matches!(answers.begin(now, name("k"), [1; 32]), Ok(Begun::Before(_))));
        let other = answers.begin(now, name("k"), [2; 32]).err().unwrap();
        assert_eq!((other.code(), other.status().as_u16()), ("idempotency_key_reused", 422));
        assert!(matches!(answers.begin(now, ("token/b".into(), "k".into()), [2; 32]), Ok(Begun::Now(_))));
        assert!(matches!(answers.begin(now + VALID, name("k"), [2; 32]), Ok(Begun::Now(_))));
    }

    #[test]
    fn the_oldest_answer_is_dropped_when_there_are_too_many() {
        let (answers, now) = (Answers::default(), Instant::now());
        for n in 0..=KEYS_MAX {
            done(&answers, now + Duration::from_secs(n as u64), &n.to_string());
        }
        assert_eq!(answers.entries().len(), KEYS_MAX);
        assert!(!answers.entries().contains_key(&name("0")) && answers.entries().contains_key(&name("1")));
    }
}
