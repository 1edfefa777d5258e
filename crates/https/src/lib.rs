//! TLS 1.3 for ureq, the HTTP client of all our crates, with the rustls that links use. With ureq's own TLS,
//! provider and roots could not be chosen without bringing in TLS 1.2. Neither of the crates that need this,
//! `api` (calls to a node) and `cluster` (calls to a site's etcd), is above the other, so it is a crate below
//! both.
//!
//! Servers of the command line, which speak other protocols, use the same certificates and the same TLS
//! ([`server`]).

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, ServerConfig, StreamOwned, WantsVerifier,
};
use thiserror::Error;
// ureq may change these parts without a new major version; the lock file pins the version that we have.
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Why the CA certificates cannot be used.
#[derive(Debug, Error)]
pub enum AuthoritiesError {
    /// The file cannot be read, or is not PEM.
    #[error("cannot read certificates in PEM from {0}")]
    File(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// A certificate in the file is not a CA certificate.
    #[error("{0} does not hold a CA certificate")]
    Unfit(PathBuf, #[source] rustls::Error),
    /// The file has no certificate.
    #[error("{0} has no certificate in PEM")]
    Empty(PathBuf),
}

impl AuthoritiesError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            AuthoritiesError::File(path, _)
            | AuthoritiesError::Unfit(path, _)
            | AuthoritiesError::Empty(path) => path,
        }
    }
}

/// Why one's own certificate cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The file of the certificates or of the key cannot be read, or is not PEM.
    #[error("cannot read {0} as PEM")]
    File(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// The file has no certificate.
    #[error("{0} has no certificate in PEM")]
    Empty(PathBuf),
    /// The certificate and the key do not match.
    #[error("the certificate in {certificate} cannot be used with the key in {key}")]
    Unfit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

impl IdentityError {
    /// The file; the certificate's, if it and the key do not match.
    pub fn path(&self) -> &Path {
        match self {
            IdentityError::File(path, _)
            | IdentityError::Empty(path)
            | IdentityError::Unfit { certificate: path, .. } => path,
        }
    }
}

/// The cryptography that TLS uses.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The first step of a client's configuration: TLS 1.3 only.
pub fn client() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider knows TLS 1.3")
}

/// The CA certificates in a file, in PEM.
pub fn authorities(file: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let unread = |error| AuthoritiesError::File(file.to_owned(), error);
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(unread)? {
        let added = roots.add(certificate.map_err(unread)?);
        added.map_err(|error| AuthoritiesError::Unfit(file.to_owned(), error))?;
    }
    if roots.is_empty() { Err(AuthoritiesError::Empty(file.to_owned())) } else { Ok(roots) }
}

/// A client that presents the certificate in one file, with its chain, and proves its identity with the key
/// in the other.
pub fn with_identity(
    client: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: &Path,
    key: &Path,
) -> Result<ClientConfig, IdentityError> {
    let (chain, secret) = identity(certificate, key)?;
    client.with_client_auth_cert(chain, secret).map_err(unfit(certificate, key))
}

/// A server that presents the certificate in one file, with its chain, and proves its identity with the key
/// in the other. It serves only clients with a certificate that one of these authorities has signed
/// ([`authorities`]).
///
/// # Panics
/// If there are no authorities.
pub fn server(certificate: &Path, key: &Path, clients: RootCertStore) -> Result<ServerConfig, IdentityError> {
    let (chain, secret) = identity(certificate, key)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), provider()).build();
    ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider knows TLS 1.3")
        .with_client_cert_verifier(clients.expect("there are authorities"))
        .with_single_cert(chain, secret)
        .map_err(unfit(certificate, key))
}

/// A certificate with its chain, and its key, in PEM.
fn identity(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), IdentityError> {
    let unread = |file: &Path| {
        let file = file.to_owned();
        move |error| IdentityError::File(file, error)
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(unread(certificate))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unread(certificate))?;
    if chain.is_empty() {
        return Err(IdentityError::Empty(certificate.to_owned()));
    }
    Ok((chain, PrivateKeyDer::from_pem_file(key).map_err(unread(key))?))
}

fn unfit(certificate: &Path, key: &Path) -> impl FnOnce(rustls::Error) -> IdentityError {
    let (certificate, key) = (certificate.to_owned(), key.to_owned());
    move |source| IdentityError::Unfit { certificate, key, source }
}

/// Uses TLS on a connection whose URL requires it.
#[derive(Debug)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// A connector with this configuration.
    pub fn new(config: ClientConfig) -> Tls {
        Tls(Arc::new(config))
    }
}

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| ureq::Error::Tls("the host is neither a name nor an address"))?;
        let refused = |error: rustls::Error| ureq::Error::Io(std::io::Error::other(error));
        let mut connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(refused)?;
        let mut socket = TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(Encrypted { buffers, stream: StreamOwned::new(connection, socket) })))
    }
}

/// A TLS connection.
pub struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}
