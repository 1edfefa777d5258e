//! Which events are wanted, of all that a node remembers.

use api::{Event, Severity};
use serde::{Deserialize, Serialize};

use super::invalid;
use crate::http::refusal::Refusal;

/// Characters of a subject: the longest are paths of disks, and Linux takes so many bytes of one.
const SUBJECT_MAX: usize = 4096;

/// What events must be like; without anything all are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wanted {
    /// What they have happened to: the name that it had then, or a volume's identity.
    pub(super) subject: Option<String>,
    /// How grave they are at least.
    pub(super) severity: Option<Severity>,
}

impl Wanted {
    /// # Errors
    /// 400: nothing has so long a name.
    pub(super) fn of(subject: Option<String>, severity: Option<Severity>) -> Result<Wanted, Refusal> {
        match subject.as_ref().is_some_and(|subject| subject.chars().count() > SUBJECT_MAX) {
            true => Err(invalid(&format!("`subject` can have at most {SUBJECT_MAX} characters"))),
            false => Ok(Wanted { subject, severity }),
        }
    }

    /// Whether it is one of them.
    pub(super) fn has(&self, event: &Event) -> bool {
        let is_grave = self.severity.is_none_or(|least| event.severity >= least);
        let is_of = |subject: &String| {
            [&event.subject, &event.subject_id].into_iter().flatten().any(|it| it == subject)
        };
        is_grave && self.subject.as_ref().is_none_or(is_of)
    }
}
