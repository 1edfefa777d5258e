//! `ursa snapshot import`: makes a file or block device what a volume was in a snapshot, from exports of it.
//!
//! Files are read twice: nothing is changed before all of them are known to be whole, and to fit one behind
//! the other. What the target has is noted in a state file ([`State`]), before it is changed and afterwards,
//! so that an incremental export is never applied to anything else than what it is based on. To repeat an
//! import that was interrupted does no harm: records say what the volume was, not how it has changed.

mod state;
mod target;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use ::export::{Header, RECORD_BYTES_MAX, ReadError, Reader, Record};
use clap::Args;

use self::state::{State, Unfit};
use self::target::Target;
use super::super::error::CliError;
use super::super::output::Output;
use super::super::progress::Progress;
use super::super::table::size;

/// Exports to be imported.
#[derive(Args, Debug)]
pub struct Import {
    /// Exports, in order: each one must continue the one before; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File or block device to write to; a file that does not exist is created
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
    /// File that notes what PATH has [default: PATH.imported if PATH is a file]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Change PATH although it has other data, or is not known to have what the first export is based on
    #[arg(long)]
    force: bool,
}

/// Why exports were not imported.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ImportError {
    #[error("standard input can only be imported alone, without other files")]
    StdinAmongOthers,
    #[error("cannot open {0}")]
    Unopened(PathBuf, #[source] io::Error),
    #[error("cannot import {0}; nothing was changed: export it again, or with --resume if it is incomplete")]
    Unreadable(PathBuf, #[source] ReadError),
    #[error(
        "cannot read {file} to its end: {to} is incomplete now; import a whole export of the same snapshot"
    )]
    Interrupted {
        file: PathBuf,
        to: PathBuf,
        #[source]
        error: ReadError,
    },
    #[error("{0} does not continue the export before it: list exports in the order of their snapshots")]
    OutOfOrder(PathBuf),
    #[error("{0}: name with --state a file that notes what it has, since it is not a regular file")]
    NoState(PathBuf),
    #[error("{0} is neither a file nor a block device")]
    Kind(PathBuf),
    #[error("{0} does not exist: attach it first, or leave out --force to create a file")]
    Missing(PathBuf),
    #[error("another import is writing to {0}: wait until it ends")]
    InUse(PathBuf),
    #[error("{to} has {room}, and the volume has {need}: use a larger device", room = size(*has), need = size(*wanted))]
    TooSmall { to: PathBuf, has: u64, wanted: u64 },
    #[error("{to}: {unfit}; nothing was changed")]
    Unfit { to: PathBuf, unfit: Unfit },
    #[error("cannot read the state file {0}: to import without it, remove it and add --force")]
    StateUnreadable(PathBuf, #[source] io::Error),
    #[error("cannot write the state file {0}: name another one with --state")]
    StateUnwritable(PathBuf, #[source] io::Error),
    #[error("cannot write to {0}: it is incomplete; repeat the import when the cause is fixed")]
    Unwritable(PathBuf, #[source] io::Error),
}

impl ImportError {
    pub(crate) fn code(&self) -> u8 {
        match self {
            ImportError::StdinAmongOthers
            | ImportError::OutOfOrder(_)
            | ImportError::NoState(_)
            | ImportError::Missing(_)
            | ImportError::Kind(_) => 2,
            _ => 1,
        }
    }
}

impl Import {
    pub fn run(self, output: &Output) -> Result<(), CliError> {
        let done = self.import()?;
        let (to, name) = (self.to.display(), format!("{}@{}", done.volume_name, done.snapshot.name));
        output.done(&format!("{to} is {name} now: {}.", size(done.snapshot.size)))
    }

    /// Imports all files. Returns the header of the last one.
    fn import(&self) -> Result<Header, ImportError> {
        let state_file = self.state_file()?;
        // A LUN that is not attached yet would become a file.
        if self.force && Target::is_missing(&self.to) {
            return Err(ImportError::Missing(self.to.clone()));
        }
        if self.files.iter().any(|file| is_stdin(file)) {
            if self.files.len() > 1 {
                return Err(ImportError::StdinAmongOthers);
            }
            let reader = begun(&self.files[0], io::stdin().lock())?;
            return self.apply(&self.files[0], reader, &state_file, self.force);
        }
        let mut headers: Vec<Header> = Vec::new();
        for file in &self.files {
            let header = checked(file)?;
            if headers.last().is_some_and(|before| !continues(&header, before)) {
                return Err(ImportError::OutOfOrder(file.clone()));
            }
            headers.push(header);
        }
        // If the target has all of them, the last one is refused.
        let skipped = match self.force {
            true => 0,
            false => self.count_done(&headers, &state_file)?.min(headers.len() - 1),
        };
        for (number, file) in self.files.iter().enumerate().skip(skipped) {
            let reader = begun(file, open(file)?)?;
            // What follows the first one fits, as the state says then.
            self.apply(file, reader, &state_file, self.force && number == 0)?;
        }
        Ok(headers.pop().expect("the command line requires a file"))
    }

    fn state_file(&self) -> Result<PathBuf, ImportError> {
        match &self.state {
            Some(file) => Ok(file.clone()),
            None if Target::is_file(&self.to) => {
                let mut name = self.to.clone().into_os_string();
                name.push(".imported");
                Ok(name.into())
            }
            None => Err(ImportError::NoState(self.to.clone())),
        }
    }

    /// How many of these exports, from the first one on, the target has already.
    fn count_done(&self, headers: &[Header], state_file: &Path) -> Result<usize, ImportError> {
        let state = State::read(state_file)?.filter(|_| !Target::is_blank_at(&self.to));
        Ok(state.map_or(0, |state| state.count_done(headers)))
    }

    /// Makes the target what the export has.
    fn apply<R: Read>(
        &self,
        file: &Path,
        mut reader: Reader<R>,
        state_file: &Path,
        force: bool,
    ) -> Result<Header, ImportError> {
        let header = reader.header().clone();
        let state = State::read(state_file)?;
        if !force {
            let unfit = |unfit| ImportError::Unfit { to: self.to.clone(), unfit };
            state::check(&header, state.as_ref(), Target::is_blank_at(&self.to)).map_err(unfit)?;
        }
        let target = Target::open(&self.to, header.snapshot.size)?;
        // It is locked only now: another import may have ended since the check.
        if State::read(state_file)? != state {
            return Err(ImportError::InUse(self.to.clone()));
        }
        State::of(&header, false).write(state_file)?;
        let unwritable = |error| ImportError::Unwritable(self.to.clone(), error);
        target.make_as_long_as(&header).map_err(unwritable)?;
        let zeroes_rest = header.since.is_none() && !target.is_blank();
        let (mut end, mut progress) = (0, Progress::on_terminal("imported"));
        loop {
            let record = reader.read_record().map_err(|error| ImportError::Interrupted {
                file: file.to_owned(),
                to: self.to.clone(),
                error,
            })?;
            let begin = match record {
                Some(Record::Data { offset, .. } | Record::Zeros { offset, .. }) => offset,
                None => header.snapshot.size,
            };
            if zeroes_rest {
                target.zero(end, begin - end).map_err(unwritable)?;
            }
            end = match record {
                Some(Record::Data { offset, data }) => {
                    target.write(offset, data).map_err(unwritable)?;
                    offset + data.len() as u64
                }
                Some(Record::Zeros { offset, len }) => {
                    target.zero(offset, len).map_err(unwritable)?;
                    offset + len
                }
                None => break,
            };
            progress.tell(end, header.snapshot.size);
        }
        target.flush().map_err(unwritable)?;
        State::of(&header, true).write(state_file)?;
        progress.tell(header.snapshot.size, header.snapshot.size);
        Ok(header)
    }
}

/// Begins to read an export.
fn begun<R: Read>(file: &Path, input: R) -> Result<Reader<BufReader<R>>, ImportError> {
    let reader = Reader::new(BufReader::with_capacity(RECORD_BYTES_MAX, input));
    reader.map_err(|error| ImportError::Unreadable(file.to_owned(), error))
}

/// Reads all of a file, which must be whole. Returns its header.
fn checked(file: &Path) -> Result<Header, ImportError> {
    let mut reader = begun(file, open(file)?)?;
    let (header, mut progress) = (reader.header().clone(), Progress::on_terminal("checked"));
    let unreadable = |error| ImportError::Unreadable(file.to_owned(), error);
    while reader.read_record().map_err(unreadable)?.is_some() {
        progress.tell(reader.progress().end(), header.snapshot.size);
    }
    Ok(header)
}

/// Whether an export is based on what the one before makes.
fn continues(header: &Header, before: &Header) -> bool {
    let since = header.since.as_ref();
    header.volume == before.volume && since.is_some_and(|since| since.is(&before.snapshot))
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

fn open(file: &Path) -> Result<File, ImportError> {
    File::open(file).map_err(|error| ImportError::Unopened(file.to_owned(), error))
}

#[cfg(test)]
mod tests;
