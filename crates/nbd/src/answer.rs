//! What a request is answered with (sections *Structured reply types* and *Request types*).

use std::fmt;

use crate::export::{Extent, Map, Piece, Source};
use crate::negotiation::Negotiated;
use crate::reply;
use crate::request::{Command, Request};
use crate::wire::{chunk, error, status};

/// The most bytes that one request reads: what the protocol expects of a server that says nothing else.
pub const READ_BYTES_MAX: u32 = 32 << 20;
/// The most bytes that are read from the source at a time, and sent in one part.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;
/// The most extents in one reply. A client asks again for what comes behind them.
pub const EXTENTS_MAX: usize = 4096;

/// Blocks of zeros of this length, at its multiples, are sent as holes: the head of a chunk is far shorter.
const ZERO_BLOCK: usize = 4096;

const _: () = assert!(READ_BYTES_MAX as u64 >= PIECE_BYTES_MAX, "a request has at least one piece");
const _: () = assert!(PIECE_BYTES_MAX >= 1 << 16, "a server must be able to send this in one chunk");
const _: () = assert!(READ_BYTES_MAX == 32 << 20 && PIECE_BYTES_MAX == 1 << 20, "as the errors say");

/// A part of a simple reply could not be read, although the reply was begun without an error: the connection
/// must be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rest of a reply cannot be read")]
pub struct Truncated;

/// A source returned no bytes, or other ones than it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has read something else than it was asked for")]
pub struct BadSource;

/// The answer to a request, part by part.
#[derive(Debug)]
pub struct Answer {
    cookie: u64,
    contexts: Vec<(u32, Map)>,
    is_structured: bool,
    rest: Rest,
}

/// What has not been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// An error, and what the client may show about it.
    Error(u32, &'static str),
    /// A reply without data.
    Success,
    /// The range, in chunks.
    Chunks {
        at: u64,
        end: u64,
    },
    /// The range, in one chunk.
    Whole {
        at: u64,
        end: u64,
    },
    /// The range, in a simple reply.
    Simple {
        at: u64,
        end: u64,
        is_begun: bool,
    },
    /// What is known about the range.
    Status {
        at: u64,
        end: u64,
        is_one: bool,
    },
}

impl Answer {
    /// The answer to this request, for an export of this size. `None`: it has none.
    pub fn new(request: &Request, negotiated: &Negotiated, size: u64) -> Option<Answer> {
        let rest = match request.command {
            Command::Disconnect => return None,
            Command::Change => Rest::Error(error::EPERM, "the export is read-only"),
            Command::Unknown => Rest::Error(error::EINVAL, "unknown command or flag"),
            Command::Read { is_whole } => read(request, is_whole, negotiated.is_structured, size),
            Command::BlockStatus { is_one } => match range(request, size) {
                _ if negotiated.contexts.is_empty() => {
                    Rest::Error(error::EINVAL, "no metadata contexts were selected")
                }
                Some((at, end)) if at < end => Rest::Status { at, end, is_one },
                _ => Rest::Error(error::EINVAL, OUTSIDE),
            },
        };
        Some(Answer {
            cookie: request.cookie,
            contexts: negotiated.contexts.iter().collect(),
            is_structured: negotiated.is_structured,
            rest,
        })
    }

    /// Whether parts of other answers may be sent between those of this one.
    pub fn is_divisible(&self) -> bool {
        self.is_structured
    }

    /// The next part: whole chunks, or a piece of a simple reply. `None`: that was all. It reads what it
    /// needs, at most [`PIECE_BYTES_MAX`].
    ///
    /// # Errors
    /// The answer cannot be completed.
    pub fn next_part<S: Source>(&mut self, source: &S) -> Result<Option<Vec<u8>>, Truncated> {
        let mut part = Vec::new();
        self.rest = match self.rest {
            Rest::Nothing => return Ok(None),
            Rest::Error(error, message) => self.fail(&mut part, error, message, None),
            Rest::Success if self.is_structured => {
                reply::chunk(&mut part, self.cookie, (chunk::NONE, true), &[]);
                Rest::Nothing
            }
            Rest::Success => {
                reply::simple(&mut part, self.cookie, 0);
                Rest::Nothing
            }
            Rest::Chunks { at, end } => match read_piece(source, at, end) {
                Ok(piece) => {
                    let next = at + piece.len();
                    self.add_piece(&mut part, at, piece, next == end);
                    if next < end { Rest::Chunks { at: next, end } } else { Rest::Nothing }
                }
                Err(failure) => self.fail(&mut part, error::EIO, &failure.to_string(), Some(at)),
            },
            Rest::Whole { at, end } => match read_whole(source, at, end) {
                Ok(data) => {
                    let payload = [&at.to_be_bytes()[..], &data];
                    reply::chunk(&mut part, self.cookie, (chunk::OFFSET_DATA, true), &payload);
                    Rest::Nothing
                }
                Err(failure) => self.fail(&mut part, error::EIO, &failure.to_string(), None),
            },
            Rest::Simple { at, end, is_begun } => match read_piece(source, at, end) {
                Ok(piece) => {
                    if !is_begun {
                        reply::simple(&mut part, self.cookie, 0);
                    }
                    let next = at + piece.len();
                    append(&mut part, piece);
                    if next < end { Rest::Simple { at: next, end, is_begun: true } } else { Rest::Nothing }
                }
                Err(_) if is_begun => {
                    self.rest = Rest::Nothing;
                    return Err(Truncated);
                }
                Err(failure) => self.fail(&mut part, error::EIO, &failure.to_string(), None),
            },
            Rest::Status { at, end, is_one } => {
                match self.add_extents(&mut part, source, (at, end), is_one) {
                    Ok(()) => Rest::Nothing,
                    Err(failure) => {
                        part.clear();
                        self.fail(&mut part, error::EIO, &failure.to_string(), None)
                    }
                }
            }
        };
        Ok(Some(part))
    }

    /// Adds an error, which is the end.
    fn fail(&self, part: &mut Vec<u8>, error: u32, message: &str, offset: Option<u64>) -> Rest {
        match self.is_structured {
            true => reply::error(part, self.cookie, error, message, offset),
            false => reply::simple(part, self.cookie, error),
        }
        Rest::Nothing
    }

    /// Adds chunks with these bytes of the export. Zeros are holes.
    fn add_piece(&self, part: &mut Vec<u8>, at: u64, piece: Piece, is_last: bool) {
        let data = match piece {
            Piece::Zeros(len) => return self.add_hole(part, at, len, is_last),
            Piece::Data(data) => data,
        };
        let (mut at, mut rest) = (at, &data[..]);
        while !rest.is_empty() {
            let (len, is_zero) = first_run(at, rest);
            let (run, behind) = rest.split_at(len);
            let ends = is_last && behind.is_empty();
            match is_zero {
                true => self.add_hole(part, at, len as u64, ends),
                false => {
                    let payload = [&at.to_be_bytes()[..], run];
                    reply::chunk(part, self.cookie, (chunk::OFFSET_DATA, ends), &payload);
                }
            }
            (at, rest) = (at + len as u64, behind);
        }
    }

    fn add_hole(&self, part: &mut Vec<u8>, at: u64, len: u64, is_last: bool) {
        let payload = [&at.to_be_bytes()[..], &(len as u32).to_be_bytes()];
        reply::chunk(part, self.cookie, (chunk::OFFSET_HOLE, is_last), &payload);
    }

    /// Adds a chunk for each context.
    fn add_extents<S: Source>(
        &self,
        part: &mut Vec<u8>,
        source: &S,
        (at, end): (u64, u64),
        is_one: bool,
    ) -> Result<(), Failure<S::Error>> {
        let most = if is_one { 1 } else { EXTENTS_MAX };
        for (number, (id, map)) in self.contexts.iter().enumerate() {
            let extents = source.extents(*map, at, end - at).map_err(Failure::Source)?;
            let extents = merged(&extents, end - at, most);
            if extents.is_empty() {
                return Err(Failure::Bad(BadSource));
            }
            let mut payload = id.to_be_bytes().to_vec();
            for extent in extents {
                // As long as the request at most, so that it fits.
                payload.extend((extent.len as u32).to_be_bytes());
                payload.extend(flags(*map, extent.is_set).to_be_bytes());
            }
            let is_last = number + 1 == self.contexts.len();
            reply::chunk(part, self.cookie, (chunk::BLOCK_STATUS, is_last), &[&payload]);
        }
        Ok(())
    }
}

const OUTSIDE: &str = "the range is empty, or ends behind the end of the export";

/// The range of a request in an export of this size. `None`: it ends behind it.
fn range(request: &Request, size: u64) -> Option<(u64, u64)> {
    let end = request.offset.checked_add(u64::from(request.len)).filter(|end| *end <= size)?;
    Some((request.offset, end))
}

fn read(request: &Request, is_whole: bool, is_structured: bool, size: u64) -> Rest {
    let Some((at, end)) = range(request, size) else { return Rest::Error(error::EINVAL, OUTSIDE) };
    if is_whole && !is_structured {
        // It was not offered.
        Rest::Error(error::EINVAL, "unknown flag")
    } else if request.len > READ_BYTES_MAX {
        Rest::Error(error::EOVERFLOW, "more than 32 MiB are requested")
    } else if is_whole && end - at > PIECE_BYTES_MAX {
        Rest::Error(error::EOVERFLOW, "more than 1 MiB is requested in one chunk")
    } else if at == end {
        Rest::Success
    } else if is_whole {
        Rest::Whole { at, end }
    } else if is_structured {
        Rest::Chunks { at, end }
    } else {
        Rest::Simple { at, end, is_begun: false }
    }
}

/// Why nothing was read.
enum Failure<E> {
    Source(E),
    Bad(BadSource),
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Source(error) => error.fmt(f),
            Failure::Bad(error) => error.fmt(f),
        }
    }
}

/// The first bytes of a range.
fn read_piece<S: Source>(source: &S, at: u64, end: u64) -> Result<Piece, Failure<S::Error>> {
    let len = (end - at).min(PIECE_BYTES_MAX);
    let piece = source.read(at, len).map_err(Failure::Source)?;
    match piece.is_empty() || piece.len() > len {
        true => Err(Failure::Bad(BadSource)),
        false => Ok(piece),
    }
}

/// All bytes of a range, which is not longer than a piece.
fn read_whole<S: Source>(source: &S, at: u64, end: u64) -> Result<Vec<u8>, Failure<S::Error>> {
    let mut data = Vec::new();
    let mut at = at;
    while at < end {
        let piece = read_piece(source, at, end)?;
        at += piece.len();
        append(&mut data, piece);
    }
    Ok(data)
}

fn append(data: &mut Vec<u8>, piece: Piece) {
    match piece {
        // No longer than a piece.
        Piece::Zeros(len) => data.resize(data.len() + len as usize, 0),
        Piece::Data(bytes) => data.extend_from_slice(&bytes),
    }
}

/// How many of the first bytes are a run of whole blocks of zeros, or a run of others, and which. `at`: where
/// they begin in the export.
fn first_run(at: u64, data: &[u8]) -> (usize, bool) {
    // Up to the next multiple; then whole blocks.
    let to_block = (at.next_multiple_of(ZERO_BLOCK as u64) - at) as usize;
    let mut run = to_block.min(data.len());
    let is_zero = |block: &&[u8]| block.len() == ZERO_BLOCK && block.iter().all(|byte| *byte == 0);
    let mut blocks = data[run..].chunks(ZERO_BLOCK);
    if run == 0 && blocks.clone().next().as_ref().is_some_and(is_zero) {
        return (blocks.take_while(is_zero).count() * ZERO_BLOCK, true);
    }
    for block in blocks.by_ref().take_while(|block| !is_zero(block)) {
        run += block.len();
    }
    (run, false)
}

/// The first extents that are not empty, neighbours of a kind together: at most this many, and as long as
/// this at most.
fn merged(extents: &[Extent], len: u64, most: usize) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    let mut left = len;
    for extent in extents.iter().filter(|extent| extent.len > 0) {
        let extent = Extent { len: extent.len.min(left), ..*extent };
        let is_full = merged.len() == most;
        match merged.last_mut() {
            _ if left == 0 => break,
            Some(last) if last.is_set == extent.is_set => last.len += extent.len,
            _ if is_full => break,
            _ => merged.push(extent),
        }
        left -= extent.len;
    }
    merged
}

fn flags(map: Map, is_set: bool) -> u32 {
    match (map, is_set) {
        (Map::Allocation, false) => status::HOLE_AND_ZERO,
        (Map::Changes, true) => status::DIRTY,
        (Map::Allocation, true) | (Map::Changes, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros_are_whole_blocks_of_the_export() {
        let zeros = vec![0; 3 * ZERO_BLOCK];
        assert_eq!(first_run(8192, &zeros), (zeros.len(), true));
        assert_eq!(first_run(8192, &zeros[1..]), (2 * ZERO_BLOCK, true), "the last block is not whole");
        assert_eq!(first_run(8191, &zeros), (1, false), "nor is the first one");
        assert_eq!(first_run(1, &zeros[..100]), (100, false));
        let mut mixed = zeros.clone();
        mixed[ZERO_BLOCK] = 1;
        assert_eq!(first_run(0, &mixed), (ZERO_BLOCK, true));
        assert_eq!(first_run(4096, &mixed[ZERO_BLOCK..]), (ZERO_BLOCK, false));
        assert_eq!(first_run(4095, &mixed[ZERO_BLOCK - 1..]), (1 + ZERO_BLOCK, false));
        assert_eq!(first_run(0, &[0; 10]), (10, false));
    }

    #[test]
    fn extents_are_merged_and_end_with_the_request() {
        let extent = |len, is_set| Extent { len, is_set };
        let found = [extent(10, true), extent(0, false), extent(5, true), extent(7, false), extent(9, true)];
        let all = [extent(15, true), extent(7, false), extent(9, true)];
        assert_eq!(merged(&found, 100, 9), all);
        assert_eq!(merged(&found, 100, 2), all[..2]);
        assert_eq!(merged(&found, 100, 1), all[..1]);
        assert_eq!(merged(&found, 22, 9), all[..2]);
        assert_eq!(merged(&found, 21, 9), [extent(15, true), extent(6, false)]);
        assert_eq!(merged(&found, 12, 1), [extent(12, true)]);
        assert_eq!(merged(&[extent(0, true)], 12, 1), []);
    }
}
