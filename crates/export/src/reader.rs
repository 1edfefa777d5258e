//! Reads a stream.

use std::io::{self, Read};

use base::crc32c;
use lz4_flex::block::decompress_into;

use crate::header::{Header, Malformed, START_BYTES};
use crate::progress::Progress;
use crate::record::{DIGEST_BYTES, HEAD_BYTES, Head, Kind, RECORD_BYTES_MAX};

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum ReadError {
    #[error("reading failed")]
    Io(#[from] io::Error),
    #[error("it is not an export of a snapshot")]
    NotExport,
    #[error("it is an export of format {0}, which this version of ursa does not know")]
    Version(u16),
    /// The stream has no end: its writer was interrupted, or a part is missing.
    #[error("it is incomplete: it ends after {0} bytes")]
    Cut(u64),
    #[error("it is damaged at byte {0} or behind it")]
    Damaged(u64),
}

impl ReadError {
    /// Whether the stream is wrong, and not its medium: what comes before is whole.
    pub fn is_of_stream(&self) -> bool {
        matches!(self, ReadError::Cut(_) | ReadError::Damaged(_))
    }
}

/// A range of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The bytes of the volume from `offset` on.
    #[allow(missing_docs)] // See above.
    Data { offset: u64, data: &'a [u8] },
    /// `len` bytes from `offset` on are zeros.
    #[allow(missing_docs)] // See above.
    Zeros { offset: u64, len: u64 },
}

/// Reads a stream, record by record, with memory for one of them.
pub struct Reader<R> {
    input: R,
    header: Header,
    progress: Progress,
    /// The last record of the stream was read.
    is_over: bool,
    stored: Vec<u8>,
    data: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// All of [`ReadError`].
    pub fn new(mut input: R) -> Result<Reader<R>, ReadError> {
        let malformed = |malformed| match malformed {
            Malformed::Magic => ReadError::NotExport,
            Malformed::Version(version) => ReadError::Version(version),
            Malformed::Damaged => ReadError::Damaged(0),
        };
        let mut start = [0; START_BYTES];
        fill(&mut input, &mut start, 0)?;
        let len = Header::len(&start).map_err(malformed)?;
        let mut bytes = start.to_vec();
        bytes.resize(len, 0);
        fill(&mut input, &mut bytes[START_BYTES..], 0)?;
        let header = Header::decode(&bytes).map_err(malformed)?;
        let progress = Progress::new(&bytes, header.snapshot.size, header.since.is_some());
        Ok(Reader { input, header, progress, is_over: false, stored: Vec::new(), data: Vec::new() })
    }

    /// What the stream has.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How far it was read: whole records.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether all of the stream was read, and is whole.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next record. `None`: there are no more, and all of the stream is as it was written.
    ///
    /// # Errors
    /// [`ReadError::Io`], [`ReadError::Cut`], [`ReadError::Damaged`]. Nothing can be read after an error.
    pub fn read_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if self.is_over {
            return Ok(None);
        }
        let at = self.progress.bytes();
        let damaged = || ReadError::Damaged(at);
        let mut encoded = [0; HEAD_BYTES];
        fill(&mut self.input, &mut encoded, at)?;
        let head = Head::decode(&encoded).ok_or_else(damaged)?;
        // At most a record's size: the head was checked.
        self.stored.resize(head.stored as usize, 0);
        fill(&mut self.input, &mut self.stored, at)?;
        if head.crc != crc32c(&self.stored) {
            return Err(damaged());
        }
        if head.kind == Kind::End {
            self.check_end(&head)?;
            return Ok(None);
        }
        if !self.progress.takes(&head) {
            return Err(damaged());
        }
        if head.kind == Kind::Lz4 {
            self.data.resize(RECORD_BYTES_MAX, 0);
            let data = self.data.get_mut(..head.len as usize).ok_or_else(damaged)?;
            let is_whole = decompress_into(&self.stored, data).is_ok_and(|len| len as u64 == head.len);
            if !is_whole {
                return Err(damaged());
            }
        }
        self.progress.add(&head, &encoded, &self.stored);
        let offset = head.offset;
        Ok(Some(match head.kind {
            Kind::Lz4 => Record::Data { offset, data: &self.data[..head.len as usize] },
            Kind::Zeros => Record::Zeros { offset, len: head.len },
            Kind::Data | Kind::End => Record::Data { offset, data: &self.stored },
        }))
    }

    /// Checks the last record, and that nothing follows.
    fn check_end(&mut self, head: &Head) -> Result<(), ReadError> {
        let at = self.progress.bytes();
        let (expected, digest) = self.progress.last();
        if *head != expected || self.stored != digest {
            return Err(ReadError::Damaged(at));
        }
        let mut more = [0];
        match fill(&mut self.input, &mut more, at) {
            Err(ReadError::Cut(_)) => self.is_over = true,
            Ok(()) => return Err(ReadError::Damaged(at + (HEAD_BYTES + DIGEST_BYTES) as u64)),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Reads until the buffer is full. `at`: where the stream is whole up to.
fn fill(input: &mut impl Read, buffer: &mut [u8], at: u64) -> Result<(), ReadError> {
    input.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Cut(at),
        _ => ReadError::Io(error),
    })
}
