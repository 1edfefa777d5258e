//! The shape of the source: which crate may use which, where `unsafe` may be, and what only `rt` may do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::program;
use serde_json::Value;

/// Which of our crates a crate may use. Arrows point down only. Tests may use any.
const ALLOWED: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("rt", &["base"]),
    ("proto", &["base"]),
    ("replica", &["base"]),
    ("link", &["base", "rt", "replica"]),
    ("https", &[]),
    ("export", &["base"]),
    ("nbd", &[]),
    ("cluster", &["base", "rt", "https"]),
    ("store", &["base", "rt"]),
    ("node", &["base", "rt", "proto", "replica", "link", "cluster", "store"]),
    ("initiator", &["base", "rt", "proto"]),
    ("bench", &["base", "rt", "proto", "initiator"]),
    ("api", &["https"]),
    ("terms", &["api"]),
    ("server", &["base", "rt", "store", "node", "api", "terms"]),
    ("cli", &["base", "https", "export", "nbd", "node", "api", "terms"]),
    ("tools", &["base", "rt", "initiator", "bench", "api", "terms", "cli"]),
    ("ursa", &["api", "terms", "server", "cli", "tools"]),
    ("sim", &["base", "rt", "proto", "replica", "cluster", "store", "node", "initiator"]),
    (
        "fuzzing",
        &["base", "export", "nbd", "proto", "replica", "link", "cluster", "store", "node", "initiator"],
    ),
    ("mutants", &[]),
    ("e2e", &["base", "rt", "proto", "store", "node", "initiator", "api"]),
];

/// The rooms of `node` (`ARCHITECTURE.md`), and which others each may use: here, too, arrows point down only.
const ROOMS: &[(&str, &[&str])] = &[
    ("data", &[]),
    ("copies", &["data"]),
    ("attach", &["data"]),
    ("iscsi", &["attach", "data"]),
    ("member", &["attach", "copies", "data"]),
    ("control", &["attach", "copies", "data", "iscsi", "member"]),
];
/// Arrows between rooms that still point up, and how many files they begin in. None may be added.
const UPWARD: &[(&str, &str, usize)] = &[
    ("data", "control", 2),
    ("data", "copies", 1),
    ("copies", "control", 5),
    ("copies", "member", 1),
    ("attach", "control", 1),
    ("attach", "iscsi", 3),
    ("iscsi", "control", 3),
    ("member", "control", 10),
    ("member", "iscsi", 1),
];
/// How often a room below `control` still looks up what it uses (`Shard::current()` and the like) instead of
/// being given it. These numbers may only fall.
const CURRENT: &[(&str, usize)] =
    &[("data", 4), ("copies", 38), ("attach", 14), ("iscsi", 25), ("member", 43)];

/// Crates that may contain `unsafe`.
const UNSAFE_CRATES: &[&str] = &["base", "rt"];
/// Files elsewhere that may contain it, each with its reason.
const UNSAFE_FILES: &[(&str, &str)] = &[
    ("structure.rs", "it looks for the word"),
    ("node/tests/all/memory.rs", "counts what is allocated, which only an allocator can"),
    ("tools/src/drill/fleet.rs", "has the kernel end a drill's nodes with it, between fork and exec"),
    (
        "server/src/devices/announce.rs",
        "tells neighbours by ARP, for whose sockets std and rustix have no addresses",
    ),
    ("server/src/watcher/watch.rs", "has a process of its own ignore the signals that end a service"),
    ("ursa/tests/all/no_io_uring.rs", "takes io_uring from a process, between fork and exec"),
    ("initiator/examples/load.rs", "reads the CPU clock of its own thread, which std cannot"),
];

/// Where comments wrap: so many columns fit in one of two panes of a screen.
const COMMENT_COLUMNS: usize = 110;

/// Fields with these names hold codes and facts. The server words them.
const CODES: &[&str] =
    &["reason", "why", "cause", "problem", "trouble", "message", "detail", "hint", "error"];
/// Crates that keep no sentences and send none.
const WORDLESS: &[&str] = &["replica", "link", "cluster", "store", "node"];
/// Files elsewhere with what nodes send each other.
const SENT: &[&str] = &[
    "server/src/http/audit/writer.rs",
    "server/src/http/certificate.rs",
    "server/src/http/findings/own.rs",
    "server/src/http/jobs/report.rs",
    "server/src/http/links.rs",
    "server/src/http/pools/report.rs",
    "server/src/http/volumes/elsewhere.rs",
];
/// Files in them with fields and payloads that hold a text, how many, and why it is data. Nothing reads such
/// a text but people.
const TEXTS: &[(&str, usize, &str)] = &[
    ("cluster/src/etcd/trouble.rs", 1, "an error of etcd, whose API defines errors as texts"),
    ("node/src/control/error.rs", 1, "names a bug for the log, and is never sent"),
    ("node/src/member/floating/devices.rs", 2, "what the program `ip` has printed"),
];

/// The names of the kinds of volumes.
const KINDS: &[&str] = &["VolumeKind::Thick", "VolumeKind::Ram", "VolumeKind::Log"];
/// Crates that may use these: those that define the kinds with their properties, and those that test others.
/// The rest asks for properties.
const NAMES_KINDS: &[&str] = &["store", "api", "sim", "fuzzing", "e2e"];
/// Files elsewhere with lines that name a kind, how many, and why.
const NAMED_KINDS: &[(&str, usize, &str)] = &[
    ("node/src/copies/entry.rs", 1, "an example for tests"),
    ("server/src/serve/first_volume.rs", 1, "the kind that an option of `ursa serve` names"),
    ("tools/src/drill/arguments.rs", 3, "the kind that an option or a scenario names"),
    ("terms/src/samples.rs", 1, "a sample for tests"),
];

/// Code that bypasses `rt` to reach the system, and so could not be simulated.
const SYSTEM: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::sleep",
    "std::net::Tcp",
    "std::net::Udp",
    "std::fs",
    "use std::net::{Tcp",
    "std::process",
];
/// Crates that run in the simulator. (`rt` itself is what reaches the system.)
const SIMULATED: &[&str] =
    &["base", "proto", "replica", "link", "cluster", "store", "node", "initiator", "bench"];
/// Files in them that may reach the system, each with its reason.
const SYSTEM_FILES: &[(&str, &str)] = &[
    ("node/src/control/cluster/mod.rs", "makes the directory of certificates and the record, once"),
    ("link/src/credentials/files.rs", "keeps keys and certificates where their owner can see to them"),
    ("cluster/src/call.rs", "a thread of the control plane, which may block, waits by the system's clock"),
    (
        "cluster/src/embedded/driver.rs",
        "runs the engine outside of the runtime, on a thread that waits for its disk",
    ),
    ("cluster/src/etcd/mod.rs", "waits for etcd on threads of its own"),
    ("cluster/src/etcd/access.rs", "reads the password for etcd, once"),
    ("cluster/src/etcd/health.rs", "waits for etcd on threads of its own"),
    ("cluster/src/etcd/gateway.rs", "waits for etcd on threads of its own"),
    ("cluster/src/etcd/transactions.rs", "waits for etcd on threads of its own"),
    ("cluster/src/etcd/following.rs", "waits for etcd on threads of its own"),
    ("cluster/src/embedded/file.rs", "SQLite, which brings its own system calls"),
    ("bench/src/machine/cpu.rs", "reads CPU times from /proc"),
    ("bench/src/machine/disk.rs", "reads what processes have read and written from /proc"),
    ("bench/src/machine/facts.rs", "tells what this machine is, and the date"),
    ("bench/src/machine/server.rs", "finds the process that listens at a portal"),
    ("bench/src/driver/observer.rs", "watches a run from outside of the runtime"),
    ("bench/src/driver/snapshot.rs", "takes the times of processes outside of the runtime"),
];

#[test]
fn crates_use_only_what_is_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let packages = packages();
    let names: BTreeSet<String> = packages.iter().map(|package| text(&package["name"])).collect();
    for package in &packages {
        let name = text(&package["name"]);
        let Some(may_use) = allowed.get(name.as_str()) else {
            panic!("{name} is a new crate: give it its place in ARCHITECTURE.md and in this table");
        };
        for dependency in package["dependencies"].as_array().expect("cargo lists dependencies") {
            let used = text(&dependency["name"]);
            let test_only = dependency["kind"] == "dev";
            if names.contains(&used) && !test_only {
                assert!(may_use.contains(&used.as_str()), "{name} must not use {used}: arrows point down");
            }
        }
    }
}

#[test]
fn arrows_between_the_rooms_of_node_point_down() {
    let mut upward: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (path, source) in sources().iter().filter(|(path, _)| !is_test(path)) {
        let Some((room, below)) = room_of(path) else { continue };
        for (other, _) in ROOMS.iter().filter(|(other, _)| *other != room && !below.contains(other)) {
            let (inside, whole) = (format!("crate::{other}::"), format!("crate::{other};"));
            if production_lines(source).any(|line| line.contains(&inside) || line.contains(&whole)) {
                *upward.entry((room, *other)).or_default() += 1;
            }
        }
    }
    for ((from, to), files) in &upward {
        let known = UPWARD.iter().find(|(room, other, _)| room == from && other == to);
        let most = known.map_or(0, |(_, _, files)| *files);
        assert!(*files <= most, "{from} must not use {to}: {files} files do, at most {most} may");
    }
    for (from, to, _) in UPWARD {
        assert!(upward.contains_key(&(*from, *to)), "{from} no longer uses {to}: remove it from the list");
    }
}

#[test]
fn operations_on_blocks_know_no_protocol() {
    let path = root().join("crates/proto/src/block.rs");
    let source = fs::read_to_string(&path).expect("the source can be read");
    for line in production_lines(&source) {
        let uses_another = ["crate::", "super::"].iter().any(|path| line.contains(path));
        assert!(!uses_another, "every protocol uses these operations, they use none: {line}");
    }
}

#[test]
fn rooms_below_control_are_given_what_they_use() {
    let sources = sources();
    for (room, most) in CURRENT {
        let of_room = sources.iter().filter(|(path, _)| !is_test(path));
        let of_room = of_room.filter(|(path, _)| room_of(path).is_some_and(|(of, _)| of == *room));
        let lines = of_room.flat_map(|(_, source)| production_lines(source));
        let found: usize = lines
            .map(|line| line.matches("::current()").count() + line.matches("::try_current()").count())
            .sum();
        assert!(found <= *most, "{room} looks up what it uses {found} times, at most {most} may be: pass it");
    }
}

#[test]
fn unsafe_stays_in_few_places() {
    for (path, source) in sources() {
        if UNSAFE_CRATES.contains(&crate_of(&path))
            || UNSAFE_FILES.iter().any(|(file, _)| path.ends_with(file))
        {
            continue;
        }
        for (number, line) in code_lines(&source) {
            // A browser's 'unsafe-inline' has nothing to do with Rust's.
            let found =
                line.split(|c: char| !c.is_alphanumeric() && !"_-".contains(c)).any(|word| word == "unsafe");
            assert!(!found, "{}:{number}: unsafe belongs in base or rt: {line}", path.display());
        }
    }
}

/// Only builds with these assertions have planted bugs (`base::canary`), and only tests and the simulator
/// choose one.
#[test]
fn the_product_has_no_planted_bugs() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest can be read");
    assert!(!manifest.contains("debug-assertions"), "a profile changes which builds have planted bugs");
    for (path, source) in sources() {
        let chooses = crate_of(&path) == "ursa" && source.contains("canary");
        assert!(!chooses, "{}: the product chooses no planted bug", path.display());
    }
}

#[test]
fn no_sentence_is_kept_as_data() {
    for (path, source) in sources().iter().filter(|(path, _)| !is_test(path)) {
        if !WORDLESS.contains(&crate_of(path)) && !SENT.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        let declares = |line: &&str| CODES.iter().any(|name| declares_text(line, name));
        let mut found: Vec<&str> = production_lines(source).filter(declares).collect();
        found.extend(texts_as_payload(source));
        let known = TEXTS.iter().find(|(file, ..)| path.ends_with(file)).map_or(0, |(_, count, _)| *count);
        assert_eq!(found.len(), known, "{}: make these an enum with fields: {found:#?}", path.display());
    }
    for file in SENT {
        assert!(root().join("crates").join(file).exists(), "{file}");
    }
    let said =
        |message: &str, payload: &str| format!("    #[error({message})]\n    /// Why.\n    It({payload}),\n");
    for message in ["\"{0}\"", "\"{0}: try again\"", "\n        \"it failed: {0}\"\n    "] {
        for payload in ["String", "&'static str", "Box<str>"] {
            assert_eq!(texts_as_payload(&said(message, payload)).len(), 1, "{message}, {payload}");
        }
        assert_eq!(texts_as_payload(&said(message, "Refused")), Vec::<&str>::new());
    }
    assert_eq!(texts_as_payload(&said("\"{0:?} already exists\"", "String")), Vec::<&str>::new());
    for line in ["pub reason: String,", "Silent { node: u16, why: Option<String> },"] {
        assert!(CODES.iter().any(|name| declares_text(line, name)), "{line}");
    }
    for line in
        ["reason: Reason,", "let why: String = it;", "fn note(why: String) {", "error: String::new(),"]
    {
        assert!(!CODES.iter().any(|name| declares_text(line, name)), "{line}");
    }
}

#[test]
fn only_their_crate_tells_kinds_of_volumes_apart() {
    for (path, source) in sources().iter().filter(|(path, _)| !is_test(path)) {
        let is_production = path.components().any(|part| part.as_os_str() == "src");
        if !is_production || NAMES_KINDS.contains(&crate_of(path)) {
            continue;
        }
        let names = |line: &&str| KINDS.iter().any(|kind| line.contains(kind));
        let found: Vec<&str> = production_lines(source).filter(names).collect();
        let known =
            NAMED_KINDS.iter().find(|(file, ..)| path.ends_with(file)).map_or(0, |(_, count, _)| *count);
        assert_eq!(found.len(), known, "{}: ask for a property of the kind: {found:#?}", path.display());
    }
}

#[test]
fn a_module_with_parts_is_in_their_folder() {
    // The root of a crate or of a test is beside the folders of its modules.
    let is_root = |path: &Path| path.ends_with("lib.rs") || path.ends_with("main.rs");
    let has_folder = |path: &Path| root().join(path).with_extension("").is_dir();
    let beside: Vec<PathBuf> = sources()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| !is_root(path) && has_folder(path))
        .collect();
    assert!(beside.is_empty(), "move each of these into its folder, as mod.rs: {beside:#?}");
}

#[test]
fn comments_wrap_at_110_columns() {
    let mut long = Vec::new();
    for (path, source) in sources() {
        long.extend(long_comments(&source).map(|number| format!("{}:{number}", path.display())));
    }
    assert!(long.is_empty(), "comments beyond column {COMMENT_COLUMNS}: {long:#?}");
}

#[test]
fn long_comments_are_found_but_in_tables_and_code() {
    let (prose, word) = ("a word ".repeat(20), "w".repeat(120));
    let found = |source: &str| long_comments(source).collect::<Vec<_>>();
    assert_eq!(found(&format!("fn it() {{}}\n    /// {prose}\n")), [2]);
    assert_eq!(found(&format!("//! {prose}\n// {word}\n// | {prose}|\n")), [1]);
    assert_eq!(found(&format!("/// ```text\n/// {prose}\n/// ```\n/// {prose}\n")), [4]);
}

#[test]
fn nothing_above_rt_touches_the_system() {
    for (path, source) in sources() {
        let simulated =
            SIMULATED.contains(&crate_of(&path)) && path.components().any(|part| part.as_os_str() == "src");
        if !simulated || is_test(&path) || SYSTEM_FILES.iter().any(|(file, _)| path.ends_with(file)) {
            continue;
        }
        if let Some((number, word, line)) = touches_the_system(&source) {
            panic!("{}:{number}: {word} cannot be simulated, use rt: {line}", path.display());
        }
    }
}

#[test]
fn system_calls_are_found_wherever_they_are() {
    let planted = "use std::fs;\n";
    let beside_tests = "#[cfg(test)]\nmod tests;\n\nfn it() {}\n";
    let with_tests = "fn it() {}\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n\n    fn it() {\n    }\n}\n";
    assert_eq!(touches_the_system(beside_tests), None);
    assert_eq!(touches_the_system(with_tests), None, "tests may");
    for (source, line) in [(beside_tests, 5), (with_tests, 10)] {
        let source = format!("{source}{planted}");
        assert_eq!(touches_the_system(&source), Some((line, "std::fs", "use std::fs;")));
    }
    let in_a_test_function = "#[cfg(test)]\nfn it() {}\n\nfn other() {\n    std::process::abort();\n}\n";
    assert!(touches_the_system(in_a_test_function).is_some());
}

/// The first line outside of test modules that bypasses `rt`: its number, the forbidden name, and the line.
fn touches_the_system(source: &str) -> Option<(usize, &'static str, &str)> {
    let in_tests = lines_of_test_modules(source);
    code_lines(source).filter(|(number, _)| !in_tests.contains(number)).find_map(|(number, line)| {
        SYSTEM.iter().find(|word| line.contains(*word)).map(|word| (number, *word, line))
    })
}

/// The numbers of the lines in `#[cfg(test)] mod name { … }`.
///
/// As rustfmt writes them, the module ends at the first line that is only a brace with the attribute's
/// indentation.
pub fn lines_of_test_modules(source: &str) -> BTreeSet<usize> {
    let lines: Vec<&str> = source.lines().collect();
    let mut inside = BTreeSet::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.trim() == "#[cfg(test)]") {
        let is_item = |line: &&&str| !line.trim_start().starts_with("#[");
        let item = lines[at..].iter().find(is_item).map_or("", |line| line.trim());
        if item.starts_with("mod ") && item.ends_with('{') {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let len = lines[at..].iter().position(|line| **line == end).unwrap_or(lines.len() - at - 1);
            inside.extend(at + 1..=at + len + 1);
        }
    }
    inside
}

/// The workspace's packages, according to cargo.
fn packages() -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root());
    let metadata = program::run(&mut command, Duration::from_secs(60)).expect_ok();
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("a workspace has packages").clone()
}

pub fn sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    walk(&root().join("crates"), &mut files);
    walk(&root().join("e2e"), &mut files);
    assert!(files.len() > 20, "the sources were not found");
    files
}

pub fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

/// The numbers of too long lines that are only a comment, except those that cannot be wrapped: a table, code,
/// or a single word such as an address.
fn long_comments(source: &str) -> impl Iterator<Item = usize> {
    let mut in_code = false;
    source.lines().enumerate().filter_map(move |(index, line)| {
        let text = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim();
        in_code ^= text.starts_with("```");
        let wraps = !in_code && !text.starts_with('|') && text.contains(' ');
        (wraps && line.chars().count() > COMMENT_COLUMNS).then_some(index + 1)
    })
}

fn walk(dir: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).expect("the sources can be read") {
        let path = entry.expect("the sources can be read").path();
        if path.is_dir() && !path.ends_with("cache") {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("the sources can be read");
            files.push((path, source));
        }
    }
}

/// Numbered lines without comments.
fn code_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = source.lines().enumerate().map(|(index, line)| (index + 1, line.trim_start()));
    lines.filter(|(_, line)| !line.starts_with("//")).map(|(number, line)| {
        let code = line.split(" //").next().unwrap_or(line);
        (number, code)
    })
}

/// The room of `node` that a file is in, and which others it may use.
fn room_of(path: &Path) -> Option<(&'static str, &'static [&'static str])> {
    let inside = path.strip_prefix(root().join("crates/node/src")).ok()?;
    let first = inside.components().next()?.as_os_str().to_str()?;
    ROOMS.iter().copied().find(|(room, _)| *room == first)
}

/// Lines without comments, outside of test modules.
fn production_lines(source: &str) -> impl Iterator<Item = &str> {
    let in_tests = lines_of_test_modules(source);
    code_lines(source).filter(move |(number, _)| !in_tests.contains(number)).map(|(_, line)| line)
}

/// Whether a line declares a field of this name with a text as its type.
fn declares_text(line: &str, name: &str) -> bool {
    let is_other = line.contains("fn ") || line.contains('|') || line.starts_with("let ");
    let is_text = |(at, _): (usize, &str)| {
        let kind = line[at + name.len()..].strip_prefix(": ").and_then(|rest| rest.split([',', ' ']).next());
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
            && kind
                .is_some_and(|kind| ["String", "Option<String>", "RefCell<Option<String>>"].contains(&kind))
    };
    !is_other && line.match_indices(name).any(is_text)
}

/// The variants of errors whose message is, or ends with, a text that they hold.
fn texts_as_payload(source: &str) -> Vec<&str> {
    let mut is_said = false;
    let mut found = Vec::new();
    for line in production_lines(source) {
        let line = line.trim_end();
        if ["\"{0}\"", "\"{0}: ", ": {0}\""].iter().any(|text| line.contains(text)) {
            is_said = true;
        } else if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let payload = line.split_once('(').map_or("", |(_, payload)| payload);
            if is_said && ["String", "&'static str", "Box<str>"].iter().any(|text| payload.starts_with(text))
            {
                found.push(line);
            }
            is_said = false;
        }
    }
    found
}

/// The folder below `crates`, or the top folder.
fn crate_of(path: &Path) -> &str {
    let relative = path.strip_prefix(root()).expect("a source of ours");
    let mut parts = relative.components().map(|part| part.as_os_str().to_str().unwrap_or_default());
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        Some(top) => top,
        None => "",
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("e2e is in the workspace")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
