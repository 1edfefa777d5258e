//! Changes of the access rules, and which sessions and volumes they concern.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Access, HostGroup, HostName, Target, TargetName};
use crate::data::VolumeId;

/// A change of the access rules.
#[derive(Clone, Debug)]
pub enum AccessChange {
    /// A target is created or replaced.
    SetTarget(Target),
    /// A target is deleted, with its maps.
    DeleteTarget(TargetName),
    /// A host group is created or replaced.
    SetHost(HostGroup),
    /// A host group is deleted.
    DeleteHost(HostName),
}

/// The sessions and volumes that must be updated after a change of the rules.
///
/// With one target per volume and one session per target, a change must not update all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Initiators of any target may see something else now.
    every_target: bool,
    /// Initiators of these targets may see something else now.
    targets: BTreeSet<TargetName>,
    /// The targets that lead to these volumes have changed.
    volumes: BTreeSet<VolumeId>,
}

impl Concerned {
    /// Initiators of any target may see something else; the same targets lead to the same volumes.
    pub fn every_target() -> Concerned {
        Concerned { every_target: true, ..Concerned::default() }
    }

    /// Whether initiators of `target` may see something else.
    pub fn target(&self, target: &str) -> bool {
        self.every_target || self.targets.contains(target)
    }

    /// The volumes for which the targets that lead to them have changed.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.volumes.iter().copied()
    }
}

impl Access {
    /// The state after `changes`, in their order, and what they concern.
    pub fn with(&self, changes: &[AccessChange]) -> (Access, Concerned) {
        let (mut access, mut concerned) = (self.clone(), Concerned::default());
        for change in changes {
            match change {
                AccessChange::SetTarget(target) => {
                    access.replace_target(&target.name, Some(target.clone()), &mut concerned);
                }
                AccessChange::DeleteTarget(name) => access.replace_target(name, None, &mut concerned),
                AccessChange::SetHost(host) => {
                    access.hosts.insert(host.name.clone(), Arc::new(host.clone()));
                    concerned.every_target = true;
                }
                AccessChange::DeleteHost(name) => {
                    access.hosts.remove(name);
                    concerned.every_target = true;
                }
            }
        }
        (access, concerned)
    }

    fn replace_target(&mut self, name: &TargetName, new: Option<Target>, concerned: &mut Concerned) {
        let volumes = |target: &Target| target.maps.iter().map(|map| map.volume).collect::<BTreeSet<_>>();
        let after = new.as_ref().map(volumes).unwrap_or_default();
        let old = match new {
            Some(new) => self.targets.insert(name.clone(), Arc::new(new)),
            None => self.targets.remove(name),
        };
        let before = old.as_deref().map(volumes).unwrap_or_default();
        for volume in &before ^ &after {
            self.set_leads_to(name, volume, after.contains(&volume));
            concerned.volumes.insert(volume);
        }
        concerned.targets.insert(name.clone());
    }

    /// Records whether a target leads to a volume.
    fn set_leads_to(&mut self, target: &TargetName, volume: VolumeId, leads: bool) {
        let known = self.by_volume.remove(&volume).unwrap_or_default();
        let mut names: BTreeSet<TargetName> = known.iter().cloned().collect();
        if leads {
            names.insert(target.clone());
        } else {
            names.remove(target);
        }
        if !names.is_empty() {
            self.by_volume.insert(volume, names.into_iter().collect());
        }
    }
}
