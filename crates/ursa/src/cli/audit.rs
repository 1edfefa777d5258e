//! `ursa audit`.

use api::{AuditEntry, Client};
use clap::Args;

use super::exit::CliError;
use super::output::Output;
use super::table::Table;
use crate::clock::utc;

/// Which entries.
#[derive(Args, Debug)]
pub struct Audit {
    /// How many, the newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those before the one with this number
    #[arg(long, value_name = "ID")]
    before: Option<u64>,
}

impl Audit {
    /// Shows them.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        output.show(&client.audit(self.limit.into(), self.before)?, |entries| table(entries))
    }
}

fn table(entries: &[AuditEntry]) -> String {
    let mut table = Table::new(&["ID", "AT", "WHO", "BY", "FROM", "WHAT", "RESULT"]);
    for entry in entries {
        let result = match &entry.code {
            Some(code) => format!("{} {code}", entry.status),
            None => entry.status.to_string(),
        };
        table.row([
            entry.id.to_string(),
            utc(entry.at),
            entry.who.escape_debug().to_string(),
            entry.by.map_or("-".into(), |by| by.to_string()),
            entry.address.clone(),
            entry.action.escape_debug().to_string(),
            result,
        ]);
    }
    table.text("Nothing was done yet.")
}
