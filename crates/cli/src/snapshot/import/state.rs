//! What the target of imports has, noted in a file beside it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use ::export::{Header, Snapshot};
use serde::{Deserialize, Serialize};

use super::super::export::hex;
use super::super::files::sync_directory_of;
use super::ImportError;

/// What a target has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    volume_id: String,
    /// Its name, for people.
    volume: String,
    snapshot: Snapshot,
    /// What the import of that was based on; `None`: on nothing.
    since: Option<Snapshot>,
    /// All of the snapshot was imported. If not, the target has neither this one nor the earlier one.
    complete: bool,
}

/// Why an export does not fit what the target has. `VOLUME@SNAPSHOT` each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A full export would replace something else.
    #[error("it has data that this full export would overwrite: choose another path, or add --force")]
    Overwrites,
    /// Nothing is known of the target.
    #[error(
        "it is unknown whether it has {0}, on which this export is based: import that first, name the state file with --state, or add --force"
    )]
    Unknown(String),
    /// An earlier import has not ended.
    #[error("the import of {0} was interrupted: repeat that first, or add --force")]
    Interrupted(String),
    /// The target has it.
    #[error("it has {0} already")]
    HasIt(String),
    /// The target has something else.
    #[error("it has {has}, and this export is based on {needs}: export since what it has, or add --force")]
    #[allow(missing_docs)] // The message says it.
    Other { has: String, needs: String },
}

/// Checks that an export fits what the target has. `is_blank`: the target is an empty file.
pub(super) fn check(header: &Header, state: Option<&State>, is_blank: bool) -> Result<(), Unfit> {
    let wanted = State::of(header, true);
    let Some(needs) = wanted.since.as_ref().map(|since| wanted.named(since)) else {
        let is_repeated = state.is_some_and(|state| !state.complete && state.is_for(&wanted));
        return if is_blank || is_repeated { Ok(()) } else { Err(Unfit::Overwrites) };
    };
    let Some(state) = state.filter(|_| !is_blank) else { return Err(Unfit::Unknown(needs)) };
    let has = state.named(&state.snapshot);
    match state.complete {
        false if state.is_for(&wanted) => Ok(()),
        false => Err(Unfit::Interrupted(has)),
        true if state.volume_id != wanted.volume_id => Err(Unfit::Other { has, needs }),
        true if wanted.since.as_ref().is_some_and(|since| since.is(&state.snapshot)) => Ok(()),
        true if wanted.snapshot.is(&state.snapshot) => Err(Unfit::HasIt(has)),
        true => Err(Unfit::Other { has, needs }),
    }
}

impl State {
    /// What a target has after an import, or during one.
    pub(super) fn of(header: &Header, complete: bool) -> State {
        State {
            volume_id: hex(&header.volume),
            volume: header.volume_name.clone(),
            snapshot: header.snapshot.clone(),
            since: header.since.clone(),
            complete,
        }
    }

    /// `None`: the file does not exist.
    pub(super) fn read(path: &Path) -> Result<Option<State>, ImportError> {
        let unreadable = |error| ImportError::StateUnreadable(path.to_owned(), error);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        serde_json::from_str(&text).map(Some).map_err(|error| unreadable(error.into()))
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, path: &Path) -> Result<(), ImportError> {
        self.write_to(path).map_err(|error| ImportError::StateUnwritable(path.to_owned(), error))
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        let mut new = path.to_owned().into_os_string();
        new.push(".new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_directory_of(path)
    }

    /// How many of these exports, which follow each other, the target has already.
    pub(super) fn count_done(&self, headers: &[Header]) -> usize {
        let is_it = |header: &Header| {
            let wanted = State::of(header, true);
            wanted.volume_id == self.volume_id && wanted.snapshot.is(&self.snapshot)
        };
        let found = headers.iter().position(is_it);
        found.map_or(0, |at| if self.complete { at + 1 } else { at })
    }

    /// Whether both are of the same import.
    fn is_for(&self, other: &State) -> bool {
        self.volume_id == other.volume_id
            && self.snapshot.is(&other.snapshot)
            && Snapshot::are_same(self.since.as_ref(), other.since.as_ref())
    }

    fn named(&self, snapshot: &Snapshot) -> String {
        format!("{}@{}", self.volume, snapshot.name)
    }
}
