//! Asking before something is destroyed.

use std::io::{self, BufRead, IsTerminal, Write};

use api::{ClientError, DryRun};
use clap::Args;

use super::exit::CliError;
use super::output::Output;

/// What every command that destroys something takes.
#[derive(Args, Debug)]
pub struct Confirm {
    /// Do not ask
    #[arg(short, long)]
    yes: bool,

    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
}

impl Confirm {
    /// Whether nothing is to be done.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether to go on. `what` is a sentence without a full stop; only if it `destroys` something it is asked about.
    ///
    /// # Errors
    /// [`CliError::Declined`], [`CliError::Unconfirmed`].
    pub fn go_on(&self, output: &Output, what: &str, destroys: bool) -> Result<bool, CliError> {
        if self.dry_run {
            output.text(&format!("Would do: {what}. Nothing was changed.\n"))?;
            return Ok(false);
        }
        if self.yes || !destroys {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            return Err(CliError::Unconfirmed(what.to_owned()));
        }
        let mut answer = String::new();
        let mut terminal = io::stderr();
        let asked = write!(terminal, "{what}. Go on? [y/N] ").and_then(|()| terminal.flush());
        asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(CliError::Print)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(true) } else { Err(CliError::Declined) }
    }

    /// As [`Confirm::go_on`]; what would be done is said by the node, too, which refuses it as it would refuse to do it.
    ///
    /// # Errors
    /// As [`Confirm::go_on`], and what the node refuses.
    pub fn go_on_if(
        &self,
        output: &Output,
        what: &str,
        destroys: bool,
        would: impl FnOnce() -> Result<DryRun, ClientError>,
    ) -> Result<bool, CliError> {
        if !self.dry_run {
            return self.go_on(output, what, destroys);
        }
        let steps: String = would()?.would.iter().map(|step| format!("  - {step}\n")).collect();
        output.text(&format!("Would do: {what}. Nothing was changed.\nStep by step:\n{steps}"))?;
        Ok(false)
    }
}
