//! The credentials by which a node proves its identity.

use std::path::Path;

use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::KeyPair;
use replica::NodeId;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::authority::CERTIFICATE_FILE as AUTHORITY_FILE;
use super::{CredentialsError, files};
use crate::ClusterId;
use crate::tls;

/// The name of the file with the node's key, in the directory of its credentials.
pub const NODE_KEY_FILE: &str = "node-key.pem";
const CERTIFICATE_FILE: &str = "node.pem";

/// The key and the certificate of a node, and the certificate of its cluster's authority. They match.
pub struct NodeCredentials {
    cluster: ClusterId,
    node: NodeId,
    key: KeyPair,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
}

base::shows!(Debug for NodeCredentials, |it| "NodeCredentials({} of cluster {})", it.node, it.cluster);

impl NodeCredentials {
    /// Credentials of these parts.
    pub(crate) fn new(
        cluster: ClusterId,
        node: NodeId,
        key: KeyPair,
        certificate: CertificateDer<'static>,
        authority: CertificateDer<'static>,
    ) -> Result<NodeCredentials, CredentialsError> {
        let credentials = NodeCredentials { cluster, node, key, certificate, authority };
        tls::Configs::new(&credentials).map_err(CredentialsError::Mismatch)?;
        Ok(credentials)
    }

    /// Reads the credentials of a node from the files in a directory.
    pub fn load(
        directory: &Path,
        cluster: ClusterId,
        node: NodeId,
    ) -> Result<NodeCredentials, CredentialsError> {
        let read = |file| files::read(&directory.join(file));
        let key = KeyPair::from_pem(&read(NODE_KEY_FILE)?)
            .map_err(|_| CredentialsError::Invalid { what: "the node's key" })?;
        let certificate = CertificateDer::from_pem_slice(read(CERTIFICATE_FILE)?.as_bytes())
            .map_err(|_| CredentialsError::Invalid { what: "the node's certificate" })?;
        let authority = CertificateDer::from_pem_slice(read(AUTHORITY_FILE)?.as_bytes())
            .map_err(|_| CredentialsError::Invalid { what: "the certificate of the cluster CA" })?;
        NodeCredentials::new(cluster, node, key, certificate, authority)
    }

    /// Writes the credentials into an existing directory: `node-key.pem`, `node.pem` and `authority.pem`, of
    /// mode 0600.
    pub fn save(&self, directory: &Path) -> Result<(), CredentialsError> {
        files::write(&directory.join(AUTHORITY_FILE), &certificate_pem(&self.authority))?;
        files::write(&directory.join(CERTIFICATE_FILE), &certificate_pem(&self.certificate))?;
        files::write(&directory.join(NODE_KEY_FILE), &self.key.serialize_pem())?;
        Ok(())
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The certificate of the cluster's authority.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// A certificate in PEM.
pub(super) fn certificate_pem(certificate: &CertificateDer<'_>) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", certificate.as_ref()), config)
}
