//! Changes of the rules, and whom they concern.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Access, HostGroup, HostName, Target, TargetName};
use crate::volume::VolumeId;

/// A change of the rules.
#[derive(Clone, Debug)]
pub enum AccessChange {
    /// A target is made, or becomes another.
    SetTarget(Target),
    /// A target goes, with its maps.
    DeleteTarget(TargetName),
    /// A host group is made, or becomes another.
    SetHost(HostGroup),
    /// A host group goes.
    DeleteHost(HostName),
}

/// Who must look at new rules. With a session and a volume a target, one change must not have all of them
/// look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// Initiators of any target may see something else.
    every_target: bool,
    /// Initiators of these targets may see something else.
    targets: BTreeSet<TargetName>,
    /// Other targets than before lead to these volumes.
    volumes: BTreeSet<VolumeId>,
}

impl Concerned {
    /// Initiators of any target may see something else; the ways to volumes are the same.
    pub fn every_target() -> Concerned {
        Concerned { every_target: true, ..Concerned::default() }
    }

    /// Whether initiators of `target` may see something else.
    pub fn target(&self, target: &str) -> bool {
        self.every_target || self.targets.contains(target)
    }

    /// The volumes that other targets lead to.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        self.volumes.iter().copied()
    }
}

impl Access {
    /// The picture after `changes`, one after the other, and whom they concern.
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

    /// Notes whether a target leads to a volume.
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
