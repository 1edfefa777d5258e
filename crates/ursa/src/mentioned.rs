//! Tests that every command in a text exists, with its options: messages, hints, documents and the console
//! tell people what to run.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use cli::mentioned::mistake;

use crate::arguments::Cli;

/// The texts to check, in the repository. The changelog is not one of them: it has old names.
const TEXTS: &[&str] = &["crates", "docs", "console/src", "deploy", "README.md", "ARCHITECTURE.md"];
const ENDINGS: &[&str] = &["rs", "md", "ts", "tsx", "yml", "yaml"];

/// A command that only nodes run, which is not part of the command line.
const NOT_FOR_PEOPLE: &str = "watch-process";

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
    for file in files.iter().filter(|file| !file.ends_with("ursa/src/mentioned.rs")) {
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
