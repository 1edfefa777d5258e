//! `ursa volume set`.

use api::{Client, VolumeChange};
use clap::Args;
use terms::size::Size;

use super::super::error::CliError;
use super::super::output::Output;
use super::{Compression, WhenFull, asked_compression, asked_when_full, shown};

/// A volume and its new settings.
#[derive(Args, Debug)]
pub struct Set {
    /// Volume name or ID
    name: String,
    #[command(flatten)]
    settings: Settings,
}

/// The settings to change, one at least; the others stay.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct Settings {
    /// What writes do when the pool is full; log volumes only
    #[arg(long, value_enum, value_name = "POLICY")]
    when_full: Option<WhenFull>,
    /// Space of the pool that only this volume can use, at most the size of the volume, 0 for none; log
    /// volumes only
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Size>,
    /// Compress what is written to a log volume from now on
    #[arg(long, value_enum, value_name = "ALGORITHM")]
    compression: Option<Compression>,
}

impl Set {
    pub fn run(self, client: &Client, output: &Output) -> Result<(), CliError> {
        let volume = client.change_volume(&self.name, &self.settings.change())?;
        output.show(&volume, |volume| shown(client, volume))
    }
}

impl Settings {
    /// The request: all settings at once.
    fn change(&self) -> VolumeChange {
        VolumeChange {
            when_full: self.when_full.map(asked_when_full),
            reserve: self.reserve.map(|size| size.0),
            compression: self.compression.map(asked_compression),
            ..VolumeChange::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        set: Set,
    }

    fn change(options: &[&str]) -> Result<VolumeChange, ErrorKind> {
        let line = ["ursa", "db"].iter().chain(options).copied();
        Line::try_parse_from(line).map(|line| line.set.settings.change()).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_not_named_stays() {
        let none = VolumeChange::default();
        let paused = Some(api::WhenFull::Pause);
        assert_eq!(change(&["--when-full", "pause"]), Ok(VolumeChange { when_full: paused, ..none.clone() }));
        assert_eq!(change(&["--reserve", "0"]), Ok(VolumeChange { reserve: Some(0), ..none.clone() }));
        let off = Some(api::Compression::Off);
        assert_eq!(change(&["--compression", "off"]), Ok(VolumeChange { compression: off, ..none.clone() }));
        assert_eq!(
            change(&["--reserve", "1M", "--when-full", "pause"]),
            Ok(VolumeChange { when_full: paused, reserve: Some(1 << 20), ..none })
        );
    }

    #[test]
    fn a_command_without_a_setting_is_refused() {
        assert_eq!(change(&[]), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!(change(&["--when-full", "wait"]), Err(ErrorKind::InvalidValue));
    }
}
