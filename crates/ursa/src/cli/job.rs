//! `ursa job`.

use api::{Client, Job, JobEnd};
use clap::Subcommand;

use super::confirm::Confirm;
use super::exit::CliError;
use super::output::Output;
use super::sync::restraint;
use super::table::{Table, age, fields, say_missing, size};
use crate::clock::utc;

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List what is under way: syncs, copies that are added, moved or taken away, all over the cluster; comparisons and changes of the node that is asked
    List {
        /// Comparisons and changes of another node of the cluster, by its number, or of all
        #[arg(long, value_name = "NUMBER|all")]
        node: Option<String>,
        /// What has ended in the last day instead, newest first, as far as nodes that were not restarted since know
        #[arg(long)]
        ended: bool,
    },
    /// Show one job of any node, or how it has ended
    Show {
        /// What it is found by
        id: String,
    },
    /// Take a job back: a copy that is added or moved is taken away again, one that is to leave stays
    Cancel {
        /// What it is found by
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Have a sync stand still until it is resumed, over restarts, too; until it is in sync the copy protects nothing
    Pause {
        /// What it is found by
        id: String,
    },
    /// Have a sync go on that was paused
    Resume {
        /// What it is found by
        id: String,
    },
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::List { node: None, ended } => {
                output.show(&client.jobs(ended)?, |jobs| listed(jobs, ended))
            }
            Command::List { node: Some(node), ended } => {
                let jobs = client.jobs_of(&node, ended)?;
                output.show(&jobs, |jobs| listed(&jobs.items, ended))?;
                say_missing(&jobs.missing);
                Ok(())
            }
            Command::Show { id } => output.show(&client.job(&id)?, text),
            Command::Cancel { id, confirm } => {
                let what = format!("Take job {id} back");
                if confirm.go_on_if(output, &what, true, || client.would_cancel_job(&id))? {
                    client.cancel_job(&id)?;
                    output.done(&format!("Job {id} is taken back."))?;
                }
                Ok(())
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

fn table(jobs: &[Job]) -> String {
    let mut table =
        Table::new(&["ID", "WHAT", "OF", "NODE", "DONE", "OF BYTES", "A SECOND", "TO GO", "NOTE"]);
    for job in jobs {
        table.row([
            job.id.clone(),
            job.kind.to_string(),
            job.subject.escape_debug().to_string(),
            or_dash(job.node.map(|node| node.to_string())),
            progress(job),
            or_dash(job.bytes_total.map(size)),
            or_dash(job.rate.map(size)),
            or_dash(job.eta_s.map(age)),
            or_dash(paused(job).or_else(|| waits(job)).or_else(|| held_back(job))),
        ]);
    }
    table.text("Nothing is under way.")
}

fn ended_table(jobs: &[Job]) -> String {
    let mut table = Table::new(&["ID", "WHAT", "OF", "NODE", "STATE", "ENDED", "TOOK", "NOTE"]);
    for job in jobs {
        table.row([
            job.id.clone(),
            job.kind.to_string(),
            job.subject.escape_debug().to_string(),
            or_dash(job.node.map(|node| node.to_string())),
            job.state.to_string(),
            ended_at(job),
            took(job),
            reason(job),
        ]);
    }
    table.text("Nothing has ended in the last day, as far as is known.")
}

fn ended_at(job: &Job) -> String {
    or_dash(job.ended.as_ref().map(|end| utc(end.at)))
}

fn took(job: &Job) -> String {
    or_dash(job.ended.as_ref().and_then(|end| end.took_s).map(age))
}

/// What has come of it, beyond that it has ended.
fn reason(job: &Job) -> String {
    let of_end = |end: &JobEnd| match (&end.reason, &end.found) {
        (Some(reason), _) => Some(reason.clone()),
        (None, Some(found)) if found.equal => Some("all was compared, and is equal".to_owned()),
        (None, _) => None,
    };
    or_dash(job.ended.as_ref().and_then(of_end))
}

fn paused(job: &Job) -> Option<String> {
    let paused = job.paused.as_ref()?;
    Some(format!("PAUSED by {} since {}", paused.by.escape_debug(), utc(paused.since)))
}

fn waits(job: &Job) -> Option<String> {
    job.waits_for.as_ref().map(|what| format!("waits for {what}"))
}

fn held_back(job: &Job) -> Option<String> {
    job.held_back_by.and_then(restraint).map(str::to_owned)
}

fn text(job: &Job) -> String {
    fields([
        ("Job", job.id.clone()),
        ("What", job.kind.to_string()),
        ("Of", job.subject.escape_debug().to_string()),
        ("Node", or_dash(job.node.map(|node| node.to_string()))),
        ("From node", or_dash(job.from_node.map(|node| node.to_string()))),
        ("State", job.state.to_string()),
        ("Done", progress(job)),
        ("Bytes done", or_dash(job.bytes_done.map(size))),
        ("Bytes in all", or_dash(job.bytes_total.map(size))),
        ("A second", or_dash(job.rate.map(size))),
        ("To go", or_dash(job.eta_s.map(age))),
        ("Under way for", or_dash(job.age_s.map(age))),
        ("Why", or_dash(job.cause.clone())),
        ("Held back", held_back(job).unwrap_or_else(|| "no".into())),
        ("Waits for", or_dash(job.waits_for.clone())),
        ("Paused", paused(job).unwrap_or_else(|| "no".into())),
        ("Can be taken back", if job.can_be_cancelled { "yes" } else { "no" }.into()),
        ("Ended", ended_at(job)),
        ("Took", took(job)),
        ("What came of it", reason(job)),
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
        assert!(lines[1].ends_with("all was compared, and is equal"), "{text}");
        assert!(lines[2].ends_with("copies differ in 512 bytes"), "{text}");
        assert!(listed(&[], true).starts_with("Nothing has ended"));
        assert_eq!(listed(&[], false), "Nothing is under way.\n");
        let shown = super::text(&equal);
        assert!(shown.contains("State              ended\n"), "{shown}");
        assert!(shown.contains("What came of it    all was compared, and is equal\n"), "{shown}");
    }
}
