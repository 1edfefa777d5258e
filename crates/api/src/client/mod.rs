//! A node's HTTP interface from the other side: blocking, for command lines and tests.

mod error;
mod path;
mod tls;

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
use crate::{
    ApiToken, ApiTokenCreate, ApiTokenMade, AuditEntry, ClusterInit, ClusterJoin, ClusterNode, CopyCreate,
    Events, ForkResolution, Health, Host, HostChange, HostCreate, Job, JoinToken, List, LocalCredential,
    Maintenance, MapCreate, Node, Pool, PoolAddDisk, PoolCreate, PoolForget, PoolImport, PoolRemains,
    Preference, Problem, Session, StrategyChoice, StrategyChosen, SyncLimit, Target, TargetCreate, TargetMap,
    TokenCreate, User, UserChange, UserCreate, Verification, Volume, VolumeChange, VolumeCreate, WhoAmI,
};

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
    /// A client of the node at `url`, such as `http://127.0.0.1:3280`. Nothing is sent yet. It proves itself with what a node of this user's leaves on its
    /// machine ([`LocalCredential`]). `localhost` is 127.0.0.1 and nothing else: somebody else may listen at the same port of another of its addresses.
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

    /// Its metrics, as Prometheus reads them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn metrics(&self) -> Result<String> {
        self.text(self.authorized(self.agent.get(self.address("/metrics"))).call())
    }
}

/// The cluster that the node is in.
impl Client {
    /// Its nodes, by number. A node that is in no cluster refuses with `no_cluster`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn cluster_nodes(&self) -> Result<Vec<ClusterNode>> {
        self.list("/v1/nodes")
    }

    /// Makes a cluster of the node alone.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn init_cluster(&self, init: &ClusterInit) -> Result<Vec<ClusterNode>> {
        self.post("/v1/cluster", init).map(|list: List<ClusterNode>| list.items)
    }

    /// Makes a token that lets one more node in.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_token(&self, token: &TokenCreate) -> Result<JoinToken> {
        self.post("/v1/cluster/tokens", token)
    }

    /// Has the node join a cluster.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn join_cluster(&self, join: &ClusterJoin) -> Result<()> {
        let url = self.address("/v1/cluster/join");
        self.done(self.authorized(self.agent.post(url)).send_json(join))
    }

    /// Says which node decides alone while two nodes are the cluster.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn prefer_node(&self, node: Option<u16>) -> Result<()> {
        self.put("/v1/cluster/preferred", &Preference { node })
    }

    /// What all nodes together may give to bring copies up to date.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn sync_limit(&self) -> Result<SyncLimit> {
        self.get("/v1/cluster/sync-limit")
    }

    /// Limits it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn limit_syncs(&self, limit: &SyncLimit) -> Result<()> {
        self.put("/v1/cluster/sync-limit", limit)
    }

    /// Makes the node a cluster of its own with its next start.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn force_new_cluster(&self) -> Result<()> {
        self.done(self.authorized(self.agent.post(self.address("/v1/cluster/force-new"))).send_empty())
    }

    /// Begins or ends a node's maintenance.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn maintain_node(&self, node: u16, on: bool) -> Result<()> {
        self.put(&format!("/v1/nodes/{node}/maintenance"), &Maintenance { on })
    }

    /// Takes another node out of the cluster for good.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn remove_node(&self, id: u16) -> Result<()> {
        self.delete(&format!("/v1/nodes/{id}"))
    }
}

/// Pools.
impl Client {
    /// All pools, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pools(&self) -> Result<Vec<Pool>> {
        self.list("/v1/pools")
    }

    /// The pools of another node of the cluster, by its number, or of `all`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pools_of(&self, node: &str) -> Result<List<Pool>> {
        self.get(&format!("/v1/pools?node={}", segment(node)))
    }

    /// One pool.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pool(&self, name: &str) -> Result<Pool> {
        self.get(&format!("/v1/pools/{}", segment(name)))
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_pool(&self, pool: &PoolCreate) -> Result<Pool> {
        self.post("/v1/pools", pool)
    }

    /// Opens a pool that was made elsewhere or earlier.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn import_pool(&self, import: &PoolImport) -> Result<Pool> {
        self.post("/v1/pools/import", import)
    }

    /// Closes a pool so that another server may import it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn export_pool(&self, name: &str) -> Result<()> {
        let url = self.address(&format!("/v1/pools/{}/export", segment(name)));
        self.done(self.authorized(self.agent.post(url)).send_empty())
    }

    /// Adds a disk to a pool.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn add_disk(&self, pool: &str, disk: &PoolAddDisk) -> Result<Pool> {
        self.post(&format!("/v1/pools/{}/disks", segment(pool)), disk)
    }

    /// Closes a pool that does not work, and opens it again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reopen_pool(&self, name: &str) -> Result<Pool> {
        let url = self.address(&format!("/v1/pools/{}/reopen", segment(name)));
        self.json(self.authorized(self.agent.post(url)).send_empty())
    }

    /// What forgetting a pool would leave behind.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pool_remains(&self, name: &str) -> Result<PoolRemains> {
        self.get(&format!("/v1/pools/{}/remains", segment(name)))
    }

    /// Forgets a pool that cannot be used.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn forget_pool(&self, name: &str, how: &PoolForget) -> Result<()> {
        let url = self.address(&format!("/v1/pools/{}/forget", segment(name)));
        self.done(self.authorized(self.agent.post(url)).send_json(how))
    }
}

/// Volumes.
impl Client {
    /// All volumes, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        self.list("/v1/volumes")
    }

    /// One volume, by name or identity.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn volume(&self, name: &str) -> Result<Volume> {
        self.get(&format!("/v1/volumes/{}", segment(name)))
    }

    /// Makes a volume, and maps it unless told otherwise.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        self.post("/v1/volumes", volume)
    }

    /// Grows or renames a volume.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn change_volume(&self, name: &str, change: &VolumeChange) -> Result<Volume> {
        let url = self.address(&format!("/v1/volumes/{}", segment(name)));
        self.json(self.authorized(self.agent.patch(url)).send_json(change))
    }

    /// Reads all copies of a volume, and compares them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn verify_volume(&self, name: &str) -> Result<Verification> {
        let url = self.address(&format!("/v1/volumes/{}/verify", segment(name)));
        self.json(self.authorized(self.agent.post(url)).send_empty())
    }

    /// Adds a copy to a volume, or moves one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn add_copy(&self, name: &str, copy: &CopyCreate) -> Result<Volume> {
        self.post(&format!("/v1/volumes/{}/copies", segment(name)), copy)
    }

    /// Takes a volume's copy off a node. It may go on after the answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn remove_copy(&self, name: &str, node: u16) -> Result<()> {
        self.delete(&format!("/v1/volumes/{}/copies/{node}", segment(name)))
    }

    /// Chooses what becomes of a volume whose nodes do not hear of each other.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn choose_strategy(&self, name: &str, choice: &StrategyChoice) -> Result<StrategyChosen> {
        let url = self.address(&format!("/v1/volumes/{}/strategy", segment(name)));
        self.json(self.authorized(self.agent.put(url)).send_json(choice))
    }

    /// Decides whose data is kept of a volume with which nodes have gone on alone.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn resolve_fork(&self, name: &str, resolution: &ForkResolution) -> Result<()> {
        self.put(&format!("/v1/volumes/{}/fork", segment(name)), resolution)
    }

    /// Deletes a volume with all its data; with `force`, its maps, too.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_volume(&self, name: &str, force: bool) -> Result<()> {
        self.delete(&format!("/v1/volumes/{}?force={force}", segment(name)))
    }
}

/// Targets and LUN maps.
impl Client {
    /// All targets, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn targets(&self) -> Result<Vec<Target>> {
        self.list("/v1/targets")
    }

    /// One target.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn target(&self, name: &str) -> Result<Target> {
        self.get(&format!("/v1/targets/{}", segment(name)))
    }

    /// Makes a target.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_target(&self, target: &TargetCreate) -> Result<Target> {
        self.post("/v1/targets", target)
    }

    /// Deletes a target; with `force`, its maps, too.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_target(&self, name: &str, force: bool) -> Result<()> {
        self.delete(&format!("/v1/targets/{}?force={force}", segment(name)))
    }

    /// Makes a volume a LUN of a target.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_map(&self, target: &str, map: &MapCreate) -> Result<TargetMap> {
        self.post(&format!("/v1/targets/{}/maps", segment(target)), map)
    }

    /// Takes a LUN away: from one host group, or from all.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_map(&self, target: &str, lun: u16, host: Option<&str>) -> Result<()> {
        let host = host.map_or(String::new(), |host| format!("?host={}", segment(host)));
        self.delete(&format!("/v1/targets/{}/maps/{lun}{host}", segment(target)))
    }
}

/// Host groups.
impl Client {
    /// All host groups, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn hosts(&self) -> Result<Vec<Host>> {
        self.list("/v1/hosts")
    }

    /// One host group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn host(&self, name: &str) -> Result<Host> {
        self.get(&format!("/v1/hosts/{}", segment(name)))
    }

    /// Makes a host group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_host(&self, host: &HostCreate) -> Result<Host> {
        self.post("/v1/hosts", host)
    }

    /// Changes a host group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn change_host(&self, name: &str, change: &HostChange) -> Result<Host> {
        let url = self.address(&format!("/v1/hosts/{}", segment(name)));
        self.json(self.authorized(self.agent.put(url)).send_json(change))
    }

    /// Deletes a host group.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_host(&self, name: &str) -> Result<()> {
        self.delete(&format!("/v1/hosts/{}", segment(name)))
    }
}

/// Sessions.
impl Client {
    /// All sessions, by number.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn sessions(&self) -> Result<Vec<Session>> {
        self.list("/v1/sessions")
    }

    /// The sessions with another node of the cluster, by its number, or with `all`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn sessions_of(&self, node: &str) -> Result<List<Session>> {
        self.get(&format!("/v1/sessions?node={}", segment(node)))
    }

    /// Ends a session. Its initiator may log in again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn end_session(&self, tsih: u16) -> Result<()> {
        self.delete(&format!("/v1/sessions/{tsih}"))
    }
}

/// Who may do what.
impl Client {
    /// Who this client is.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn who_am_i(&self) -> Result<WhoAmI> {
        self.get("/v1/whoami")
    }

    /// All users, by name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn users(&self) -> Result<Vec<User>> {
        self.list("/v1/users")
    }

    /// Makes a user.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_user(&self, user: &UserCreate) -> Result<User> {
        self.post("/v1/users", user)
    }

    /// Gives a user another role or password.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn change_user(&self, name: &str, change: &UserChange) -> Result<User> {
        let url = self.address(&format!("/v1/users/{}", segment(name)));
        self.json(self.authorized(self.agent.patch(url)).send_json(change))
    }

    /// Deletes a user.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_user(&self, name: &str) -> Result<()> {
        self.delete(&format!("/v1/users/{}", segment(name)))
    }

    /// All tokens for scripts.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn api_tokens(&self) -> Result<Vec<ApiToken>> {
        self.list("/v1/tokens")
    }

    /// Makes a token for scripts.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn create_api_token(&self, token: &ApiTokenCreate) -> Result<ApiTokenMade> {
        self.post("/v1/tokens", token)
    }

    /// Deletes a token.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_api_token(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/tokens/{}", segment(id)))
    }

    /// What was done on the node, the newest first; `before`: before the entry with this number.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn audit(&self, limit: usize, before: Option<u64>) -> Result<Vec<AuditEntry>> {
        let before = before.map_or(String::new(), |before| format!("&before={before}"));
        self.list(&format!("/v1/audit?limit={limit}{before}"))
    }
}

/// What happens.
impl Client {
    /// Events after the one with this number, or the newest, at most `limit`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn events(&self, after: Option<u64>, limit: usize) -> Result<Events> {
        let after = after.map_or(String::new(), |after| format!("&after={after}"));
        self.get(&format!("/v1/events?limit={limit}{after}"))
    }
}

/// What is under way.
impl Client {
    /// All jobs.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn jobs(&self) -> Result<Vec<Job>> {
        self.list("/v1/jobs")
    }

    /// One job.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn job(&self, id: &str) -> Result<Job> {
        self.get(&format!("/v1/jobs/{}", segment(id)))
    }

    /// Takes a job back.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn cancel_job(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/jobs/{}", segment(id)))
    }

    /// Has a sync stand still until it is resumed.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn pause_job(&self, id: &str) -> Result<Job> {
        let url = self.address(&format!("/v1/jobs/{}/pause", segment(id)));
        self.json(self.authorized(self.agent.post(url)).send_empty())
    }

    /// Has a sync go on that was paused.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn resume_job(&self, id: &str) -> Result<Job> {
        let url = self.address(&format!("/v1/jobs/{}/resume", segment(id)));
        self.json(self.authorized(self.agent.post(url)).send_empty())
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
