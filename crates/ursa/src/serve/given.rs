//! What `ursa serve` is told, on its command line and in its file. One structure for both: every setting can stand in
//! either, under the same name, and the command line wins.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::cores::Cores;
use super::first_volume::FirstVolume;
use super::machine::Machine;
use crate::size::Size;

/// Settings that were given. The others have their defaults: see `docs/use/configuration.md`.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Given {
    /// A file of settings (TOML); what is given here wins over it
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Show the settings that are in effect, as a file of settings, and end
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,

    /// The node's name, for people [default: the host's name]
    #[arg(long)]
    pub name: Option<String>,

    /// Where the node keeps its state [default: /var/lib/ursa for root, else ~/.local/share/ursa]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// A file outside of the data directory's file system that says that the node has state: made by the first start; later ones refuse to start as a new node
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub state_marker: Option<PathBuf>,

    /// Where to listen for iSCSI, separated by commas [default: 0.0.0.0:3260]
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    pub iscsi_listen: Option<Vec<SocketAddr>>,

    /// Where the API listens, separated by commas; other machines are answered by TLS alone [default: 127.0.0.1:3280]
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_several")]
    pub api_listen: Option<Vec<SocketAddr>>,

    /// The certificate that the API shows, with its chain, in PEM [default: one that the node makes]
    #[arg(long, value_name = "FILE", requires = "api_key", hide_short_help = true)]
    pub api_certificate: Option<PathBuf>,

    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "api_certificate", hide_short_help = true)]
    pub api_key: Option<PathBuf>,

    /// Whether programs of this machine read /metrics without a token [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", hide_short_help = true)]
    pub metrics_without_token: Option<bool>,

    /// A volume to make at the start, if it does not exist, for this machine to use; may be repeated
    #[arg(long = "volume", value_name = "NAME=SIZE[,ram]")]
    #[serde(rename = "volume")]
    pub volumes: Option<Vec<FirstVolume>>,

    /// How many cores to use, or on which processors to pin them, as in 0-3,6 [default: all, at most 8]
    #[arg(long, value_name = "N|LIST")]
    pub cores: Option<Cores>,

    /// How long a core looks for new work before it sleeps, in microseconds
    #[arg(long, value_name = "MICROSECONDS")]
    pub poll_us: Option<u32>,

    /// The size of the pool that a first start makes, a sparse file; 0: none [default: half of what is free]
    #[arg(long, value_name = "SIZE")]
    pub pool_size: Option<Size>,

    /// How much memory RAM volumes may take together [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub ram_max: Option<Size>,

    /// How much memory the data of commands may take [default: 512M]
    #[arg(long, value_name = "SIZE")]
    pub data_max: Option<Size>,

    /// How many bytes a second this node may give to bring other nodes' copies up to date; 0: as much as hosts leave [default: 512M]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    pub sync_bytes_per_second_max: Option<Size>,

    /// When the other nodes confirm reads of volumes with two or more copies: auto (on virtual machines), always or never [default: auto]
    #[arg(long, value_name = "WHEN", hide_short_help = true)]
    pub read_confirm: Option<ReadConfirm>,

    /// How many commands a session may have outstanding [default: 128]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub commands_max: Option<u32>,

    /// How long a login may take, in seconds [default: 15]
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub login_timeout: Option<u32>,

    /// After how many seconds of silence an initiator is asked for a sign of life [default: 30]
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub nop_interval: Option<u32>,

    /// How long sessions get to log out when the node stops, in seconds [default: 5]
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub drain_timeout: Option<u32>,

    /// Whether an initiator that some target asks for a CHAP secret needs it to see targets, too [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", hide_short_help = true)]
    pub discovery_chap: Option<bool>,

    /// Whether, in a cluster, a process beside this one tells the other nodes when this one is dead [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", hide_short_help = true)]
    pub watcher: Option<bool>,

    /// A site's etcd, which has the record of the cluster that the node makes or joins, as http(s)://HOST:PORT, separated by commas
    #[arg(long, value_name = "URL", value_delimiter = ',', hide_short_help = true)]
    pub etcd: Option<Vec<String>>,

    /// The certificate of who has signed etcd's, in PEM: for https
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub etcd_ca: Option<PathBuf>,

    /// The certificate that is shown to etcd, with its chain, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_key", hide_short_help = true)]
    pub etcd_certificate: Option<PathBuf>,

    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_certificate", hide_short_help = true)]
    pub etcd_key: Option<PathBuf>,

    /// The user that the node is to etcd, where etcd asks for one
    #[arg(long, value_name = "NAME", requires = "etcd_password_file", hide_short_help = true)]
    pub etcd_user: Option<String>,

    /// The file with that user's password
    #[arg(long, value_name = "FILE", requires = "etcd_user", hide_short_help = true)]
    pub etcd_password_file: Option<PathBuf>,

    /// Where to connect instead of another node's address, as ADDRESS:PORT=ADDRESS:PORT, separated by commas
    #[arg(long, value_name = "FROM=TO", value_delimiter = ',', hide = true)]
    pub link_via: Option<Vec<String>>,

    /// What is logged: error, warn, info, debug or trace, or a filter as in info,node=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    pub log: Option<String>,

    /// How the log looks [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// One address, as files of settings had it, or several.
fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Vec<SocketAddr>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(SocketAddr),
        Several(Vec<SocketAddr>),
    }
    Ok(Some(match Written::deserialize(from)? {
        Written::One(address) => vec![address],
        Written::Several(addresses) => addresses,
    }))
}

/// When the other nodes confirm reads of volumes with two or more copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadConfirm {
    /// On virtual machines, whose clocks may stop.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never: after a pause of a virtual machine, hosts may read data that was overwritten through another node.
    Never,
}

impl ReadConfirm {
    /// Whether they are, on such a machine.
    pub fn is_on(self, machine: &Machine) -> bool {
        match self {
            ReadConfirm::Auto => machine.hypervisor.is_some(),
            ReadConfirm::Always => true,
            ReadConfirm::Never => false,
        }
    }
}

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A file of settings was refused.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read.
    #[error("cannot read the settings in {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It says what cannot be.
    #[error("the settings in {path} are not valid")]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Where, and what would be right.
        #[source]
        source: Box<toml::de::Error>,
    },
}

impl Given {
    /// What the command line says, and where it is silent, what its file says.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn with_file(self) -> Result<Given, FileError> {
        match &self.config {
            None => Ok(self),
            Some(path) => {
                let file = Given::read(path)?;
                Ok(self.or(file))
            }
        }
    }

    fn read(path: &Path) -> Result<Given, FileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text)
            .map_err(|source| FileError::Invalid { path: path.to_owned(), source: Box::new(source) })
    }

    fn or(self, file: Given) -> Given {
        Given {
            config: self.config,
            print_config: self.print_config,
            name: self.name.or(file.name),
            data_dir: self.data_dir.or(file.data_dir),
            state_marker: self.state_marker.or(file.state_marker),
            iscsi_listen: self.iscsi_listen.or(file.iscsi_listen),
            api_listen: self.api_listen.or(file.api_listen),
            api_certificate: self.api_certificate.or(file.api_certificate),
            api_key: self.api_key.or(file.api_key),
            metrics_without_token: self.metrics_without_token.or(file.metrics_without_token),
            volumes: self.volumes.or(file.volumes),
            cores: self.cores.or(file.cores),
            poll_us: self.poll_us.or(file.poll_us),
            pool_size: self.pool_size.or(file.pool_size),
            ram_max: self.ram_max.or(file.ram_max),
            data_max: self.data_max.or(file.data_max),
            sync_bytes_per_second_max: self.sync_bytes_per_second_max.or(file.sync_bytes_per_second_max),
            read_confirm: self.read_confirm.or(file.read_confirm),
            commands_max: self.commands_max.or(file.commands_max),
            login_timeout: self.login_timeout.or(file.login_timeout),
            nop_interval: self.nop_interval.or(file.nop_interval),
            drain_timeout: self.drain_timeout.or(file.drain_timeout),
            discovery_chap: self.discovery_chap.or(file.discovery_chap),
            watcher: self.watcher.or(file.watcher),
            etcd: self.etcd.or(file.etcd),
            etcd_ca: self.etcd_ca.or(file.etcd_ca),
            etcd_certificate: self.etcd_certificate.or(file.etcd_certificate),
            etcd_key: self.etcd_key.or(file.etcd_key),
            etcd_user: self.etcd_user.or(file.etcd_user),
            etcd_password_file: self.etcd_password_file.or(file.etcd_password_file),
            link_via: self.link_via.or(file.link_via),
            log: self.log.or(file.log),
            log_format: self.log_format.or(file.log_format),
        }
    }
}
