//! `ursa apply`, `ursa diff` and `ursa export`: what hosts use, described in a file.
//!
//! The file describes the intended configuration. What it does not name stays as it is, unless `--prune` is
//! given. `plan` compares the file with the present configuration and changes nothing: `diff` shows its
//! steps, and `apply` executes the same steps.

mod addresses;
mod declared;
mod export;
mod plan;
mod step;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use api::{Client, ClientError, ClusterNode, FloatingAddress, Host, Target, Volume};
use clap::Args;
use serde::Serialize;

use self::declared::Declared;
use self::plan::Plan;
use self::step::Step;
use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;

/// A file to be applied.
#[derive(Args, Debug)]
pub struct Apply {
    /// Configuration file (TOML); - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Delete what the file does not name: floating IPs, LUN maps, copies, volumes with their data, targets,
    /// host groups
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    confirm: Confirm,
}

/// A file to be compared with what is.
#[derive(Args, Debug)]
pub struct Diff {
    /// Configuration file (TOML); - is standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Compare as `ursa apply --prune` would
    #[arg(long)]
    prune: bool,
    /// Exit with 1 if there is something to change
    #[arg(long)]
    exit_code: bool,
}

/// The present configuration, as far as a file can describe it.
#[derive(Debug, Default)]
struct Present {
    hosts: Vec<Host>,
    targets: Vec<Target>,
    volumes: Vec<Volume>,
    nodes: Vec<ClusterNode>,
    /// The cluster's floating addresses.
    addresses: Vec<FloatingAddress>,
}

impl Present {
    fn of(client: &Client) -> Result<Present, ClientError> {
        Ok(Present {
            hosts: client.hosts()?,
            targets: client.targets()?,
            volumes: client.volumes()?.items,
            nodes: client.cluster_nodes()?,
            addresses: client.addresses()?,
        })
    }
}

/// The outcome, for programs.
#[derive(Serialize)]
struct Outcome {
    /// The changes made.
    done: Vec<String>,
    /// The change that failed, and why; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<Failed>,
    /// The changes not made because of that.
    not_done: Vec<String>,
    /// What can only be done later, and when.
    waiting: Vec<String>,
}

#[derive(Serialize)]
struct Failed {
    change: String,
    error: String,
}

impl Apply {
    pub fn run(&self, client: &Client, output: &Output) -> Result<(), CliError> {
        let declared = Declared::read(&self.file)?;
        if self.prune && declared.is_empty() {
            return Err(CliError::PruneAll(self.file.clone()));
        }
        let mut plan = Plan::new(&declared, &Present::of(client)?, self.prune)?;
        if plan.steps.is_empty() {
            plan.kept.clear();
            return output.show(&plan.shown(), plan::text);
        }
        let destroyed = plan.destroyed();
        if self.confirm.is_dry_run() {
            return output.show(&plan.shown(), plan::text);
        }
        let what = match destroyed.as_slice() {
            [] => "Apply the file".to_owned(),
            destroyed => format!("Apply the file, which will {}", destroyed.join("; ")),
        };
        if !self.confirm.go_on(&what, !destroyed.is_empty())? {
            return Ok(());
        }
        carry_out(&plan, client, output)
    }
}

/// Executes the steps in order, until one fails.
fn carry_out(plan: &Plan, client: &Client, output: &Output) -> Result<(), CliError> {
    let mut outcome =
        Outcome { done: Vec::new(), failed: None, not_done: Vec::new(), waiting: plan.waiting.clone() };
    let mut steps = plan.steps.iter();
    for step in steps.by_ref() {
        match step.run(client) {
            Ok(()) => {
                output.done(&step.line())?;
                outcome.done.push(step.line());
            }
            Err(error) => {
                outcome.failed = Some(Failed { change: step.line(), error: error.to_string() });
                outcome.not_done = steps.map(Step::line).collect();
                let rest = &outcome.not_done;
                output.show(&outcome, |_| match rest.as_slice() {
                    [] => String::new(),
                    rest => format!("Not done:\n{}\n", rest.join("\n")),
                })?;
                let (done, all) = (outcome.done.len(), outcome.done.len() + rest.len() + 1);
                return Err(CliError::Unapplied { step: step.line(), done, all, error });
            }
        }
    }
    output.show(&outcome, |outcome| {
        let done = match outcome.done.len() {
            1 => "1 change applied.\n".into(),
            done => format!("{done} changes applied.\n"),
        };
        match outcome.waiting.as_slice() {
            [] => done,
            waiting => {
                format!("{done}To be done later; apply the file again then:\n  {}\n", waiting.join("\n  "))
            }
        }
    })
}

impl Diff {
    pub fn run(&self, client: &Client, output: &Output) -> Result<(), CliError> {
        let declared = Declared::read(&self.file)?;
        let plan = Plan::new(&declared, &Present::of(client)?, self.prune)?;
        output.show(&plan.shown(), plan::text)?;
        if self.exit_code && !plan.steps.is_empty() {
            Err(CliError::Differs(plan.steps.len()))
        } else {
            Ok(())
        }
    }
}

/// Prints a file that describes the present configuration.
pub fn export(client: &Client, output: &Output) -> Result<(), CliError> {
    let declared = export::declared(&Present::of(client)?);
    output.show(&declared, export::text)
}
