//! `ursa host-setup`: settings for the machines that use volumes.

mod linux;

use clap::Subcommand;

/// For which system.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// open-iscsi, dm-multipath and udev
    Linux(linux::Linux),
}

impl Command {
    /// The settings, with a word on each.
    pub fn text(&self) -> String {
        match self {
            Command::Linux(linux) => linux.text(),
        }
    }
}
