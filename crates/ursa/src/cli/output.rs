//! How answers are shown: as a table for people, as JSON or YAML for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::exit::CliError;

/// How to show an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table for people.
    #[default]
    Table,
    /// JSON, as the API returns it.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Shows answers on standard output.
pub struct Output(Format);

impl Output {
    /// In this format.
    pub fn new(format: Format) -> Output {
        Output(format)
    }

    /// Whether people read it.
    pub fn is_for_people(&self) -> bool {
        self.0 == Format::Table
    }

    /// Shows an answer: its data, or what `text` makes of it for people.
    ///
    /// # Errors
    /// [`CliError::Print`].
    pub fn show<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> Result<(), CliError> {
        match self.0 {
            Format::Table => self.text(&text(value)),
            Format::Json => {
                let json =
                    serde_json::to_string_pretty(value).map_err(|error| CliError::Print(error.into()))?;
                self.text(&format!("{json}\n"))
            }
            Format::Yaml => {
                let yaml = serde_saphyr::to_string(value)
                    .map_err(|error| CliError::Print(io::Error::other(error)))?;
                self.text(&format!("{}\n", yaml.trim_end()))
            }
        }
    }

    /// Shows one of many that come one by one: a line of JSON, or what `text` makes of it.
    ///
    /// # Errors
    /// [`CliError::Print`].
    pub fn line<T: Serialize>(&self, value: &T, text: impl FnOnce(&T) -> String) -> Result<(), CliError> {
        let line = match self.0 {
            Format::Table => format!("{}\n", text(value)),
            Format::Json => {
                let json = serde_json::to_string(value).map_err(|error| CliError::Print(error.into()))?;
                format!("{json}\n")
            }
            Format::Yaml => {
                let yaml = serde_saphyr::to_string(value)
                    .map_err(|error| CliError::Print(io::Error::other(error)))?;
                format!("---\n{}\n", yaml.trim_end())
            }
        };
        // Nobody reads any more: that is the end.
        io::stdout().lock().write_all(line.as_bytes()).map_err(CliError::Print)
    }

    /// Says that something was done. Programs see that from the exit code.
    ///
    /// # Errors
    /// [`CliError::Print`].
    pub fn done(&self, text: &str) -> Result<(), CliError> {
        match self.0 {
            Format::Table => self.text(&format!("{text}\n")),
            Format::Json | Format::Yaml => Ok(()),
        }
    }

    /// Prints as it is.
    ///
    /// # Errors
    /// [`CliError::Print`].
    pub fn text(&self, text: &str) -> Result<(), CliError> {
        match io::stdout().lock().write_all(text.as_bytes()) {
            // Whoever reads has seen enough (`ursa volume list | head`).
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(CliError::Print),
        }
    }
}
