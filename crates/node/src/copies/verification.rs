//! What the cluster's record remembers of comparisons of volumes' copies, as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::VolumeId;

/// How often volumes are compared, in seconds; 0: never; absent: [`VERIFY_EVERY_DEFAULT`].
pub const VERIFY_EVERY: &str = "verify-interval";
/// How often, unless somebody says otherwise.
pub const VERIFY_EVERY_DEFAULT: Duration = Duration::from_secs(30 * 86_400);
/// The shortest interval that can be set.
pub const VERIFY_EVERY_MIN: Duration = Duration::from_secs(3_600);

/// Where it is remembered which volumes have copies that differ.
pub const DIFFERING: &str = "differing-copies/";

/// Where it is remembered how a volume's copies were compared.
pub fn verification_key(id: VolumeId) -> String {
    format!("verification/{id}")
}

/// The key that is there while copies of a volume are known to differ.
pub fn differing_key(id: VolumeId) -> String {
    format!("{DIFFERING}{id}")
}

/// The comparisons of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationEntry {
    /// How the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Verified>,
    /// How far the one is that was begun by schedule and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<VerificationProgress>,
}

/// How a comparison ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// When, in seconds since 1970, by the clock of the node that compared.
    pub at: u64,
    /// That node.
    pub node: u16,
    /// Somebody stopped it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Bytes that differ.
    pub different: u64,
    /// Bytes that could not be compared.
    pub unchecked: u64,
}

/// How far a comparison is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationProgress {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes that were compared, in order.
    pub done: u64,
    /// Bytes that differ among them.
    pub different: u64,
    /// Bytes that could not be compared among them.
    pub unchecked: u64,
    /// The nodes whose copies were compared in all of them.
    pub nodes: BTreeSet<u16>,
}

/// Copies of a volume differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingEntry {
    /// The volume.
    pub id: String,
    /// In how many bytes.
    pub bytes: u64,
    /// The nodes whose copies differ from most others; all, if there is no majority.
    pub nodes: BTreeSet<u16>,
}
