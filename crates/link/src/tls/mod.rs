//! TLS 1.3 on a connection, as a function of bytes: what arrived goes in, what must be sent comes out.
//!
//! rustls does the handshake ([`handshake`]). The records after it are done here, in place ([`records`],
//! which says why, and [`cipher`]). On the wire this is TLS 1.3 as in RFC 8446: either side may be any other
//! implementation.
//!
//! Both sides show a certificate that the cluster's authority has signed. There are no tickets and no
//! resumption: links are made rarely and live long. Certificates do not expire, so no clock is read.

mod cipher;
pub mod fuzzing;
mod handshake;
mod records;

use std::io::IoSlice;
use std::sync::Arc;

use base::SendBatch;
use replica::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, DigitallySignedStruct, PeerIncompatible, RootCertStore, ServerConfig, SignatureScheme,
};

use self::handshake::{Agreed, Handshake, Side};
use self::records::Records;
use crate::credentials::{fingerprint, server_name};
use crate::{ClusterId, NodeCredentials, Token};

/// The time for which certificates are checked: any time will do (2033).
const TIME_OF_CHECKS: u64 = 2_000_000_000;

#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(TIME_OF_CHECKS)))
    }
}

/// Prefers AES-GCM, for which processors have instructions. Uses only ring, which needs only a C compiler to
/// build.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
            ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    })
}

/// The TLS configurations of a node for connections within its cluster.
#[derive(Clone)]
pub(crate) struct Configs {
    cluster: ClusterId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// For connections from a node that has no certificate yet.
    join: Arc<ServerConfig>,
}

impl Configs {
    /// The configurations for these credentials.
    pub(crate) fn new(credentials: &NodeCredentials) -> Result<Configs, rustls::Error> {
        let servers = servers_of(credentials.authority())?;
        let name = server_name(credentials.cluster(), credentials.node());
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(TIME_OF_CHECKS));
        servers.verify_server_cert(credentials.certificate(), &[], &name, &[], time)?;

        let chain = || vec![credentials.certificate().clone()];
        let mut client = ClientConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(chain(), credentials.private_key())?;
        client.resumption = Resumption::disabled();
        client.enable_secret_extraction = true;
        let clients =
            WebPkiClientVerifier::builder_with_provider(trust_in(credentials.authority())?, provider());
        let clients = clients.build().map_err(|_| no_authority())?;
        let mut server = ServerConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain(), credentials.private_key())?;
        server.send_tls13_tickets = 0;
        server.enable_secret_extraction = true;
        // A joining node knows the authority's certificate only by the fingerprint in its token, so the
        // certificate is sent, too.
        let with_authority = vec![credentials.certificate().clone(), credentials.authority().clone()];
        let mut join = ServerConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(with_authority, credentials.private_key())?;
        join.send_tls13_tickets = 0;
        join.enable_secret_extraction = true;
        Ok(Configs {
            cluster: credentials.cluster(),
            client: Arc::new(client),
            server: Arc::new(server),
            join: Arc::new(join),
        })
    }

    /// TLS for connecting to this node, and to no other.
    pub(crate) fn client(&self, node: NodeId) -> Result<Tls, rustls::Error> {
        Tls::client(Arc::clone(&self.client), server_name(self.cluster, node))
    }

    /// TLS for a connection from a node that wants to join.
    pub(crate) fn join(&self) -> Result<Tls, rustls::Error> {
        Tls::server(Arc::clone(&self.join))
    }

    /// TLS for a connection from a node of the cluster.
    pub(crate) fn server(&self) -> Result<Tls, rustls::Error> {
        Tls::server(Arc::clone(&self.server))
    }
}

/// TLS for a node with a token, for connecting to the member that the token names.
pub(crate) fn joiner(token: &Token) -> Result<Tls, rustls::Error> {
    let known = Arc::new(KnownAuthority(token.authority));
    let mut client = ClientConfig::builder_with_details(provider(), Arc::new(NoClock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(known)
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    client.enable_secret_extraction = true;
    Tls::client(Arc::new(client), server_name(token.cluster, token.member))
}

/// Trusts the authority whose certificate has this SHA-256, and the certificates that it has signed.
#[derive(Debug)]
struct KnownAuthority([u8; 32]);

impl ServerCertVerifier for KnownAuthority {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = others.iter().find(|other| fingerprint(other) == self.0);
        let authority = authority.ok_or(rustls::CertificateError::UnknownIssuer)?;
        servers_of(authority)?.verify_server_cert(certificate, &[], name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies the certificates of nodes that this one connects to.
fn servers_of(authority: &CertificateDer<'_>) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
    let servers = WebPkiServerVerifier::builder_with_provider(trust_in(authority)?, provider());
    servers.build().map_err(|_| no_authority())
}

fn trust_in(authority: &CertificateDer<'_>) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    Ok(Arc::new(roots))
}

fn no_authority() -> rustls::Error {
    rustls::Error::General("the CA certificate is not valid".to_owned())
}

/// The TLS state of one connection.
pub(crate) struct Tls {
    stage: Stage,
    is_client: bool,
    /// The certificates that the other side has shown; empty before the handshake is done.
    peer_chain: Vec<CertificateDer<'static>>,
    /// What the handshake must send and the caller has not taken.
    output: Vec<u8>,
    /// Why the connection is unusable.
    failed: Option<rustls::Error>,
}

enum Stage {
    /// The handshake is not done.
    Handshake(Box<Handshake>),
    /// The handshake is done.
    Records(Box<Records>),
    /// The two sides have agreed on something that this side cannot use.
    Over,
}

/// Why [`Tls::feed`] stopped.
#[derive(Debug)]
pub(crate) enum FeedError<E> {
    /// What arrived is not valid TLS.
    Tls(rustls::Error),
    /// The error of the consumer of the bytes.
    User(E),
}

impl<E> From<rustls::Error> for FeedError<E> {
    fn from(error: rustls::Error) -> FeedError<E> {
        FeedError::Tls(error)
    }
}

impl Tls {
    fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Tls, rustls::Error> {
        Tls::begin(Side::Client(UnbufferedClientConnection::new(config, name)?))
    }

    fn server(config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        Tls::begin(Side::Server(UnbufferedServerConnection::new(config)?))
    }

    fn begin(side: Side) -> Result<Tls, rustls::Error> {
        let is_client = matches!(side, Side::Client(_));
        let mut output = Vec::new();
        let stage = Stage::Handshake(Box::new(Handshake::begin(side, &mut output)?));
        Ok(Tls { stage, is_client, peer_chain: Vec::new(), output, failed: None })
    }

    /// Whether this side has connected.
    pub(crate) fn is_client(&self) -> bool {
        self.is_client
    }

    /// Whether the handshake is not done.
    pub(crate) fn is_handshaking(&self) -> bool {
        !matches!(self.stage, Stage::Records(_))
    }

    /// The certificates that the other side has shown, once the handshake is done.
    pub(crate) fn peer_chain(&self) -> &[CertificateDer<'static>] {
        &self.peer_chain
    }

    /// Whether the other side has shown the certificate of this node.
    pub(crate) fn peer_is(&self, cluster: ClusterId, node: NodeId) -> bool {
        self.peer_chain.first().is_some_and(|certificate| names(certificate, &server_name(cluster, node)))
    }

    /// Takes all of `bytes` and decrypts them in place; `plain` gets the content in pieces.
    ///
    /// Everything after the other side's close is ignored.
    ///
    /// # Errors
    /// If the bytes are not valid TLS, or `plain` fails. The connection is unusable then, except for an alert
    /// that [`Tls::take_output`] may return.
    pub(crate) fn feed<E>(
        &mut self,
        bytes: &mut [u8],
        mut plain: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), FeedError<E>> {
        if let Some(error) = &self.failed {
            return Err(FeedError::Tls(error.clone()));
        }
        let fed = self.take_in(bytes, &mut plain);
        if let Err(FeedError::Tls(error)) = &fed {
            self.failed = Some(error.clone());
        }
        fed
    }

    fn take_in<E>(
        &mut self,
        bytes: &mut [u8],
        plain: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), FeedError<E>> {
        match &mut self.stage {
            Stage::Records(records) => return records.feed(bytes, plain),
            Stage::Handshake(handshake) => {
                if !handshake.feed(bytes, &mut self.output)? {
                    return Ok(());
                }
            }
            Stage::Over => return Ok(()),
        }
        let Stage::Handshake(handshake) = std::mem::replace(&mut self.stage, Stage::Over) else {
            unreachable!("it was just matched");
        };
        let Agreed { records, peer_chain, mut behind } = handshake.finish()?;
        self.peer_chain = peer_chain;
        let mut records = Box::new(records);
        let fed = records.feed(&mut behind, plain);
        self.stage = Stage::Records(records);
        fed
    }

    /// Whether the other side has announced that it sends no more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(&self.stage, Stage::Records(records) if records.is_closed())
    }

    /// Whether something must be sent that was not sealed yet.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || matches!(&self.stage, Stage::Records(records) if records.has_output())
    }

    /// Adds `pieces`, encrypted, to `batch`, after whatever else must be sent.
    ///
    /// # Errors
    /// If the connection has failed, or the handshake is not done. Then nothing of `pieces` is in `batch`.
    pub(crate) fn seal(
        &mut self,
        pieces: &[IoSlice<'_>],
        batch: &mut SendBatch,
    ) -> Result<(), rustls::Error> {
        self.take_output(batch)?;
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match &mut self.stage {
            Stage::Records(records) => records.seal(pieces, batch),
            Stage::Handshake(_) | Stage::Over => Err(rustls::Error::HandshakeNotComplete),
        }
    }

    /// Adds to `batch` what must be sent besides data.
    pub(crate) fn take_output(&mut self, batch: &mut SendBatch) -> Result<(), rustls::Error> {
        batch.push(&self.output);
        self.output.clear();
        match &mut self.stage {
            Stage::Records(records) => records.take_output(batch),
            Stage::Handshake(_) | Stage::Over => Ok(()),
        }
    }
}

/// Whether a certificate names a node.
fn names(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    ParsedCertificate::try_from(certificate)
        .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
}

#[cfg(test)]
mod tests;
