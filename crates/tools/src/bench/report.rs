//! `ursa bench report`.

use std::path::{Path, PathBuf};

use bench::record::Document;
use clap::Args;
use cli::Output;

use super::results::ResultArgs;
use crate::error::ToolError;

/// A record from a file.
#[derive(Args, Debug)]
pub struct Report {
    /// Result written by --json
    #[arg(value_name = "FILE")]
    record: PathBuf,
    #[command(flatten)]
    results: ResultArgs,
}

impl Report {
    pub fn run(self, output: &Output) -> Result<(), ToolError> {
        self.results.report(output, &read(&self.record)?)
    }
}

pub fn read(path: &Path) -> Result<Document, ToolError> {
    let json = std::fs::read_to_string(path).map_err(|error| bench::Error::Read(path.to_owned(), error))?;
    Ok(Document::parse(&json, path)?)
}
