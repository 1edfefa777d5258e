//! Which initiators see what: targets, LUN maps and host groups, as every core knows them.
//!
//! The rule is default deny. A LUN map says "this volume is LUN n of this target for this host group". An
//! initiator may log in to a target if a map of the target names a host group that it belongs to, and it sees
//! only the LUNs of those maps. An [`Access`] is never changed in place: control creates a new one and
//! installs it on every core, so a session always reads one consistent state.

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

use crate::data::VolumeId;

/// The highest LUN. Every initiator accepts LUNs from 0 to 255 in the peripheral addressing method.
pub const LUN_MAX: u16 = 255;

/// A volume as a LUN of a target, for one host group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunMap {
    /// The logical unit number, at most [`LUN_MAX`].
    pub lun: u16,
    /// The volume.
    #[serde(with = "volume_id")]
    pub volume: VolumeId,
    /// The host group that sees it.
    pub host: HostName,
}

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its iSCSI name.
    pub name: TargetName,
    /// Its number: unique in the node, and never changed.
    ///
    /// The target's relative target port identifiers are derived from it
    /// ([`NodeNumber::port`](crate::NodeNumber::port)), and reservations refer to these.
    pub port: u16,
    /// A name for people.
    pub alias: Option<String>,
    /// The secret with which the target authenticates to initiators that ask (mutual CHAP).
    pub chap: Option<ChapSecret>,
    /// Its LUNs, by number and then by host group.
    pub maps: Vec<LunMap>,
    /// The volume that it was created with. It is deleted with that volume unless it has got something else
    /// since.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_volume_id")]
    pub made_with: Option<VolumeId>,
}

/// One consistent state of targets and hosts.
///
/// It is cheap to clone, so that a change costs little however many there are.
#[derive(Clone, Debug)]
pub struct Access {
    targets: BTreeMap<TargetName, Arc<Target>>,
    hosts: BTreeMap<HostName, Arc<HostGroup>>,
    /// The targets that map a volume, by name. If each volume has its own target, searching all targets for
    /// each volume would be quadratic.
    by_volume: BTreeMap<VolumeId, Arc<[TargetName]>>,
}

impl Default for Access {
    /// The empty state: no initiator sees anything.
    fn default() -> Access {
        let hosts = HostGroup::built_in().into_iter().map(|host| (host.name.clone(), Arc::new(host)));
        Access { targets: BTreeMap::new(), hosts: hosts.collect(), by_volume: BTreeMap::new() }
    }
}

/// Why an initiator may not log in.
///
/// Logged, counted, and shown to administrators; the login response says less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// There is no target of this name.
    NoSuchTarget,
    /// The target has no LUN map for a host group that this initiator belongs to.
    NotMapped,
}

/// The conditions under which an initiator may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Any one of these secrets authenticates the initiator; if empty, none is needed.
    pub chap: Vec<ChapSecret>,
    /// The secret with which the target authenticates if the initiator asks.
    pub target_chap: Option<ChapSecret>,
    /// TargetAlias.
    pub alias: Option<String>,
}

impl Target {
    /// Whether the target can be deleted with these volumes without losing anything: it was created with one
    /// of them, and has no other maps, no alias and no secret.
    pub fn goes_with(&self, volumes: &BTreeSet<VolumeId>) -> bool {
        let is_bare = self.alias.is_none() && self.chap.is_none();
        let is_made_with = self.made_with.is_some_and(|volume| volumes.contains(&volume));
        is_made_with && is_bare && self.maps.iter().all(|map| volumes.contains(&map.volume))
    }
}

impl Access {
    /// The state with these targets and host groups.
    pub fn new(
        targets: impl IntoIterator<Item = Target>,
        hosts: impl IntoIterator<Item = HostGroup>,
    ) -> Access {
        let hosts = hosts.into_iter().map(AccessChange::SetHost);
        let changes: Vec<AccessChange> =
            hosts.chain(targets.into_iter().map(AccessChange::SetTarget)).collect();
        Access::default().with(&changes).0
    }

    /// Whether, and on which conditions, `initiator` may log in to `target`.
    pub fn admit(&self, target: &str, initiator: &str, address: IpAddr) -> Result<Admission, Denied> {
        let target = self.targets.get(target).ok_or(Denied::NoSuchTarget)?;
        let mut hosts: Vec<&HostGroup> =
            target.maps.iter().filter_map(|map| self.member(map, initiator, address)).collect();
        if hosts.is_empty() {
            return Err(Denied::NotMapped);
        }
        hosts.sort_by_key(|host| &host.name);
        hosts.dedup_by_key(|host| &host.name);
        // An initiator that has a secret in any of these groups must prove one: otherwise its session would
        // silently miss LUNs.
        let chap: Vec<ChapSecret> = hosts.iter().filter_map(|host| host.chap.clone()).collect();
        // Two nodes may have set the same secret for both directions at the same time. Then the target does
        // not authenticate with it.
        let is_one_way = |own: &&ChapSecret| {
            !self.hosts().any(|host| host.chap.as_ref().is_some_and(|chap| chap.secret == own.secret))
        };
        let target_chap = target.chap.as_ref().filter(is_one_way).cloned();
        Ok(Admission { chap, target_chap, alias: target.alias.clone() })
    }

    /// The secrets with which targets authenticate.
    pub fn target_secrets(&self) -> Vec<&ChapSecret> {
        self.targets().filter_map(|target| target.chap.as_ref()).collect()
    }

    /// The secrets with which initiators authenticate.
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

    /// The targets that `initiator` may log in to, by its name and address alone.
    pub fn visible(&self, initiator: &str, address: IpAddr) -> impl Iterator<Item = &Target> {
        self.targets().filter(move |target| {
            target.maps.iter().any(|map| self.member(map, initiator, address).is_some())
        })
    }

    /// Like [`Access::visible`], without targets that require a secret which `initiator` has not proved.
    pub fn visible_with(&self, initiator: &str, claim: &Claim) -> impl Iterator<Item = &Target> {
        self.visible(initiator, claim.address).filter(move |target| {
            let admission = self.admit(target.name.as_str(), initiator, claim.address);
            admission.is_ok_and(|admission| {
                let proven = claim.proven.as_ref();
                admission.chap.is_empty() || proven.is_some_and(|proven| admission.chap.contains(proven))
            })
        })
    }

    /// The secrets that any target requires of `initiator`, each once.
    pub fn secrets_of(&self, initiator: &str, address: IpAddr) -> Vec<ChapSecret> {
        let maps = self.targets().flat_map(|target| &target.maps);
        let hosts = maps.filter_map(|map| self.member(map, initiator, address));
        let by_name: BTreeMap<&HostName, &HostGroup> = hosts.map(|host| (&host.name, host)).collect();
        by_name.into_values().filter_map(|host| host.chap.clone()).collect()
    }

    /// The host groups of `target`'s maps whose LUNs a session of `initiator` may see.
    ///
    /// These are the groups that it belongs to and that have no secret, or whose secret it has proved.
    pub fn enters(&self, target: &str, initiator: &str, claim: &Claim) -> BTreeSet<HostName> {
        let maps = self.target(target).map_or(&[][..], |target| &target.maps);
        maps.iter()
            .filter_map(|map| self.host(map.host.as_str()))
            .filter(|host| host.is_entered(initiator, claim))
            .map(|host| host.name.clone())
            .collect()
    }

    /// The LUNs of `target` that `initiator` sees through the host groups that it has `entered`.
    ///
    /// If two maps give the same LUN, the host group that is first by name wins.
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

/// Serializes a volume's identity as the text that people see.
mod volume_id {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::data::VolumeId;

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

    use crate::data::VolumeId;

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
