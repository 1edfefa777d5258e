//! Arguments that say what is measured, and how it is reached.

use std::path::PathBuf;
use std::time::Duration;

use bench::{Content, Setup, Target};
use clap::Args;
use initiator::{Chap, Credentials, Options};

use super::pattern::seconds;
use crate::cli::exit::CliError;
use crate::serve::Cores;
use crate::size::Size;

/// What is measured, and how it is reached.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Targets")]
pub struct SetupArgs {
    /// Destroy what is on the targets; without it, only empty ones are written
    #[arg(long)]
    overwrite: bool,
    /// Write all that will be used before it is measured: random, zero, or compressible=PERCENT,dedup=PERCENT
    #[arg(long, value_name = "KIND")]
    precondition: Option<Content>,
    /// -c: make the targets, which are files, so large; they are filled with random data if --precondition says nothing else
    #[arg(long, value_name = "SIZE")]
    create: Option<Size>,
    /// Sessions of each thread with an iSCSI target
    #[arg(long, value_name = "N", default_value_t = 1)]
    sessions: u32,
    /// -a: bind the threads to these processors, in turn: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = processors)]
    processors: Option<Processors>,
    /// Seconds without an answer after which a target counts as lost
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,
    /// The server's process, for its CPU time [default: who listens at the portal, if it is this machine]
    #[arg(long, value_name = "PID")]
    server_pid: Vec<u32>,
    /// The name of this initiator
    #[arg(long, value_name = "IQN")]
    initiator: Option<String>,
    /// The CHAP name
    #[arg(long, value_name = "USER", requires = "chap_secret_file")]
    chap_user: Option<String>,
    /// The file that has the CHAP secret
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    chap_secret_file: Option<PathBuf>,
    /// The CHAP name with which the target must prove itself
    #[arg(long, value_name = "USER", requires = "chap_user", requires = "chap_target_secret_file")]
    chap_target_user: Option<String>,
    /// The file that has the target's CHAP secret
    #[arg(long, value_name = "FILE", requires = "chap_target_user")]
    chap_target_secret_file: Option<PathBuf>,
    /// Protect the headers of all PDUs by CRC32C
    #[arg(long)]
    header_digest: bool,
    /// Protect the data of all PDUs by CRC32C
    #[arg(long)]
    data_digest: bool,
}

/// A list of processors.
#[derive(Clone, Debug)]
struct Processors(Vec<usize>);

fn processors(text: &str) -> Result<Processors, String> {
    // `-a1` is processor 1 here, and not a number of cores.
    let list = if text.contains(['-', ',']) { text.to_owned() } else { format!("{text}-{text}") };
    match list.parse::<Cores>() {
        Ok(Cores::Processors(processors)) => Ok(Processors(processors)),
        _ => Err(format!("{text:?} is no list of processors: write 0,2-3")),
    }
}

impl SetupArgs {
    /// How these targets are reached.
    ///
    /// # Errors
    /// If a secret cannot be read.
    pub fn setup(&self, targets: Vec<Target>) -> Result<Setup, CliError> {
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

    fn login(&self) -> Result<Options, CliError> {
        let mut login = Options::default();
        if let Some(name) = &self.initiator {
            login.initiator.clone_from(name);
        }
        login.timeouts.command = self.timeout;
        login.wish.header_digest = self.header_digest;
        login.wish.data_digest = self.data_digest;
        if let Some(initiator) = credentials(&self.chap_user, &self.chap_secret_file)? {
            let target = credentials(&self.chap_target_user, &self.chap_target_secret_file)?;
            login.chap = Some(Chap { initiator, target });
        }
        Ok(login)
    }
}

fn credentials(user: &Option<String>, file: &Option<PathBuf>) -> Result<Option<Credentials>, CliError> {
    let (Some(name), Some(path)) = (user, file) else { return Ok(None) };
    let secret = std::fs::read_to_string(path).map_err(|error| CliError::Secret(path.clone(), error))?;
    // A file that an editor has written ends with a line's end, which is not part of the secret.
    let secret = secret.trim_end_matches(['\r', '\n']).as_bytes().to_vec();
    Ok(Some(Credentials { name: name.clone(), secret }))
}
