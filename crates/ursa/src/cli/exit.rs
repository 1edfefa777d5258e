//! How the program ends, and what it says then.

use std::error::Error;
use std::process::ExitCode;

/// What `ursa --help` says about exit codes.
pub const HELP: &str = "\
Exit codes:
  0  done
  1  refused, or failed: the message says why
  2  the arguments are wrong
  3  no node answers at the API's address
  4  a node stopped by a defect of the program (`ursa serve`)";

/// What a command ends with.
pub trait Outcome: Error {
    /// The exit code.
    fn code(&self) -> u8;
}

/// The exit code, after the message is on standard error.
pub fn code<E: Outcome>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ursa: {}", with_causes(&error));
            ExitCode::from(error.code())
        }
    }
}

/// An error and what caused it, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let this = error.to_string();
        // Some errors repeat their cause in their own words.
        if !text.ends_with(&this) {
            text = format!("{text}: {this}");
        }
        cause = error.source();
    }
    text
}
