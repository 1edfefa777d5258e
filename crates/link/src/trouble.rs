//! Why two nodes have no link: codes and facts that nodes may send each other, and their words for whoever
//! shows them. What a library says beyond that is only in the log of the node.

use std::io::Error;

use rustls::CertificateError;
use serde::{Deserialize, Serialize};

use crate::hello::{Refusal, Refused};

/// Why a connection between two nodes did not become a link.
///
/// `errno` is an error number of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum LinkTrouble {
    #[error("its address is not known")]
    NoAddress,
    #[error("cannot connect: {}", Error::from_raw_os_error(*errno))]
    Unreached { errno: i32 },
    #[error("handshake timeout: something else may be listening at this address")]
    HandshakeTimeout,
    #[error("the connection failed: {}", Error::from_raw_os_error(*errno))]
    Broken { errno: i32 },
    #[error("the peer closed the connection")]
    Closed,
    #[error("TLS failed: {0}")]
    Tls(TlsTrouble),
    #[error("the peer at this address is not a node of a cluster: correct the address")]
    Foreign,
    #[error("the peer sent more data than expected")]
    TooMuch,
    #[error("refused by the other node: {0}")]
    ByPeer(Refused),
    #[error("refused by this node: {0}")]
    ByMe(Refused),
}

impl LinkTrouble {
    /// Why the peer refused, if it did.
    pub(crate) fn refusal_of_peer(self) -> Option<Refusal> {
        match self {
            LinkTrouble::ByPeer(refused) => Some(refused.refusal),
            _ => None,
        }
    }
}

/// Why TLS failed between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
#[serde(rename_all = "kebab-case")]
pub enum TlsTrouble {
    #[error(
        "the certificate belongs to another node: correct the address of the member, or give the node its own credentials"
    )]
    OtherNode,
    #[error(
        "the certificate is not signed by this cluster's CA: let the node that does not belong to the cluster join it"
    )]
    OtherAuthority,
    #[error("the peer presented no certificate: let it join the cluster")]
    NoCertificate,
    #[error("the peer does not accept this node; see its log for the cause")]
    NotAccepted,
    #[error("the peer may not be a node of a cluster")]
    Other,
}

impl From<&rustls::Error> for TlsTrouble {
    fn from(error: &rustls::Error) -> TlsTrouble {
        match error {
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => TlsTrouble::OtherNode,
            rustls::Error::InvalidCertificate(_) => TlsTrouble::OtherAuthority,
            rustls::Error::NoCertificatesPresented => TlsTrouble::NoCertificate,
            rustls::Error::AlertReceived(_) => TlsTrouble::NotAccepted,
            _ => TlsTrouble::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versions;

    #[test]
    fn codes_and_facts_are_sent() {
        let refused = |refusal| Refused { refusal, ours: Versions::CURRENT, theirs: Versions::CURRENT };
        for (trouble, sent) in [
            (LinkTrouble::Closed, r#""closed""#),
            (LinkTrouble::Unreached { errno: 111 }, r#"{"unreached":{"errno":111}}"#),
            (LinkTrouble::Tls(TlsTrouble::OtherNode), r#"{"tls":"other-node"}"#),
            (
                LinkTrouble::ByPeer(refused(Refusal::Membership)),
                r#"{"by-peer":{"refusal":3,"ours":[1,1],"theirs":[1,1]}}"#,
            ),
            // A node of a later version may have been refused for a reason that this one does not know.
            (
                LinkTrouble::ByMe(refused(Refusal::Later(99))),
                r#"{"by-me":{"refusal":99,"ours":[1,1],"theirs":[1,1]}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&trouble).unwrap(), sent);
            assert_eq!(serde_json::from_str::<LinkTrouble>(sent).unwrap(), trouble);
        }
        for wrong in [
            r#""a sentence""#,
            r#"{"by-peer":{"refusal":0,"ours":[1,1],"theirs":[1,1]}}"#,
            r#"{"by-peer":{"refusal":3,"ours":[2,1],"theirs":[1,1]}}"#,
        ] {
            assert!(serde_json::from_str::<LinkTrouble>(wrong).is_err(), "{wrong}");
        }
    }
}
