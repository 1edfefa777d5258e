//! TLS to a node whose certificate is verified by its fingerprint or by the authority that signed it.
//!
//! A node's own certificate is self-signed: its content proves nothing, as any server could show the same. So
//! the client checks only its fingerprint, which the node prints when it starts: no other server has the
//! private key for that certificate. The client sends nothing, in particular no token, to a server with a
//! different fingerprint.

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

/// The SHA-256 of a node's certificate, as the node prints it when it starts: pairs of hexadecimal digits,
/// with or without colons between them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// How a node's certificate is verified.
#[derive(Clone, Debug)]
pub enum Trust {
    /// It has this fingerprint.
    Fingerprint(Fingerprint),
    /// One of these authorities has signed it, for the name or address by which the node is reached.
    Authorities(Arc<RootCertStore>),
}

/// Why a trust setting is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The text is not a fingerprint.
    #[error(
        "{0:?} is not a fingerprint: use the SHA-256 of the certificate, 64 hexadecimal digits such as 3A:0F:..."
    )]
    Fingerprint(String),
    /// The file has no certificates of authorities.
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
    /// Trusts the authorities whose certificates are in a file, in PEM.
    pub fn authorities(file: &Path) -> Result<Trust, TrustError> {
        Ok(Trust::Authorities(Arc::new(authorities(file)?)))
    }

    /// The TLS connector of a client with this trust setting.
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

/// Accepts exactly one certificate. As always, the signature in the handshake proves that the server has its
/// private key.
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
