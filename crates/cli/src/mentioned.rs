//! Whether a command in a text exists, with its options. For tests: messages, hints, documents and the
//! console tell people what to run.

use clap::{Command, Subcommand};

/// What is wrong with a command line, given without its `ursa`; `None`: nothing, as far as can be checked.
pub fn mistake(root: &Command, line: &str) -> Option<String> {
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

/// Like [`mistake`], for a command that is a request to a node, without options that all commands have.
pub fn mistake_in(line: &str) -> Option<String> {
    let mut root = crate::Command::augment_subcommands(Command::new("ursa"));
    root.build();
    mistake(&root, line)
}
