//! Where results are written.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bench::record::{Analysis, Document, Run};
use bench::report::{html, text};
use clap::Args;
use cli::{CliError, Output};

use super::progress::style;
use crate::error::ToolError;

/// Where results go, besides standard output.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Results")]
pub struct ResultArgs {
    /// Write the full result as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML page with charts to this file; it needs no network to view
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl ResultArgs {
    /// Checks that the files can be written, so that this does not fail after an hour.
    pub fn check(&self) -> Result<(), ToolError> {
        for path in self.json.iter().filter(|path| !is_standard_output(path)).chain(&self.html) {
            File::options().create(true).append(true).open(path).map_err(|error| failed(path, error))?;
        }
        Ok(())
    }

    /// Records these runs of this command, and reports them.
    pub fn record(
        &self,
        output: &Output,
        runs: Vec<Run>,
        analysis: Option<Analysis>,
    ) -> Result<(), ToolError> {
        let document = Document::new(command_line(), env!("CARGO_PKG_VERSION"), runs, analysis);
        self.report(output, &document)
    }

    /// Shows the results and writes them to files.
    pub fn report(&self, output: &Output, document: &Document) -> Result<(), ToolError> {
        let json = document.to_json() + "\n";
        match &self.json {
            Some(path) if is_standard_output(path) => output.text(&json)?,
            Some(path) => {
                output.show(document, |document| text::document(document, style()))?;
                std::fs::write(path, json).map_err(|error| failed(path, error))?;
            }
            None => output.show(document, |document| text::document(document, style()))?,
        }
        if let Some(path) = &self.html {
            std::fs::write(path, html::page(document)).map_err(|error| failed(path, error))?;
        }
        io::stdout().flush().map_err(CliError::Print)?;
        if document.is_clean() { Ok(()) } else { Err(ToolError::BenchIncomplete) }
    }
}

fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

fn failed(path: &Path, error: io::Error) -> ToolError {
    ToolError::Bench(bench::Error::Write(path.into(), error))
}

/// The arguments of this program, quoted for a shell. They never contain secrets.
fn command_line() -> String {
    let mut words: Vec<String> =
        std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy())).collect();
    words.insert(0, "ursa".to_owned());
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(
            ["-b4K", "a b", "", "it's", "$HOME"].map(quoted),
            ["-b4K", "'a b'", "''", r"'it'\''s'", "'$HOME'"]
        );
    }
}
