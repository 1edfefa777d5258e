//! `ursa token`.

use std::time::Duration;

use api::{ApiToken, ApiTokenCreate, Client};
use clap::Subcommand;
use terms::clock::utc;

use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::table::Table;
use super::user::{RoleName, asked_role};
use crate::duration::parse_duration;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a token and print its secret, which is not shown again
    Create {
        /// Token name: what the token is for
        name: String,
        /// Role
        #[arg(long, value_enum)]
        role: RoleName,
        /// Lifetime: 12h, 90d [default: until it is deleted]
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        valid: Option<Duration>,
    },
    /// List tokens, without their secrets
    List,
    /// Delete a token; it no longer grants access
    Delete {
        /// Token ID, from `ursa token list`
        id: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::Create { name, role, valid } => {
                let valid_seconds = valid.map(|valid| valid.as_secs());
                let made = client.create_api_token(&ApiTokenCreate {
                    name,
                    role: asked_role(role),
                    valid_seconds,
                })?;
                output.show(&made, |made| format!("{}\n", made.secret))
            }
            Command::List => output.show(&client.api_tokens()?, |tokens| table(tokens)),
            Command::Delete { id, confirm } => {
                let (what, done) = (format!("Delete token {id}"), format!("Token {id} deleted."));
                confirm.done(client, output, &what, &done, |client| client.delete_api_token(&id))
            }
        }
    }
}

fn table(tokens: &[ApiToken]) -> String {
    let mut table = Table::new(&["ID", "NAME", "ROLE", "CREATED", "EXPIRES", "CREATED BY"]);
    for token in tokens {
        table.row([
            token.id.clone(),
            token.name.clone(),
            token.role.to_string(),
            utc(token.created),
            token.expires.map_or("never".into(), utc),
            token.created_by.clone(),
        ]);
    }
    table.text("No tokens.")
}
