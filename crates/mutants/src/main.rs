//! Injects faults into a copy of the code, one at a time, and reports those that no test detects.
//!
//! Run by hand, not by `./test`: each fault costs a build. Each file in `mutations/` has one fault
//! ([`mutation`]); `docs/testing.md` has a table of them.

mod failure;
mod mutation;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lexopt::prelude::{Long, Short, ValueExt};

use crate::failure::Failure;
use crate::mutation::{Catcher, Mutation};

const USAGE: &str = "\
Apply faults to a copy of the code, one at a time, and report those that no test catches.

  mutants              Run all mutations
  mutants --only NAME  Run one mutation (may be repeated)
  --list               List the mutations and their catchers as a table, and run nothing
  --seconds N          Time limit of a catcher, once it is built (default 1800)
  --no-baseline        Skip the check that the catchers pass without a mutation

Exit code 0: all that can be caught were caught; 1: some survived; 2: a mutation or a catcher is broken.
";

/// How a build or a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Well,
    Failed,
    /// It took too long, and was killed.
    Late,
}

/// The result of a mutation.
enum Verdict {
    Caught {
        /// The first command that failed.
        catcher: Catcher,
        took: Duration,
        failure: Failure,
    },
    Survived,
    /// A catcher took too long: nothing is proven.
    Undecided(Catcher),
    /// The mutation does not build, or a catcher fails without it.
    Broken(String),
}

struct Arguments {
    only: Vec<String>,
    list: bool,
    baseline: bool,
    limit: Duration,
}

/// The copy of the tree that mutations are applied to, with its own target directory, so that only changed
/// files are built.
struct Sandbox {
    tree: PathBuf,
    target: PathBuf,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let wanted = match parse().map_err(|error| format!("{error}\n\n{USAGE}"))? {
        Some(wanted) => wanted,
        None => {
            print!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let mut mutations = Mutation::all(&root.join("crates/mutants/mutations"))?;
    for name in &wanted.only {
        if !mutations.iter().any(|mutation| mutation.name == *name) {
            return Err(format!("unknown mutation {name}; see --list"));
        }
    }
    mutations.retain(|mutation| wanted.only.is_empty() || wanted.only.contains(&mutation.name));
    // Before any build, check that all of them fit the code.
    for mutation in &mutations {
        mutation.apply(&root)?;
    }
    if wanted.list {
        print!("{}", table(&mutations));
        return Ok(ExitCode::SUCCESS);
    }
    let sandbox = Sandbox::new(&root)?;
    let mut baseline = BTreeMap::new();
    let mut verdicts = Vec::new();
    for mutation in &mutations {
        println!("{}: {}", mutation.name, mutation.what);
        let verdict = sandbox.judge(mutation, &wanted, &mut baseline)?;
        println!("  {}", verdict.describe());
        verdicts.push((mutation, verdict));
    }
    Ok(report(&verdicts))
}

/// The table for `docs/testing.md`.
fn table(mutations: &[Mutation]) -> String {
    let mut table = "| mutation | what it does | noticed by | seen |\n|---|---|---|---|\n".to_owned();
    for Mutation { name, what, sorry, catchers, seen, .. } in mutations {
        let by: Vec<String> = catchers.iter().map(|catcher| format!("`{catcher}`")).collect();
        let by = sorry.as_ref().map_or(by.join(", then "), |sorry| format!("nothing: {sorry}"));
        table += &format!("| `{name}` | {what} | {by} | {} |\n", seen.as_deref().unwrap_or(""));
    }
    table
}

fn report(verdicts: &[(&Mutation, Verdict)]) -> ExitCode {
    println!();
    for (mutation, verdict) in verdicts {
        println!("{:32} {}", mutation.name, verdict.describe());
    }
    let is = |kind: fn(&Verdict) -> bool| {
        let those = verdicts.iter().filter(|(_, verdict)| kind(verdict));
        those.map(|(mutation, _)| *mutation).collect::<Vec<_>>()
    };
    let survivors = is(|verdict| matches!(verdict, Verdict::Survived));
    let unexpected = survivors.iter().filter(|mutation| mutation.sorry.is_none()).count();
    let undecided = is(|verdict| matches!(verdict, Verdict::Undecided(_))).len();
    let broken = is(|verdict| matches!(verdict, Verdict::Broken(_))).len();
    println!(
        "\n{} mutations: {unexpected} survived, {} more cannot be caught, {undecided} undecided, {broken} broken",
        verdicts.len(),
        survivors.len() - unexpected
    );
    match (broken, unexpected + undecided) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(2),
    }
}

impl Verdict {
    fn describe(&self) -> String {
        match self {
            Verdict::Caught { catcher, took, failure } => {
                format!("caught in {} s by `{catcher}`{failure}", took.as_secs())
            }
            Verdict::Survived => "SURVIVED".to_owned(),
            Verdict::Undecided(catcher) => format!("UNDECIDED, timed out: {catcher}"),
            Verdict::Broken(why) => format!("BROKEN: {why}"),
        }
    }
}

impl Sandbox {
    /// A copy of the work tree, including what is not committed.
    fn new(root: &Path) -> Result<Sandbox, String> {
        let home = root.join("target/mutants");
        let sandbox = Sandbox { tree: home.join("tree"), target: home.join("target") };
        let mut listed = Command::new("git");
        let listed = listed.args(["ls-files", "-coz", "--exclude-standard"]).current_dir(root).output();
        let listed = listed.map_err(|error| format!("git: {error}"))?;
        let listed = String::from_utf8(listed.stdout).map_err(|error| error.to_string())?;
        let mut kept = Vec::new();
        // An unchanged file keeps its time, so that it is not built again.
        for name in listed.split('\0').filter(|name| !name.is_empty()) {
            let Ok(bytes) = fs::read(root.join(name)) else { continue };
            let to = sandbox.tree.join(name);
            if fs::read(&to).ok().as_ref() != Some(&bytes) {
                write(&to, &bytes)?;
            }
            kept.push(to);
        }
        kept.sort();
        remove_others(&sandbox.tree, &kept);
        Ok(sandbox)
    }

    fn judge(
        &self,
        mutation: &Mutation,
        wanted: &Arguments,
        baseline: &mut BTreeMap<Catcher, Ended>,
    ) -> Result<Verdict, String> {
        if wanted.baseline {
            for catcher in &mutation.catchers {
                if !baseline.contains_key(catcher) {
                    let ended = match self.cargo(&catcher.build(), None)? {
                        Ended::Well => self.cargo(&catcher.run(), Some(wanted.limit))?,
                        ended => ended,
                    };
                    baseline.insert(catcher.clone(), ended);
                }
                if baseline[catcher] != Ended::Well {
                    return Ok(Verdict::Broken(format!("fails without a mutation: {catcher}")));
                }
            }
        }
        let mutated = mutation.apply(&self.tree)?;
        let mut before = Vec::new();
        for (path, text) in &mutated {
            before.push(fs::read(path).map_err(|error| error.to_string())?);
            write(path, text.as_bytes())?;
        }
        let verdict = self.run_catchers(mutation, wanted);
        for ((path, _), bytes) in mutated.iter().zip(&before) {
            write(path, bytes)?;
        }
        verdict
    }

    fn run_catchers(&self, mutation: &Mutation, wanted: &Arguments) -> Result<Verdict, String> {
        let mut late = None;
        for catcher in &mutation.catchers {
            if self.cargo(&catcher.build(), None)? != Ended::Well {
                return Ok(Verdict::Broken(format!("does not build: cargo {}", catcher.build().join(" "))));
            }
            let began = Instant::now();
            match self.cargo(&catcher.run(), Some(wanted.limit))? {
                Ended::Failed => {
                    let (catcher, took) = (catcher.clone(), began.elapsed());
                    let output = fs::read(self.output()).map_err(|error| error.to_string())?;
                    let failure = Failure::find(&String::from_utf8_lossy(&output));
                    return Ok(Verdict::Caught { catcher, took, failure });
                }
                Ended::Late => late = Some(catcher.clone()),
                Ended::Well => {}
            }
        }
        Ok(late.map_or(Verdict::Survived, Verdict::Undecided))
    }

    /// The output of the last run of cargo, in a file beside the tree.
    fn output(&self) -> PathBuf {
        self.tree.with_file_name("last.log")
    }

    /// Runs cargo in the tree, and keeps its output.
    fn cargo(&self, arguments: &[String], limit: Option<Duration>) -> Result<Ended, String> {
        const LOOK_EVERY: Duration = Duration::from_millis(200);
        let say = |error: std::io::Error| format!("cargo {}: {error}", arguments.join(" "));
        let log = fs::File::create(self.output()).map_err(say)?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(say)?).stderr(log);
        // Including all processes that it starts: tests run in processes of their own.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(say)?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(say)? {
                return Ok(if status.success() { Ended::Well } else { Ended::Failed });
            }
            if limit.is_some_and(|limit| began.elapsed() > limit) {
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return Ok(Ended::Late);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let say = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().expect("a file is in a directory")).map_err(say)?;
    fs::write(path, bytes).map_err(say)
}

/// Removes files of an earlier copy that the work tree no longer has.
fn remove_others(directory: &Path, kept: &[PathBuf]) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_others(&path, kept);
        } else if kept.binary_search(&path).is_err() {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Parses the arguments; `None`: print the help.
fn parse() -> Result<Option<Arguments>, lexopt::Error> {
    let mut wanted =
        Arguments { only: Vec::new(), list: false, baseline: true, limit: Duration::from_secs(1800) };
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("only") => wanted.only.push(arguments.value()?.string()?),
            Long("list") => wanted.list = true,
            Long("no-baseline") => wanted.baseline = false,
            Long("seconds") => wanted.limit = Duration::from_secs(arguments.value()?.parse()?),
            Short('h') | Long("help") => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_is_the_one_that_is_printed() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mutations = Mutation::all(&here.join("mutations")).expect("each says what it is");
        let page = fs::read_to_string(here.join("../../docs/testing.md")).expect("it is there");
        let header = "| mutation | what it does | ";
        let rows = page.lines().skip_while(|line| !line.starts_with(header));
        let found: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        let printed = table(&mutations);
        let expected: Vec<&str> = printed.lines().collect();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "copy what `cargo run -p mutants -- --list` prints");
        }
        assert_eq!(found.len(), expected.len(), "copy what `cargo run -p mutants -- --list` prints");
    }
}
