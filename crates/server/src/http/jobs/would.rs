//! Dry runs of a job's cancellation, and the reasons against one.

use std::rc::Rc;

use ::node::Control;
use api::{Job, JobKind};
use axum::http::StatusCode;
use axum::response::Response;
use base::ByteLen;

use super::id::volume_of;
use crate::http::dry_run;
use crate::http::refusal::Refusal;
use crate::http::state::State;

pub(super) async fn cancel(state: &State, job: &Job) -> Result<Response, Refusal> {
    let (volume, node) = (volume_of(&job.id).to_owned(), job.node);
    match job.kind {
        JobKind::AddCopy | JobKind::MoveCopy => {
            let check =
                move |control: Rc<Control>| async move { control.check_cancelled_copy(&volume, node) };
            state.call(check).await?;
        }
        JobKind::RemoveCopy => {
            state.call(move |control| async move { control.check_kept_copy(&volume, node) }).await?;
        }
        JobKind::Verify | JobKind::Scrub | JobKind::Convert => {}
        JobKind::Sync | JobKind::FreeSnapshots | JobKind::Change => return Err(not_cancellable(job)),
    }
    Ok(dry_run::would(cancelling(job), Vec::new()))
}

fn cancelling(job: &Job) -> Vec<String> {
    let (volume, node) = (&job.subject, job.node);
    match (job.kind, job.from_node) {
        (JobKind::RemoveCopy, _) => vec![
            format!("the copy of volume {volume} on node {node} stays"),
            "it is resynced, if it missed writes".to_owned(),
        ],
        (JobKind::Verify, _) => {
            vec![format!("the verify of volume {volume} stops before everything is compared")]
        }
        (JobKind::Scrub, _) => {
            vec![format!("the scrub of volume {volume} stops before everything is read, and does not resume")]
        }
        (JobKind::Convert, _) => vec![
            format!("volume {volume} keeps its former kind"),
            "copies that have been converted already are converted back".to_owned(),
        ],
        (_, from) => {
            let done = job.bytes_done.map(|bytes| format!(", with the {} copied so far", ByteLen(bytes)));
            let done = done.unwrap_or_default();
            let mut steps = vec![format!("the new copy of volume {volume} on node {node} is removed{done}")];
            steps.extend(from.map(|from| format!("the copy on node {from} stays")));
            steps
        }
    }
}

/// The refusal to cancel a job of a kind that always runs to its end.
pub(super) fn not_cancellable(job: &Job) -> Refusal {
    let (detail, hint) = match job.kind {
        JobKind::Sync => {
            let (volume, node) = (&job.subject, job.node);
            let detail = format!(
                "a resync cannot be cancelled: the copy of volume {volume:?} on node {node} provides no redundancy until it is in sync"
            );
            let hint = format!(
                "pause it, slow it down with `ursa node resync-limit`, or remove the copy: `ursa volume copy remove {volume} --on {node}`"
            );
            (detail, hint)
        }
        JobKind::FreeSnapshots => (
            format!("freeing snapshots in pool {:?} cannot be cancelled: they are deleted", job.subject),
            format!("it can be paused: `ursa job pause {}`", job.id),
        ),
        _ => (
            format!("{} cannot be cancelled: stopping halfway would do more harm", job.subject),
            "check what it is waiting for".to_owned(),
        ),
    };
    Refusal::new(StatusCode::CONFLICT, "job_not_cancellable", detail).hint(hint)
}

#[cfg(test)]
mod tests {
    use api::JobState;

    use super::*;

    fn job(kind: JobKind, from_node: Option<u16>) -> Job {
        Job {
            id: "copy.ab.3".into(),
            kind,
            subject: "db".into(),
            state: JobState::Running,
            node: 3,
            from_node,
            progress: None,
            bytes_done: Some(4096),
            bytes_total: None,
            rate: None,
            eta_s: None,
            age_s: None,
            cause: None,
            limited_by: None,
            waits_for: None,
            can_be_cancelled: true,
            can_be_paused: false,
            paused: None,
            ended: None,
        }
    }

    #[test]
    fn cancelling_a_job_shows_what_is_removed_and_kept() {
        let added = "the new copy of volume db on node 3 is removed, with the 4K copied so far";
        assert_eq!(cancelling(&job(JobKind::AddCopy, None)), [added]);
        assert_eq!(cancelling(&job(JobKind::MoveCopy, Some(1))), [added, "the copy on node 1 stays"]);
        let stays = cancelling(&job(JobKind::RemoveCopy, None));
        assert_eq!(stays[0], "the copy of volume db on node 3 stays");
        assert!(cancelling(&job(JobKind::Verify, None))[0].contains("stops before everything is compared"));
        assert!(cancelling(&job(JobKind::Scrub, None))[0].contains("stops before everything is read"));
        assert_eq!(cancelling(&job(JobKind::Convert, None))[0], "volume db keeps its former kind");
    }
}
