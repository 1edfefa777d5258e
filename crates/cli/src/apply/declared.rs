//! The file, which describes the intended configuration.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use api::{Chap, Compression, SplitBrainPolicy, VolumeKind, WhenFull};
use node::access::AddressRange;
use serde::{Deserialize, Serialize};
use terms::size::Size;

use super::super::error::CliError;

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Declared {
    #[serde(default, rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub(super) hosts: Vec<HostDeclared>,
    #[serde(default, rename = "target", skip_serializing_if = "Vec::is_empty")]
    pub(super) targets: Vec<TargetDeclared>,
    #[serde(default, rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub(super) volumes: Vec<VolumeDeclared>,
    #[serde(default, rename = "map", skip_serializing_if = "Vec::is_empty")]
    pub(super) maps: Vec<MapDeclared>,
    #[serde(default, rename = "address", skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<AddressDeclared>,
}

/// A host group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct HostDeclared {
    pub(super) name: String,
    /// Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) initiators: Vec<String>,
    /// Empty: from anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chap_user: Option<String>,
    /// The file with the secret, which is read when it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chap_secret_file: Option<PathBuf>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TargetDeclared {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) alias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chap_user: Option<String>,
    /// The file with the secret, which is read when it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) chap_secret_file: Option<PathBuf>,
}

/// A volume. The node chooses what is absent, which is not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VolumeDeclared {
    pub(super) name: String,
    pub(super) size: Size,
    /// The pool in which the volume is created.
    ///
    /// For a volume with copies: the pool of copies that are added. Present copies may lie in pools of other
    /// names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<VolumeKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) block_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) physical_block_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slices: Option<u16>,
    /// The compression of a log volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) compression: Option<Compression>,
    /// Whether the blocks of a thick volume have checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksums: Option<bool>,
    /// What the writes of a log volume do when its pool is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) when_full: Option<WhenFull>,
    /// The space of its pool that only this log volume can use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reserve: Option<Size>,
    /// The numbers of the nodes that have a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) on: Vec<u16>,
    /// The number of copies, instead of `on`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copies: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) split_brain_policy: Option<SplitBrainPolicy>,
    /// The consent that `heartbeat` requires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) accept_split_brain: bool,
}

/// A LUN map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MapDeclared {
    pub(super) target: String,
    pub(super) volume: String,
    #[serde(default = "local")]
    pub(super) host: String,
    /// None: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lun: Option<u16>,
}

/// A floating address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AddressDeclared {
    /// With its prefix length.
    pub(super) address: String,
    /// None: the device in its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<String>,
    /// The numbers of the nodes that may hold it; empty: all but witnesses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) nodes: Vec<u16>,
    /// The number of the node that holds it if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prefer: Option<u16>,
}

impl AddressDeclared {
    /// The address and its prefix length; without one, the full length.
    pub(super) fn parsed(&self) -> Result<AddressRange, String> {
        let none = |_| {
            format!(
                "{:?} is not an address with its prefix length, such as 192.0.2.10/24 or fd00::10/64",
                self.address
            )
        };
        self.address.parse().map_err(none)
    }
}

fn local() -> String {
    api::DEFAULT_HOST.to_owned()
}

impl Declared {
    /// Reads a file, or standard input (`-`).
    pub(super) fn read(path: &Path) -> Result<Declared, CliError> {
        let text = match path == Path::new("-") {
            true => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text).map(|_| text)
            }
            false => fs::read_to_string(path),
        };
        let text = text.map_err(|error| CliError::File(path.to_owned(), error))?;
        Declared::parse(&text).map_err(|reason| CliError::Declared(path.to_owned(), reason))
    }

    pub(super) fn parse(text: &str) -> Result<Declared, String> {
        let declared: Declared = toml::from_str(text).map_err(|error| error.to_string())?;
        declared.check()?;
        Ok(declared)
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Declared::default()
    }

    /// Checks what is invalid in any configuration.
    fn check(&self) -> Result<(), String> {
        once("host", self.hosts.iter().map(|host| &host.name))?;
        once("target", self.targets.iter().map(|target| &target.name))?;
        once("volume", self.volumes.iter().map(|volume| &volume.name))?;
        let map = |map: &MapDeclared| format!("{} for {} in {}", map.volume, map.host, map.target);
        once("map of volume", self.maps.iter().map(map))?;
        let lun = |map: &MapDeclared| Some(format!("{} of {} for {}", map.lun?, map.target, map.host));
        once("LUN", self.maps.iter().filter_map(lun))?;
        let parsed = self.addresses.iter().map(AddressDeclared::parsed);
        let parsed: Vec<AddressRange> = parsed.collect::<Result<_, _>>()?;
        once("address", parsed.into_iter().map(AddressRange::address))?;
        for address in &self.addresses {
            once(&format!("node of address {:?}", address.address), &address.nodes)?;
        }
        for volume in &self.volumes {
            let name = &volume.name;
            once(&format!("node of volume {name:?}"), &volume.on)?;
            if volume.split_brain_policy == Some(SplitBrainPolicy::Heartbeat) && !volume.accept_split_brain {
                return Err(format!(
                    "volume {name:?}: with split-brain-policy = \"heartbeat\" both nodes may continue, and the writes of one of them are then discarded: set accept-split-brain = true as well"
                ));
            }
            if volume.reserve.is_some_and(|reserve| reserve > volume.size) {
                return Err(format!("volume {name:?}: its reserve cannot exceed its size"));
            }
            if !volume.on.is_empty() && volume.copies.is_some() {
                return Err(format!("volume {name:?}: use either `on` or `copies`"));
            }
            if volume.copies.is_some_and(|copies| !(1..=4).contains(&copies)) {
                return Err(format!("volume {name:?}: a volume has one to four copies"));
            }
            if volume.split_brain_policy.is_some() && volume.on.is_empty() {
                return Err(format!(
                    "volume {name:?}: `split-brain-policy` is only for volumes with copies: set `on`, too"
                ));
            }
        }
        Ok(())
    }
}

fn once<T: ToString>(what: &str, names: impl IntoIterator<Item = T>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        let name = name.to_string();
        if seen.contains(&name) {
            return Err(format!("{what} {name} is listed twice"));
        }
        seen.insert(name);
    }
    Ok(())
}

/// The name and the secret, if there is a name; `whose` is for the message.
pub(super) fn chap(
    whose: &str,
    user: Option<&String>,
    file: Option<&PathBuf>,
) -> Result<Option<Chap>, CliError> {
    let Some(user) = user else { return Ok(None) };
    let file = file.ok_or_else(|| {
        CliError::Conflict(vec![format!(
            "{whose}: chap-secret-file is missing (the file with the CHAP secret of {user})"
        )])
    })?;
    let secret = fs::read_to_string(file).map_err(|error| CliError::Secret(file.clone(), error))?;
    let secret = secret.trim_end_matches(['\r', '\n']).to_owned();
    Ok(Some(Chap { user: user.clone(), secret }))
}
