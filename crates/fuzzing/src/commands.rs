//! Commands of several initiators, with any CDB and data.

use arbitrary::Arbitrary;
use base::{BlockSize, Chain};

use crate::command::Command;
use crate::fields::{many, short};
use crate::unit::Unit;

/// Commands, each with its initiator.
#[derive(Debug, Arbitrary)]
pub struct Input<'a> {
    large_blocks: bool,
    #[arbitrary(with = many)]
    commands: Vec<(u8, Command, Data<'a>)>,
}

#[derive(Debug, Arbitrary)]
enum Data<'a> {
    /// A parameter list.
    Bytes(#[arbitrary(with = short)] &'a [u8]),
    /// Many equal bytes.
    Blocks { value: u8, len: u16 },
}

/// Executes all of them.
pub fn run(input: Input<'_>) {
    let mut unit = Unit::new(if input.large_blocks { BlockSize::B4096 } else { BlockSize::B512 });
    for (nexus, command, data) in &input.commands {
        let data = match data {
            Data::Bytes(bytes) => Chain::copy_of(bytes),
            Data::Blocks { value, len } => Chain::copy_of(&vec![*value; usize::from(*len) * 16]),
        };
        unit.run(*nexus, command.cdb(), data);
    }
}
