//! The certificate that the API presents to other machines: one that the administrator provides, or one that
//! the node creates and keeps.
//!
//! It differs from the certificate between nodes: that one names a node of a cluster, but a browser expects
//! the name or address in its URL. It is self-signed; users compare its fingerprint, which the node prints
//! when it starts.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The directory for the certificate that the node has created.
const DIRECTORY: &str = "api";
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
/// The names in the certificate, to check whether it still matches.
const NAMES: &str = "names";

/// Files with a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate chain in PEM, the node's own certificate first.
    pub certificate: PathBuf,
    /// The key in PEM.
    pub key: PathBuf,
}

/// What the API uses for TLS.
pub struct Certificate {
    /// The configuration for rustls.
    pub config: Arc<ServerConfig>,
    /// The SHA-256 fingerprint of the certificate, as browsers and openssl show it.
    pub fingerprint: String,
}

/// The certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("cannot read or write the API's certificate or key {0}")]
    File(PathBuf, #[source] io::Error),
    #[error("{0} contains no certificate or no key in PEM format")]
    Pem(PathBuf, #[source] rustls::pki_types::pem::Error),
    #[error("the API's certificate and key do not match, or cannot be used")]
    Unfit(#[source] rustls::Error),
    #[error("cannot create a certificate for the API")]
    Make(#[source] rcgen::Error),
}

/// Why the API has no certificate, and so does not answer other machines. Nodes report it to each other as
/// JSON; the node's log has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The messages say it.
pub enum CertificateFault {
    /// `errno` is an error number of the system.
    #[error(
        "cannot read or write the API's certificate or key {}: {}",
        path.display(), io::Error::from_raw_os_error(*errno)
    )]
    File { path: PathBuf, errno: i32 },
    #[error("cannot read or write the API's certificate or key {}: the node's log says why", path.display())]
    Unreadable { path: PathBuf },
    #[error("{} contains no certificate or no key in PEM format", path.display())]
    Pem { path: PathBuf },
    #[error("the API's certificate and key do not match, or cannot be used: the node's log says why")]
    Unfit,
    #[error("cannot create a certificate for the API: the node's log says why")]
    Unmade,
}

impl From<&CertificateError> for CertificateFault {
    fn from(error: &CertificateError) -> CertificateFault {
        match error {
            CertificateError::File(path, error)
            | CertificateError::Pem(path, rustls::pki_types::pem::Error::Io(error)) => {
                let path = path.clone();
                match error.raw_os_error() {
                    Some(errno) => CertificateFault::File { path, errno },
                    None => CertificateFault::Unreadable { path },
                }
            }
            CertificateError::Pem(path, _) => CertificateFault::Pem { path: path.clone() },
            CertificateError::Unfit(_) => CertificateFault::Unfit,
            CertificateError::Make(_) => CertificateFault::Unmade,
        }
    }
}

impl Certificate {
    /// Loads the certificate from these files. Without files, loads the node's own, which is created again
    /// when its names or addresses have changed.
    pub fn load(
        given: Option<&CertificateFiles>,
        data_dir: &Path,
        name: &str,
        addresses: &[SocketAddr],
    ) -> Result<Certificate, CertificateError> {
        match given {
            Some(files) => Certificate::of(files),
            None => {
                let directory = data_dir.join(DIRECTORY);
                let files =
                    CertificateFiles { certificate: directory.join(CERTIFICATE), key: directory.join(KEY) };
                let names = names(name, addresses);
                let fits =
                    fs::read_to_string(directory.join(NAMES)).is_ok_and(|kept| kept == names.join("\n"));
                if !fits {
                    make(&directory, &files, names)?;
                }
                Certificate::of(&files)
            }
        }
    }

    fn of(files: &CertificateFiles) -> Result<Certificate, CertificateError> {
        let chain = CertificateDer::pem_file_iter(&files.certificate).map_err(pem(&files.certificate))?;
        let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(pem(&files.certificate))?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(pem(&files.key))?;
        let own = chain.first().ok_or_else(|| {
            CertificateError::Pem(files.certificate.clone(), rustls::pki_types::pem::Error::NoItemsFound)
        })?;
        let digest = Sha256::digest(own);
        let fingerprint: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(CertificateError::Unfit)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Certificate { config: Arc::new(config), fingerprint: fingerprint.join(":") })
    }
}

fn pem(path: &Path) -> impl Fn(rustls::pki_types::pem::Error) -> CertificateError {
    let path = path.to_owned();
    move |error| CertificateError::Pem(path.clone(), error)
}

/// The names and addresses by which the API is reached.
fn names(name: &str, addresses: &[SocketAddr]) -> Vec<String> {
    let mut names: Vec<String> = addresses
        .iter()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_unspecified())
        .chain([IpAddr::from(Ipv4Addr::LOCALHOST)])
        .map(|ip| ip.to_string())
        .collect();
    let is_host_name =
        name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) && !name.is_empty();
    names.extend(is_host_name.then(|| name.to_owned()));
    names.push("localhost".into());
    names.sort_unstable();
    names.dedup();
    names
}

/// Creates a certificate that does not expire: users trust its fingerprint.
fn make(directory: &Path, files: &CertificateFiles, names: Vec<String>) -> Result<(), CertificateError> {
    let text = names.join("\n");
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CertificateError::Make)?;
    let mut params = CertificateParams::new(names).map_err(CertificateError::Make)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Ursa API");
    let certificate = params.self_signed(&key).map_err(CertificateError::Make)?;
    let file = |path: PathBuf| move |error| CertificateError::File(path, error);
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(file(directory.to_owned()))?;
    let names = directory.join(NAMES);
    // The names are written last: until then the files count as incomplete and are created again.
    for (path, text) in
        [(&files.key, key.serialize_pem()), (&files.certificate, certificate.pem()), (&names, text)]
    {
        write(path, &text).map_err(file(path.clone()))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_node_keeps_its_certificate_until_its_addresses_are_others() {
        let dir = tempfile::tempdir().unwrap();
        let of = |addresses: &[&str]| {
            let addresses: Vec<SocketAddr> =
                addresses.iter().map(|address| address.parse().unwrap()).collect();
            Certificate::load(None, dir.path(), "san1", &addresses).unwrap().fingerprint
        };
        let first = of(&["10.0.0.1:3280"]);
        assert_eq!(first.len(), 32 * 3 - 1);
        assert_eq!(of(&["10.0.0.1:3281"]), first, "the port is no part of it");
        assert_ne!(of(&["10.0.0.2:3280"]), first);
        let mode = fs::metadata(dir.path().join("api/key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for dir in &dirs {
            Certificate::load(None, dir.path(), "san1", &[]).unwrap();
        }
        let files = CertificateFiles {
            certificate: dirs[0].path().join("api/certificate.pem"),
            key: dirs[1].path().join("api/key.pem"),
        };
        let refused = |files: &CertificateFiles| {
            Certificate::load(Some(files), dirs[0].path(), "san1", &[]).map(drop).unwrap_err()
        };
        assert!(matches!(refused(&files), CertificateError::Unfit(_)));
        let swapped = CertificateFiles { certificate: files.key.clone(), key: files.certificate.clone() };
        assert!(matches!(refused(&swapped), CertificateError::Pem(..)));
        let none = CertificateFiles { certificate: "/nowhere".into(), key: "/nowhere".into() };
        assert!(matches!(refused(&none), CertificateError::Pem(..)));
        let fault = CertificateFault::File { path: "/nowhere".into(), errno: 2 }; // ENOENT
        assert_eq!(CertificateFault::from(&refused(&none)), fault);
        assert_eq!(CertificateFault::from(&refused(&files)), CertificateFault::Unfit);
    }

    #[test]
    fn a_certificate_names_what_can_be_named() {
        let addresses = ["0.0.0.0:3280", "10.0.0.1:3280"].map(|address| address.parse().unwrap());
        assert_eq!(names("san1", &addresses), ["10.0.0.1", "127.0.0.1", "localhost", "san1"]);
        assert_eq!(names("my node", &[]), ["127.0.0.1", "localhost"]);
    }
}
