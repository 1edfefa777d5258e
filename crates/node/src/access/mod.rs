//! Who may see what: targets, LUN maps and host groups, as every core knows them.
//!
//! The rule is default deny. A LUN map says "this volume is LUN n of this target for this host group". An
//! initiator may log in to a target if a map of the target names a host group that it belongs to, and it sees
//! the LUNs of those maps alone. An [`Access`] is never changed in place: control makes a new one and gives
//! it to every core, so a session reads one consistent picture.

mod change;
mod host;
mod names;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub use change::{AccessChange, Concerned};
pub use host::{AddressRange, ChapSecret, HostGroup};
pub use names::{HostName, InvalidName, TargetName, VolumeName};
use serde::{Deserialize, Serialize};
pub use standing::{Barred, Claim};

use crate::volume::VolumeId;

/// LUNs go from 0 to 255: what every initiator accepts in the peripheral addressing method.
pub const LUN_MAX: u16 = 255;

/// A volume as a LUN of a target, for one host group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunMap {
    /// The logical unit number, at most [`LUN_MAX`].
    pub lun: u16,
    /// The volume.
    #[serde(with = "volume_id")]
    pub volume: VolumeId,
    /// Who sees it.
    pub host: HostName,
}

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its iSCSI name.
    pub name: TargetName,
    /// Its number: unique in the node and never changed. Its relative target port identifiers are made from
    /// it ([`PortNumbers`](crate::PortNumbers)), and reservations are kept by these.
    pub port: u16,
    /// A name for people.
    pub alias: Option<String>,
    /// What the target proves itself with to initiators that ask (mutual CHAP).
    pub chap: Option<ChapSecret>,
    /// Its LUNs, by number and then by host group.
    pub maps: Vec<LunMap>,
    /// The volume that it was made with, and is deleted with unless somebody has given it something else.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_volume_id")]
    pub made_with: Option<VolumeId>,
}

/// One consistent picture of targets and hosts. Cheap to clone, so that a change costs little however many
/// there are.
#[derive(Clone, Debug)]
pub struct Access {
    targets: BTreeMap<TargetName, Arc<Target>>,
    hosts: BTreeMap<HostName, Arc<HostGroup>>,
    /// The targets that map a volume, by name. With a target a volume, looking through all of them for each
    /// is quadratic.
    by_volume: BTreeMap<VolumeId, Arc<[TargetName]>>,
}

impl Default for Access {
    /// Nobody sees anything.
    fn default() -> Access {
        let hosts = HostGroup::built_in().into_iter().map(|host| (host.name.clone(), Arc::new(host)));
        Access { targets: BTreeMap::new(), hosts: hosts.collect(), by_volume: BTreeMap::new() }
    }
}

/// Why an initiator may not log in. Logged, counted, and shown to administrators; the wire says less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// There is no target of this name.
    NoSuchTarget,
    /// The target has no LUN map for a host group that this initiator belongs to.
    NotMapped,
}

/// Under which conditions an initiator may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Any one of these proves the initiator; none needed if empty.
    pub chap: Vec<ChapSecret>,
    /// What the target proves itself with if asked.
    pub target_chap: Option<ChapSecret>,
    /// TargetAlias.
    pub alias: Option<String>,
}

impl Target {
    /// Whether nothing is lost with it once these volumes are deleted: it was made with one of them, and has
    /// no other maps, no alias and no secret.
    pub fn goes_with(&self, volumes: &BTreeSet<VolumeId>) -> bool {
        let is_bare = self.alias.is_none() && self.chap.is_none();
        let is_made_with = self.made_with.is_some_and(|volume| volumes.contains(&volume));
        is_made_with && is_bare && self.maps.iter().all(|map| volumes.contains(&map.volume))
    }
}

impl Access {
    /// The picture that these records draw.
    pub fn new(
        targets: impl IntoIterator<Item = Target>,
        hosts: impl IntoIterator<Item = HostGroup>,
    ) -> Access {
        let hosts = hosts.into_iter().map(AccessChange::SetHost);
        let changes: Vec<AccessChange> =
            hosts.chain(targets.into_iter().map(AccessChange::SetTarget)).collect();
        Access::default().with(&changes).0
    }

    /// Whether, and how, `initiator` may log in to `target`.
    ///
    /// # Errors
    /// See [`Denied`].
    pub fn admit(&self, target: &str, initiator: &str, address: IpAddr) -> Result<Admission, Denied> {
        let target = self.targets.get(target).ok_or(Denied::NoSuchTarget)?;
        let mut hosts: Vec<&HostGroup> =
            target.maps.iter().filter_map(|map| self.member(map, initiator, address)).collect();
        if hosts.is_empty() {
            return Err(Denied::NotMapped);
        }
        hosts.sort_by_key(|host| &host.name);
        hosts.dedup_by_key(|host| &host.name);
        // Who may prove more must: a session that proved nothing would miss LUNs without a word.
        let chap: Vec<ChapSecret> = hosts.iter().filter_map(|host| host.chap.clone()).collect();
        // Two nodes may have set one secret for both directions at the same time: then the target proves
        // nothing with it.
        let is_one_way = |own: &&ChapSecret| {
            !self.hosts().any(|host| host.chap.as_ref().is_some_and(|chap| chap.secret == own.secret))
        };
        let target_chap = target.chap.as_ref().filter(is_one_way).cloned();
        Ok(Admission { chap, target_chap, alias: target.alias.clone() })
    }

    /// What targets prove themselves with.
    pub fn target_secrets(&self) -> Vec<&ChapSecret> {
        self.targets().filter_map(|target| target.chap.as_ref()).collect()
    }

    /// What initiators prove themselves with.
    pub fn initiator_secrets(&self) -> Vec<&ChapSecret> {
        self.hosts().filter_map(|host| host.chap.as_ref()).collect()
    }

    /// A target by its name.
    pub fn target(&self, name: &str) -> Option<&Target> {
        self.targets.get(name).map(|target| &**target)
    }

    /// All targets, by name.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.values().map(|target| &**target)
    }

    /// All host groups, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &HostGroup> {
        self.hosts.values().map(|host| &**host)
    }

    /// A host group by its name.
    pub fn host(&self, name: &str) -> Option<&HostGroup> {
        self.hosts.get(name).map(|host| &**host)
    }

    /// The targets that map this volume, by name.
    pub fn targets_of(&self, volume: VolumeId) -> impl Iterator<Item = &Target> {
        let names = self.by_volume.get(&volume).map_or(&[][..], |names| names);
        names.iter().filter_map(|name| self.target(name.as_str()))
    }

    /// The targets that `initiator` may log in to, as far as its name and its address tell.
    pub fn visible(&self, initiator: &str, address: IpAddr) -> impl Iterator<Item = &Target> {
        self.targets().filter(move |target| {
            target.maps.iter().any(|map| self.member(map, initiator, address).is_some())
        })
    }

    /// As [`Access::visible`], without those that ask `initiator` for a secret which it has not proved.
    pub fn visible_with(&self, initiator: &str, claim: &Claim) -> impl Iterator<Item = &Target> {
        self.visible(initiator, claim.address).filter(move |target| {
            let admission = self.admit(target.name.as_str(), initiator, claim.address);
            admission.is_ok_and(|admission| {
                let proven = claim.proven.as_ref();
                admission.chap.is_empty() || proven.is_some_and(|proven| admission.chap.contains(proven))
            })
        })
    }

    /// The secrets that any target asks `initiator` for, each once.
    pub fn secrets_of(&self, initiator: &str, address: IpAddr) -> Vec<ChapSecret> {
        let maps = self.targets().flat_map(|target| &target.maps);
        let hosts = maps.filter_map(|map| self.member(map, initiator, address));
        let by_name: BTreeMap<&HostName, &HostGroup> = hosts.map(|host| (&host.name, host)).collect();
        by_name.into_values().filter_map(|host| host.chap.clone()).collect()
    }

    /// The host groups of `target`'s maps whose LUNs a session of `initiator` may see: of those it belongs
    /// to, the ones that ask for no secret, and the ones whose secret it has proved.
    pub fn enters(&self, target: &str, initiator: &str, claim: &Claim) -> BTreeSet<HostName> {
        let maps = self.target(target).map_or(&[][..], |target| &target.maps);
        maps.iter()
            .filter_map(|map| self.host(map.host.as_str()))
            .filter(|host| host.is_entered(initiator, claim))
            .map(|host| host.name.clone())
            .collect()
    }

    /// The LUNs of `target` that `initiator` sees, of those of the host groups that it has `entered`. If two
    /// maps give one LUN, the host group first by name decides.
    pub fn luns(
        &self,
        target: &str,
        initiator: &str,
        address: IpAddr,
        entered: &BTreeSet<HostName>,
    ) -> BTreeMap<u16, VolumeId> {
        let mut seen: BTreeMap<u16, (&HostName, VolumeId)> = BTreeMap::new();
        for map in self.target(target).map_or(&[][..], |target| &target.maps) {
            let member = self.member(map, initiator, address);
            let Some(host) = member.filter(|host| entered.contains(&host.name)) else { continue };
            let candidate = (&host.name, map.volume);
            seen.entry(map.lun)
                .and_modify(|held| {
                    if candidate.0 < held.0 {
                        *held = candidate;
                    }
                })
                .or_insert(candidate);
        }
        seen.into_iter().map(|(lun, (_, volume))| (lun, volume)).collect()
    }

    fn member(&self, map: &LunMap, initiator: &str, address: IpAddr) -> Option<&HostGroup> {
        self.host(map.host.as_str()).filter(|host| host.contains(initiator, address))
    }
}

/// A volume's identity as the text that people see.
mod volume_id {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::volume::VolumeId;

    pub(super) fn serialize<S: Serializer>(id: &VolumeId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VolumeId, D::Error> {
        let text = String::deserialize(deserializer)?;
        VolumeId::parse(&text).ok_or_else(|| D::Error::custom("not a volume's identity"))
    }
}

mod optional_volume_id {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::volume::VolumeId;

    pub(super) fn serialize<S: Serializer>(id: &Option<VolumeId>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(id),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<VolumeId>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        VolumeId::parse(&text).map(Some).ok_or_else(|| D::Error::custom("not a volume's identity"))
    }
}

#[cfg(test)]
mod tests;
