//! What is served.

use std::fmt;

/// An export, as clients are shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name. Clients that give no name get it, too.
    pub name: String,
    /// A description for people; may be empty.
    pub description: String,
    /// Its size in bytes.
    pub size: u64,
    /// The NAME of the context `qemu:dirty-bitmap:NAME`, which says what has changed. `None`: it is not
    /// known.
    pub bitmap: Option<String>,
}

impl Export {
    /// Whether a client means this export by that name.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }
}

/// What can be known about ranges of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Map {
    /// Where it has data: `base:allocation`.
    Allocation,
    /// Where it has changed: `qemu:dirty-bitmap:NAME`.
    Changes,
}

/// Some bytes of which the same is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many.
    pub len: u64,
    /// In [`Map::Allocation`]: they may have data; otherwise they are zeros. In [`Map::Changes`]: they may
    /// have changed.
    pub is_set: bool,
}

/// What the first bytes of a range are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes.
    Data(Vec<u8>),
    /// As many zeros.
    Zeros(u64),
}

impl Piece {
    /// How many bytes these are.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Data(data) => data.len() as u64,
            Piece::Zeros(len) => *len,
        }
    }

    /// Whether these are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The content of an export, which does not change. Several threads read it at once.
pub trait Source: Sync {
    /// Why something cannot be read. Clients are sent its text.
    type Error: fmt::Display;

    /// The first bytes of a range inside the export: at least one, and at most `len`.
    fn read(&self, offset: u64, len: u64) -> Result<Piece, Self::Error>;

    /// What is known about a range inside the export: consecutive extents from its begin. They may cover
    /// less of it, or more, but at least one byte.
    fn extents(&self, map: Map, offset: u64, len: u64) -> Result<Vec<Extent>, Self::Error>;
}
