//! The node's record, its audit log, its findings, and its changes in progress.

use api::Severity;

use super::snapshot::Snapshot;
use super::text::{Kind, Text};

pub(super) fn audit(text: &mut Text, is_written: bool) {
    let help = "Whether the audit log can be written: if not, changes through the API are refused, except on the node itself.";
    text.family("ursa_audit_up", Kind::Gauge, help).sample(&[], u8::from(is_written));
}

pub(super) fn write(text: &mut Text, snapshot: &Snapshot) {
    let record = &snapshot.record;
    let up = "Whether the node's record accepts changes.";
    text.family("ursa_record_up", Kind::Gauge, up).sample(&[], u8::from(!record.latched));
    let failed = "Copies of the node's own record, of two, that were damaged or unreadable at the start.";
    text.family("ursa_record_copies_failed", Kind::Gauge, failed)
        .sample(&[], u8::from(record.fault.is_some()));
    let findings = "Findings that this node reports about itself: `ursa status` lists them.";
    let mut family = text.family("ursa_findings", Kind::Gauge, findings);
    for severity in [Severity::Critical, Severity::Warning] {
        let found = snapshot.findings.iter().filter(|found| **found == severity).count();
        family.sample(&[("severity", &severity.to_string())], found);
    }
    let changes = "Changes in progress.";
    text.family("ursa_changes", Kind::Gauge, changes).sample(&[], snapshot.changes.len());
    let oldest = snapshot.changes.iter().max().copied().unwrap_or_default();
    let help = "Age of the oldest change in progress; 0 if there is none.";
    text.family("ursa_change_oldest_seconds", Kind::Gauge, help).sample(&[], oldest.as_secs_f64());
}
