//! `ursa top`: what a node does now, second by second.
//!
//! A dedicated thread reads the counters of `/metrics` and of sessions at an interval, so that a slow node
//! does not delay keys. Two readings make a [`Frame`], which [`screen`] shows. `--once` shows a single frame.

mod frame;
mod live;
mod screen;
mod series;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::thread;
use std::time::{Duration, Instant};

use api::{Client, ClientError};
use clap::Args;

use self::frame::{Frame, Sample};
use self::live::Whose;
use self::view::{View, Views};
use super::error::CliError;
use super::output::Output;

/// What to show, and how often.
#[derive(Args, Debug)]
pub struct Top {
    /// View to show first
    #[arg(value_enum, default_value_t)]
    view: View,
    /// Seconds between readings
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one reading as text and exit (-o json: all views)
    #[arg(long)]
    once: bool,
    /// Node to show, by number, or `all` for all nodes together [default: the queried node]
    #[arg(long, value_name = "NUMBER|all")]
    node: Option<String>,
}

/// Where the figures come from.
struct Source {
    client: Client,
    /// `None`: the counters of the node that is asked.
    others: Option<Whose>,
}

impl Top {
    /// Shows the figures until the user quits, or once.
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let interval = Duration::from_secs(self.interval);
        let views = Views::new(self.view);
        let mut source = Source { client: client.clone(), others: self.node.map(Whose::new) };
        if !self.once && output.is_for_people() {
            return terminal::run(source, views, interval);
        }
        let before = source.read()?;
        thread::sleep(interval);
        let frame = Frame::between(&before, &source.read()?);
        output.show(&frame, |frame| screen::text(frame, &views))
    }
}

impl Source {
    /// Reads all counters, or the live figures of other nodes.
    fn read(&mut self) -> Result<Sample, ClientError> {
        let client = &self.client;
        if let Some(others) = &mut self.others {
            return others.read(client);
        }
        let sessions = client.sessions()?;
        let metrics = client.metrics()?;
        Ok(Sample::new(Instant::now(), &metrics, sessions))
    }
}
