//! Asks for confirmation before something is destroyed.

use std::io::{self, BufRead, IsTerminal, Write};

use api::{Client, ClientError, DryRun};
use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::output::Output;

/// What every command that destroys something or takes it away takes.
#[derive(Args, Debug)]
pub struct Confirm {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,

    /// Show what the command would do, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Confirm {
    /// Whether nothing is to be changed.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Asks whether to continue with a change that is not a single call of the node, if it `destroys`
    /// something.
    ///
    /// `what` is a sentence without a full stop.
    pub fn go_on(&self, what: &str, destroys: bool) -> Result<bool, CliError> {
        if self.yes || !destroys {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            return Err(CliError::Unconfirmed(what.to_owned()));
        }
        ask(&format!("{what}. "))
    }

    /// Asks whether to continue with `what`, as in "Delete volume db", if it `destroys` or removes something.
    ///
    /// The question includes what the node says it `would` do. With `--dry-run` this is shown, and that is
    /// all.
    ///
    /// # Errors
    /// Those of [`Confirm::go_on`], and those of the node, which rejects the dry run as it would reject the
    /// change.
    pub fn go_on_if(
        &self,
        output: &Output,
        what: &str,
        destroys: bool,
        would: impl FnOnce() -> Result<DryRun, ClientError>,
    ) -> Result<bool, CliError> {
        if self.dry_run {
            show_would(output, what, &would()?)?;
            return Ok(false);
        }
        if self.yes || !destroys {
            return Ok(true);
        }
        let would = would()?;
        if !io::stdin().is_terminal() {
            return Err(CliError::Unconfirmed(format!("{what}: {}", would.would.join("; "))));
        }
        ask(&told(what, &would))
    }

    /// Makes a change, if [`Confirm::go_on_if`] says so, and shows its result.
    pub fn show<T: Serialize>(
        &self,
        client: &Client,
        output: &Output,
        (what, destroys): (&str, bool),
        change: impl Fn(&Client) -> Result<T, ClientError>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        match self.go_on_if(output, what, destroys, || client.would(&change))? {
            true => output.show(&change(client)?, text),
            false => Ok(()),
        }
    }

    /// Makes a change that removes something, if [`Confirm::go_on_if`] says so, and reports it as `done`.
    pub fn done(
        &self,
        client: &Client,
        output: &Output,
        what: &str,
        done: &str,
        change: impl Fn(&Client) -> Result<(), ClientError>,
    ) -> Result<(), CliError> {
        if self.go_on_if(output, what, true, || client.would(&change))? {
            change(client)?;
            output.done(done)?;
        }
        Ok(())
    }
}

/// Shows what the node would do.
pub fn show_would(output: &Output, what: &str, would: &DryRun) -> Result<(), CliError> {
    output.show(would, |would| format!("Dry run: {}Nothing was changed.\n", told(what, would)))
}

fn told(what: &str, DryRun { would, .. }: &DryRun) -> String {
    let steps: String = would.iter().map(|step| format!("  - {step}\n")).collect();
    format!("{what}\n{steps}")
}

/// Asks on the terminal.
fn ask(about: &str) -> Result<bool, CliError> {
    let mut answer = String::new();
    let mut terminal = io::stderr();
    let asked = write!(terminal, "{about}Continue? [y/N] ").and_then(|()| terminal.flush());
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(CliError::Print)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(true) } else { Err(CliError::Declined) }
}

#[cfg(test)]
mod tests {
    use super::super::output::Format;
    use super::*;

    #[test]
    fn the_nodes_preview_is_shown_step_by_step() {
        let would = DryRun { would: vec!["a goes".into(), "b stays".into()], candidates: Vec::new() };
        assert_eq!(told("Delete a", &would), "Delete a\n  - a goes\n  - b stays\n");
    }

    #[test]
    fn the_node_is_asked_only_if_a_person_sees_the_answer() {
        let output = Output::new(Format::Table);
        let unasked = || -> Result<DryRun, ClientError> { panic!("nobody is told") };
        let confirm = |yes| Confirm { yes, dry_run: false };
        assert!(confirm(true).go_on_if(&output, "Delete a", true, unasked).unwrap());
        assert!(confirm(false).go_on_if(&output, "Make a", false, unasked).unwrap());
    }
}
