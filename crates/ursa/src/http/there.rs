//! `?node=N`: of which node a pool, a session or a volume is that a call is about; their names and numbers
//! are a node's own. Volumes with copies are of the cluster: of these it says which node does it.
//!
//! The node that is asked passes such a call on ([`super::errands`]). Handlers look again
//! (`Control::check_is_here`): what has the same name on another node is another thing.

use axum::extract::Query;
use axum::http::Uri;
use serde::Deserialize;
use utoipa::IntoParams;

/// Of which node.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfNode {
    /// Number of the node that has the object and carries out the call; absent: the queried node.
    #[serde(default)]
    pub(super) node: Option<u16>,
}

/// Of which node, and whether it is done.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AskedOfNode {
    /// Number of the node that has the object and carries out the call; absent: the queried node.
    #[serde(default)]
    pub(super) node: Option<u16>,
    /// Dry run: show what would be done, and change nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// The node that is named, as the handlers read it; `None` also for what they refuse.
pub(super) fn named(uri: &Uri) -> Option<u16> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        node: Option<u16>,
    }
    let Query(Named { node }) = Query::try_from_uri(uri).ok()?;
    node
}

/// What the audit log says of it: `?node=2`, or nothing.
pub(super) fn said(uri: &Uri) -> String {
    named(uri).map(|node| format!("?node={node}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_however_its_parameter_is_written() {
        let named = |query: &str| named(&format!("/v1/pools/a{query}").parse().unwrap());
        for query in ["?node=2", "?dry_run=true&node=2", "?n%6Fde=%32"] {
            assert_eq!(named(query), Some(2), "{query}");
        }
        for query in ["", "?node=all", "?node=", "?node=2&node=3", "?nodes=2", "?node=70000"] {
            assert_eq!(named(query), None, "{query}");
        }
        assert_eq!(said(&"/v1/pools/a?node=2&x=y".parse().unwrap()), "?node=2");
        assert_eq!(said(&"/v1/pools/a".parse().unwrap()), "");
    }
}
