//! The formats of output: a table for people, JSON or YAML for programs.

use std::io::{self, Write};

use api::List;
use clap::ValueEnum;
use serde::Serialize;

use super::error::CliError;
use super::table::say_missing;

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

/// Prints responses on standard output.
pub struct Output(Format);

impl Output {
    /// Writes in this format.
    pub fn new(format: Format) -> Output {
        Output(format)
    }

    /// Whether people read the output, not a program.
    pub fn is_for_people(&self) -> bool {
        self.0 == Format::Table
    }

    /// Prints a response: its data, or the text that `text` makes of it for people.
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

    /// Prints a list, and on standard error the nodes that are missing in it.
    pub fn list<T: Serialize>(
        &self,
        list: &List<T>,
        text: impl FnOnce(&[T]) -> String,
    ) -> Result<(), CliError> {
        self.show(list, |list| text(&list.items))?;
        say_missing(&list.missing);
        Ok(())
    }

    /// Prints one of a stream of items: a line of JSON, or the text that `text` makes of it.
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
        // A closed pipe is an error here, which ends the stream.
        io::stdout().lock().write_all(line.as_bytes()).map_err(CliError::Print)
    }

    /// Reports a success to people; programs have the exit code.
    pub fn done(&self, text: &str) -> Result<(), CliError> {
        match self.0 {
            Format::Table => self.text(&format!("{text}\n")),
            Format::Json | Format::Yaml => Ok(()),
        }
    }

    /// Prints the text, without a line end of its own.
    pub fn text(&self, text: &str) -> Result<(), CliError> {
        match io::stdout().lock().write_all(text.as_bytes()) {
            // The reader has closed the pipe (`ursa volume list | head`).
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(CliError::Print),
        }
    }
}
