//! IDs of jobs, which are unique in the cluster.

use ::node::VolumeId;
use axum::http::HeaderName;
use axum::http::header::LOCATION;
use store::PoolId;

/// The ID of a job on the copy of a volume, by the volume's ID and the copy's node.
pub(in crate::http) fn of_copy(volume: &str, node: u16) -> String {
    format!("copy.{volume}.{node}")
}

pub(in crate::http) fn of_verification(volume: VolumeId, node: u16) -> String {
    format!("verify.{volume}.{node}")
}

pub(in crate::http) fn of_scrub(volume: VolumeId, node: u16) -> String {
    format!("scrub.{volume}.{node}")
}

pub(in crate::http) fn of_conversion(volume: VolumeId, node: u16) -> String {
    format!("convert.{volume}.{node}")
}

/// The ID of the freeing of space in a pool.
pub(super) fn of_freeing(pool: PoolId, node: u16) -> String {
    format!("free.{pool}.{node}")
}

/// The pool in the ID of a job that frees space there.
pub(super) fn pool_of(id: &str) -> Option<PoolId> {
    PoolId::parse(id.strip_prefix("free.")?.split('.').next()?)
}

pub(in crate::http) fn of_change(number: u64, node: u16) -> String {
    format!("change.{number}.{node}")
}

/// The volume's ID in the ID of a job. For a change, something else.
pub(super) fn volume_of(id: &str) -> &str {
    id.split('.').nth(1).unwrap_or_default()
}

/// The node to which the job belongs; `None`: it belongs to the cluster.
pub(in crate::http) fn node_of(id: &str) -> Option<u16> {
    let mut parts = id.split('.');
    match parts.next()? {
        "verify" | "scrub" | "convert" | "free" | "change" => parts.nth(1)?.parse().ok(),
        _ => None,
    }
}

/// The path of a job in the API.
pub(in crate::http) fn path(id: &str) -> String {
    format!("/v1/jobs/{id}")
}

/// The `Location` header that refers to a job.
pub(in crate::http) fn location(id: &str) -> [(HeaderName, String); 1] {
    [(LOCATION, path(id))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_whose_it_is() {
        let volume = VolumeId([7; 16]);
        let verify = of_verification(volume, 2);
        assert_eq!((volume_of(&verify), node_of(&verify)), (volume.to_string().as_str(), Some(2)));
        assert_eq!(node_of(&of_scrub(volume, 4)), Some(4));
        assert_eq!(node_of(&of_conversion(volume, 4)), Some(4));
        assert_eq!(node_of(&of_change(5, 3)), Some(3));
        let free = of_freeing(PoolId([9; 16]), 2);
        assert_eq!((pool_of(&free), node_of(&free)), (Some(PoolId([9; 16])), Some(2)));
        assert_eq!((pool_of(&verify), pool_of("free.ab.2")), (None, None));
        let copy = of_copy("ab", 3);
        assert_eq!((volume_of(&copy), node_of(&copy)), ("ab", None), "the cluster's");
        for id in ["", "verify", "verify.ab", "verify.ab.x", "change.1.70000", "other.1.2"] {
            assert_eq!(node_of(id), None, "{id:?}");
        }
        assert_eq!(location("change.5.3")[0].1, "/v1/jobs/change.5.3");
    }
}
