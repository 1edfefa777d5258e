//! What several targets share: commands that are mostly valid, and a unit with a volume behind it.

mod command;
mod unit;

pub use command::Command;
pub use unit::Unit;
