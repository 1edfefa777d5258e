//! Texts for users are in the field's language (`docs/glossary.md`).
//!
//! Finds phrases that a storage administrator would not use, in the documentation, the command line's help,
//! the API's description, the console, and the programs' output.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::program;

use crate::structure::{is_test, lines_of_test_modules, root, sources};

/// Phrases, in lower case, and what to say instead.
const BANNED: [(&str, &str); 63] = [
    ("anew", "again"),
    ("mend", "repair"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("take back", "cancel"),
    ("takes back", "cancels"),
    ("taken back", "cancelled"),
    ("stand still", "be paused, be stalled"),
    ("stands still", "is paused, is stalled"),
    ("stood still", "was paused, was stalled"),
    ("is told", "receives, reports"),
    ("are told", "receive, report"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("gone on", "continued"),
    ("went on", "continued"),
    ("of nobody", "of no node, of no user"),
    ("so many", "N"),
    ("hear of", "hear from, reach"),
    ("hears of", "hears from, reaches"),
    ("heard of", "heard from, reached"),
    ("there is no such", "not found"),
    ("there are no such", "not found"),
    ("by itself", "automatically"),
    ("by themselves", "automatically"),
    ("outlive", "survive"),
    ("outlives", "survives"),
    ("take away", "remove"),
    ("takes away", "removes"),
    ("taken away", "removed"),
    ("given to whom", "granted to"),
    ("is not there", "is missing, is not available"),
    ("are not there", "are missing, are not available"),
    ("of its own accord", "automatically"),
    ("prove oneself", "authenticate"),
    ("proves itself", "authenticates"),
    ("only it has ever had", "that have never had a copy on another node"),
    ("no other node has ever had", "has never had a copy on another node"),
    ("gets in sync", "is in sync again, resyncs"),
    ("get in sync", "be in sync again, resync"),
    ("comes in sync", "is in sync again, resyncs"),
    ("come in sync", "be in sync again, resync"),
    ("came in sync", "was in sync again, resynced"),
    ("is given up", "is abandoned, is excluded"),
    ("are given up", "are abandoned, are excluded"),
    ("takes no changes", "accepts no changes"),
    ("take no changes", "accept no changes"),
    ("the remains of", "what is left of"),
    ("is taken for", "is mistaken for, counts as"),
    ("are taken for", "are mistaken for, count as"),
    ("took long", "took a long time"),
    ("takes long", "takes a long time"),
    ("taking long", "taking a long time"),
    ("some seconds", "a few seconds"),
    ("some milliseconds", "a few milliseconds"),
    ("for ever", "forever"),
    ("also after", "even after"),
    ("host set-up", "host setup"),
    ("is no failure", "is not a failure"),
    ("be mended", "be repaired"),
    ("is without", "lacks"),
    ("so far as", "if"),
    ("graver", "more severe"),
];

/// Files that are read as a whole. Not `docs/glossary.md`, which lists the phrases, and not
/// `docs/testing.md`, which has the names of faults, on which the simulator's seeds depend.
const PLACES: [&str; 11] = [
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/use",
    "docs/why",
    "docs/formats",
    "docs/performance.md",
    "docs/scsi-conformance.md",
    "docs/openapi.json",
    "deploy",
];

/// Crates that print nothing for users.
const UNREAD: [&str; 4] = ["sim", "fuzzing", "mutants", "replica"];

/// Marks of lines whose text is for developers: a message of a test or an assertion, or a log line that is
/// off by default.
const FOR_DEVELOPERS: [&str; 7] =
    ["expect(", "assert", "panic!", "unreachable!", "debug!", "trace!", "reason ="];

#[test]
fn texts_for_people_use_the_fields_terms() {
    let mut found = Vec::new();
    for place in PLACES {
        let comment = if place == "deploy" { "#" } else { "<!--" };
        each_file(&root().join(place), &mut |path, text| look(path, text, comment, &mut found));
    }
    each_file(&root().join("console/src"), &mut |path, text| {
        let name = path.to_string_lossy();
        if !name.ends_with(".test.ts") && !name.ends_with("schema.d.ts") {
            look(path, text, "//", &mut found);
        }
    });
    for (path, source) in sources() {
        let name = path.to_string_lossy().into_owned();
        if name.contains("/src/")
            && !is_test(&path)
            && !UNREAD.iter().any(|it| name.contains(&format!("crates/{it}/")))
        {
            look(&path, &literals(&source), "//", &mut found);
        }
    }
    let manual = tempfile::tempdir().expect("a directory can be made");
    let mut command = Command::new(e2e::node::binary());
    command.arg("man").arg(manual.path());
    program::run(&mut command, Duration::from_secs(60)).expect_ok();
    each_file(manual.path(), &mut |path, text| look(path, &text.replace("\\-", "-"), ".\\\"", &mut found));
    assert!(found.is_empty(), "say it as docs/glossary.md does:\n{}", found.join("\n"));
}

#[test]
fn phrases_are_found_in_strings_and_not_in_comments_or_tests() {
    let source = "//! It goes on.\nfn it() {\n    let _ = \"It goes on\"; // it goes on\n    x.expect(\"it goes on\");\n}\n\n#[cfg(test)]\nmod tests {\n    const IT: &str = \"goes on\";\n}\n";
    let mut found = Vec::new();
    look(Path::new("it.rs"), &literals(source), "//", &mut found);
    assert_eq!(found, ["it.rs:3: \"goes on\" (say: continues)"]);
    found.clear();
    look(Path::new("it.md"), "The ongoing is anewer.\nMade ANEW, then\n<!-- anew -->\n", "<!--", &mut found);
    assert_eq!(found, ["it.md:2: \"anew\" (say: again)"]);
}

/// Notes which phrases are in a text. Skips lines that begin with `comment`.
fn look(path: &Path, text: &str, comment: &str, found: &mut Vec<String>) {
    let path = path.strip_prefix(root()).unwrap_or(path);
    for (index, line) in text.lines().enumerate() {
        let begin = line.trim_start();
        let in_block = comment == "//" && (begin.starts_with("/*") || begin.starts_with("* "));
        if begin.starts_with(comment) || in_block {
            continue;
        }
        let line = line.split(" //").next().unwrap_or(line).to_lowercase();
        for (phrase, instead) in BANNED {
            if has_phrase(&line, phrase) {
                found.push(format!("{}:{}: {phrase:?} (say: {instead})", path.display(), index + 1));
            }
        }
    }
}

/// Whether whole words of the line are the phrase.
fn has_phrase(line: &str, phrase: &str) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase)
        .any(|(at, _)| !line[..at].ends_with(is_letter) && !line[at + phrase.len()..].starts_with(is_letter))
}

/// The string literals of a source, each on its line, except those in tests and for developers.
fn literals(source: &str) -> String {
    let tests = lines_of_test_modules(source);
    let mut text = String::new();
    let mut inside = false;
    for (index, line) in source.lines().enumerate() {
        let is_read = inside
            || !tests.contains(&(index + 1))
                && !line.trim_start().starts_with("//")
                && !FOR_DEVELOPERS.iter().any(|it| line.contains(it));
        if is_read {
            let mut escaped = false;
            for c in line.chars() {
                match c {
                    '"' if !escaped => inside = !inside,
                    _ if inside => text.push(c),
                    _ => {}
                }
                escaped = c == '\\' && !escaped;
            }
            // A literal continues on the next line only after a backslash.
            inside &= line.ends_with('\\');
        }
        text.push('\n');
    }
    text
}

fn each_file(place: &Path, look: &mut dyn FnMut(&Path, &str)) {
    if place.is_dir() {
        for entry in fs::read_dir(place).expect("the tree can be read") {
            each_file(&entry.expect("the tree can be read").path(), look);
        }
    } else if let Ok(text) = fs::read_to_string(place) {
        look(place, &text);
    }
}
