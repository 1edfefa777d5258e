//! Imports into files.

use std::fs;

use ::export::{Snapshot, Writer};
use tempfile::TempDir;

use super::*;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

/// A volume in three snapshots; it has grown before the third one.
struct Rig {
    dir: TempDir,
    contents: [Vec<u8>; 3],
}

fn snapshot(number: usize, content: &[u8]) -> Snapshot {
    let name = ["monday", "tuesday", "wednesday"][number].into();
    Snapshot { name, number: number as u32 + 1, time: 100 + number as u64, size: content.len() as u64 }
}

impl Rig {
    fn new() -> Rig {
        let mut first = vec![0; BLOCKS * BLOCK];
        first[3 * BLOCK..5 * BLOCK].fill(1);
        first[60 * BLOCK..].fill(2);
        let mut second = first.clone();
        second[4 * BLOCK..6 * BLOCK].fill(3);
        second[61 * BLOCK..62 * BLOCK].fill(0);
        let mut third = second.clone();
        third.resize((BLOCKS + 8) * BLOCK, 0);
        third[(BLOCKS + 1) * BLOCK..(BLOCKS + 2) * BLOCK].fill(4);
        Rig { dir: tempfile::tempdir().unwrap(), contents: [first, second, third] }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The export of a snapshot, full or since an earlier one, as a file.
    fn export(&self, number: usize, since: Option<usize>) -> PathBuf {
        let is = &self.contents[number];
        let mut was = since.map_or(Vec::new(), |since| self.contents[since].clone());
        let header = Header {
            volume: [7; 16],
            volume_name: "db".into(),
            block_bytes: 512,
            snapshot: snapshot(number, is),
            since: since.map(|since| snapshot(since, &was)),
        };
        was.resize(is.len(), 0);
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for at in (0..is.len()).step_by(BLOCK).filter(|at| is[*at..*at + BLOCK] != was[*at..*at + BLOCK]) {
            let block = &is[at..at + BLOCK];
            match block.iter().all(|byte| *byte == 0) {
                true => writer.zeros(at as u64, BLOCK as u64).unwrap(),
                false => writer.data(at as u64, block).unwrap(),
            }
        }
        let path = self.path(&format!("{number}-{since:?}"));
        fs::write(&path, writer.finish().unwrap()).unwrap();
        path
    }

    fn import_with(&self, files: &[&PathBuf], force: bool) -> Result<Header, ImportError> {
        let files = files.iter().map(|file| (*file).clone()).collect();
        Import { files, to: self.path("db.img"), state: None, force }.import()
    }

    fn import(&self, files: &[&PathBuf]) -> Result<Header, ImportError> {
        self.import_with(files, false)
    }

    #[track_caller]
    fn assert_is(&self, number: usize) {
        assert!(fs::read(self.path("db.img")).unwrap() == self.contents[number], "not snapshot {number}");
    }

    #[track_caller]
    fn assert_unfit(&self, refused: Result<Header, ImportError>, expected: &str) {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_full_export_and_those_that_follow_make_the_volume() {
    let rig = Rig::new();
    let files = [rig.export(0, None), rig.export(1, Some(0)), rig.export(2, Some(1))];
    for (number, file) in files.iter().enumerate() {
        assert_eq!(rig.import(&[file]).unwrap().snapshot.name, snapshot(number, &[]).name);
        rig.assert_is(number);
    }
    // The same at once.
    fs::remove_file(rig.path("db.img")).unwrap();
    rig.import(&[&files[0], &files[1], &files[2]]).unwrap();
    rig.assert_is(2);
}

/// The same command imports what was added since.
#[test]
fn exports_that_the_target_has_are_skipped() {
    let rig = Rig::new();
    let files = [rig.export(0, None), rig.export(1, Some(0)), rig.export(2, Some(1))];
    rig.import(&[&files[0], &files[1]]).unwrap();
    rig.import(&[&files[0], &files[1], &files[2]]).unwrap();
    rig.assert_is(2);
    rig.assert_unfit(rig.import(&[&files[0], &files[1], &files[2]]), "has db@wednesday already");
}

#[test]
fn an_export_is_not_applied_to_something_else() {
    let rig = Rig::new();
    let (full, second, third) = (rig.export(0, None), rig.export(1, Some(0)), rig.export(2, Some(1)));
    rig.assert_unfit(rig.import(&[&second]), "unknown whether it has db@monday");
    assert!(!rig.path("db.img").exists(), "nothing was changed");
    rig.import(&[&full]).unwrap();
    rig.assert_unfit(rig.import(&[&third]), "it has db@monday, and this export is based on db@tuesday");
    rig.assert_unfit(rig.import(&[&full]), "would overwrite");
    rig.assert_unfit(rig.import(&[&third, &second]), "does not continue");
    rig.assert_is(0);
    rig.import(&[&second]).unwrap();
    rig.assert_unfit(rig.import(&[&second]), "has db@tuesday already");
    rig.assert_is(1);
    rig.import_with(&[&full], true).unwrap();
    rig.assert_is(0);
    fs::remove_file(rig.path("db.img.imported")).unwrap();
    rig.assert_unfit(rig.import(&[&second]), "unknown whether");
    rig.import_with(&[&second, &third], true).unwrap();
    rig.assert_is(2);
}

#[test]
fn a_damaged_file_changes_nothing() {
    let rig = Rig::new();
    let (full, second) = (rig.export(0, None), rig.export(1, Some(0)));
    rig.import(&[&full]).unwrap();
    let whole = fs::read(&second).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damaged in [changed, whole[..whole.len() - 1].to_vec()] {
        fs::write(&second, damaged).unwrap();
        rig.assert_unfit(rig.import(&[&second]), "nothing was changed");
        rig.assert_is(0);
    }
    fs::write(&second, whole).unwrap();
    rig.import(&[&second]).unwrap();
}

/// As after a crash in the middle: the state file says so, and parts of the target have changed.
#[test]
fn an_import_that_was_interrupted_is_repeated() {
    let rig = Rig::new();
    let (full, second, third) = (rig.export(0, None), rig.export(1, Some(0)), rig.export(2, Some(1)));
    let interrupt = |file: &PathBuf| {
        let state = rig.path("db.img.imported");
        let header = Reader::new(File::open(file).unwrap()).unwrap().header().clone();
        State::of(&header, false).write(&state).unwrap();
        let mut content = fs::read(rig.path("db.img")).unwrap();
        // What the import would have zeroed, or written.
        content[20 * BLOCK..21 * BLOCK].fill(if header.since.is_none() { 9 } else { 0 });
        content[4 * BLOCK..5 * BLOCK].fill(3);
        fs::write(rig.path("db.img"), content).unwrap();
    };
    rig.import(&[&full]).unwrap();
    interrupt(&full);
    rig.assert_unfit(rig.import(&[&second]), "import of db@monday was interrupted");
    rig.import(&[&full]).unwrap();
    rig.assert_is(0);
    interrupt(&second);
    rig.assert_unfit(rig.import(&[&third]), "import of db@tuesday was interrupted");
    rig.assert_unfit(rig.import(&[&full]), "would overwrite");
    rig.import(&[&full, &second, &third]).unwrap();
    rig.assert_is(2);
}

#[test]
fn a_target_that_is_missing_or_in_use_is_not_forced() {
    let rig = Rig::new();
    let full = rig.export(0, None);
    assert!(matches!(rig.import_with(&[&full], true), Err(ImportError::Missing(_))));
    assert!(!rig.path("db.img").exists());
    rig.import(&[&full]).unwrap();
    let other = Target::open(&rig.path("db.img"), 0).unwrap();
    assert!(matches!(rig.import_with(&[&full], true), Err(ImportError::InUse(_))));
    drop(other);
    rig.import_with(&[&full], true).unwrap();
    rig.assert_is(0);
}

#[test]
fn what_is_neither_a_file_nor_a_device_needs_a_state_file() {
    let rig = Rig::new();
    let full = rig.export(0, None);
    let import = Import { files: vec![full], to: "/dev/null".into(), state: None, force: false };
    assert!(matches!(import.import(), Err(ImportError::NoState(_))));
    let import = Import { state: Some(rig.path("state")), force: true, ..import };
    assert!(matches!(import.import(), Err(ImportError::Kind(_))));
    let missing = Import { to: "/dev/no-such-device".into(), force: false, ..import };
    assert!(matches!(missing.import(), Err(ImportError::Unopened(..))));
    assert!(!rig.path("state").exists(), "nothing was begun");
    let both = vec!["-".into(), rig.path("other")];
    let import = Import { files: both, to: rig.path("db.img"), state: None, force: false };
    assert!(matches!(import.import(), Err(ImportError::StdinAmongOthers)));
}
