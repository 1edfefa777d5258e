//! The names of nodes in certificates.

use replica::NodeId;
use rustls::pki_types::ServerName;

use crate::ClusterId;

/// The DNS name of a node in its certificate.
pub(super) fn dns_name(cluster: ClusterId, node: NodeId) -> String {
    format!("node-{}.{cluster}.ursa.internal", node.0)
}

/// The same name as a TLS server name.
pub(crate) fn server_name(cluster: ClusterId, node: NodeId) -> ServerName<'static> {
    ServerName::try_from(dns_name(cluster, node))
        .expect("letters, digits, hyphens and dots, in labels shorter than 64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_node_and_the_cluster() {
        let cluster = ClusterId(*b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff");
        assert_eq!(dns_name(cluster, NodeId(7)), "node-7.000102030405060708090a0b0c0d0eff.ursa.internal");
        assert_eq!(
            server_name(cluster, NodeId(u16::MAX)).to_str(),
            "node-65535.000102030405060708090a0b0c0d0eff.ursa.internal"
        );
    }
}
