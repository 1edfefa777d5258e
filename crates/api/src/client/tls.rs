//! TLS to a node, whose certificate is known by its fingerprint or by who has signed it.
//!
//! A node's own certificate is signed by nobody, and says nothing that whoever listens in its place could not say, too. So it is not looked at but for its fingerprint, which the node prints at
//! its start: what is behind a fingerprint nobody else can show and use. Nothing is sent to who shows another one, no token above all.

use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, PeerIncompatible, RootCertStore, SignatureScheme,
    StreamOwned,
};
use sha2::{Digest, Sha256};
// Of ureq's parts these may change without a new major version; the lock file keeps the one that we have.
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// SHA-256 of a node's certificate, as the node prints it at its start: pairs of hexadecimal digits, with or without colons between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// By what a node's certificate is known.
#[derive(Clone, Debug)]
pub enum Trust {
    /// It is this one.
    Fingerprint(Fingerprint),
    /// One of these has signed it, for the name or address that it is reached by.
    Authorities(Arc<RootCertStore>),
}

/// What is to be trusted cannot be.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Not a fingerprint.
    #[error(
        "{0:?} is no fingerprint: it is the SHA-256 of the certificate, as in 3A:0F:..., 64 hexadecimal digits"
    )]
    Fingerprint(String),
    /// No certificates.
    #[error("cannot read certificates in PEM from {0}")]
    File(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// Certificates that sign nothing.
    #[error("what is in {0} is no certificate of an authority")]
    Unfit(PathBuf, #[source] rustls::Error),
    /// None.
    #[error("{0} has no certificate in PEM")]
    Empty(PathBuf),
}

impl FromStr for Fingerprint {
    type Err = TrustError;

    fn from_str(text: &str) -> Result<Fingerprint, TrustError> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let mut fingerprint = [0; 32];
        let pairs = digits.chunks(2).map(|pair| {
            let pair =
                std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()));
            u8::from_str_radix(pair?, 16).ok()
        });
        let bytes: Option<Vec<u8>> = pairs.collect();
        match bytes {
            Some(bytes) if digits.len() == 64 => fingerprint.copy_from_slice(&bytes),
            _ => return Err(TrustError::Fingerprint(text.to_owned())),
        }
        Ok(Fingerprint(fingerprint))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Trust {
    /// The authorities whose certificates are in a file, in PEM.
    ///
    /// # Errors
    /// See [`TrustError`].
    pub fn authorities(file: &Path) -> Result<Trust, TrustError> {
        let unread = |error| TrustError::File(file.to_owned(), error);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(file).map_err(unread)? {
            let added = roots.add(certificate.map_err(unread)?);
            added.map_err(|error| TrustError::Unfit(file.to_owned(), error))?;
        }
        if roots.is_empty() {
            return Err(TrustError::Empty(file.to_owned()));
        }
        Ok(Trust::Authorities(Arc::new(roots)))
    }

    /// What does TLS for a client that trusts so.
    pub(super) fn connector(&self) -> Tls {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider knows TLS 1.3");
        let config = match self {
            Trust::Fingerprint(fingerprint) => {
                let pinned = Pinned { fingerprint: *fingerprint, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned)).with_no_client_auth()
            }
            Trust::Authorities(roots) => {
                builder.with_root_certificates(Arc::clone(roots)).with_no_client_auth()
            }
        };
        Tls(Arc::new(config))
    }
}

/// Takes one certificate and no other. That the other end has its key is proved by the handshake's signature, as always.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint(Sha256::digest(end_entity).into());
        match shown == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(rustls::Error::General(format!("its certificate has the fingerprint {shown}"))),
        }
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
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Does TLS over a connection whose URL asks for it.
#[derive(Debug)]
pub(super) struct Tls(Arc<ClientConfig>);

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
        let name = name.map_err(|_| ureq::Error::Tls("the host is no name and no address"))?;
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

/// A connection by TLS.
pub(super) struct Encrypted {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed_and_without_colons() {
        let text =
            "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF";
        let read: Fingerprint = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!(text.replace(':', "").to_lowercase().parse::<Fingerprint>().unwrap(), read);
        for wrong in ["", "00:11", &text[1..], &format!("{text}:00"), &text.replace("AA", "+A"), "sha256"] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
