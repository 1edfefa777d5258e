//! Severities of events and findings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Severity of an event or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information. A finding: it works as configured, but could be better.
    Info,
    /// Needs attention. A finding: all volumes are served, with less redundancy than configured, or
    /// something else is wrong.
    Warning,
    /// Something is lost. An event also: one fault away from being lost.
    Critical,
}
