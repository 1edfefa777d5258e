//! `ursa session`.

use api::{Client, Session};
use clap::Subcommand;

use super::confirm::Confirm;
use super::error::CliError;
use super::output::Output;
use super::table::{Table, age, list, size};

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List sessions
    List {
        /// Another node of the cluster, by number, or all
        #[arg(long, value_name = "NUMBER|all")]
        node: Option<String>,
    },
    /// End a session; its initiator may log in again
    End {
        /// Session number (TSIH)
        tsih: u16,
        /// Node of the session, by number [default: the queried node]
        #[arg(long, value_name = "NUMBER")]
        node: Option<u16>,
        #[command(flatten)]
        confirm: Confirm,
    },
}

impl Command {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        match self {
            Command::List { node: None } => output.show(&client.sessions()?, |sessions| table(sessions)),
            Command::List { node: Some(node) } => output.list(&client.sessions_of(&node)?, table),
            Command::End { tsih, node, confirm } => {
                let of = node.map(|node| format!(" on node {node}")).unwrap_or_default();
                let what = format!("End session {tsih}{of}");
                let done = format!("Session {tsih} is ending: its initiator was asked to log out.");
                confirm.done(client, output, &what, &done, |client| client.end_session(tsih, node))
            }
        }
    }
}

fn table(sessions: &[Session]) -> String {
    let mut table = Table::new(&[
        "NODE",
        "TSIH",
        "INITIATOR",
        "FROM",
        "TARGET",
        "CORE",
        "AGE",
        "COMMANDS",
        "RECEIVED",
        "SENT",
    ]);
    for session in sessions {
        table.row([
            session.node_name.clone(),
            session.tsih.to_string(),
            session.initiator.clone(),
            list(&session.addresses, "-"),
            session.target.clone().unwrap_or_else(|| "(discovery)".into()),
            session.core.to_string(),
            age(session.age),
            session.commands.to_string(),
            size(session.bytes_received),
            size(session.bytes_sent),
        ]);
    }
    table.text("No sessions.")
}
