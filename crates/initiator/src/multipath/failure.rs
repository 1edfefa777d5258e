//! Why a command failed over all paths.

use std::fmt;
use std::time::Duration;

use super::path::{PathName, PathStatus};
use crate::Error;

/// The failure of a command, with what the command may have done.
#[derive(Debug)]
pub struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    why: Why,
    effect: EffectKnown,
    tried: Vec<Tried>,
}

/// Why a command failed.
#[derive(Debug)]
pub enum Why {
    /// The unit answered with this error.
    Answer(Error),
    /// No path was usable for this long; and the state of the paths at that time.
    NoPath(Duration, Vec<PathStatus>),
    /// The command was retried for this long without success.
    GivenUp(Duration),
    /// It was sent, its outcome is unknown, and a second time it might have another effect.
    Once,
}

/// What is known of the effect of a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectKnown {
    /// As the last answer says.
    Answered,
    /// No effect, now or later.
    None,
    /// Perhaps all or a part of it, and nothing more from now on.
    Perhaps,
    /// Perhaps all or a part of it, now or later, if nothing else is written: the target could not be asked,
    /// or does not know.
    PerhapsLater,
}

/// One attempt that failed.
#[derive(Debug)]
pub struct Tried {
    /// The path.
    pub path: PathName,
    /// The error.
    pub error: Error,
}

impl Failure {
    pub(super) fn new(why: Why, effect: EffectKnown, tried: Vec<Tried>) -> Failure {
        Failure(Box::new(Inner { why, effect, tried }))
    }

    /// The first attempt was answered with this error.
    pub(super) fn answered(error: Error) -> Failure {
        Failure::new(Why::Answer(error), EffectKnown::Answered, Vec::new())
    }

    /// Why the command failed.
    pub fn why(&self) -> &Why {
        &self.0.why
    }

    /// The unit's answer, if that is why.
    pub fn answer(&self) -> Option<&Error> {
        match &self.0.why {
            Why::Answer(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the unit answered that it has no space for the write.
    pub fn is_out_of_space(&self) -> bool {
        self.answer().is_some_and(Error::is_out_of_space)
    }

    /// What is known of the command's effect.
    pub fn effect(&self) -> EffectKnown {
        self.0.effect
    }

    /// The earlier attempts that failed, oldest first.
    pub fn tried(&self) -> &[Tried] {
        &self.0.tried
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.why {
            Why::Answer(error) => write!(f, "{error}")?,
            Why::NoPath(waited, paths) => {
                write!(f, "no path to the LUN for {waited:.1?}")?;
                paths.iter().try_for_each(|path| write!(f, "; {path}"))?;
            }
            Why::GivenUp(after) => write!(f, "the command did not succeed within {after:.1?}")?,
            Why::Once => f.write_str("the outcome of the command is unknown, and it cannot be retried")?,
        }
        for tried in self.0.tried.iter().rev().take(TRIED_SHOWN) {
            write!(f, "; via {}: {}", tried.path, tried.error)?;
        }
        match self.0.effect {
            EffectKnown::Answered | EffectKnown::None => Ok(()),
            EffectKnown::Perhaps => f.write_str("; it may have taken effect"),
            EffectKnown::PerhapsLater => f.write_str("; it may have taken effect, or may still do so"),
        }
    }
}

/// Of many attempts, only the last are shown.
const TRIED_SHOWN: usize = 4;

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.why {
            Why::Answer(error) => error.source(),
            _ => None,
        }
    }
}
