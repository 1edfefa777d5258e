//! `ursa job`.

use api::{Client, Job};
use clap::Subcommand;

use super::exit::CliError;
use super::output::Output;
use super::sync::restraint;
use super::table::{Table, age, fields, size};
use crate::clock::utc;

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List what is under way: syncs, copies that are added, moved or taken away, changes
    List,
    /// Show one job
    Show {
        /// What it is found by
        id: String,
    },
    /// Take a job back: a copy that is added or moved is taken away again, one that is to leave stays
    Cancel {
        /// What it is found by
        id: String,
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
            Command::List => output.show(&client.jobs()?, |jobs| table(jobs)),
            Command::Show { id } => output.show(&client.job(&id)?, text),
            Command::Cancel { id } => {
                client.cancel_job(&id)?;
                output.done(&format!("Job {id} is taken back."))
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
    ])
}
