//! A node's HTTP interface from the other side: blocking, for command lines and tests.

mod addresses;
mod cluster;
mod error;
mod jobs;
mod path;
mod people;
mod pools;
mod targets;
mod tls;
mod volumes;

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::config::Config;
use ureq::http::Response;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, Body, RequestBuilder};

pub use self::error::ClientError;
use self::path::segment;
pub use self::tls::{Fingerprint, Trust, TrustError};
use crate::{DryRun, Finding, Health, List, LiveSample, LocalCredential, Node, Problem};

/// Loopback answers at once or not at all; a slow tunnel is allowed for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the server takes before it gives up by itself (120 s).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(150);
/// The longest answer that is read: 4,096 volumes with several maps each take some 4 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// How it asks.
fn config() -> Config {
    Agent::config_builder()
        // A problem document is an answer, too.
        .http_status_as_error(false)
        // A proxy that the environment names leads away from this machine.
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(REQUEST_TIMEOUT))
        .user_agent(concat!("ursa/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Speaks to a node.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    /// Without a slash at its end.
    url: String,
    /// What it proves itself with; `None`: what the node leaves on this machine.
    token: Option<Arc<str>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, token not shown)", self.url)
    }
}

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// A client of the node at `url`, such as `http://127.0.0.1:3280`. Nothing is sent yet. It proves itself
    /// with what a node of this user's leaves on its machine ([`LocalCredential`]). `localhost` is 127.0.0.1
    /// and nothing else: somebody else may listen at the same port of another of its addresses.
    pub fn new(url: &str) -> Client {
        Client { agent: config().into(), url: without_name(url.trim_end_matches('/')), token: None }
    }

    /// That knows the node's certificate by this: for `https://`. Without it nothing is sent there.
    pub fn with_trust(self, trust: &Trust) -> Client {
        let connector = TcpConnector::default().chain(trust.connector());
        Client { agent: Agent::with_parts(config(), connector, DefaultResolver::default()), ..self }
    }

    /// With a token instead.
    pub fn with_token(self, token: &str) -> Client {
        Client { token: Some(token.into()), ..self }
    }

    /// Where it sends to.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The node.
impl Client {
    /// Whether the node serves.
    ///
    /// # Errors
    /// See [`ClientError`], here and for everything below.
    pub fn health(&self) -> Result<Health> {
        self.get("/v1/health")
    }

    /// What the node is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn node(&self) -> Result<Node> {
        self.get("/v1/node")
    }

    /// What is wrong in the cluster now, the worst first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn findings(&self) -> Result<Vec<Finding>> {
        self.list("/v1/findings")
    }

    /// What another node of the cluster, by its number, or `all` have done in the last second. A node that
    /// has not been asked just before has nothing to tell yet.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn live_samples(&self, node: &str) -> Result<List<LiveSample>> {
        self.get(&format!("/v1/live/sample?node={}", segment(node)))
    }

    /// Its metrics, as Prometheus reads them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn metrics(&self) -> Result<String> {
        self.text(self.authorized(self.agent.get(self.address("/metrics"))).call())
    }
}

/// This URL, with an address for `localhost`.
fn without_name(url: &str) -> String {
    let Some((scheme, authority)) = url.split_once("://") else { return url.to_owned() };
    let (host, port) = authority.split_at(authority.find([':', '/']).unwrap_or(authority.len()));
    match host.eq_ignore_ascii_case("localhost") {
        true => format!("{scheme}://{}{port}", Ipv4Addr::LOCALHOST),
        false => url.to_owned(),
    }
}

type Call = std::result::Result<Response<Body>, ureq::Error>;

impl Client {
    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Read anew for each request: a node that was started again has left another one.
    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let authority = self.url.split_once("://").map_or("", |(_, authority)| authority);
        let local = || LocalCredential::find(authority).map(|found| found.token.into());
        match self.token.clone().or_else(local) {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.json(self.authorized(self.agent.get(self.address(path))).call())
    }

    fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        self.get(path).map(|list: List<T>| list.items)
    }

    fn post<R: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<R> {
        self.json(self.authorized(self.agent.post(self.address(path))).send_json(body))
    }

    fn put(&self, path: &str, body: &impl Serialize) -> Result<()> {
        self.done(self.authorized(self.agent.put(self.address(path))).send_json(body))
    }

    /// What a call without a body would do; `path` asks for that.
    fn would_post(&self, path: &str) -> Result<DryRun> {
        self.json(self.authorized(self.agent.post(self.address(path))).send_empty())
    }

    /// What deleting would do; `path` asks for that.
    fn would_delete(&self, path: &str) -> Result<DryRun> {
        self.json(self.authorized(self.agent.delete(self.address(path))).call())
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.done(self.authorized(self.agent.delete(self.address(path))).call())
    }

    fn done(&self, call: Call) -> Result<()> {
        self.text(call).map(drop)
    }

    fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let text = self.text(call)?;
        serde_json::from_str(&text).map_err(|error| self.not_ursa(error))
    }

    /// The answer's text if the request was carried out.
    fn text(&self, call: Call) -> Result<String> {
        let failed = |source| ClientError::of(&self.url, source);
        let mut response = call.map_err(failed)?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(failed)?;
        if status.is_success() {
            return Ok(text);
        }
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
            Err(error) => Err(self.not_ursa(error)),
        }
    }

    fn not_ursa(&self, error: serde_json::Error) -> ClientError {
        ClientError::NotUrsa { url: self.url.clone(), source: Box::new(error) }
    }
}

#[cfg(test)]
mod tests;
