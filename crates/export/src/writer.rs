//! Writes a stream.

use std::io::{self, Write};

use base::crc32c;
use lz4_flex::block::{compress_into, get_maximum_output_size};

use crate::header::Header;
use crate::progress::Progress;
use crate::record::{Head, Kind, RECORD_BYTES_MAX};

/// A record is compressed if that saves at least one byte in this many.
const SAVES_ONE_IN: usize = 16;

/// Why a stream cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum WriteError {
    #[error("writing failed")]
    Io(#[from] io::Error),
    /// A name of the header is empty, too long, or has control characters.
    #[error("the name of the volume or of a snapshot does not fit")]
    Name,
    /// The range is not behind the last one, is not in the volume, or has a length that no record has.
    #[error("the range of {len} bytes at {offset} does not fit behind the one before")]
    Range { offset: u64, len: u64 },
}

/// Writes a stream, record by record.
pub struct Writer<W> {
    output: W,
    progress: Progress,
    compressed: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// [`WriteError::Io`], [`WriteError::Name`].
    pub fn new(mut output: W, header: &Header) -> Result<Writer<W>, WriteError> {
        let bytes = header.encode().ok_or(WriteError::Name)?;
        output.write_all(&bytes)?;
        let progress = Progress::new(&bytes, header.snapshot.size, header.since.is_some());
        Ok(Writer::resume(output, progress))
    }

    /// Continues a stream that was read so far. The output is at that place, and nothing follows there.
    pub fn resume(output: W, progress: Progress) -> Writer<W> {
        Writer { output, progress, compressed: vec![0; get_maximum_output_size(RECORD_BYTES_MAX)] }
    }

    /// How far the stream was written.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Writes bytes of the volume, 1 to [`RECORD_BYTES_MAX`].
    ///
    /// # Errors
    /// [`WriteError::Io`], [`WriteError::Range`].
    pub fn data(&mut self, offset: u64, data: &[u8]) -> Result<(), WriteError> {
        let len = data.len() as u64;
        if !(1..=RECORD_BYTES_MAX).contains(&data.len()) {
            return Err(WriteError::Range { offset, len });
        }
        let compressed = compress_into(data, &mut self.compressed).ok();
        let fits = |compressed: &usize| *compressed + data.len() / SAVES_ONE_IN < data.len();
        let (kind, stored) = match compressed.filter(fits).and_then(|len| self.compressed.get(..len)) {
            Some(compressed) => (Kind::Lz4, compressed),
            None => (Kind::Data, data),
        };
        let head = Head { kind, stored: stored.len() as u32, offset, len, crc: crc32c(stored) };
        append(&mut self.output, &mut self.progress, &head, stored)
    }

    /// Writes that a range became zeros. Only an incremental stream can say so.
    ///
    /// # Errors
    /// [`WriteError::Io`], [`WriteError::Range`].
    pub fn zeros(&mut self, offset: u64, len: u64) -> Result<(), WriteError> {
        if len == 0 {
            return Err(WriteError::Range { offset, len });
        }
        let head = Head { kind: Kind::Zeros, stored: 0, offset, len, crc: crc32c(&[]) };
        append(&mut self.output, &mut self.progress, &head, &[])
    }

    /// Ends the stream, and returns the output, which is flushed.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn finish(mut self) -> Result<W, WriteError> {
        let (head, digest) = self.progress.last();
        self.output.write_all(&head.encode())?;
        self.output.write_all(&digest)?;
        self.output.flush()?;
        Ok(self.output)
    }
}

fn append(
    output: &mut impl Write,
    progress: &mut Progress,
    head: &Head,
    stored: &[u8],
) -> Result<(), WriteError> {
    if !progress.takes(head) {
        return Err(WriteError::Range { offset: head.offset, len: head.len });
    }
    let encoded = head.encode();
    output.write_all(&encoded)?;
    output.write_all(stored)?;
    progress.add(head, &encoded, stored);
    Ok(())
}
