//! Jobs as nodes report them to each other: figures, codes and facts. The node that is asked words them.

use ::node::control::{
    ChangeFailure, ConversionWait, Doing, ScrubFound, ScrubWait, Uncompared, WaitsFor, Work,
};
use ::node::copies::{Cause, EndReason};
use api::Job;
use base::ByteLen;
use serde::{Deserialize, Serialize};

/// A job of a node, as it reports it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::http) struct JobReport {
    /// The job, without anything that is worded from the rest of the report. The subject of a change is the
    /// object that it changes.
    pub(super) job: Job,
    /// What a change does.
    pub(super) doing: Option<Doing>,
    /// Why a copy missed writes.
    pub(super) cause: Option<Cause>,
    pub(super) waits_for: Option<JobWait>,
    /// How it has ended.
    pub(super) end: Vec<EndFact>,
}

/// What a job waits for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JobWait {
    /// For other jobs of its kind.
    Turn,
    Scrub(ScrubWait),
    Conversion(ConversionWait),
    Change(WaitsFor),
}

/// What is to be said about the end of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EndFact {
    /// It was stopped before it had looked at everything.
    Stopped,
    /// It was cancelled before it was complete.
    Cancelled,
    /// The volume no longer has a copy on the node.
    CopyGone,
    /// Bytes in which copies differ.
    Different(u64),
    /// Bytes that could not be compared, and why the last of them could not.
    Unchecked(u64, Option<Uncompared>),
    Scrubbed(ScrubFound),
    /// Why work on a copy did not end as requested.
    Copy(EndReason),
    /// Why a change failed.
    Failed(ChangeFailure),
}

impl JobReport {
    /// A job about which there is nothing to word.
    pub(super) fn of(job: Job) -> JobReport {
        JobReport { job, doing: None, cause: None, waits_for: None, end: Vec::new() }
    }

    /// The job in words.
    pub(in crate::http) fn shown(self) -> Job {
        let JobReport { mut job, doing, cause, waits_for, end } = self;
        if let Some(doing) = doing {
            job.subject = Work { doing, name: job.subject }.to_string();
        }
        job.cause = cause.map(|cause| cause.to_string());
        job.waits_for = waits_for.map(|wait| wait.worded());
        if let Some(ended) = &mut job.ended {
            ended.reason = worded(&end);
        }
        job
    }
}

impl JobWait {
    /// To be read after "waits for".
    fn worded(&self) -> String {
        match self {
            JobWait::Turn => "its turn".to_owned(),
            JobWait::Scrub(wait) => wait.to_string(),
            JobWait::Conversion(wait) => wait.to_string(),
            JobWait::Change(wait) => wait.to_string(),
        }
    }
}

/// The facts in one sentence; `None`: there are none.
pub(super) fn worded(end: &[EndFact]) -> Option<String> {
    let said: Vec<String> = end.iter().filter_map(EndFact::worded).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

impl EndFact {
    fn worded(&self) -> Option<String> {
        Some(match self {
            EndFact::Stopped => "stopped before it was complete".to_owned(),
            EndFact::Cancelled => "cancelled before it was complete".to_owned(),
            EndFact::CopyGone => "the volume no longer has a copy on this node".to_owned(),
            EndFact::Different(bytes) => format!("copies differ in {}", ByteLen(*bytes)),
            EndFact::Unchecked(bytes, why) => {
                let why = why.as_ref().map_or("cause unknown".to_owned(), ToString::to_string);
                format!("{} could not be compared: {why}", ByteLen(*bytes))
            }
            EndFact::Scrubbed(found) => return found.said(),
            EndFact::Copy(reason) => reason.to_string(),
            EndFact::Failed(failure) => failure.to_string(),
        })
    }
}
