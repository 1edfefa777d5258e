//! Streams of server-sent events (WHATWG HTML 9.2): responses that last for as long as the client reads them
//! and is allowed to.
//!
//! There are at most [`STREAMS_MAX`], so that they do not take all connections. A stream ends if its reader
//! does not read, or loses access: its token was deleted, or its session has ended. A stream does not count
//! as use of the session, so it cannot keep the session alive.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use super::access::Caller;
use super::guard::Peer;
use super::refusal::Refusal;
use super::state::State;

/// The number of concurrent streams of a node, and of one user or token. Some of the 64 connections from this
/// machine must remain for its command line.
const STREAMS_MAX: usize = 48;
const OF_CALLER_MAX: usize = 16;
/// The number of messages that may wait for a reader. Then the source waits.
const WAITING_MAX: usize = 16;
/// How long the source waits for a reader.
const READER_DEADLINE: Duration = Duration::from_secs(30);
/// How often the reader's access is checked. The stream sends something each time, so that both ends notice a
/// lost connection.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The number of streams, by reader.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<BTreeMap<String, usize>>>);

/// The place of one stream, until this is dropped.
struct Room {
    streams: Streams,
    caller: String,
}

impl Streams {
    fn room_for(&self, caller: &Caller) -> Result<Room, Refusal> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = format!("{}/{}", caller.by, caller.name);
        let of_caller = counts.get(&caller).copied().unwrap_or_default();
        if of_caller >= OF_CALLER_MAX || counts.values().sum::<usize>() >= STREAMS_MAX {
            let detail = format!(
                "too many streams: at most {OF_CALLER_MAX} per user or token, {STREAMS_MAX} in total"
            );
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", detail)
                .hint("close some; the same data is also available without a stream")
                .retry_after(CHECK_EVERY.as_secs()));
        }
        counts.insert(caller.clone(), of_caller + 1);
        Ok(Room { streams: self.clone(), caller })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut counts = self.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.caller);
            }
        }
    }
}

/// The caller that requested a stream, and its credentials.
pub(super) struct Reader {
    pub(super) caller: Caller,
    pub(super) peer: Peer,
    pub(super) headers: HeaderMap,
}

/// The sending end of a stream.
pub(super) struct Messages(mpsc::Sender<Bytes>);

/// The stream is over.
pub(super) struct Gone;

impl Messages {
    pub(super) async fn send(&self, kind: &str, id: Option<u64>, data: &impl Serialize) -> Result<(), Gone> {
        let data = serde_json::to_string(data).map_err(|_| Gone)?;
        let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
        self.text(format!("{id}event: {kind}\ndata: {data}\n\n")).await
    }

    /// Sends the reader's position, which it sends as `Last-Event-ID` when it reconnects. The message has
    /// empty data, since some readers ignore messages without data.
    pub(super) async fn send_place(&self, place: &str) -> Result<(), Gone> {
        self.text(format!("id: {place}\nevent: place\ndata: {{}}\n\n")).await
    }

    async fn text(&self, text: String) -> Result<(), Gone> {
        let sent = tokio::time::timeout(READER_DEADLINE, self.0.send(text.into())).await;
        sent.map_err(|_| Gone)?.map_err(|_| Gone)
    }
}

/// A response that lasts until `source` ends, or until the reader is gone or loses access.
///
/// # Errors
/// 503: there are too many streams.
pub(super) fn answer<F: Future<Output = Result<(), Gone>> + Send + 'static>(
    state: &State,
    reader: Reader,
    source: impl FnOnce(Messages) -> F,
) -> Result<Response, Refusal> {
    let room = state.streams.room_for(&reader.caller)?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let source = source(Messages(sender.clone()));
    let state = state.clone();
    tokio::spawn(async move {
        let _room = room;
        tokio::select! {
            _ = source => {}
            () = sender.closed() => {}
            _ = watch(&state, &reader, Messages(sender.clone())) => {}
        }
    });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(Text(receiver))).into_response())
}

/// Returns when the reader no longer has access, or no longer reads.
async fn watch(state: &State, reader: &Reader, messages: Messages) -> Result<(), Gone> {
    // A browser reconnects after this many milliseconds.
    messages.text("retry: 2000\n\n".into()).await?;
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now = Caller::now(state, &reader.headers, &reader.peer).await;
        match now {
            Ok(now) if now.role >= reader.caller.role && now.name == reader.caller.name => {}
            _ => return Err(Gone),
        }
        messages.text(": still here\n\n".into()).await?;
    }
}

/// The body of a stream.
struct Text(mpsc::Receiver<Bytes>);

impl HttpBody for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use api::{ProvedBy, Role};

    use super::*;

    fn caller(name: &str) -> Caller {
        Caller { name: name.into(), role: Role::Viewer, by: ProvedBy::Token }
    }

    #[test]
    fn neither_one_nor_all_take_every_connection() {
        let streams = Streams::default();
        let mut rooms: Vec<Room> =
            (0..OF_CALLER_MAX).map(|_| streams.room_for(&caller("a")).ok().unwrap()).collect();
        assert_eq!(streams.room_for(&caller("a")).err().unwrap().code(), "too_many_streams");
        for n in 0..STREAMS_MAX - OF_CALLER_MAX {
            rooms.push(streams.room_for(&caller(&format!("b{n}"))).ok().unwrap());
        }
        assert!(streams.room_for(&caller("c")).is_err(), "all are taken");
        rooms.truncate(OF_CALLER_MAX - 1);
        assert!(streams.room_for(&caller("a")).is_ok());
        drop(rooms);
        assert!(streams.0.lock().unwrap().is_empty());
    }
}
