//! TLS to a node, whose certificate is known by its fingerprint or by who has signed it.
//!
//! A node's own certificate is signed by nobody, and says nothing that whoever listens in its place could not
//! say, too. So it is not looked at but for its fingerprint, which the node prints at its start: what is
//! behind a fingerprint nobody else can show and use. Nothing is sent to who shows another one, no token
//! above all.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use https::{AuthoritiesError, Tls, authorities, client, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, PeerIncompatible, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// SHA-256 of a node's certificate, as the node prints it at its start: pairs of hexadecimal digits, with or
/// without colons between them.
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
        "{0:?} is not a fingerprint: it is the SHA-256 of the certificate, 64 hexadecimal digits such as 3A:0F:..."
    )]
    Fingerprint(String),
    /// No certificates of authorities.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
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
        Ok(Trust::Authorities(Arc::new(authorities(file)?)))
    }

    /// What does TLS for a client that trusts so.
    pub(super) fn connector(&self) -> Tls {
        Tls::new(match self {
            Trust::Fingerprint(fingerprint) => {
                let pinned = Pinned { fingerprint: *fingerprint, provider: provider() };
                client().dangerous().with_custom_certificate_verifier(Arc::new(pinned)).with_no_client_auth()
            }
            Trust::Authorities(roots) => {
                client().with_root_certificates(Arc::clone(roots)).with_no_client_auth()
            }
        })
    }
}

/// Takes one certificate and no other. That the other end has its key is proved by the handshake's signature,
/// as always.
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
