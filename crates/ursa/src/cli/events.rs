//! `ursa events`.

use std::time::Duration;

use api::{Client, Event};
use clap::Args;

use super::exit::CliError;
use super::output::Output;
use super::table::Table;
use crate::clock::utc;

/// How often the node is asked for more.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How many at a time.
const PAGE: usize = 1000;

/// Which events.
#[derive(Args, Debug)]
pub struct Events {
    /// How many, the newest last
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Those after the one with this number; 0: from the oldest that the node has
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Go on with those that happen; until it is stopped
    #[arg(long, short)]
    follow: bool,
}

impl Events {
    /// Shows them.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let mut events = client.events(self.after, self.limit.into())?;
        if !self.follow {
            if events.gap {
                eprintln!("ursa: {}", gap());
            }
            return output.show(&events, |events| table(&events.items));
        }
        loop {
            if events.gap {
                eprintln!("ursa: {}", gap());
            }
            for event in &events.items {
                output.line(event, line)?;
            }
            if events.items.is_empty() {
                std::thread::sleep(ASK_EVERY);
            }
            events = client.events(Some(events.next), PAGE)?;
        }
    }
}

fn gap() -> &'static str {
    "events are missing here: the node has been restarted, or has had more than it keeps"
}

fn table(events: &[Event]) -> String {
    let mut table = Table::new(&["ID", "AT", "SEVERITY", "CODE", "CAUSE", "NODE", "WHAT"]);
    for event in events {
        table.row([
            event.id.to_string(),
            utc(event.at),
            event.severity.to_string(),
            event.code.clone(),
            event.cause.clone().unwrap_or_else(|| "-".into()),
            event.node.map_or("-".into(), |node| node.to_string()),
            event.text.escape_debug().to_string(),
        ]);
    }
    table.text("Nothing has happened yet.")
}

fn line(event: &Event) -> String {
    let action = event.action.as_ref().map_or(String::new(), |action| format!(" ({action})"));
    format!("{} {} {}: {}{action}", utc(event.at), event.severity, event.code, event.text.escape_debug())
}
