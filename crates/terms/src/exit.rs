//! Exit codes and error messages.

use std::error::Error;
use std::process::ExitCode;

/// An error with which a command ends.
pub trait Outcome: Error {
    /// The exit code of the process.
    fn code(&self) -> u8;
}

/// Prints the error's message on standard error; returns the exit code.
pub fn code<E: Outcome>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ursa: {}", with_causes(&error));
            ExitCode::from(error.code())
        }
    }
}

/// Prints the message for invalid arguments on standard error; returns the exit code.
pub fn wrong_arguments(error: &dyn Error) -> ExitCode {
    eprintln!("ursa: {}", with_causes(error));
    ExitCode::from(2)
}

/// The error and its causes, separated by colons.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let this = error.to_string();
        // Some errors already include the text of their cause.
        if !text.contains(&this) {
            text = format!("{text}: {}", this.trim_end());
        }
        cause = error.source();
    }
    text
}
