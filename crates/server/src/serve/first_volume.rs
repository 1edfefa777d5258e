//! Volumes that `ursa serve --volume` creates at its start, for first tests and for setup by scripts.

use std::str::FromStr;

use base::{BlockSize, ByteLen};
use node::control::{MapSpec, NewVolume};
use serde::{Deserialize, Serialize};
use store::{Compression, VolumeKind};
use terms::clock::unix_now;
use terms::size::Size;

/// `NAME=SIZE` or `NAME=SIZE,ram`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct FirstVolume {
    pub name: String,
    pub size: Size,
    pub ram: bool,
}

/// The text is no valid volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFirstVolume {
    #[error("{0:?} is not a volume: use NAME=SIZE, such as demo=1G, or NAME=SIZE,ram for a RAM volume")]
    Shape(String),
    #[error(transparent)]
    Size(#[from] terms::size::InvalidSize),
}

impl FirstVolume {
    /// The volume to create, with a target for this machine.
    pub fn new_volume(&self) -> NewVolume {
        NewVolume {
            name: self.name.clone(),
            pool: None,
            kind: if self.ram { VolumeKind::Ram } else { VolumeKind::Thick },
            size: ByteLen(self.size.0),
            block_size: BlockSize::B512,
            native_512: false,
            slices: None,
            created: unix_now(),
            map: Some(MapSpec {
                target: api::default_target(&self.name),
                host: api::DEFAULT_HOST.into(),
                lun: None,
            }),
            copies: None,
            space: store::SpacePolicy::default(),
            compression: Compression::default(),
            checksums: false,
        }
    }
}

impl FromStr for FirstVolume {
    type Err = InvalidFirstVolume;

    fn from_str(text: &str) -> Result<FirstVolume, InvalidFirstVolume> {
        let shape = || InvalidFirstVolume::Shape(text.to_owned());
        let (name, size) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(shape)?;
        let (size, ram) = match size.split_once(',') {
            None => (size, false),
            Some((size, "ram")) => (size, true),
            Some(_) => return Err(shape()),
        };
        Ok(FirstVolume { name: name.to_owned(), size: size.parse()?, ram })
    }
}

base::shows!(Display for FirstVolume, |it| "{}={}{}", it.name, it.size, if it.ram { ",ram" } else { "" });

impl TryFrom<String> for FirstVolume {
    type Error = InvalidFirstVolume;

    fn try_from(text: String) -> Result<FirstVolume, InvalidFirstVolume> {
        text.parse()
    }
}

impl From<FirstVolume> for String {
    fn from(volume: FirstVolume) -> String {
        volume.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_name_and_a_size() {
        let volume: FirstVolume = "demo=1G,ram".parse().unwrap();
        assert_eq!(volume, FirstVolume { name: "demo".into(), size: Size(1 << 30), ram: true });
        assert_eq!(volume.to_string(), "demo=1G,ram");
        for text in ["demo", "=1G", "demo=1G,rum", "demo=", "demo=1X"] {
            assert!(text.parse::<FirstVolume>().is_err(), "{text}");
        }
    }
}
