//! Exports: what a volume held when a snapshot was taken, as a stream of bytes (`docs/formats/export.md`).
//!
//! What it guarantees: if a [`Reader`] comes to the end of a stream without an error, the stream is what a
//! [`Writer`] has written, from its first byte to its last one. A stream that was cut, and any byte that was
//! changed, is an error. Until then, each record is checked by itself: what it returns is never something
//! else than what was written, but there may be more.
//!
//! A stream is *full*: everything that no record names is zeros; or *incremental*: everything that no record
//! names is as in an earlier snapshot, which the header names. Records are in the order of the volume and do
//! not overlap. They are at most [`RECORD_BYTES_MAX`] long, and a reader needs memory for one of them,
//! whatever the stream says.
//!
//! The last record has the SHA-256 of everything before it. An export that was interrupted lacks it, and is
//! continued behind its last whole record: a reader hands its [`Progress`] to a writer.

mod header;
mod progress;
mod reader;
mod record;
#[cfg(test)]
mod tests;
mod writer;

pub use self::header::{Header, NAME_BYTES_MAX, Snapshot};
pub use self::progress::Progress;
pub use self::reader::{ReadError, Reader, Record};
pub use self::record::RECORD_BYTES_MAX;
pub use self::writer::{WriteError, Writer};
