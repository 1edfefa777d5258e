//! Tests that every command in a text exists, with its options: messages, hints, documents and the console
//! tell people what to run.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};

use super::Cli;

/// The texts to check, in the repository. The changelog is not one of them: it has old names.
const TEXTS: &[&str] = &["crates", "docs", "console/src", "deploy", "README.md", "ARCHITECTURE.md"];
const ENDINGS: &[&str] = &["rs", "md", "ts", "tsx", "yml", "yaml"];

/// A command that only nodes run, which is not part of the command line.
const NOT_FOR_PEOPLE: &str = "watch-process";

/// What is wrong with a command line, given without its `ursa`; `None`: nothing, as far as can be checked.
fn mistake(root: &Command, line: &str) -> Option<String> {
    let mut command = root;
    for word in line.split_whitespace().map(|word| word.trim_start_matches('[')) {
        // The rest is for the shell, or is inserted when the text is shown.
        if word.starts_with(['|', '>', '<']) || word.contains("${") || word.contains("...") {
            return None;
        }
        if let Some(option) = word.strip_prefix("--") {
            let end = option.find(|at: char| !at.is_ascii_lowercase() && at != '-').unwrap_or(option.len());
            let option = &option[..end];
            let known = |arg: &clap::Arg| {
                arg.get_long() == Some(option)
                    || arg.get_all_aliases().is_some_and(|all| all.contains(&option))
            };
            if !["", "help", "version"].contains(&option) && !command.get_arguments().any(known) {
                return Some(format!("{} has no option --{option}", command.get_name()));
            }
        } else if command.has_subcommands() && !word.starts_with('-') {
            match command.find_subcommand(word) {
                Some(found) => command = found,
                // A placeholder for one of several commands.
                None if word.starts_with('{') || word.chars().all(|at| at.is_ascii_uppercase()) => {
                    return None;
                }
                None if command.get_positionals().next().is_some() => return None,
                None => return Some(format!("{} has no command {word:?}", command.get_name())),
            }
        }
    }
    None
}

/// What is wrong with a command line, given without its `ursa`.
pub fn mistake_in(line: &str) -> Option<String> {
    mistake(&root(), line)
}

/// The texts between backquotes that begin with `ursa `, without it.
fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    text.split("`ursa ").skip(1).filter_map(|rest| rest.split(['`', '\n']).next())
}

fn texts(at: &Path, found: &mut Vec<PathBuf>) {
    if at.is_file() {
        let ending = at.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        found.extend(ENDINGS.contains(&ending).then(|| at.to_owned()));
        return;
    }
    let mut inside: Vec<PathBuf> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
    inside.sort();
    inside.iter().for_each(|at| texts(at, found));
}

fn root() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

#[test]
fn every_command_in_a_text_exists() {
    let (root, mut files) = (root(), Vec::new());
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    TEXTS.iter().for_each(|text| texts(&repository.join(text), &mut files));
    let (mut wrong, mut commands) = (Vec::new(), 0);
    // This file contains wrong commands as examples.
    for file in files.iter().filter(|file| !file.ends_with("cli/mentioned.rs")) {
        for line in mentioned(&fs::read_to_string(file).unwrap()).filter(|line| *line != NOT_FOR_PEOPLE) {
            commands += 1;
            if let Some(mistake) = mistake(&root, line) {
                wrong.push(format!("{}: `ursa {line}`: {mistake}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands > 500, "only {commands} were found");
}

#[test]
fn commands_and_options_that_do_not_exist_are_found() {
    let root = root();
    for line in ["volume copy replace", "volume copy replace db --on 2", "pool export p --force", "volumes"] {
        assert!(mistake(&root, line).is_some(), "{line}");
    }
    for line in
        ["volume copy rebuild db --on 2 --pool new", "{kind} list", "volume list | head", "top volumes"]
    {
        assert_eq!(mistake(&root, line), None, "{line}");
    }
}
