//! The credential that a node stores for the user that runs it, so that the command line on the node's own
//! machine needs no login.
//!
//! It is a file named after the address on which the API listens, in a directory that belongs to that user.
//! It is not in the node's data directory, since a client knows the node's address, but not where its data
//! is. Each start of a node creates a new credential; one that an earlier process left is useless.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use serde::{Deserialize, Serialize};

/// The system's directory for runtime files: it has the credentials of nodes that run as root or as a
/// service's user.
const OF_SYSTEM: &str = "/run/ursa";

/// The credential that a node stores.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalCredential {
    /// The token for `Authorization: Bearer`.
    pub token: String,
    /// The node's certificate, in PEM, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The node holds a lock on the file for as long as it runs: without a lock holder the file is stale.
    #[serde(default)]
    pub locked: bool,
}

impl fmt::Debug for LocalCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalCredential(not shown)")
    }
}

impl LocalCredential {
    /// The credential of the node whose API is at `authority` (`127.0.0.1:3280`), if this user can read it.
    ///
    /// Host names have no credential: a name may resolve to several addresses, and another process may listen
    /// on one of them.
    pub fn find(authority: &str) -> Option<LocalCredential> {
        let files = files_of(authority);
        let paths = directories()
            .into_iter()
            .flat_map(|directory| files.iter().map(move |file| directory.join(file)));
        paths.filter(|path| path.parent().is_some_and(is_trusted)).find_map(|path| read(&path))
    }

    /// The name of the file for an API that listens on `address`.
    pub fn file_name(address: SocketAddr) -> String {
        address.to_string()
    }

    /// The directories for credentials, the preferred one first.
    pub fn directories() -> Vec<PathBuf> {
        directories()
    }
}

fn directories() -> Vec<PathBuf> {
    let of_user = env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let of_user = of_user.map(|path| PathBuf::from(path).join("ursa"));
    let uid = rustix::process::geteuid();
    let last = PathBuf::from(format!("/tmp/ursa-{}", uid.as_raw()));
    match uid.is_root() {
        true => vec![OF_SYSTEM.into(), last],
        false => of_user.into_iter().chain([last, OF_SYSTEM.into()]).collect(),
    }
}

/// Whether no other user can have put files into the directory: files in another user's directory are not
/// trusted.
fn is_trusted(directory: &Path) -> bool {
    let me = rustix::process::geteuid();
    fs::symlink_metadata(directory).is_ok_and(|found| {
        let mine = found.uid() == me.as_raw() || directory == Path::new(OF_SYSTEM);
        found.is_dir() && mine && found.mode() & 0o022 == 0
    })
}

fn read(path: &Path) -> Option<LocalCredential> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// The names of files that may have the credential of the node that listens on `authority`.
///
/// The credential of a node that listens on all addresses is used for loopback only: the same port of another
/// machine belongs to another process, and that of the other address family may do so, too.
fn files_of(authority: &str) -> Vec<String> {
    let Ok(address) = authority.parse::<SocketAddr>() else { return Vec::new() };
    let anywhere: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut files = vec![LocalCredential::file_name(address)];
    if address.ip().is_loopback() {
        files.push(LocalCredential::file_name(SocketAddr::new(anywhere, address.port())));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::files_of;

    #[test]
    fn a_credential_is_looked_for_by_address() {
        assert_eq!(files_of("127.0.0.1:3280"), ["127.0.0.1:3280", "0.0.0.0:3280"]);
        assert_eq!(files_of("[::1]:3280"), ["[::1]:3280", "[::]:3280"]);
    }

    #[test]
    fn another_machine_is_not_sent_what_is_for_this_one() {
        assert_eq!(files_of("10.0.0.1:3280"), ["10.0.0.1:3280"]);
        for none in ["san.example:3280", "localhost:3280", "", "../../etc/passwd", "127.0.0.1"] {
            assert!(files_of(none).is_empty(), "{none}");
        }
    }
}
