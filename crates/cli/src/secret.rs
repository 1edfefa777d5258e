//! CHAP secrets and passwords: from a file, from standard input, or typed in.
//!
//! They are never arguments, which every user of the machine can read.

use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use api::{Chap, PASSWORD_CHARACTERS_MIN};
use clap::Args;

use super::error::CliError;

/// The arguments for a name and a secret.
#[derive(Args, Debug)]
pub struct ChapArgs {
    /// CHAP user name; the secret is prompted for, or read from standard input
    #[arg(long, value_name = "USER")]
    chap_user: Option<String>,

    /// Read the CHAP secret from this file; - is standard input
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    chap_secret_file: Option<PathBuf>,
}

impl ChapArgs {
    /// The name and the secret, if there is a name.
    pub fn read(self) -> Result<Option<Chap>, CliError> {
        let Some(user) = self.chap_user else { return Ok(None) };
        let prompt = format!("CHAP secret for {user} (12 to 16 characters work with all initiators)");
        let secret = secret(&prompt, self.chap_secret_file)?;
        Ok(Some(Chap { user, secret }))
    }
}

/// A password, from the file or typed in at this prompt.
pub fn password(prompt: &str, file: Option<PathBuf>) -> Result<String, CliError> {
    secret(&format!("{prompt} ({PASSWORD_CHARACTERS_MIN} characters or more)"), file)
}

fn secret(prompt: &str, file: Option<PathBuf>) -> Result<String, CliError> {
    let standard_input = PathBuf::from("-");
    let secret = match file {
        Some(path) if path != standard_input => {
            std::fs::read_to_string(&path).map_err(|error| CliError::Secret(path, error))?
        }
        None if io::stdin().is_terminal() => typed(prompt)?,
        _ => {
            let mut secret = String::new();
            let read = io::stdin().read_to_string(&mut secret);
            read.map_err(|error| CliError::Secret(standard_input, error))?;
            secret
        }
    };
    // Editors end a file with a newline, which is not part of the secret.
    Ok(secret.trim_end_matches(['\r', '\n']).to_owned())
}

fn typed(prompt: &str) -> Result<String, CliError> {
    let terminal = |error| CliError::Secret("the terminal".into(), error);
    let first = rpassword::prompt_password(format!("{prompt}: "));
    let second = rpassword::prompt_password("Repeat: ");
    let (first, second) = (first.map_err(terminal)?, second.map_err(terminal)?);
    if first == second { Ok(first) } else { Err(CliError::SecretsDiffer) }
}
