//! TLS 1.3 on a connection, as bytes: what arrived goes in, what is to be sent comes out.
//!
//! rustls does the handshake ([`handshake`]); the records behind it are done here ([`records`], which says
//! why, and [`cipher`]), in place. On the wire it is TLS 1.3 as RFC 8446 has it: either side may be any other
//! implementation.
//!
//! Both sides show a certificate that the cluster's authority has signed. There are no tickets and no
//! resumption: a link is made seldom and lives long. Certificates do not expire, so no clock is read.

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
    CertificateError, ClientConfig, DigitallySignedStruct, PeerIncompatible, RootCertStore, ServerConfig,
    SignatureScheme,
};

use self::handshake::{Agreed, Handshake, Side};
use self::records::Records;
use crate::credentials::{fingerprint, server_name};
use crate::{ClusterId, NodeCredentials, Token};

/// The time at which certificates are checked: any time is as good (2033).
const TIME_OF_CHECKS: u64 = 2_000_000_000;

#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(TIME_OF_CHECKS)))
    }
}

/// AES-GCM first, which processors have instructions for; ring alone, which builds without anything but a C
/// compiler.
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

/// How a node does TLS with the others of its cluster.
#[derive(Clone)]
pub(crate) struct Configs {
    cluster: ClusterId,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// For a node that has no certificate yet.
    join: Arc<ServerConfig>,
}

impl Configs {
    /// With these credentials.
    ///
    /// # Errors
    /// If they do not belong together.
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
        // A node that joins knows the authority's certificate only by what its token says of it, so it is
        // shown, too.
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

    /// To call this node, and no other.
    pub(crate) fn client(&self, node: NodeId) -> Result<Tls, rustls::Error> {
        Tls::client(Arc::clone(&self.client), server_name(self.cluster, node))
    }

    /// To be called by a node that wants to join.
    pub(crate) fn join(&self) -> Result<Tls, rustls::Error> {
        Tls::server(Arc::clone(&self.join))
    }

    /// To be called by a node of the cluster.
    pub(crate) fn server(&self) -> Result<Tls, rustls::Error> {
        Tls::server(Arc::clone(&self.server))
    }
}

/// For a node with a token, to call the member that it names.
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

/// Trusts the authority whose certificate has this SHA-256, and those that it has signed.
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

/// What checks the certificates of who is called.
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

/// What to do about a failure.
pub(crate) fn advice(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "the certificate belongs to another node: correct the address of the member, or give the node its own credentials"
        }
        rustls::Error::InvalidCertificate(_) => {
            "the certificate is not signed by this cluster's CA: let the node that does not belong to the cluster join it"
        }
        rustls::Error::NoCertificatesPresented => {
            "the peer presented no certificate: let it join the cluster"
        }
        rustls::Error::AlertReceived(_) => "the peer does not accept this node; see its log for the cause",
        _ => "the peer may not be a node of a cluster",
    }
}

/// One connection's TLS.
pub(crate) struct Tls {
    stage: Stage,
    is_client: bool,
    /// The certificates that the other side has shown; none before the handshake is done.
    peer_chain: Vec<CertificateDer<'static>>,
    /// What the handshake is to send and nobody has taken.
    output: Vec<u8>,
    /// Why it is of no further use.
    failed: Option<rustls::Error>,
}

enum Stage {
    /// The two sides are not done with the handshake.
    Handshake(Box<Handshake>),
    /// They are.
    Records(Box<Records>),
    /// They have agreed on what is of no use here.
    Over,
}

/// Why [`Tls::feed`] stopped.
#[derive(Debug)]
pub(crate) enum FeedError<E> {
    /// What arrived is not TLS as it has to be.
    Tls(rustls::Error),
    /// What was said to the user of the bytes.
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

    /// Whether this side has called.
    pub(crate) fn is_client(&self) -> bool {
        self.is_client
    }

    /// Whether the two sides are not done with the handshake.
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

    /// Takes in all of `bytes`, and decrypts them where they are; `plain` gets what they were, in pieces.
    /// What follows the end that the other side has announced is ignored.
    ///
    /// # Errors
    /// If they are not TLS, or `plain` fails. The connection is of no further use, but for an alert that
    /// [`Tls::take_output`] may give.
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

    /// Whether the other side has said that nothing follows.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(&self.stage, Stage::Records(records) if records.is_closed())
    }

    /// Whether something is to be sent that nobody has sealed.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty() || matches!(&self.stage, Stage::Records(records) if records.has_output())
    }

    /// Adds `pieces`, encrypted, to `batch`, after what else is to be sent.
    ///
    /// # Errors
    /// If the connection has failed, or is not made yet. Nothing of `pieces` is in `batch` then.
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

    /// Adds what is to be sent besides data to `batch`.
    ///
    /// # Errors
    /// If it cannot be encrypted.
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
