//! Arguments for the targets to measure, and for their sessions.

use std::time::Duration;

use bench::{Content, Setup, Target};
use clap::Args;
use initiator::Options;
use terms::cores::Cores;
use terms::size::Size;

use super::pattern::seconds;
use crate::error::ToolError;
use crate::login::LoginArgs;

/// What is measured, and how it is reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Targets")]
pub struct SetupArgs {
    /// Destroy the data on the targets; without it, only empty targets are written
    #[arg(long)]
    overwrite: bool,
    /// Fill the used space before measuring: random, zero, or compressible=PERCENT,dedup=PERCENT
    #[arg(long, value_name = "KIND")]
    precondition: Option<Content>,
    /// -c: create the targets as files of this size, filled with random data unless --precondition says
    /// otherwise
    #[arg(long, value_name = "SIZE")]
    create: Option<Size>,
    /// iSCSI sessions per thread and portal
    #[arg(long, value_name = "N", default_value_t = 1)]
    sessions: u32,
    /// -a: bind the threads to these CPUs in turn: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = processors)]
    processors: Option<Processors>,
    /// Seconds without a response after which a target counts as lost
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    /// Process ID of the server, for its CPU time [default: the process that listens at the portal, if on
    /// this machine]
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
    #[command(flatten)]
    login: LoginArgs,
}

/// A list of processors.
#[derive(Clone, Debug)]
struct Processors(Vec<usize>);

fn processors(text: &str) -> Result<Processors, String> {
    // `-a1` means processor 1 here, not a number of cores.
    let list = if text.contains(['-', ',']) { text.to_owned() } else { format!("{text}-{text}") };
    match list.parse::<Cores>() {
        Ok(Cores::Processors(processors)) => Ok(Processors(processors)),
        _ => Err(format!("{text:?} is not a list of CPUs; use for example 0,2-3")),
    }
}

impl SetupArgs {
    /// The setup for these targets.
    pub fn setup(&self, targets: Vec<Target>) -> Result<Setup, ToolError> {
        Ok(Setup {
            targets,
            sessions: self.sessions,
            login: self.login()?,
            processors: self.processors.clone().map(|processors| processors.0),
            timeout: self.timeout,
            create: self.create.map(|size| size.0),
            precondition: self.precondition,
            overwrite: self.overwrite,
            server_pids: self.server_pid.clone(),
        })
    }

    fn login(&self) -> Result<Options, ToolError> {
        let mut login = self.login.options()?;
        login.timeouts.command = self.timeout;
        Ok(login)
    }
}
