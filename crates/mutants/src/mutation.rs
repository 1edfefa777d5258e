//! A mutation: a fault that is put into the code on purpose, and the commands that should detect it.
//!
//! Each is in one file, `mutations/NAME.txt`.
//!
//! ```text
//! what: the fault in one sentence
//! sorry: why nothing can detect it (a mutation that is known to be equivalent or redundant; otherwise left out)
//! catch: test -p replica --lib world::            cargo with these arguments must fail
//! catch: sim 0 250                                a run of these seeds of crates/sim must fail: first, count
//! seen: caught in 9 s by `…`: world::tests::a, seed 3   what `mutants` printed when this was last tried
//! file: crates/replica/src/replica/mod.rs
//! <<<<
//! text that occurs in the file exactly once
//! ====
//! text to replace it by
//! >>>>
//! ```
//!
//! `file:` with its edit may occur several times. A search text that is not found exactly once is an error:
//! the code has changed, and the mutation must follow.

use std::fs;
use std::path::{Path, PathBuf};

/// A command that should detect a mutation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Catcher {
    /// `cargo` with these arguments, the first of which is `test`.
    Test(Vec<String>),
    /// `count` seeds of crates/sim, from `from` on.
    Sim { from: u64, count: u64 },
}

/// A change of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub file: PathBuf,
    pub search: String,
    pub replacement: String,
}

/// A fault and how it is detected: see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    pub name: String,
    pub what: String,
    /// Why it may survive.
    pub sorry: Option<String>,
    /// The cheapest first.
    pub catchers: Vec<Catcher>,
    pub seen: Option<String>,
    pub edits: Vec<Edit>,
}

impl Catcher {
    fn parse(text: &str) -> Result<Catcher, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        match (words.first().map(String::as_str), number(1), number(2)) {
            (Some("test"), ..) => Ok(Catcher::Test(words)),
            (Some("sim"), Some(from), Some(count)) if words.len() == 3 => Ok(Catcher::Sim { from, count }),
            _ => Err(format!("a catcher is `test …` or `sim FROM COUNT`: {text}")),
        }
    }

    /// Cargo's arguments that build the catcher and run nothing.
    pub fn build(&self) -> Vec<String> {
        match self {
            Catcher::Test(words) => {
                let before = words.iter().take_while(|word| *word != "--");
                before.cloned().chain(["--no-run".to_owned()]).collect()
            }
            Catcher::Sim { .. } => ["build", "-p", "sim"].map(str::to_owned).to_vec(),
        }
    }

    /// Cargo's arguments that run the catcher.
    pub fn run(&self) -> Vec<String> {
        match self {
            Catcher::Test(words) => words.clone(),
            Catcher::Sim { from, count } => {
                format!("run -p sim -- --from {from} --count {count}").split(' ').map(str::to_owned).collect()
            }
        }
    }
}

impl std::fmt::Display for Catcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cargo {}", self.run().join(" "))
    }
}

impl Mutation {
    /// Parses a mutation's file.
    pub fn parse(name: &str, text: &str) -> Result<Mutation, String> {
        let (mut what, mut sorry, mut seen) = (None, None, None);
        let (mut catchers, mut edits, mut file) = (Vec::new(), Vec::new(), None);
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line == "<<<<" {
                let mut until = |end: &str| {
                    let mut part = String::new();
                    for line in lines.by_ref() {
                        if line == end {
                            return Ok(part);
                        }
                        part.push_str(line);
                        part.push('\n');
                    }
                    Err(format!("{name}: edit without {end}"))
                };
                let (search, replacement) = (until("====")?, until(">>>>")?);
                let file = file.clone().ok_or(format!("{name}: edit without a file"))?;
                edits.push(Edit { file, search, replacement });
                continue;
            }
            if line.trim().is_empty() {
                continue;
            }
            let (key, value) = line.split_once(':').ok_or(format!("{name}: invalid line: {line}"))?;
            let value = value.trim();
            match key {
                "what" => what = Some(value.to_owned()),
                "sorry" => sorry = Some(value.to_owned()),
                "seen" => seen = Some(value.to_owned()),
                "catch" => catchers.push(Catcher::parse(value).map_err(|error| format!("{name}: {error}"))?),
                "file" => file = Some(PathBuf::from(value)),
                _ => return Err(format!("{name}: invalid line: {line}")),
            }
        }
        let what = what.ok_or(format!("{name}: `what` is missing"))?;
        if edits.is_empty() || catchers.is_empty() {
            return Err(format!("{name}: an edit and a catcher are required"));
        }
        Ok(Mutation { name: name.to_owned(), what, sorry, catchers, seen, edits })
    }

    /// All mutations of a directory, by name.
    pub fn all(directory: &Path) -> Result<Vec<Mutation>, String> {
        let say = |error: std::io::Error| format!("{}: {error}", directory.display());
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).map_err(say)? {
            paths.push(entry.map_err(say)?.path());
        }
        paths.sort();
        let read = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(path).map_err(say)?;
            Mutation::parse(&name, &text)
        };
        paths.iter().map(read).collect()
    }

    /// The files of a tree that it changes, with their new content.
    ///
    /// # Errors
    /// If a search text is not found exactly once.
    pub fn apply(&self, tree: &Path) -> Result<Vec<(PathBuf, String)>, String> {
        let mut changed: Vec<(PathBuf, String)> = Vec::new();
        for edit in &self.edits {
            let path = tree.join(&edit.file);
            let at = match changed.iter().position(|(other, _)| *other == path) {
                Some(at) => at,
                None => {
                    let text = fs::read_to_string(&path)
                        .map_err(|error| format!("{}: {}: {error}", self.name, edit.file.display()))?;
                    changed.push((path, text));
                    changed.len() - 1
                }
            };
            let text = &mut changed[at].1;
            let found = text.matches(&edit.search).count();
            if found != 1 {
                return Err(format!(
                    "{}: text found in {} {found} times, not once",
                    self.name,
                    edit.file.display()
                ));
            }
            *text = text.replacen(&edit.search, &edit.replacement, 1);
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    #[test]
    fn every_mutation_can_be_made() {
        let mutations = Mutation::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations"));
        let mutations = mutations.expect("each says what it is");
        assert!(mutations.len() >= 30, "{}", mutations.len());
        let wrong: Vec<String> =
            mutations.iter().filter_map(|mutation| mutation.apply(Path::new(TREE)).err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn a_text_that_is_there_twice_is_an_error() {
        let of = |search: &str| {
            let text = format!(
                "what: x\ncatch: sim 0 1\nfile: crates/mutants/Cargo.toml\n<<<<\n{search}\n====\n>>>>\n"
            );
            Mutation::parse("x", &text).expect("it is well formed").apply(Path::new(TREE))
        };
        assert!(of("[lints]").is_ok());
        assert!(of("nothing like this").is_err_and(|error| error.contains("0 times")));
        assert!(of("edition.workspace = true").is_ok());
        assert!(of("").is_err_and(|error| error.contains("times, not once")), "it is there several times");
        assert!(Mutation::parse("x", "what: x\ncatch: anything\n").is_err());
        assert!(Mutation::parse("x", "what: x\ncatch: sim 0 1\nfile: a\n<<<<\nb\n").is_err());
    }
}
