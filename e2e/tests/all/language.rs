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
const BANNED: [(&str, &str); 67] = [
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
    ("as far as", "if, where"),
    ("lose each other", "the link between them is lost"),
    ("loses the other", "the link between them is lost"),
    ("loses the other one", "the link between them is lost"),
];

/// More phrases, which the pages for developers may use.
const BANNED_FOR_USERS: [(&str, &str); 4] = [
    ("is given", "receives, is set"),
    ("are given", "receive, are set"),
    ("whoever", "the node that, anyone who"),
    ("at one instant", "at one point in time"),
];

/// Pages for developers.
const FOR_CONTRIBUTORS: [&str; 3] = ["docs/why", "docs/formats", "ARCHITECTURE.md"];

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
    found.clear();
    look(Path::new("docs/why/it.md"), "Whoever asks is no member.\nThere is no copy.\n", "<!--", &mut found);
    assert_eq!(found, ["docs/why/it.md:1: \"is no\" (say: is not a)"]);
    found.clear();
    look(Path::new("docs/use/it.md"), "Whoever asks is no longer a member.\n", "<!--", &mut found);
    assert_eq!(found, ["docs/use/it.md:1: \"whoever\" (say: the node that, anyone who)"]);
}

/// What a subject of a commit may have: more does not fit into the lists in which they are read.
const SUBJECT_MAX: usize = 72;

/// The subjects of the newest commits, without merges. Nothing is checked outside of a repository.
#[test]
fn subjects_of_commits_fit() {
    let mut command = Command::new("git");
    command.arg("-C").arg(root()).args(["log", "-10", "--no-merges", "--format=%s"]);
    let Ok(output) = command.output() else { return };
    for subject in String::from_utf8_lossy(&output.stdout).lines() {
        assert!(subject.chars().count() <= SUBJECT_MAX && !subject.ends_with('.'), "{subject:?}");
    }
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
        let for_users = !FOR_CONTRIBUTORS.iter().any(|place| path.starts_with(place));
        let phrases = BANNED.iter().chain(BANNED_FOR_USERS.iter().filter(|_| for_users));
        for (phrase, instead) in phrases.filter(|(phrase, _)| has_phrase(&line, phrase)) {
            found.push(format!("{}:{}: {phrase:?} (say: {instead})", path.display(), index + 1));
        }
        if denies_with_no(&line) {
            found.push(format!("{}:{}: \"is no\" (say: is not a)", path.display(), index + 1));
        }
    }
}

/// Whether the line says that something is no X, except in `there is no X`, `is no longer` and the like.
fn denies_with_no(line: &str) -> bool {
    let is_idiom =
        |rest: &str| ["longer", "more", "less", "faster", "slower"].iter().any(|it| rest.starts_with(it));
    line.match_indices(" is no ")
        .any(|(at, it)| !line[..at].ends_with("there") && !is_idiom(&line[at + it.len()..]))
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
