//! Inquiries: questions of other nodes about events and the audit log, which belong to the HTTP interface.
//!
//! Core 0 receives a question and hands it over to the control plane's thread. There, reading files and
//! converting many events to JSON does not delay hosts. The node that asks has checked the caller's role: for
//! the audit log, an administrator.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::node::control::QUERY_DEADLINE;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};

use super::audit::AuditTrouble;
use super::state::State;
use super::{audit, events};

/// The number of questions that may wait. Each node asks for what its users look at.
const WAITING_MAX: usize = 64;

/// The number of concurrent reads of the audit log. Each takes a thread for as long as the disk takes.
const READS_AT_ONCE_MAX: usize = 8;

/// How long an answer may take. The asking node gives up after [`QUERY_DEADLINE`], and should get an answer
/// before.
const ANSWER_DEADLINE: Duration = Duration::from_millis(1500);

const _: () = assert!(ANSWER_DEADLINE.as_millis() < QUERY_DEADLINE.as_millis());

/// A question about what belongs to the HTTP interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Inquiry {
    Events(events::Question),
    Audit(audit::AuditFilter),
}

/// Why a node has not answered a question. Nodes send it to each other as JSON; texts in it are errors of the
/// JSON parser.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unanswered {
    #[error("it already has {0} such requests waiting, or is stopping")]
    TooMany(usize),
    #[error("it is stopping")]
    Stopping,
    #[error("it did not answer within {0} ms")]
    Late(u64),
    #[error("{0} reads of its audit log are already in progress")]
    AuditBusy(usize),
    #[error("its audit log cannot be read: {0}")]
    AuditUnreadable(AuditTrouble),
    #[error("its answer cannot be read: {0}")]
    Strange(String),
}

/// A question on its way from core 0.
struct QueuedQuestion {
    inquiry: Inquiry,
    answer: rt::sync::Sender<String>,
}

/// The channel from core 0, where links end, to the task that answers.
pub struct Inquiries {
    sender: mpsc::Sender<QueuedQuestion>,
    receiver: Mutex<Option<mpsc::Receiver<QueuedQuestion>>>,
}

impl Default for Inquiries {
    fn default() -> Inquiries {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Inquiries { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Inquiries {
    /// The answer, as [`read`] parses it. Runs on core 0.
    pub(super) async fn answer(&self, inquiry: Inquiry) -> String {
        let (answer, answered) = rt::sync::oneshot();
        if self.sender.try_send(QueuedQuestion { inquiry, answer }).is_err() {
            return refused(Unanswered::TooMany(WAITING_MAX));
        }
        match rt::timeout(ANSWER_DEADLINE, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(rt::sync::Closed)) => refused(Unanswered::Stopping),
            Err(rt::Elapsed) => refused(Unanswered::Late(ANSWER_DEADLINE.as_millis() as u64)),
        }
    }
}

/// Answers questions of other nodes for as long as the node runs.
pub(super) async fn answer_all(state: State) {
    let receiver = state.inquiries.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut given) = receiver else { return };
    let room = Arc::new(Semaphore::new(READS_AT_ONCE_MAX));
    while let Some(QueuedQuestion { inquiry, answer }) = given.recv().await {
        match inquiry {
            Inquiry::Events(question) => answer.send(written(&Ok(question.shown(&state.events)))),
            Inquiry::Audit(wanted) => {
                // The disk may hang: then further questions are refused instead of blocking more threads.
                let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                    answer.send(refused(Unanswered::AuditBusy(READS_AT_ONCE_MAX)));
                    continue;
                };
                let access = Arc::clone(&state.access);
                tokio::spawn(async move {
                    answer.send(written(&access.audit.shown(wanted).await));
                    drop(permit);
                });
            }
        }
    }
}

/// Parses another node's answer.
///
/// # Errors
/// Why there is none.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Unanswered> {
    let answer: Result<Result<T, Unanswered>, _> = serde_json::from_str(text);
    answer.unwrap_or_else(|error| Err(Unanswered::Strange(error.to_string())))
}

fn refused(reason: Unanswered) -> String {
    written::<()>(&Err(reason))
}

fn written<T: Serialize>(answer: &Result<T, Unanswered>) -> String {
    serde_json::to_string(answer).expect("texts and numbers can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        assert_eq!(read::<Vec<u64>>(&written(&Ok(vec![1_u64, 2]))), Ok(vec![1, 2]));
        assert_eq!(read::<Vec<u64>>(&refused(Unanswered::Stopping)), Err(Unanswered::Stopping));
        assert!(matches!(read::<Vec<u64>>("[]"), Err(Unanswered::Strange(_))));
    }

    #[test]
    fn a_question_too_many_is_refused_at_once() {
        let inquiries = Inquiries::default();
        let inquiry = || Inquiry::Audit(audit::AuditFilter { limit: 1, before: None, until: None });
        // No task answers yet.
        let given = |_| {
            let (answer, _) = rt::sync::oneshot();
            inquiries.sender.try_send(QueuedQuestion { inquiry: inquiry(), answer }).is_ok()
        };
        assert!((0..WAITING_MAX).all(given));
        let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = tokio.block_on(inquiries.answer(inquiry()));
        assert_eq!(read::<Vec<u64>>(&answer), Err(Unanswered::TooMany(WAITING_MAX)));
    }
}
