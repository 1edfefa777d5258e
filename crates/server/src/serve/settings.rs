//! The settings in effect: the given ones, and defaults for the rest.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use node::config::{Access, AccessError, RecordEngine};
use terms::clock::unix_now;
use terms::cores::Cores;
use terms::size::Size;

use super::data_dir;
use super::first_volume::FirstVolume;
use super::given::{Given, LogFormat, ReadConfirm};
use super::machine::Machine;
use crate::http::CertificateFiles;

/// The API's default port, close to iSCSI's 3260.
///
/// IANA has assigned it to no service that would run on such a machine.
pub const API_PORT: u16 = 3280;

/// Everything that a node runs with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings of the node itself.
    pub node: node::Config,
    /// The marker file, which says that the data directory has the node's state.
    pub state_marker: Option<PathBuf>,
    pub api_listen: Vec<SocketAddr>,
    /// The API's certificate; `None`: the node's own, if one is needed.
    pub api_certificate: Option<CertificateFiles>,
    /// Whether programs on this machine may read `/metrics` without a token.
    pub metrics_without_token: bool,
    pub volumes: Vec<FirstVolume>,
    /// How many cores, or on which processors.
    pub cores: Cores,
    /// How long a core polls before it sleeps.
    pub poll: Duration,
    /// The size of the pool that the first start creates; `None`: depends on the free space.
    pub pool_size: Option<Size>,
    /// When other nodes confirm reads; with `Auto`, this depends on the machine.
    pub read_confirm: ReadConfirm,
    /// Whether this machine is virtual.
    pub machine: Machine,
    /// Whether a watcher process reports this one's death to the other nodes of a cluster.
    pub watcher: bool,
    pub log: String,
    pub log_format: LogFormat,
}

/// Why settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("api-listen is empty: set an address such as 127.0.0.1:{API_PORT}")]
    NoApi,
    #[error(
        "api-listen has no address that the command line on this node can use: add a loopback address, such as 127.0.0.1:{port}"
    )]
    NoApiHere { port: u16 },
    #[error("iscsi-listen is empty: set an address such as 0.0.0.0:3260")]
    NoPortal,
    #[error("link-via: {0:?} is not a pair of addresses such as 10.0.0.2:3270=127.0.0.1:4000")]
    LinkVia(String),
    #[error("{0} and {1} belong together: set both, or neither")]
    Half(&'static str, &'static str),
    #[error("{0} is set, but not `etcd`: set `etcd`, too")]
    NoEtcd(&'static str),
    #[error("invalid etcd settings")]
    Etcd(#[from] AccessError),
    #[error("{setting} must be at least {least}")]
    TooSmall { setting: &'static str, least: u32 },
    #[error("no home directory found for the node's state: choose a directory with --data-dir")]
    NoDataDir,
}

impl Settings {
    /// The given settings, with defaults for the rest.
    pub fn of(given: Given) -> Result<Settings, SettingsError> {
        let defaults = node::Config::default();
        let seconds = |given: Option<u32>, default| given.map_or(default, |s| Duration::from_secs(s.into()));
        let at_least = |setting, value: Option<u32>, least| match value {
            Some(value) if value < least => Err(SettingsError::TooSmall { setting, least }),
            _ => Ok(()),
        };
        at_least("commands-max", given.commands_max, 1)?;
        at_least("login-timeout", given.login_timeout, 1)?;
        at_least("nop-interval", given.nop_interval, 1)?;
        let record = record(&given)?;
        let api_listen = given.api_listen.unwrap_or_else(|| vec![(Ipv4Addr::LOCALHOST, API_PORT).into()]);
        let Some(first) = api_listen.first() else { return Err(SettingsError::NoApi) };
        if !api_listen.iter().any(|address| address.ip().is_loopback() || address.ip().is_unspecified()) {
            return Err(SettingsError::NoApiHere { port: first.port() });
        }
        let api_certificate = match (given.api_certificate, given.api_key) {
            (Some(certificate), Some(key)) => Some(CertificateFiles { certificate, key }),
            (None, None) => None,
            _ => return Err(SettingsError::Half("api-certificate", "api-key")),
        };
        let portals = given.iscsi_listen.unwrap_or(defaults.portals);
        if portals.is_empty() {
            return Err(SettingsError::NoPortal);
        }
        let data_dir = match given.data_dir {
            Some(path) => path,
            None => data_dir::default().ok_or(SettingsError::NoDataDir)?,
        };
        // Make the path absolute: the record has paths below it, and the next start may have another working
        // directory.
        let data_dir = std::path::absolute(&data_dir).map_err(|_| SettingsError::NoDataDir)?;
        let (read_confirm, machine) = (given.read_confirm.unwrap_or_default(), Machine::this());
        let node = node::Config {
            name: given.name.unwrap_or_else(host_name),
            node_number: defaults.node_number,
            data_dir,
            portals,
            ram_bytes_max: given.ram_max.map_or(defaults.ram_bytes_max, |size| size.0),
            map_bytes_max: given.map_max.map_or(defaults.map_bytes_max, |size| size.0),
            log: defaults.log,
            data_bytes_max: given
                .data_max
                .map_or(defaults.data_bytes_max, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
            resync_bytes_per_second_max: given
                .resync_bytes_per_second_max
                .map_or(defaults.resync_bytes_per_second_max, |size| size.0),
            read_confirm: read_confirm.is_on(&machine),
            commands_max: given.commands_max.unwrap_or(defaults.commands_max),
            login_deadline: seconds(given.login_timeout, defaults.login_deadline),
            nop_interval: seconds(given.nop_interval, defaults.nop_interval),
            drain_deadline: seconds(given.drain_timeout, defaults.drain_deadline),
            discovery_chap: given.discovery_chap.unwrap_or(defaults.discovery_chap),
            link_via: link_via(given.link_via.unwrap_or_default())?,
            record,
            first_place: defaults.first_place,
            peer_requests: defaults.peer_requests,
            devices: defaults.devices,
            unix_now,
        };
        Ok(Settings {
            node,
            state_marker: given.state_marker,
            api_listen,
            api_certificate,
            metrics_without_token: given.metrics_without_token.unwrap_or(true),
            volumes: given.volumes.unwrap_or_default(),
            cores: given.cores.unwrap_or_else(Cores::of_this_machine),
            poll: Duration::from_micros(given.poll_us.unwrap_or(POLL_US).into()),
            pool_size: given.pool_size,
            read_confirm,
            machine,
            watcher: given.watcher.unwrap_or(true),
            log: given.log.unwrap_or_else(|| "info".into()),
            log_format: given.log_format.unwrap_or_default(),
        })
    }

    /// The settings as a file that yields the same settings again.
    pub fn to_toml(&self) -> String {
        let etcd = match &self.node.record {
            RecordEngine::Etcd(access) => Some(access),
            _ => None,
        };
        let identity = etcd.and_then(|etcd| etcd.identity.clone());
        let user = etcd.and_then(|etcd| etcd.user.clone());
        let seconds = |duration: Duration| Some(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
        let given = Given {
            config: None,
            print_config: false,
            name: Some(self.node.name.clone()),
            data_dir: Some(self.node.data_dir.clone()),
            state_marker: self.state_marker.clone(),
            iscsi_listen: Some(self.node.portals.clone()),
            api_listen: Some(self.api_listen.clone()),
            api_certificate: self.api_certificate.as_ref().map(|files| files.certificate.clone()),
            api_key: self.api_certificate.as_ref().map(|files| files.key.clone()),
            metrics_without_token: Some(self.metrics_without_token),
            volumes: Some(self.volumes.clone()),
            cores: Some(self.cores.clone()),
            poll_us: Some(u32::try_from(self.poll.as_micros()).unwrap_or(u32::MAX)),
            pool_size: self.pool_size,
            ram_max: Some(Size(self.node.ram_bytes_max)),
            map_max: Some(Size(self.node.map_bytes_max)),
            data_max: Some(Size(self.node.data_bytes_max as u64)),
            resync_bytes_per_second_max: Some(Size(self.node.resync_bytes_per_second_max)),
            read_confirm: Some(self.read_confirm),
            commands_max: Some(self.node.commands_max),
            login_timeout: seconds(self.node.login_deadline),
            nop_interval: seconds(self.node.nop_interval),
            drain_timeout: seconds(self.node.drain_deadline),
            discovery_chap: Some(self.node.discovery_chap),
            watcher: Some(self.watcher),
            etcd: etcd.map(|etcd| etcd.endpoints.clone()),
            etcd_ca: etcd.and_then(|etcd| etcd.authorities.clone()),
            etcd_certificate: identity.as_ref().map(|(certificate, _)| certificate.clone()),
            etcd_key: identity.map(|(_, key)| key),
            etcd_user: user.as_ref().map(|(name, _)| name.clone()),
            etcd_password_file: user.map(|(_, file)| file),
            link_via: Some(self.node.link_via.iter().map(|(from, to)| format!("{from}={to}")).collect()),
            log: Some(self.log.clone()),
            log_format: Some(self.log_format),
        };
        toml::to_string(&given).expect("plain settings can be written as TOML")
    }

    /// Whether reads are confirmed, and why, for the API.
    pub fn shown_read_confirm(&self) -> api::ReadConfirm {
        api::ReadConfirm {
            setting: match self.read_confirm {
                ReadConfirm::Auto => api::ReadConfirmSetting::Auto,
                ReadConfirm::Always => api::ReadConfirmSetting::Always,
                ReadConfirm::Never => api::ReadConfirmSetting::Never,
            },
            on: self.node.read_confirm,
            hypervisor: self.machine.hypervisor,
            machine: self.machine.product.clone(),
        }
    }

    /// Whether the API uses TLS: it does for other machines, or if a certificate was set.
    pub fn api_has_tls(&self) -> bool {
        self.api_certificate.is_some() || self.api_listen.iter().any(|address| !address.ip().is_loopback())
    }

    pub fn api_url(address: SocketAddr) -> String {
        let scheme = if address.ip().is_loopback() { "http" } else { "https" };
        format!("{scheme}://{address}")
    }

    /// The path of the pool that the first start creates.
    pub fn default_pool_path(&self) -> PathBuf {
        self.node.data_dir.join(data_dir::POOLS).join("default.img")
    }
}

/// Where a cluster keeps its record: in etcd if one is set, else in its nodes.
fn record(given: &Given) -> Result<RecordEngine, SettingsError> {
    let (certificate, key) = (&given.etcd_certificate, &given.etcd_key);
    if certificate.is_some() != key.is_some() {
        return Err(SettingsError::Half("etcd-certificate", "etcd-key"));
    }
    if given.etcd_user.is_some() != given.etcd_password_file.is_some() {
        return Err(SettingsError::Half("etcd-user", "etcd-password-file"));
    }
    let Some(endpoints) = given.etcd.clone().filter(|endpoints| !endpoints.is_empty()) else {
        let of_etcd = [
            ("etcd-ca", given.etcd_ca.is_some()),
            ("etcd-certificate", certificate.is_some()),
            ("etcd-user", given.etcd_user.is_some()),
        ];
        return match of_etcd.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(SettingsError::NoEtcd(name)),
            None => Ok(RecordEngine::Embedded),
        };
    };
    let access = Access {
        endpoints,
        authorities: given.etcd_ca.clone(),
        identity: certificate.clone().zip(key.clone()),
        user: given.etcd_user.clone().zip(given.etcd_password_file.clone()),
    };
    access.check()?;
    Ok(RecordEngine::Etcd(access))
}

fn link_via(given: Vec<String>) -> Result<BTreeMap<SocketAddr, SocketAddr>, SettingsError> {
    let pair = |text: String| {
        let pair = text.split_once('=').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        pair.ok_or(SettingsError::LinkVia(text))
    };
    given.into_iter().map(pair).collect()
}

/// Long enough to catch the next request of a busy client (tens of microseconds on a fast network), short
/// enough that a core with little work sleeps nearly all the time.
const POLL_US: u32 = 50;

fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_str().ok().filter(|name| !name.is_empty()).unwrap_or("ursa").to_owned()
}
