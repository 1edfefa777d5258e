//! What is asked of jobs, events and the last days.

use super::path::{segment, with_query};
use super::{Client, Result};
use crate::{DryRun, Events, EventsQuery, History, HistoryQuery, Job, List};

/// What happens.
impl Client {
    /// Events of the node, or of others, the oldest first.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn events(&self, query: &EventsQuery) -> Result<Events> {
        let parameters = [
            ("limit", Some(query.limit.to_string())),
            ("after", query.after.map(|after| after.to_string())),
            ("until", query.until.map(|until| until.to_string())),
            ("skip", query.skip.map(|skip| skip.to_string())),
            ("node", query.node.clone()),
            ("subject", query.subject.clone()),
            ("severity", query.severity.map(|severity| severity.to_string())),
        ];
        self.get(&with_query("/v1/events", parameters))
    }
}

/// What has gone on.
impl Client {
    /// What was kept of the last seven days.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn history(&self, query: &HistoryQuery) -> Result<History> {
        let series = (!query.series.is_empty()).then(|| query.series.join(","));
        let parameters = [
            ("series", series),
            ("from", query.from.map(|from| from.to_string())),
            ("to", query.to.map(|to| to.to_string())),
            ("points", query.points.map(|points| points.to_string())),
            ("node", query.node.clone()),
        ];
        self.get(&with_query("/v1/history", parameters))
    }
}

/// What is under way, and what has ended.
impl Client {
    /// Jobs of the cluster and of the node that is asked: those under way, or those that have `ended`, newest
    /// first.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn jobs(&self, ended: bool) -> Result<Vec<Job>> {
        self.list(&format!("/v1/jobs?ended={ended}"))
    }

    /// As [`Client::jobs`], with those of another node instead of the one that is asked, by its number, or of
    /// `all`.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn jobs_of(&self, node: &str, ended: bool) -> Result<List<Job>> {
        self.get(&format!("/v1/jobs?ended={ended}&node={}", segment(node)))
    }

    /// One job.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn job(&self, id: &str) -> Result<Job> {
        self.get(&format!("/v1/jobs/{}", segment(id)))
    }

    /// Takes a job back.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn cancel_job(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/jobs/{}", segment(id)))
    }

    /// What taking a job back would do.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError): as it would be refused.
    pub fn would_cancel_job(&self, id: &str) -> Result<DryRun> {
        self.would_delete(&format!("/v1/jobs/{}?dry_run=true", segment(id)))
    }

    /// Has a sync stand still until it is resumed.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn pause_job(&self, id: &str) -> Result<Job> {
        let url = self.address(&format!("/v1/jobs/{}/pause", segment(id)));
        self.json(self.authorized(self.agent.post(url)).send_empty())
    }

    /// Has a sync go on that was paused.
    ///
    /// # Errors
    /// See [`ClientError`](super::ClientError).
    pub fn resume_job(&self, id: &str) -> Result<Job> {
        let url = self.address(&format!("/v1/jobs/{}/resume", segment(id)));
        self.json(self.authorized(self.agent.post(url)).send_empty())
    }
}
