//! Severities of events and findings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Severity of an event or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information. A finding: it works as configured, but could be better.
    Info,
    /// Act in working hours: everything is served, but with less redundancy than configured, or something
    /// else is wrong.
    Warning,
    /// Act now: hosts are not served, or data is lost; or a part has failed, and the next failure can do
    /// that.
    Critical,
}
