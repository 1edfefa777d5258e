//! How the node's record is.

use node::control::RecordStatus;

use super::text::{Kind, Text};

pub(super) fn write(text: &mut Text, record: &RecordStatus) {
    let up = "Whether the node's record takes changes.";
    text.family("ursa_record_up", Kind::Gauge, up).sample(&[], u8::from(!record.latched));
    let failed = "Copies of the node's record, of two, that were damaged or could not be read at the start.";
    text.family("ursa_record_copies_failed", Kind::Gauge, failed)
        .sample(&[], u8::from(record.fault.is_some()));
}
