//! `ursa snapshot export`: writes what a volume held in a snapshot to a file, or what has changed since an
//! earlier one (`docs/formats/export.md`).
//!
//! The node names the ranges that are not zeros, or differ; these are read and written, page by page. A file
//! without an end is incomplete, and is continued behind its last whole record.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, IsTerminal, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ::export::{Header, RECORD_BYTES_MAX, ReadError, Reader, Snapshot, WriteError, Writer};
use api::{ChangedRange, Client, ClientError, SNAPSHOT_READ_BYTES_MAX, SnapshotDataQuery, SnapshotDiffQuery};
use clap::Args;

use super::super::error::CliError;
use super::super::output::Output;
use super::super::progress::Progress;
use super::super::table::size;
use super::diff::VolumeAt;
use super::files::{lock, sync_directory_of};

/// How many ranges are requested at a time: the most that a node returns.
const PAGE: usize = 4096;
/// How many bytes that are not needed are read in between two ranges: to read them takes less time than
/// another request.
const GAP_BYTES_MAX: u64 = 128 << 10;
/// The buffers of files: as long as a record.
const BUFFER_BYTES: usize = RECORD_BYTES_MAX;
/// Only the owner may read what a volume contains.
const MODE: u32 = 0o600;

/// A snapshot to be exported.
#[derive(Args, Debug)]
pub struct Export {
    /// The snapshot to export
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    at: VolumeAt,
    /// File to write; - is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Export only what has changed since this earlier snapshot of the volume
    #[arg(long, value_name = "VOLUME@SNAPSHOT")]
    since: Option<VolumeAt>,
    /// Continue an interrupted export to this file, if there is one
    #[arg(long)]
    resume: bool,
}

/// Why a snapshot was not exported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ExportError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("both snapshots must be of the same volume, not of {0:?} and {1:?}")]
    OtherVolume(String, String),
    #[error(
        "snapshot {snapshot:?} has nothing of volume {volume:?}: `ursa snapshot list {volume}` shows those that have"
    )]
    NotInSnapshot { volume: String, snapshot: String },
    #[error("snapshot {since:?} is not older than {snapshot:?}: with --since, name an earlier snapshot")]
    NotEarlier { since: String, snapshot: String },
    #[error("standard output is a terminal: redirect it, or name a file")]
    Terminal,
    #[error("an export to standard output cannot be resumed: name a file")]
    ResumesStdout,
    #[error("{0} exists: continue an interrupted export to it with --resume, or choose another file")]
    Exists(PathBuf),
    #[error("{0} is not an export of this snapshot: choose another file")]
    OtherFile(PathBuf),
    #[error("another command is writing to {0}: wait until it ends, or choose another file")]
    InUse(PathBuf),
    #[error("cannot continue the export in {0}: choose another file")]
    Unreadable(PathBuf, #[source] ReadError),
    #[error("cannot write the export to {0}")]
    Unwritable(PathBuf, #[source] io::Error),
    #[error("cannot write the export")]
    Write(#[source] WriteError),
    #[error(
        "the node's answer was not as expected ({0}): the node and this program may be of different versions"
    )]
    Unexpected(&'static str),
    #[error("the export to {0} is incomplete: run the command again with --resume to continue it")]
    Unfinished(PathBuf, #[source] Box<ExportError>),
}

impl ExportError {
    pub(crate) fn code(&self) -> u8 {
        match self {
            ExportError::Client(ClientError::Unreachable { .. } | ClientError::NoAnswer { .. }) => 3,
            ExportError::Unfinished(_, cause) => cause.code(),
            ExportError::OtherVolume(..)
            | ExportError::NotEarlier { .. }
            | ExportError::Terminal
            | ExportError::ResumesStdout => 2,
            _ => 1,
        }
    }
}

impl Export {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        if self.file == Path::new("-") {
            return Ok(self.to_stdout(client)?);
        }
        let wanted = wanted(client, &self.at, self.since.as_ref())?;
        let name = format!("{}@{}", wanted.volume_name, wanted.snapshot.name);
        let Some(writer) = self.opened(&wanted)? else {
            return output.done(&format!("{} has all of {name} already.", self.file.display()));
        };
        let unfinished = |error| ExportError::Unfinished(self.file.clone(), Box::new(error));
        let (data, len) = self.to_file(client, &wanted, writer).map_err(unfinished)?;
        let file = self.file.display();
        output.done(&format!("Exported {name} to {file}. Data: {}; file: {}.", size(data), size(len)))
    }

    fn to_stdout(&self, client: &Client) -> Result<(), ExportError> {
        if self.resume {
            return Err(ExportError::ResumesStdout);
        }
        if io::stdout().is_terminal() {
            return Err(ExportError::Terminal);
        }
        let wanted = wanted(client, &self.at, self.since.as_ref())?;
        let output = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        let mut writer = Writer::new(output, &wanted).map_err(ExportError::Write)?;
        copy(client, &wanted, &mut writer)?;
        writer.finish().map(drop).map_err(ExportError::Write)
    }

    /// How much data the export has, and how long the file is.
    fn to_file(
        &self,
        client: &Client,
        wanted: &Header,
        mut writer: Writer<BufWriter<File>>,
    ) -> Result<(u64, u64), ExportError> {
        copy(client, wanted, &mut writer)?;
        let data = writer.progress().data_bytes();
        let unwritable = |error| ExportError::Unwritable(self.file.clone(), error);
        let buffer = writer.finish().map_err(ExportError::Write)?;
        let file = buffer.into_inner().map_err(|error| unwritable(error.into_error()))?;
        file.sync_all().map_err(unwritable)?;
        Ok((data, file.metadata().map_err(unwritable)?.len()))
    }

    /// The file, with what an interrupted export has written. `None`: that is all.
    fn opened(&self, wanted: &Header) -> Result<Option<Writer<BufWriter<File>>>, ExportError> {
        let unwritable = |error| ExportError::Unwritable(self.file.clone(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(MODE);
        let mut file = match options.clone().create_new(true).open(&self.file) {
            Ok(file) => {
                sync_directory_of(&self.file).map_err(unwritable)?;
                file
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && self.resume => {
                options.open(&self.file).map_err(unwritable)?
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(ExportError::Exists(self.file.clone()));
            }
            Err(error) => return Err(unwritable(error)),
        };
        let metadata = file.metadata().map_err(unwritable)?;
        // With --resume, it could be a device, whose length is 0.
        if !metadata.is_file() {
            return Err(ExportError::OtherFile(self.file.clone()));
        }
        if !lock(&file) {
            return Err(ExportError::InUse(self.file.clone()));
        }
        if metadata.len() == 0 {
            let output = BufWriter::with_capacity(BUFFER_BYTES, file);
            return Ok(Some(Writer::new(output, wanted).map_err(ExportError::Write)?));
        }
        let unreadable = |error| ExportError::Unreadable(self.file.clone(), error);
        let reader = Reader::new(BufReader::with_capacity(BUFFER_BYTES, &file));
        let mut reader = match reader {
            Err(ReadError::NotExport) => return Err(ExportError::OtherFile(self.file.clone())),
            other => other.map_err(unreadable)?,
        };
        if !is_same(reader.header(), wanted) {
            return Err(ExportError::OtherFile(self.file.clone()));
        }
        loop {
            match reader.read_record() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) if error.is_of_stream() => break,
                Err(error) => return Err(unreadable(error)),
            }
        }
        let progress = reader.progress().clone();
        drop(reader);
        file.set_len(progress.bytes()).map_err(unwritable)?;
        file.seek(SeekFrom::Start(progress.bytes())).map_err(unwritable)?;
        Ok(Some(Writer::resume(BufWriter::with_capacity(BUFFER_BYTES, file), progress)))
    }
}

/// Whether both streams are of the same volume and snapshots.
fn is_same(one: &Header, other: &Header) -> bool {
    one.volume == other.volume
        && one.snapshot.is(&other.snapshot)
        && Snapshot::are_same(one.since.as_ref(), other.since.as_ref())
}

/// What the export is to have.
pub(super) fn wanted(
    client: &Client,
    at: &VolumeAt,
    since: Option<&VolumeAt>,
) -> Result<Header, ExportError> {
    if let Some(since) = since.filter(|since| since.volume != at.volume) {
        return Err(ExportError::OtherVolume(since.volume.clone(), at.volume.clone()));
    }
    let volume = client.volume(&at.volume)?;
    let snapshot = snapshot_of(client, &volume, &at.snapshot)?;
    let since = since.map(|since| snapshot_of(client, &volume, &since.snapshot)).transpose()?;
    if let Some(since) = since.as_ref().filter(|since| since.number >= snapshot.number) {
        let (since, snapshot) = (since.name.clone(), snapshot.name);
        return Err(ExportError::NotEarlier { since, snapshot });
    }
    let id = u128::from_str_radix(&volume.id, 16).map_err(|_| ExportError::Unexpected("a volume ID"))?;
    Ok(Header {
        volume: id.to_be_bytes(),
        volume_name: volume.name,
        block_bytes: volume.block_size,
        snapshot,
        since,
    })
}

fn snapshot_of(client: &Client, volume: &api::Volume, name: &str) -> Result<Snapshot, ExportError> {
    let found = client.snapshot(name)?;
    let Some(of) = found.volumes.iter().find(|of| of.volume_id == volume.id) else {
        return Err(ExportError::NotInSnapshot { volume: volume.name.clone(), snapshot: found.name });
    };
    Ok(Snapshot { size: of.size, name: found.name, number: found.number, time: found.created })
}

/// Writes what follows what the writer has, up to the end of the volume.
fn copy<W: Write>(client: &Client, wanted: &Header, writer: &mut Writer<W>) -> Result<(), ExportError> {
    // By number and ID: names may change meanwhile.
    let (volume, snapshot) = (hex(&wanted.volume), wanted.snapshot.number.to_string());
    let since = wanted.since.as_ref().map(|since| since.number.to_string());
    let mut query =
        SnapshotDiffQuery { volume, since, snapshot, offset: writer.progress().end(), limit: PAGE };
    let all = wanted.snapshot.size;
    let mut progress = Progress::on_terminal("exported");
    loop {
        let page = client.snapshot_diff(&query)?;
        if page.size != all {
            return Err(ExportError::Unexpected("the size of the volume"));
        }
        let ends_behind = |range: &ChangedRange| range.len > all || range.offset > all - range.len;
        if page.ranges.iter().any(ends_behind) {
            return Err(ExportError::Unexpected("a range behind the end of the volume"));
        }
        let mut pieces = pieces(&page.ranges, wanted.since.is_none()).peekable();
        while let Some(first) = pieces.next() {
            progress.tell(first.offset, all);
            if first.zeroed {
                writer.zeros(first.offset, first.len).map_err(ExportError::Write)?;
                continue;
            }
            let mut together = vec![first];
            while let Some(next) = pieces.next_if(|next| is_read_with(&together, next)) {
                together.push(next);
            }
            copy_together(client, &query, &together, writer)?;
        }
        match page.next {
            Some(next) if next > query.offset => query.offset = next,
            Some(_) => return Err(ExportError::Unexpected("the next page")),
            None => break,
        }
    }
    progress.tell(all, all);
    Ok(())
}

/// Reads ranges with data at once, and writes each.
fn copy_together<W: Write>(
    client: &Client,
    query: &SnapshotDiffQuery,
    together: &[ChangedRange],
    writer: &mut Writer<W>,
) -> Result<(), ExportError> {
    let ([first, ..], [.., last]) = (together, together) else { return Ok(()) };
    let (volume, snapshot) = (query.volume.clone(), query.snapshot.clone());
    let (offset, len) = (first.offset, last.offset + last.len - first.offset);
    let data = client.snapshot_data(&SnapshotDataQuery { volume, snapshot, offset, len })?;
    for range in together {
        let start = (range.offset - offset) as usize;
        writer.data(range.offset, &data[start..start + range.len as usize]).map_err(ExportError::Write)?;
    }
    Ok(())
}

/// Ranges in the volume, those with data cut into pieces that fit into records.
///
/// A full export has no ranges of zeros. The node may name some, next to blocks that it cannot read.
fn pieces(ranges: &[ChangedRange], is_full: bool) -> impl Iterator<Item = ChangedRange> {
    ranges.iter().filter(move |range| !(is_full && range.zeroed)).flat_map(|range| {
        let range = *range;
        let step = if range.zeroed { range.len.max(1) } else { RECORD_BYTES_MAX as u64 };
        (0..range.len).step_by(step as usize).map(move |at| {
            let (offset, len) = (range.offset + at, step.min(range.len - at));
            ChangedRange { offset, len, ..range }
        })
    })
}

/// Whether a range is read at once with those before: it follows closely.
fn is_read_with(before: &[ChangedRange], next: &ChangedRange) -> bool {
    let ([first, ..], [.., last]) = (before, before) else { return false };
    let gap = next.offset.checked_sub(last.offset + last.len);
    let is_close = gap.is_some_and(|gap| gap <= GAP_BYTES_MAX);
    !next.zeroed && is_close && next.offset + next.len - first.offset <= SNAPSHOT_READ_BYTES_MAX
}

pub(super) fn hex(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, len: u64, zeroed: bool) -> ChangedRange {
        ChangedRange { offset, len, zeroed }
    }

    #[test]
    fn ranges_are_cut_into_records() {
        const MIB: u64 = 1 << 20;
        let ranges = [range(4096, 2 * MIB + 512, false), range(3 * MIB, 1 << 40, true)];
        let expected = [
            range(4096, MIB, false),
            range(MIB + 4096, MIB, false),
            range(2 * MIB + 4096, 512, false),
            range(3 * MIB, 1 << 40, true),
        ];
        assert_eq!(pieces(&ranges, false).collect::<Vec<ChangedRange>>(), expected);
        assert_eq!(pieces(&ranges, true).collect::<Vec<ChangedRange>>(), expected[..3]);
    }

    #[test]
    fn ranges_that_are_close_are_read_at_once() {
        const MIB: u64 = 1 << 20;
        let before = [range(0, 4096, false), range(8192, 4096, false)];
        let at_gap = range(12_288 + GAP_BYTES_MAX, 4096, false);
        assert!(is_read_with(&before, &at_gap));
        let far = range(at_gap.offset + 1, 4096, false);
        assert!(!is_read_with(&before, &far));
        let zeros = range(12_288, 4096, true);
        assert!(!is_read_with(&before, &zeros));
        assert!(!is_read_with(&before, &range(0, 4096, false)), "of a wrong order");
        let long: Vec<ChangedRange> = (0..4).map(|at| range(at * MIB, MIB, false)).collect();
        assert!(is_read_with(&long[..3], &long[3]));
        assert!(!is_read_with(&long, &range(4 * MIB, 512, false)), "a node reads no more at a time");
    }

    fn header(number: u32, since: Option<u32>) -> Header {
        let snapshot = |number| Snapshot { name: "a".into(), number, time: 5, size: 4096 };
        Header {
            volume: [1; 16],
            volume_name: "db".into(),
            block_bytes: 512,
            snapshot: snapshot(number),
            since: since.map(snapshot),
        }
    }

    #[test]
    fn only_one_command_writes_to_a_file_and_none_to_what_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let to = |file: PathBuf| Export { at: "db@a".parse().unwrap(), file, since: None, resume: true };
        let (export, wanted) = (to(dir.path().join("file")), header(1, None));
        let first = export.opened(&wanted).unwrap().expect("there is nothing yet");
        assert!(matches!(export.opened(&wanted), Err(ExportError::InUse(_))));
        first.finish().unwrap();
        // A process that another test is starting may have the file open until it executes its program.
        let opened = (0..100).map(|_| export.opened(&wanted)).find(|opened| {
            let is_locked = matches!(opened, Err(ExportError::InUse(_)));
            is_locked.then(|| std::thread::sleep(std::time::Duration::from_millis(20)));
            !is_locked
        });
        assert!(opened.unwrap().unwrap().is_none(), "it is complete");
        assert!(matches!(to("/dev/null".into()).opened(&wanted), Err(ExportError::OtherFile(_))));
    }

    #[test]
    fn an_export_is_continued_if_it_is_of_the_same_snapshots() {
        let renamed = Header { volume_name: "old".into(), ..header(2, Some(1)) };
        assert!(is_same(&header(2, Some(1)), &renamed));
        for other in [header(3, Some(1)), header(2, None), header(2, Some(0))] {
            assert!(!is_same(&header(2, Some(1)), &other), "{other:?}");
        }
        assert_eq!(hex(&[1; 16]), "01010101010101010101010101010101");
    }
}
