//! A node with a default pool of 64 MiB, on two cores, and its router.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use ::node::control::ControlError;
use ::node::{Config, Control, DefaultPool, Handle, StartSpec};
use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST};
use axum::http::{HeaderMap, Request, StatusCode};
use base::ByteLen;
use rt::CoreId;
use rt::sync::oneshot;
use rt::uring::{self, Running};
use serde_json::Value;
use tempfile::TempDir;
use terms::clock::unix_now;
use tower::ServiceExt;

use crate::http::access::{Access, Opening};
use crate::http::guard::Peer;
use crate::http::{
    Elsewhere, EventRing, Shared, State, Streams, events, forwarding, inquiries, live, router,
};

pub(super) const MIB: u64 = 1 << 20;

/// How long it may take until something appears in a stream.
const STREAM_DEADLINE: Duration = Duration::from_secs(20);

pub(super) struct Rig {
    dir: TempDir,
    running: Option<Running>,
    tokio: tokio::runtime::Runtime,
    pub(super) state: State,
    router: Router,
}

/// See [`Rig::carry_out`].
pub(super) struct Carrying {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Marks a request that is sent without the local token.
#[derive(Clone)]
pub(super) struct Unauthenticated;

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    #[track_caller]
    pub(super) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }

    #[track_caller]
    pub(super) fn empty(&self, status: u16) {
        assert_eq!((self.status, self.text.as_str()), (status, ""));
    }

    /// Asserts that the response is a problem document with this code, and returns it.
    #[track_caller]
    pub(super) fn refused(&self, status: u16, code: &str) -> Value {
        let problem = self.json(status);
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        problem
    }
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::prepared(|_| {})
    }

    /// A rig whose data directory is changed by `prepare` before the API starts.
    pub(super) fn prepared(prepare: impl FnOnce(&Path)) -> Rig {
        Rig::with(prepare, |_| {})
    }

    /// As [`Rig::prepared`], with other settings of the node.
    pub(super) fn with(prepare: impl FnOnce(&Path), set: impl FnOnce(&mut Config)) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::start(dir.path());
        let mut config = Config {
            name: "test".into(),
            data_dir: dir.path().to_owned(),
            portals: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            ram_bytes_max: 64 * MIB,
            drain_deadline: Duration::from_millis(200),
            peer_requests: shared.peer_requests(),
            ..Config::default()
        };
        set(&mut config);
        let config = Arc::new(config);
        let wanted = StartSpec {
            pool: Some(DefaultPool { path: dir.path().join("default.pool"), size: ByteLen(64 * MIB) }),
            ..StartSpec::default()
        };
        let (ready, started) = oneshot();
        let start = Arc::new(Mutex::new(Some((wanted, ready))));
        let cores = uring::Config { processors: vec![0, 1], pin: false, poll: Duration::ZERO };
        let running = Running::start(cores, move |core| {
            let start = if core == CoreId(0) { start.lock().unwrap().take() } else { None };
            ::node::run(Arc::clone(&config), start)
        });
        let running = running.unwrap();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let portals = tokio.block_on(started).unwrap().unwrap();
        let opening =
            Opening { data_dir: dir.path().to_owned(), no_certificate: None, metrics_without_token: true };
        prepare(dir.path());
        let access = Arc::new(Access::start(&opening).unwrap());
        let Shared { history, live, opened, inquiries, forwarding } = shared;
        opened.tell(&access);
        let state = State {
            node: Handle::new(running.handle()),
            name: "test".into(),
            read_confirm: api::ReadConfirm::default(),
            portals,
            started: SystemTime::now(),
            core_stats: Arc::new(running.stats_reader()),
            access,
            opened,
            events: Arc::new(EventRing::new(unix_now())),
            elsewhere: Elsewhere::default(),
            inquiries,
            answers: Arc::default(),
            forwarding,
            live,
            history,
            streams: Streams::default(),
        };
        tokio.spawn(events::take_all(state.clone()));
        tokio.spawn(live::sample(state.clone()));
        tokio.spawn(live::ask_all(state.clone()));
        let router = router(state.clone());
        Rig { dir, running: Some(running), tokio, state, router }
    }

    /// Executes forwarded calls of other nodes, and answers their questions about events and the audit log,
    /// until the result is dropped. The rig's own tasks run only while requests are sent to it.
    pub(super) fn carry_out(&self) -> Carrying {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let state = self.state.clone();
        let thread = std::thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let both = async {
                    tokio::join!(
                        forwarding::carry_out_all(state.clone()),
                        inquiries::answer_all(state.clone())
                    )
                };
                tokio::select! {
                    _ = both => {}
                    _ = stopped => {}
                }
            });
        });
        Carrying { stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn tokio(&self) -> &tokio::runtime::Runtime {
        &self.tokio
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn send(&self, request: Request<Body>) -> Answer {
        let request = self.completed(request);
        self.tokio.block_on(async {
            let response = self.router.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            // A stream has no end and is not read here: see `read_stream`.
            let goes_on = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
            let body = if goes_on { Body::empty() } else { body };
            let text = to_bytes(body, usize::MAX).await.unwrap().to_vec();
            Answer {
                status: parts.status.as_u16(),
                headers: parts.headers,
                text: String::from_utf8(text).unwrap(),
            }
        })
    }

    /// Reads a stream until it is long enough, or ends.
    pub(super) fn read_stream(&self, path: &str, is_enough: impl Fn(&str) -> bool) -> String {
        self.read_stream_of(Request::get(path).body(Body::empty()).unwrap(), is_enough)
    }

    /// As [`Rig::read_stream`], with a request.
    pub(super) fn read_stream_of(&self, request: Request<Body>, is_enough: impl Fn(&str) -> bool) -> String {
        let request = self.completed(request);
        let read = async {
            let response = self.router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream");
            let (mut body, mut text) = (response.into_body(), String::new());
            while !is_enough(&text) {
                let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
                let Some(frame) = frame else { break };
                text += std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap();
            }
            text
        };
        self.tokio.block_on(async { tokio::time::timeout(STREAM_DEADLINE, read).await }).expect("it goes on")
    }

    /// Sends a request and disconnects before the response.
    pub(super) fn send_and_hang_up(&self, request: Request<Body>) {
        let request = self.completed(request);
        self.tokio.block_on(async {
            let mut answer = pin!(self.router.clone().oneshot(request));
            let answered = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_ready())).await;
            assert!(!answered, "it was answered at once");
        });
    }

    /// Adds what clients send: by default those of the command line on this machine.
    fn completed(&self, mut request: Request<Body>) -> Request<Body> {
        request.headers_mut().entry(HOST).or_insert("127.0.0.1:3280".parse().unwrap());
        let peer = Peer { address: SocketAddr::from(([127, 0, 0, 1], 40000)), secure: false };
        request.extensions_mut().get_or_insert(peer);
        let known = request.headers().contains_key(AUTHORIZATION) || request.headers().contains_key(COOKIE);
        if !known && request.extensions().get::<Unauthenticated>().is_none() {
            let token = format!("Bearer {}", self.state.access.local_token());
            request.headers_mut().insert(AUTHORIZATION, token.parse().unwrap());
        }
        request
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap())
    }

    pub(super) fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path).body(Body::empty()).unwrap())
    }

    pub(super) fn post(&self, path: &str, body: Value) -> Answer {
        self.send(with_json("POST", path, &body))
    }

    pub(super) fn put(&self, path: &str, body: Value) -> Answer {
        self.send(with_json("PUT", path, &body))
    }

    pub(super) fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(with_json("PATCH", path, &body))
    }

    /// The names of all items.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let list = self.get(path).json(200);
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn control<T, F>(&self, function: impl FnOnce(Rc<Control>) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + 'static,
    {
        self.tokio.block_on(self.state.node.call(function)).unwrap().unwrap()
    }

    /// Runs a client on core 1.
    pub(super) fn client<T, F>(&self, function: impl FnOnce() -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let cores = self.running.as_ref().unwrap().handle();
        self.tokio.block_on(cores.call(CoreId(1), function)).unwrap()
    }

    /// Stops the node. Requests can still be sent.
    pub(super) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.tokio.block_on(self.state.node.drain());
            running.join();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

pub(super) fn with_json(method: &str, path: &str, body: &Value) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}
