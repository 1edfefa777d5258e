//! `ursa man`: manual pages, generated from the text of `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use cli::{CliError, Output};

use crate::arguments::Cli;

/// Where to write them.
#[derive(Args, Debug)]
pub struct Manual {
    /// Directory, created if it does not exist: /usr/local/share/man/man1 for all users
    directory: PathBuf,
}

impl Manual {
    pub fn run(&self, output: &Output) -> Result<(), CliError> {
        let directory = &self.directory;
        write(directory).map_err(|error| CliError::Manual(directory.clone(), error))?;
        output.done(&format!(
            "Manual pages written to {0}: read them with `man -l {0}/ursa.1`.",
            directory.display()
        ))
    }
}

fn write(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        fn pages(command: &clap::Command, found: &mut Vec<String>) {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name());
            found.push(format!("{name}.1"));
            command.get_subcommands().filter(|sub| !sub.is_hide_set()).for_each(|sub| pages(sub, found));
        }
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("man1");
        write(&directory).unwrap();
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        let mut expected = Vec::new();
        pages(&command, &mut expected);
        expected.sort();
        let mut written: Vec<String> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        written.sort();
        assert_eq!(written, expected);
        assert!(written.len() > 60, "{written:?}");
        let page = fs::read_to_string(directory.join("ursa-volume-create.1")).unwrap();
        for part in
            [".TH ursa-volume-create 1", "Create a volume and a target for it", "\\-\\-size", ".SH OPTIONS"]
        {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        let first = fs::read_to_string(directory.join("ursa.1")).unwrap();
        assert!(first.contains("Exit codes:"), "{first}");
    }
}
