//! Arguments for the login to a target.

use std::path::PathBuf;

use clap::Args;
use cli::CliError;
use initiator::{Chap, Credentials, Options};

/// How to log in to a target.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Login")]
pub struct LoginArgs {
    /// IQN of this initiator
    #[arg(long, value_name = "IQN")]
    initiator: Option<String>,
    /// CHAP user name
    #[arg(long, value_name = "USER", requires = "chap_secret_file")]
    chap_user: Option<String>,
    /// File with the CHAP secret
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    chap_secret_file: Option<PathBuf>,
    /// CHAP user name of the target, for mutual CHAP
    #[arg(long, value_name = "USER", requires = "chap_user", requires = "chap_target_secret_file")]
    chap_target_user: Option<String>,
    /// File with the target's CHAP secret
    #[arg(long, value_name = "FILE", requires = "chap_target_user")]
    chap_target_secret_file: Option<PathBuf>,
    /// Protect PDU headers with CRC32C
    #[arg(long)]
    header_digest: bool,
    /// Protect PDU data with CRC32C
    #[arg(long)]
    data_digest: bool,
}

impl LoginArgs {
    /// The options of a login, with default timeouts.
    pub fn options(&self) -> Result<Options, CliError> {
        let mut login = Options::default();
        if let Some(name) = &self.initiator {
            login.initiator.clone_from(name);
        }
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
    // Editors end a file with a newline, which is not part of the secret.
    let secret = secret.trim_end_matches(['\r', '\n']).as_bytes().to_vec();
    Ok(Some(Credentials { name: name.clone(), secret }))
}
