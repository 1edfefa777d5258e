//! `ursa top`: what a node does now, second by second.
//!
//! Counters of `/metrics` and of sessions are read every so often by a thread of its own, so that a node that is slow to answer does not
//! keep keys waiting; two readings make a [`Frame`], which [`screen`] shows. `--once` shows one and ends.

mod frame;
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
use self::view::{View, Views};
use super::exit::CliError;
use super::output::Output;

/// What to show, and how often.
#[derive(Args, Debug)]
pub struct Top {
    /// What to begin with
    #[arg(value_enum, default_value_t)]
    view: View,
    /// Seconds between two readings
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one reading as text (-o json: all of it) and end
    #[arg(long)]
    once: bool,
}

impl Top {
    /// Shows it until somebody leaves, or once.
    ///
    /// # Errors
    /// See [`CliError`].
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let interval = Duration::from_secs(self.interval);
        let views = Views::new(self.view);
        if !self.once && output.is_for_people() {
            return terminal::run(client, views, interval);
        }
        let before = read(client)?;
        thread::sleep(interval);
        let frame = Frame::between(&before, &read(client)?);
        output.show(&frame, |frame| screen::text(frame, &views))
    }
}

/// Reads all counters.
fn read(client: &Client) -> Result<Sample, ClientError> {
    let sessions = client.sessions()?;
    let metrics = client.metrics()?;
    Ok(Sample::new(Instant::now(), &metrics, sessions))
}
