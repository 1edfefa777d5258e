//! What jobs are found by: those of different nodes by different texts.

use ::node::VolumeId;
use axum::http::HeaderName;
use axum::http::header::LOCATION;

/// Of what is done with the copy of a volume, by its identity, on a node.
pub(in crate::http) fn of_copy(volume: &str, node: u16) -> String {
    format!("copy.{volume}.{node}")
}

/// Of a comparison of a volume's copies by a node.
pub(in crate::http) fn of_verification(volume: VolumeId, node: Option<u16>) -> String {
    with_node(format!("verify.{volume}"), node)
}

/// Of a change of a node, which may be in no cluster.
pub(in crate::http) fn of_change(number: u64, node: Option<u16>) -> String {
    with_node(format!("change.{number}"), node)
}

fn with_node(id: String, node: Option<u16>) -> String {
    match node {
        Some(node) => format!("{id}.{node}"),
        None => id,
    }
}

/// The volume's identity in a job's; of a change something else.
pub(super) fn volume_of(id: &str) -> &str {
    id.split('.').nth(1).unwrap_or_default()
}

/// The node whose own job it is; `None`: it is the cluster's, or of a node in no cluster.
pub(in crate::http) fn node_of(id: &str) -> Option<u16> {
    let mut parts = id.split('.');
    match parts.next()? {
        "verify" | "change" => parts.nth(1)?.parse().ok(),
        _ => None,
    }
}

/// Where a job is told of.
pub(in crate::http) fn path(id: &str) -> String {
    format!("/v1/jobs/{id}")
}

/// The header that says where it is told how far the job is, and how it has ended.
pub(in crate::http) fn location(id: &str) -> [(HeaderName, String); 1] {
    [(LOCATION, path(id))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_whose_it_is() {
        let volume = VolumeId([7; 16]);
        let verify = of_verification(volume, Some(2));
        assert_eq!((volume_of(&verify), node_of(&verify)), (volume.to_string().as_str(), Some(2)));
        assert_eq!(node_of(&of_change(5, Some(3))), Some(3));
        assert_eq!(node_of(&of_change(5, None)), None);
        let copy = of_copy("ab", 3);
        assert_eq!((volume_of(&copy), node_of(&copy)), ("ab", None), "the cluster's");
        for id in ["", "verify", "verify.ab", "verify.ab.x", "change.1.70000", "other.1.2"] {
            assert_eq!(node_of(id), None, "{id:?}");
        }
        assert_eq!(location("change.5.3")[0].1, "/v1/jobs/change.5.3");
    }
}
