//! `ursa job`.

use api::{Client, Job, JobEnd};
use clap::Subcommand;
use terms::clock::utc;

use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::sync::restraint;
use super::table::{Table, age, fields, size};

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List jobs: resyncs and copies being added, moved or removed in the whole cluster; verify runs, scrubs,
    /// freeing of deleted snapshots and changes of the queried node
    List {
        /// Verify runs, scrubs and changes of another node, by number, or of all
        #[arg(long, value_name = "NUMBER|all")]
        node: Option<String>,
        /// List jobs that ended in the last day instead, newest first; nodes forget theirs when they restart
        #[arg(long)]
        ended: bool,
    },
    /// Show a job of any node, or how it ended
    Show {
        /// Job ID
        id: String,
    },
    /// Cancel a job and undo it: an added copy is removed, a copy being removed is kept
    Cancel {
        /// Job ID
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Pause a resync until resumed (persists across restarts); a copy out of sync does not count as
    /// redundancy. Or pause the freeing of deleted snapshots in a pool, until resumed or the pool is opened
    /// again
    Pause {
        /// Job ID
        id: String,
    },
    /// Resume a paused job
    Resume {
        /// Job ID
        id: String,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::List { node: None, ended } => {
                output.show(&client.jobs(ended)?, |jobs| listed(jobs, ended))
            }
            Command::List { node: Some(node), ended } => {
                output.list(&client.jobs_of(&node, ended)?, |jobs| listed(jobs, ended))
            }
            Command::Show { id } => output.show(&client.job(&id)?, text),
            Command::Cancel { id, confirm } => {
                let (what, done) = (format!("Cancel job {id}"), format!("Job {id} cancelled."));
                confirm.done(client, output, &what, &done, |client| client.cancel_job(&id))
            }
            Command::Pause { id } => output.show(&client.pause_job(&id)?, text),
            Command::Resume { id } => output.show(&client.resume_job(&id)?, text),
        }
    }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

fn progress(job: &Job) -> String {
    or_dash(job.progress.map(|progress| format!("{:.0}%", progress * 100.0)))
}

fn listed(jobs: &[Job], ended: bool) -> String {
    if ended { ended_table(jobs) } else { table(jobs) }
}

pub(super) fn table(jobs: &[Job]) -> String {
    let mut table =
        Table::new(&["ID", "KIND", "SUBJECT", "NODE", "DONE", "TOTAL", "PER SECOND", "TIME LEFT", "NOTE"]);
    for job in jobs {
        table.row([
            job.id.clone(),
            job.kind.to_string(),
            job.subject.escape_debug().to_string(),
            job.node.to_string(),
            progress(job),
            or_dash(job.bytes_total.map(size)),
            or_dash(job.rate.map(size)),
            or_dash(job.eta_s.map(age)),
            or_dash(paused(job).or_else(|| waits(job)).or_else(|| held_back(job))),
        ]);
    }
    table.text("No jobs in progress.")
}

fn ended_table(jobs: &[Job]) -> String {
    let mut table = Table::new(&["ID", "KIND", "SUBJECT", "NODE", "STATE", "ENDED", "TOOK", "NOTE"]);
    for job in jobs {
        table.row([
            job.id.clone(),
            job.kind.to_string(),
            job.subject.escape_debug().to_string(),
            job.node.to_string(),
            job.state.to_string(),
            ended_at(job),
            took(job),
            reason(job),
        ]);
    }
    table.text("No jobs known to have ended in the last day.")
}

fn ended_at(job: &Job) -> String {
    or_dash(job.ended.as_ref().map(|end| utc(end.at)))
}

fn took(job: &Job) -> String {
    or_dash(job.ended.as_ref().and_then(|end| end.took_s).map(age))
}

/// How the job ended, beyond its state.
fn reason(job: &Job) -> String {
    let of_end = |end: &JobEnd| match (&end.reason, &end.found) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Some(found)) if found.equal => Some("all copies compared and equal".to_owned()),
        (None, _) => None,
    };
    or_dash(job.ended.as_ref().and_then(of_end))
}

fn paused(job: &Job) -> Option<String> {
    let paused = job.paused.as_ref()?;
    Some(format!("PAUSED by {} since {}", paused.by.escape_debug(), utc(paused.since)))
}

fn waits(job: &Job) -> Option<String> {
    job.waits_for.as_ref().map(|what| format!("waiting for {what}"))
}

fn held_back(job: &Job) -> Option<String> {
    job.limited_by.and_then(restraint).map(str::to_owned)
}

fn text(job: &Job) -> String {
    fields([
        ("Job", job.id.clone()),
        ("Kind", job.kind.to_string()),
        ("Subject", job.subject.escape_debug().to_string()),
        ("Node", job.node.to_string()),
        ("From node", or_dash(job.from_node.map(|node| node.to_string()))),
        ("State", job.state.to_string()),
        ("Done", progress(job)),
        ("Bytes done", or_dash(job.bytes_done.map(size))),
        ("Bytes total", or_dash(job.bytes_total.map(size))),
        ("Per second", or_dash(job.rate.map(size))),
        ("Time left", or_dash(job.eta_s.map(age))),
        ("Running for", or_dash(job.age_s.map(age))),
        ("Cause", or_dash(job.cause.clone())),
        ("Limited", held_back(job).unwrap_or_else(|| "no".into())),
        ("Waiting for", or_dash(job.waits_for.clone())),
        ("Paused", paused(job).unwrap_or_else(|| "no".into())),
        ("Can be cancelled", if job.can_be_cancelled { "yes" } else { "no" }.into()),
        ("Ended", ended_at(job)),
        ("Took", took(job)),
        ("Result", reason(job)),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ended() -> Job {
        serde_json::from_value(json!({
            "id": "verify.ab.2", "kind": "verify", "subject": "db", "state": "ended", "node": 2, "can_be_cancelled": false,
            "ended": {"at": 1_795_348_984_u64, "took_s": 61, "found": {"equal": true, "different_bytes": 0, "unchecked_bytes": 0}},
        }))
        .unwrap()
    }

    #[test]
    fn how_a_job_has_ended_is_listed() {
        let equal = ended();
        let mut differ = ended();
        let end = differ.ended.as_mut().unwrap();
        end.reason = Some("copies differ in 512 bytes".into());
        let text = listed(&[equal.clone(), differ], true);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ID ") && lines[0].ends_with("NOTE"), "{text}");
        assert!(lines[1].contains("verify.ab.2") && lines[1].contains("1m01s"), "{text}");
        assert!(lines[1].ends_with("all copies compared and equal"), "{text}");
        assert!(lines[2].ends_with("copies differ in 512 bytes"), "{text}");
        assert!(listed(&[], true).starts_with("No jobs known"));
        assert_eq!(listed(&[], false), "No jobs in progress.\n");
        let shown = super::text(&equal);
        assert!(shown.contains("State             ended\n"), "{shown}");
        assert!(shown.contains("Result            all copies compared and equal\n"), "{shown}");
    }
}
