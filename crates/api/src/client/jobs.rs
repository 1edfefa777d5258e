//! Calls for jobs, events and the history.

use super::path::{segment, with_query};
use super::{Client, Result};
use crate::{Events, EventsQuery, History, HistoryQuery, Job, List};

/// Events.
impl Client {
    /// Events of the queried node, or of others, the oldest first.
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

/// History.
impl Client {
    /// The history of the last seven days.
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

/// Jobs.
impl Client {
    /// Jobs of the cluster and of the queried node, the newest first: those under way, or those that have
    /// `ended`.
    pub fn jobs(&self, ended: bool) -> Result<Vec<Job>> {
        self.list(&format!("/v1/jobs?ended={ended}"))
    }

    /// Like [`Client::jobs`], with the jobs of another node, by its number, instead of the queried one; or of
    /// `all`.
    pub fn jobs_of(&self, node: &str, ended: bool) -> Result<List<Job>> {
        self.get(&format!("/v1/jobs?ended={ended}&node={}", segment(node)))
    }

    /// One job.
    pub fn job(&self, id: &str) -> Result<Job> {
        self.get(&format!("/v1/jobs/{}", segment(id)))
    }

    /// Cancels a job.
    pub fn cancel_job(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/jobs/{}", segment(id)))
    }

    /// Pauses a resync.
    pub fn pause_job(&self, id: &str) -> Result<Job> {
        self.post_empty(&format!("/v1/jobs/{}/pause", segment(id)))
    }

    /// Resumes a paused resync.
    pub fn resume_job(&self, id: &str) -> Result<Job> {
        self.post_empty(&format!("/v1/jobs/{}/resume", segment(id)))
    }
}
