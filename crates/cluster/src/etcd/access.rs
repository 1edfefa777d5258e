//! How a node reaches etcd: the addresses of its members, the CA of their certificates, and the user.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};

use super::StartError;
use super::gateway::ATTEMPT;

/// Bytes of a password.
const PASSWORD_BYTES_MAX: usize = 1024;

/// Where etcd is, and how it and the node authenticate each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// `https://HOST:PORT` of its members, or `http://HOST:PORT` on this machine. One is enough; all are
    /// tried.
    pub endpoints: Vec<String>,
    /// The CA certificates, in PEM, that the members' certificates are verified with: for `https`.
    pub authorities: Option<PathBuf>,
    /// The client certificate with its chain, and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user, and the file with its password. (Through its gateway, etcd takes no user name from a
    /// certificate.)
    pub user: Option<(String, PathBuf)>,
}

/// Why the settings cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum AccessError {
    #[error("the endpoints of etcd are missing, or one is not http://HOST:PORT or https://HOST:PORT")]
    Endpoints,
    #[error(
        "etcd on another machine must be reached by https://: the cluster's record holds CHAP secrets, and anyone who can change it in transit controls the cluster"
    )]
    Plain,
    #[error(
        "the CA of etcd's certificate is not set: name the file with the CA certificate, in PEM (etcd-ca)"
    )]
    NoAuthorities,
}

/// A user of etcd.
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl Access {
    /// Checks the settings as far as possible without reading files.
    pub fn check(&self) -> Result<(), AccessError> {
        let is_right = |endpoint: &String| {
            let rest = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
            let port = rest.and_then(|rest| rest.trim_end_matches('/').rsplit_once(':'));
            port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if self.endpoints.is_empty() || !self.endpoints.iter().all(is_right) {
            return Err(AccessError::Endpoints);
        }
        if !self
            .endpoints
            .iter()
            .all(|endpoint| endpoint.starts_with("https://") || is_of_this_machine(endpoint))
        {
            return Err(AccessError::Plain);
        }
        if self.has_tls() && self.authorities.is_none() {
            return Err(AccessError::NoAuthorities);
        }
        Ok(())
    }

    fn has_tls(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }

    pub(super) fn agent(&self) -> Result<Agent, StartError> {
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0);
        let config = config.timeout_connect(Some(ATTEMPT)).max_idle_age(IDLE_MAX).build();
        let Some(authorities) = self.authorities.as_ref().filter(|_| self.has_tls()) else {
            return Ok(Agent::new_with_config(config));
        };
        let client = https::client().with_root_certificates(https::authorities(authorities)?);
        let client = match &self.identity {
            Some((certificate, key)) => https::with_identity(client, certificate, key)?,
            None => client.with_no_client_auth(),
        };
        let connector = TcpConnector::default().chain(https::Tls::new(client));
        Ok(Agent::with_parts(config, connector, DefaultResolver::default()))
    }

    pub(super) fn read_user(&self) -> Result<Option<User>, StartError> {
        let Some((name, file)) = &self.user else { return Ok(None) };
        let read = std::fs::read_to_string(file);
        let password = read.map_err(|error| StartError::Password(file.clone(), error))?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        let is_one_line = !password.contains(['\r', '\n']);
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || !is_one_line {
            return Err(StartError::NoPassword(file.clone()));
        }
        Ok(Some(User { name: name.clone(), password }))
    }
}

/// Whether an endpoint is on this machine: a loopback address, or `localhost`.
fn is_of_this_machine(endpoint: &str) -> bool {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest).trim_end_matches('/');
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// The age at which an idle connection is not used again: etcd may have closed its end without notice.
const IDLE_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            let access = Access { user: Some(("ursa".to_owned(), file.clone())), ..Access::default() };
            access.read_user().map(|user| user.unwrap().password)
        };
        assert_eq!(read("secret\r\n").unwrap(), "secret");
        for wrong in ["", "\n", "secret\nanother\n", &"s".repeat(PASSWORD_BYTES_MAX + 1)] {
            assert!(matches!(read(wrong), Err(StartError::NoPassword(_))), "{wrong:?}");
        }
    }

    #[test]
    fn endpoints_are_urls_with_a_port() {
        let check = |endpoint: &str| {
            Access { endpoints: vec![endpoint.to_owned()], ..Access::default() }.check().is_ok()
        };
        for right in ["http://127.0.0.1:2379", "http://[::1]:2379/", "http://localhost:2379"] {
            assert!(check(right), "{right}");
        }
        let plain = |endpoint: &str| {
            let endpoints = vec!["http://127.0.0.1:2379".to_owned(), endpoint.to_owned()];
            Access { endpoints, ..Access::default() }.check()
        };
        for other in [
            "http://etcd1.example:2379",
            "http://10.0.0.1:2379",
            "http://[fd00::1]:2379",
            "http://127.0.0.1.a:1",
        ] {
            assert_eq!(plain(other), Err(AccessError::Plain), "{other}");
        }
        for wrong in ["127.0.0.1:2379", "http://", "http://:2379", "http://etcd1", "ftp://a:1", "http://a:x"]
        {
            assert!(!check(wrong), "{wrong}");
        }
        assert!(!check("https://etcd1:2379"), "nobody says who has signed its certificate");
        assert!(Access::default().check().is_err());
    }
}
