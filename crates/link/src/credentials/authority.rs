//! The certificate authority of a cluster.

use std::net::SocketAddr;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
};
use replica::NodeId;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::name::dns_name;
use super::{CredentialsError, NodeCredentials, OpenToken, Secret, Token, UnixSeconds, files, fingerprint};
use crate::{ClusterId, JoinRequest};

const KEY_FILE: &str = "authority-key.pem";
pub(super) const CERTIFICATE_FILE: &str = "authority.pem";

/// Signs the certificates of a cluster's nodes.
///
/// Its owner can let any machine into the cluster.
pub struct ClusterAuthority {
    cluster: ClusterId,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

base::shows!(Debug for ClusterAuthority, |it| "ClusterAuthority({})", it.cluster);

impl ClusterAuthority {
    /// Creates the authority of a new cluster.
    ///
    /// # Errors
    /// If the system has no random numbers for a key.
    pub fn create(cluster: ClusterId) -> Result<ClusterAuthority, CredentialsError> {
        let make = |source| CredentialsError::Make { what: "the cluster CA", source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
        let certificate = authority_params(cluster).self_signed(&key).map_err(make)?.der().clone();
        Ok(ClusterAuthority { cluster, issuer: Issuer::new(authority_params(cluster), key), certificate })
    }

    /// Reads the authority of a cluster from the files in a directory.
    pub fn load(directory: &Path, cluster: ClusterId) -> Result<ClusterAuthority, CredentialsError> {
        let key = files::read(&directory.join(KEY_FILE))?;
        let certificate = files::read(&directory.join(CERTIFICATE_FILE))?;
        ClusterAuthority::from_pem(cluster, &key, &certificate)
    }

    /// Writes the authority into an existing directory: `authority-key.pem` and `authority.pem`, of mode
    /// 0600.
    pub fn save(&self, directory: &Path) -> Result<(), CredentialsError> {
        files::write(&directory.join(KEY_FILE), &self.key_pem())?;
        files::write(&directory.join(CERTIFICATE_FILE), &super::node::certificate_pem(&self.certificate))?;
        Ok(())
    }

    /// The authority with this key and certificate, in PEM, as it is sent to another member.
    pub fn from_pem(
        cluster: ClusterId,
        key: &str,
        certificate: &str,
    ) -> Result<ClusterAuthority, CredentialsError> {
        let key = KeyPair::from_pem(key)
            .map_err(|_| CredentialsError::Invalid { what: "the key of the cluster CA" })?;
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| CredentialsError::Invalid { what: "the certificate of the cluster CA" })?;
        let authority =
            ClusterAuthority { cluster, issuer: Issuer::new(authority_params(cluster), key), certificate };
        // Signing and checking a certificate shows that the three match.
        authority.issue(NodeId(0))?;
        Ok(authority)
    }

    /// The key in PEM, which is secret.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The certificate in DER, which every node trusts.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The cluster of this authority.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Creates key and certificate of a node.
    ///
    /// # Errors
    /// If the system has no random numbers for a key.
    pub fn issue(&self, node: NodeId) -> Result<NodeCredentials, CredentialsError> {
        let make = |source| CredentialsError::Make { what: "the node's key", source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
        let certificate = self.sign_key(node, &key)?;
        NodeCredentials::new(self.cluster, node, key, certificate, self.certificate.clone())
    }

    /// Signs the certificate of a joining node.
    pub fn sign(
        &self,
        node: NodeId,
        request: &JoinRequest,
    ) -> Result<CertificateDer<'static>, CredentialsError> {
        self.sign_key(node, &PublicKey(&request.public_key))
    }

    /// Creates a token that lets one node join through a member that listens at these addresses. Also returns
    /// what the member keeps of it.
    pub fn token(
        &self,
        member: NodeId,
        addresses: Vec<SocketAddr>,
        expires: UnixSeconds,
    ) -> (Token, OpenToken) {
        let secret = Secret::new();
        let open = OpenToken { digest: secret.digest(), expires };
        let authority = fingerprint(&self.certificate);
        (Token { cluster: self.cluster, member, addresses, authority, secret, expires }, open)
    }

    fn sign_key(
        &self,
        node: NodeId,
        key: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, CredentialsError> {
        let make = |source| CredentialsError::Make { what: "the node's certificate", source };
        let mut params = params(&format!("Ursa {node} of cluster {}", self.cluster));
        let name = dns_name(self.cluster, node).try_into().map_err(make)?;
        params.subject_alt_names = vec![SanType::DnsName(name)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.issuer).map_err(make)?.der().clone())
    }
}

/// The public key of another node. The node proves that it has the private key when it uses the certificate.
struct PublicKey<'a>(&'a [u8]);

impl PublicKeyData for PublicKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// The parameters of the authority's certificate, which depend only on the cluster's identity and the key.
fn authority_params(cluster: ClusterId) -> CertificateParams {
    let mut params = params(&format!("Ursa cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// A certificate that does not expire: its times are the library's defaults, 1975 and 4096.
fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
