//! The filter for events.

use api::{Event, Severity};
use serde::{Deserialize, Serialize};

use super::invalid;
use crate::http::refusal::Refusal;

/// The greatest length of a subject in characters. The longest subjects are paths of disks, and Linux limits
/// paths to 4096 bytes.
const SUBJECT_MAX: usize = 4096;

/// The conditions that events have to meet. Without conditions, all events are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EventFilter {
    /// The subject of the event: its name at that time, or a volume's ID.
    pub(super) subject: Option<String>,
    /// The lowest severity.
    pub(super) severity: Option<Severity>,
}

impl EventFilter {
    /// # Errors
    /// 400: the subject is too long.
    pub(super) fn of(subject: Option<String>, severity: Option<Severity>) -> Result<EventFilter, Refusal> {
        match subject.as_ref().is_some_and(|subject| subject.chars().count() > SUBJECT_MAX) {
            true => Err(invalid(&format!("`subject` can have at most {SUBJECT_MAX} characters"))),
            false => Ok(EventFilter { subject, severity }),
        }
    }

    /// Whether the event meets the conditions.
    pub(super) fn has(&self, event: &Event) -> bool {
        let is_grave = self.severity.is_none_or(|least| event.severity >= least);
        let is_of = |subject: &String| {
            [&event.subject, &event.subject_id].into_iter().flatten().any(|it| it == subject)
        };
        is_grave && self.subject.as_ref().is_none_or(is_of)
    }
}
