//! The audit log's files: JSON lines in the data directory, in a bounded number of files of bounded length.
//!
//! An entry is written before its request is answered, but not flushed: a power cut may lose some entries,
//! but a flush for each change would cost more. If the log cannot be written, the node's log says so and the
//! node continues to serve.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use api::AuditEntry;
use serde::{Deserialize, Serialize};

/// A file that would become longer is followed by the next one; some 20,000 entries.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The number of files, 16 MiB in total. The oldest one is deleted.
const FILES_MAX: usize = 4;

/// The files, and the number of the next entry.
pub(super) struct Log {
    directory: PathBuf,
    file: File,
    bytes: u64,
    next: u64,
}

impl Log {
    /// Opens the log in this directory, which is created if it does not exist.
    pub(super) fn open(directory: &Path) -> io::Result<Log> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let path = path(directory, 0);
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let mut bytes = file.metadata()?.len();
        // The rest of a line that a crash has torn becomes a line of its own, which readers skip.
        if bytes > 0 && !fs::read(&path)?.ends_with(b"\n") {
            file.write_all(b"\n")?;
            bytes += 1;
        }
        let last = (0..FILES_MAX).find_map(|age| entries(directory, age).ok()?.last().map(|entry| entry.id));
        Ok(Log { directory: directory.to_owned(), file, bytes, next: last.map_or(1, |last| last + 1) })
    }

    /// Writes an entry, and gives it its number.
    pub(super) fn write(&mut self, entry: AuditEntry) -> io::Result<()> {
        let entry = AuditEntry { id: self.next, ..entry };
        let mut line = serde_json::to_vec(&entry)?;
        line.push(b'\n');
        if self.bytes + line.len() as u64 > FILE_BYTES_MAX {
            self.rotate()?;
        }
        self.file.write_all(&line)?;
        self.bytes += line.len() as u64;
        self.next += 1;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        for age in (0..FILES_MAX - 1).rev() {
            match fs::rename(path(&self.directory, age), path(&self.directory, age + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let new = OpenOptions::new().create(true).append(true).mode(0o600).open(path(&self.directory, 0))?;
        (self.file, self.bytes) = (new, 0);
        Ok(())
    }
}

/// Which entries are wanted: the newest `limit` that meet the conditions.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::http) struct AuditFilter {
    pub(in crate::http) limit: usize,
    /// Only entries before the one with this number.
    pub(in crate::http) before: Option<u64>,
    /// Only entries up to this time, in seconds since 1970.
    pub(in crate::http) until: Option<u64>,
}

impl AuditFilter {
    fn is_met(&self, entry: &AuditEntry) -> bool {
        self.before.is_none_or(|before| entry.id < before) && self.until.is_none_or(|until| entry.at <= until)
    }
}

/// The wanted entries, the newest first. Reads the files, which may grow meanwhile.
pub(super) fn last(directory: &Path, wanted: AuditFilter) -> io::Result<Vec<AuditEntry>> {
    let mut found = Vec::new();
    for age in 0..FILES_MAX {
        if found.len() >= wanted.limit {
            break;
        }
        let entries = entries(directory, age)?.into_iter().rev().filter(|entry| wanted.is_met(entry));
        found.extend(entries.take(wanted.limit - found.len()));
    }
    Ok(found)
}

fn entries(directory: &Path, age: usize) -> io::Result<Vec<AuditEntry>> {
    match fs::read(path(directory, age)) {
        Ok(bytes) => {
            let lines = bytes.split(|byte| *byte == b'\n');
            Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn path(directory: &Path, age: usize) -> PathBuf {
    directory.join(match age {
        0 => "audit.jsonl".to_owned(),
        age => format!("audit.{age}.jsonl"),
    })
}

/// An entry for tests.
#[cfg(test)]
pub(super) fn example(action: &str) -> AuditEntry {
    AuditEntry {
        id: 0,
        at: 1,
        who: "alice".into(),
        by: None,
        address: "10.0.0.1".into(),
        action: action.into(),
        status: 200,
        code: None,
        node: None,
        node_name: None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn newest(limit: usize) -> AuditFilter {
        AuditFilter { limit, before: None, until: None }
    }

    fn numbers(directory: &Path, wanted: AuditFilter) -> Vec<u64> {
        last(directory, wanted).unwrap().iter().map(|entry| entry.id).collect()
    }

    #[test]
    fn entries_are_numbered_over_restarts_and_read_backwards() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("audit");
        assert!(last(&dir, newest(10)).unwrap().is_empty());
        let mut log = Log::open(&dir).unwrap();
        (0..3).for_each(|_| log.write(example("login")).unwrap());
        let mut log = Log::open(&dir).unwrap();
        log.write(example("login")).unwrap();
        assert_eq!(numbers(&dir, newest(10)), [4, 3, 2, 1]);
        assert_eq!(numbers(&dir, AuditFilter { before: Some(4), ..newest(2) }), [3, 2]);
        assert_eq!(fs::metadata(dir.join("audit.jsonl")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn entries_until_a_time_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path()).unwrap();
        (1..=4).for_each(|at| log.write(AuditEntry { at: at * 10, ..example("login") }).unwrap());
        let until = |until, before| AuditFilter { before, until: Some(until), ..newest(2) };
        assert_eq!(numbers(dir.path(), until(30, None)), [3, 2]);
        assert_eq!(numbers(dir.path(), until(29, None)), [2, 1]);
        assert_eq!(numbers(dir.path(), until(30, Some(3))), [2, 1]);
        assert!(numbers(dir.path(), until(9, None)).is_empty());
    }

    #[test]
    fn a_line_that_a_crash_has_cut_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        Log::open(dir.path()).unwrap().write(example("login")).unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.path().join("audit.jsonl")).unwrap();
        file.write_all(br#"{"id":2,"at":1,"wh"#).unwrap();
        Log::open(dir.path()).unwrap().write(example("logout")).unwrap();
        assert_eq!(numbers(dir.path(), newest(10)), [2, 1]);
    }

    #[test]
    fn a_line_break_in_a_name_does_not_forge_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path()).unwrap();
        log.write(AuditEntry { who: "a\n{\"id\":9}\n".into(), ..example("login") }).unwrap();
        let found = last(dir.path(), newest(10)).unwrap();
        assert_eq!((found.len(), found[0].who.as_str()), (1, "a\n{\"id\":9}\n"));
    }

    #[test]
    fn the_files_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path()).unwrap();
        let long = "x".repeat(64 << 10);
        (0..400).for_each(|_| log.write(example(&long)).unwrap());
        let bytes: u64 =
            fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= FILES_MAX as u64 * FILE_BYTES_MAX && bytes > 2 * FILE_BYTES_MAX, "{bytes}");
        let kept = numbers(dir.path(), newest(1000));
        assert_eq!(kept[0], 400);
        assert!(kept.windows(2).all(|pair| pair[0] == pair[1] + 1), "{kept:?}");
    }
}
