//! A blocking client for a node's HTTP interface, for command lines and tests.

mod addresses;
mod cluster;
mod error;
mod jobs;
mod path;
mod people;
mod pools;
mod snapshots;
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

/// Loopback answers at once or not at all; the limit allows for a slow tunnel.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the server's own limit (120 s).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(150);
/// The longest response that the client reads: 4,096 volumes with several maps each take some 4 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Configuration of the HTTP agent.
fn config() -> Config {
    Agent::config_builder()
        // The client parses problem documents itself.
        .http_status_as_error(false)
        // A proxy from the environment would lead away from this machine.
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(REQUEST_TIMEOUT))
        .user_agent(concat!("ursa/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// A client of one node.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    /// Without a trailing slash.
    url: String,
    /// The token for authentication; `None` uses the credential that the node has stored on this machine.
    token: Option<Arc<str>>,
    /// Whether each call is a dry run, which ends as [`ClientError::DryRun`].
    dry_run: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({}, token not shown)", self.url)
    }
}

type Result<T> = std::result::Result<T, ClientError>;

impl Client {
    /// A client of the node at `url`, such as `http://127.0.0.1:3280`. Nothing is sent yet.
    ///
    /// It authenticates with the credential that a node of this user stores on its machine
    /// ([`LocalCredential`]). `localhost` means 127.0.0.1 only: another process may listen on the same port
    /// of another of its addresses.
    pub fn new(url: &str) -> Client {
        let url = without_name(url.trim_end_matches('/'));
        Client { agent: config().into(), url, token: None, dry_run: false }
    }

    /// The client, with a way to verify the node's certificate. Without it, the client sends nothing to
    /// `https://`.
    pub fn with_trust(self, trust: &Trust) -> Client {
        let connector = TcpConnector::default().chain(trust.connector());
        Client { agent: Agent::with_parts(config(), connector, DefaultResolver::default()), ..self }
    }

    /// The client, with a token for authentication.
    pub fn with_token(self, token: &str) -> Client {
        Client { token: Some(token.into()), ..self }
    }

    /// The node's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What a change would do: the dry run of the call that `change` makes with the client it is given.
    ///
    /// # Errors
    /// Those of the change itself. The node refuses a call that has no dry run, and does nothing.
    pub fn would<T>(&self, change: impl FnOnce(&Client) -> Result<T>) -> Result<DryRun> {
        match change(&Client { dry_run: true, ..self.clone() }) {
            Err(ClientError::DryRun(would)) => Ok(*would),
            Err(error) => Err(error),
            Ok(_) => unreachable!("each call of this client ends as a dry run"),
        }
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

    /// The properties of the node.
    pub fn node(&self) -> Result<Node> {
        self.get("/v1/node")
    }

    /// What is wrong in the cluster now, the most severe first.
    pub fn findings(&self) -> Result<Vec<Finding>> {
        self.list("/v1/findings")
    }

    /// The I/O of the last second on another node of the cluster, by its number, or on `all`. A node that was
    /// not queried just before has no sample yet.
    pub fn live_samples(&self, node: &str) -> Result<List<LiveSample>> {
        self.get(&format!("/v1/live/sample?node={}", segment(node)))
    }

    /// The node's metrics, in the text format of Prometheus.
    pub fn metrics(&self) -> Result<String> {
        self.text(self.authorized(self.agent.get(self.address("/metrics"))).call())
    }
}

/// The URL, with an address instead of `localhost`.
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
        let dry_run = match (self.dry_run, path.contains('?')) {
            (false, _) => "",
            (true, false) => "?dry_run=true",
            (true, true) => "&dry_run=true",
        };
        format!("{}{path}{dry_run}", self.url)
    }

    /// Adds the token. The local credential is read for each request: a node that was restarted has stored a
    /// new one.
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

    /// A response of this many bytes.
    fn get_bytes(&self, path: &str, len: u64) -> Result<Vec<u8>> {
        let mut response = match self.authorized(self.agent.get(self.address(path))).call() {
            Ok(response) if response.status().is_success() => response,
            refused => return self.text(refused).map(String::into_bytes),
        };
        // One more than expected, so that a longer response is noticed.
        let bytes = response.body_mut().with_config().limit(len + 1).read_to_vec();
        let bytes = bytes.map_err(|source| ClientError::of(&self.url, source))?;
        if bytes.len() as u64 != len {
            return Err(self.not_ursa(format!("the response has {} bytes, not {len}", bytes.len())));
        }
        Ok(bytes)
    }

    fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        self.get(path).map(|list: List<T>| list.items)
    }

    fn post<R: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<R> {
        self.json(self.authorized(self.agent.post(self.address(path))).send_json(body))
    }

    fn post_empty<R: DeserializeOwned>(&self, path: &str) -> Result<R> {
        self.json(self.authorized(self.agent.post(self.address(path))).send_empty())
    }

    fn patch<R: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<R> {
        self.json(self.authorized(self.agent.patch(self.address(path))).send_json(body))
    }

    fn put_json<R: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<R> {
        self.json(self.authorized(self.agent.put(self.address(path))).send_json(body))
    }

    fn put(&self, path: &str, body: &impl Serialize) -> Result<()> {
        self.done(self.authorized(self.agent.put(self.address(path))).send_json(body))
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

    /// The text of the response, if the request was executed.
    fn text(&self, call: Call) -> Result<String> {
        let failed = |source| ClientError::of(&self.url, source);
        let mut response = call.map_err(failed)?;
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(failed)?;
        if status.is_success() && self.dry_run {
            let would = serde_json::from_str(&text).map_err(|error| self.not_ursa(error))?;
            return Err(ClientError::DryRun(would));
        }
        if status.is_success() {
            return Ok(text);
        }
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
            Err(error) => Err(self.not_ursa(error)),
        }
    }

    fn not_ursa(&self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::NotUrsa { url: self.url.clone(), source: error.into() }
    }
}

#[cfg(test)]
mod tests;
