//! `?node=N`: the node whose pool, session or volume a call is about, since such names and numbers are unique
//! only within a node. Volumes with copies belong to the cluster: for them the parameter selects the node
//! that executes the call.
//!
//! The queried node forwards the call ([`super::forwarding`]). Handlers check the node again
//! (`State::call_on`), since the same name on another node means a different object.

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

/// The node that the query names, parsed as handlers do; `None` also if they refuse it.
pub(super) fn named(uri: &Uri) -> Option<u16> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        node: Option<u16>,
    }
    let Query(Named { node }) = Query::try_from_uri(uri).ok()?;
    node
}

/// How the audit log shows it: `?node=2`, or nothing.
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
