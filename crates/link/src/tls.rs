//! TLS 1.3 on a connection, as bytes: what arrived goes in, what is to be sent comes out.
//!
//! Both sides show a certificate that the cluster's authority has signed. There are no tickets and no resumption: a link is made seldom and
//! lives long. Certificates do not expire, so no clock is read.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::sync::Arc;

use base::SendBatch;
use replica::NodeId;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, InvalidMessage,
    PeerIncompatible, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

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

/// AES-GCM first, which processors have instructions for; ring alone, which builds without anything but a C compiler.
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
        let clients =
            WebPkiClientVerifier::builder_with_provider(trust_in(credentials.authority())?, provider());
        let clients = clients.build().map_err(|_| no_authority())?;
        let mut server = ServerConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain(), credentials.private_key())?;
        server.send_tls13_tickets = 0;
        // A node that joins knows the authority's certificate only by what its token says of it, so it is shown, too.
        let with_authority = vec![credentials.certificate().clone(), credentials.authority().clone()];
        let mut join = ServerConfig::builder_with_details(provider(), Arc::new(NoClock))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(with_authority, credentials.private_key())?;
        join.send_tls13_tickets = 0;
        Ok(Configs {
            cluster: credentials.cluster(),
            client: Arc::new(client),
            server: Arc::new(server),
            join: Arc::new(join),
        })
    }

    /// To call this node, and no other.
    pub(crate) fn client(&self, node: NodeId) -> Result<Tls, rustls::Error> {
        let name = server_name(self.cluster, node);
        ClientConnection::new(Arc::clone(&self.client), name).map(|client| Tls::new(client.into()))
    }

    /// To be called by a node that wants to join.
    pub(crate) fn join(&self) -> Result<Tls, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.join)).map(|server| Tls::new(server.into()))
    }

    /// To be called by a node of the cluster.
    pub(crate) fn server(&self) -> Result<Tls, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.server)).map(|server| Tls::new(server.into()))
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
    let name = server_name(token.cluster, token.member);
    ClientConnection::new(Arc::new(client), name).map(|client| Tls::new(client.into()))
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
    rustls::Error::General("the authority's certificate is of no use".to_owned())
}

/// What to do about a failure.
pub(crate) fn advice(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "the certificate is another node's: correct the address of the member, or give the node its own credentials"
        }
        rustls::Error::InvalidCertificate(_) => {
            "the certificate is not signed by this cluster's authority: let the node that does not belong here join the cluster"
        }
        rustls::Error::NoCertificatesPresented => {
            "the other side shows no certificate: let it join the cluster"
        }
        rustls::Error::AlertReceived(_) => "the other side does not accept this node; its log says why",
        _ => "what answers may be no node of a cluster",
    }
}

/// One connection's TLS.
pub(crate) struct Tls(Box<Connection>);

/// Why [`Tls::feed`] stopped.
#[derive(Debug)]
pub(crate) enum FeedError<E> {
    /// What arrived is not TLS as it has to be.
    Tls(rustls::Error),
    /// What was said to the user of the bytes.
    User(E),
}

impl Tls {
    fn new(connection: Connection) -> Tls {
        let mut connection = Box::new(connection);
        // What is put in is taken out at once, by `seal` and `feed`: their callers bound it.
        connection.set_buffer_limit(None);
        Tls(connection)
    }

    /// Whether this side has called.
    pub(crate) fn is_client(&self) -> bool {
        matches!(*self.0, Connection::Client(_))
    }

    /// Whether the two sides are not done with the handshake.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// The certificates that the other side has shown.
    pub(crate) fn peer_chain(&self) -> &[CertificateDer<'static>] {
        self.0.peer_certificates().unwrap_or_default()
    }

    /// Whether the other side has shown the certificate of this node.
    pub(crate) fn peer_is(&self, cluster: ClusterId, node: NodeId) -> bool {
        let certificate = self.0.peer_certificates().and_then(|chain| chain.first());
        certificate.is_some_and(|certificate| names(certificate, &server_name(cluster, node)))
    }

    /// Takes in all of `bytes`; `plain` gets what they were, in pieces.
    ///
    /// # Errors
    /// If they are not TLS, or `plain` fails. The connection is of no further use, but for an alert that [`Tls::take_output`] may give.
    pub(crate) fn feed<E>(
        &mut self,
        mut bytes: &[u8],
        mut plain: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), FeedError<E>> {
        let strange = || FeedError::Tls(InvalidMessage::MessageTooLarge.into());
        while !bytes.is_empty() {
            let taken = self.0.read_tls(&mut bytes as &mut dyn Read).map_err(|_| strange())?;
            self.0.process_new_packets().map_err(FeedError::Tls)?;
            let mut reader = self.0.reader();
            // It fails where nothing is there, and where the other side has closed: both are seen elsewhere.
            while let Ok(chunk) = reader.fill_buf()
                && !chunk.is_empty()
            {
                let len = chunk.len();
                plain(chunk).map_err(FeedError::User)?;
                reader.consume(len);
            }
            if taken == 0 {
                // Behind the end that the other side has announced.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether something is to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.0.wants_write()
    }

    /// Encrypts `pieces`; [`Tls::take_output`] gives the result.
    ///
    /// # Errors
    /// If the connection has failed.
    pub(crate) fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let sealed = self.0.writer().write_vectored(pieces)?;
        if sealed == len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Adds what is to be sent to `batch`.
    pub(crate) fn take_output(&mut self, batch: &mut SendBatch) {
        while self.0.wants_write() {
            if self.0.write_tls(&mut Pushed(batch)).is_err() {
                unreachable!("a batch takes everything");
            }
        }
    }
}

/// Whether a certificate names a node.
fn names(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    ParsedCertificate::try_from(certificate)
        .is_ok_and(|parsed| rustls::client::verify_server_name(&parsed, name).is_ok())
}

/// A batch as something to write to.
struct Pushed<'a>(&'a mut SendBatch);

impl Write for Pushed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        pieces.iter().for_each(|piece| self.0.push(piece));
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
