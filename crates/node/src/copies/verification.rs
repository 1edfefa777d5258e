//! What the cluster's record stores about verifications, which compare the copies of volumes; as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use store::VolumeId;

/// The key of the interval at which volumes are verified.
///
/// The value is in seconds; 0: never; absent: [`VERIFY_EVERY_DEFAULT`].
pub const VERIFY_EVERY: &str = "verify-interval";
/// The interval at which volumes are verified, unless an administrator sets another one.
pub const VERIFY_EVERY_DEFAULT: Duration = Duration::from_secs(30 * 86_400);
/// The shortest interval that can be set.
pub const VERIFY_EVERY_MIN: Duration = Duration::from_secs(3_600);

/// The key of the turn: which node compares by schedule. There is one turn in the cluster.
pub const VERIFICATION_TURN: &str = "verification-turn";

/// The prefix of the keys of volumes' verifications.
pub const VERIFICATIONS: &str = "verification/";
/// The prefix of the keys of volumes whose copies differ.
pub const DIFFERING: &str = "differing-copies/";

/// The key of a volume's verifications.
pub fn verification_key(id: VolumeId) -> String {
    format!("{VERIFICATIONS}{id}")
}

/// The key that exists while copies of a volume are known to differ.
pub fn differing_key(id: VolumeId) -> String {
    format!("{DIFFERING}{id}")
}

/// The verifications of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationEntry {
    /// How the last one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Verified>,
    /// The progress of the one that was started by schedule and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<VerificationProgress>,
}

/// How a verification ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// When it ended, in seconds since 1970, by the clock of the node that compared the copies.
    pub at: u64,
    /// That node.
    pub node: u16,
    /// Whether a user stopped it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Bytes that differ.
    pub different: u64,
    /// Bytes that could not be compared.
    pub unchecked: u64,
}

/// The progress of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationProgress {
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// The size of the volume in bytes.
    pub size: u64,
    /// Bytes that have been compared, from the start of the volume.
    pub done: u64,
    /// Bytes of these that differ.
    pub different: u64,
    /// Bytes that could not be compared.
    pub unchecked: u64,
    /// The nodes whose copies took part in all of that.
    pub nodes: BTreeSet<u16>,
}

/// The node that has the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationTurn {
    /// Its number.
    pub node: u16,
    /// The life of this node.
    pub life: u64,
    /// The identity of the volume that it compares.
    pub volume: String,
}

/// A volume whose copies differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingEntry {
    /// The volume's identity.
    pub id: String,
    /// The number of bytes that differ.
    pub bytes: u64,
    /// The nodes whose copies differ from most others; all, if there is no majority.
    pub nodes: BTreeSet<u16>,
}
