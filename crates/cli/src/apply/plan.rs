//! The changes that lead to the configuration in the file.
//!
//! They are decided before any is made, so that a file with a conflict is rejected as a whole. Hosts come
//! before what they get access to; removals are in the opposite order.

use std::collections::BTreeSet;

use api::{
    CopyCreate, CopyState, Host, HostChange, HostCreate, MapCreate, PolicyChoice, SplitBrainPolicy,
    TargetChange, TargetCreate, Volume, VolumeChange, VolumeCreate, VolumeKind,
};
use serde::Serialize;

use super::super::error::CliError;
use super::super::table::size;
use super::Present;
use super::addresses::{self, Compared};
use super::declared::{Declared, HostDeclared, MapDeclared, TargetDeclared, VolumeDeclared, chap};
use super::step::{Step, numbers};

/// The changes in order, and what the file does not name.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// What stays although the file does not name it.
    pub(super) kept: Vec<String>,
    /// What can only be done later, and when.
    pub(super) waiting: Vec<String>,
}

/// The plan for programs.
#[derive(Serialize)]
pub(super) struct PlanView {
    changes: Vec<String>,
    kept: Vec<String>,
    waiting: Vec<String>,
}

/// A plan that is being made.
struct Planner<'a> {
    declared: &'a Declared,
    present: &'a Present,
    prune: bool,
    plan: Plan,
    /// Removals, in this order: floating addresses, maps, copies, then volumes, targets and hosts.
    ///
    /// Those of addresses and maps come before new ones, and the others last.
    addresses_gone: Vec<Step>,
    maps_gone: Vec<Step>,
    copies_gone: Vec<Step>,
    gone: Vec<Step>,
    /// Differences that cannot be changed.
    conflicts: Vec<String>,
}

impl Plan {
    /// Compares the file with the present configuration.
    ///
    /// # Errors
    /// [`CliError::Conflict`] with all that cannot be changed; a secret that cannot be read.
    pub(super) fn new(declared: &Declared, present: &Present, prune: bool) -> Result<Plan, CliError> {
        let mut planner = Planner {
            declared,
            present,
            prune,
            plan: Plan::default(),
            addresses_gone: Vec::new(),
            maps_gone: Vec::new(),
            copies_gone: Vec::new(),
            gone: Vec::new(),
            conflicts: Vec::new(),
        };
        for host in &declared.hosts {
            planner.host(host)?;
        }
        for target in &declared.targets {
            planner.target(target)?;
        }
        for volume in &declared.volumes {
            planner.volume(volume);
        }
        planner.surplus();
        for map in &declared.maps {
            planner.map(map);
        }
        planner.addresses();
        planner.finish()
    }

    /// What the steps would remove, in words.
    pub(super) fn destroyed(&self) -> Vec<String> {
        self.steps.iter().filter_map(Step::destroys).collect()
    }

    pub(super) fn shown(&self) -> PlanView {
        PlanView {
            changes: self.steps.iter().map(Step::line).collect(),
            kept: self.kept.clone(),
            waiting: self.waiting.clone(),
        }
    }
}

/// The plan as `diff` shows it.
pub(super) fn text(shown: &PlanView) -> String {
    let mut text = match (shown.changes.as_slice(), shown.waiting.as_slice()) {
        ([], []) => "Nothing to do: the configuration matches the file.\n".to_owned(),
        ([], _) => "Nothing to do now.\n".to_owned(),
        (changes, _) => changes.join("\n") + "\n",
    };
    for (head, lines) in [
        ("To be done later; apply the file again then:", &shown.waiting),
        ("Not in the file, left unchanged (--prune deletes it):", &shown.kept),
    ] {
        if !lines.is_empty() {
            text += &format!("\n{head}\n");
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        }
    }
    text
}

impl Planner<'_> {
    fn finish(mut self) -> Result<Plan, CliError> {
        if !self.conflicts.is_empty() {
            return Err(CliError::Conflict(self.conflicts));
        }
        // Remove addresses and maps first: new ones may take their place.
        let needs_room = |step: &Step| matches!(step, Step::CreateMap { .. } | Step::AddAddress(_));
        let at = self.plan.steps.iter().position(needs_room).unwrap_or(self.plan.steps.len());
        self.plan.steps.splice(at..at, self.addresses_gone.into_iter().chain(self.maps_gone));
        self.plan.steps.extend(self.copies_gone);
        self.plan.steps.extend(self.gone);
        Ok(self.plan)
    }

    fn host(&mut self, host: &HostDeclared) -> Result<(), CliError> {
        let whose = format!("host {:?}", host.name);
        let HostDeclared { name, initiators, addresses, chap_user, chap_secret_file } = host;
        let chap = || chap(&whose, chap_user.as_ref(), chap_secret_file.as_ref());
        let Some(present) = self.present.hosts.iter().find(|present| present.name == *name) else {
            let create = HostCreate {
                name: name.clone(),
                initiators: initiators.clone(),
                addresses: addresses.clone(),
                chap: chap()?,
            };
            self.plan.steps.push(Step::CreateHost(create));
            return Ok(());
        };
        if present.built_in {
            self.conflicts.push(format!("{whose} is built in, and the file must not name it"));
            return Ok(());
        }
        let what = differences(host, present);
        if what.is_empty() {
            return Ok(());
        }
        // The secret of an unchanged user name cannot be compared, so it stays.
        let chap = match *chap_user == present.chap_user {
            true => None,
            false => Some(chap()?),
        };
        let change = HostChange { initiators: initiators.clone(), addresses: addresses.clone(), chap };
        self.plan.steps.push(Step::ChangeHost { name: name.clone(), change, what: what.join(", ") });
        Ok(())
    }

    fn target(&mut self, target: &TargetDeclared) -> Result<(), CliError> {
        let TargetDeclared { name, alias, chap_user, chap_secret_file } = target;
        let chap = || chap(&format!("target {name}"), chap_user.as_ref(), chap_secret_file.as_ref());
        let Some(present) = self.present.targets.iter().find(|present| present.name == *name) else {
            let create = TargetCreate { name: name.clone(), alias: alias.clone(), chap: chap()? };
            self.plan.steps.push(Step::CreateTarget(create));
            return Ok(());
        };
        let what: Vec<String> =
            [("alias", &present.alias, alias), ("CHAP name", &present.chap_user, chap_user)]
                .into_iter()
                .filter(|(_, is, shall)| is != shall)
                .map(|(what, is, shall)| {
                    let [is, shall] = [is, shall].map(|value| value.as_deref().unwrap_or("none"));
                    format!("{what} from {is} to {shall}")
                })
                .collect();
        if what.is_empty() {
            return Ok(());
        }
        // As for hosts.
        let chap = match *chap_user == present.chap_user {
            true => None,
            false => Some(chap()?),
        };
        let alias = (*alias != present.alias).then(|| alias.clone());
        let change = TargetChange { alias, chap };
        self.plan.steps.push(Step::ChangeTarget { name: name.clone(), change, what: what.join(", ") });
        Ok(())
    }

    fn volume(&mut self, volume: &VolumeDeclared) {
        match self.present.volumes.iter().find(|present| present.name == volume.name) {
            Some(present) => self.present_volume(volume, present),
            None => self.new_volume(volume),
        }
    }

    fn new_volume(&mut self, volume: &VolumeDeclared) {
        let name = &volume.name;
        let unknown: Vec<u16> = volume
            .on
            .iter()
            .copied()
            .filter(|id| self.present.nodes.iter().all(|node| node.id != *id))
            .collect();
        if !unknown.is_empty() {
            self.conflicts.push(format!("volume {name:?}: the cluster has no node {}", numbers(&unknown)));
            return;
        }
        let block_size = volume.block_size.unwrap_or(512);
        let kind = volume.kind.unwrap_or_default();
        if !self.can_have_settings(volume, kind) {
            return;
        }
        let create = VolumeCreate {
            pool: volume.pool.clone(),
            kind,
            block_size,
            native_512: volume.physical_block_size == Some(512),
            slices: volume.slices,
            compression: volume.compression,
            checksums: volume.checksums.unwrap_or_default(),
            when_full: volume.when_full,
            reserve: volume.reserve.map(|reserve| reserve.0),
            map: false,
            nodes: (!volume.on.is_empty()).then(|| volume.on.clone()),
            copies: volume.copies,
            ..VolumeCreate::new(name.clone(), volume.size.0)
        };
        self.plan.steps.push(Step::CreateVolume(create));
        if let Some(policy) = volume.split_brain_policy.filter(|policy| *policy != SplitBrainPolicy::Prefer) {
            self.plan.steps.push(choose(volume, policy));
        }
    }

    fn present_volume(&mut self, volume: &VolumeDeclared, present: &Volume) {
        let name = &volume.name;
        let pool = volume.pool.clone().filter(|_| has_one_pool(present));
        let fixed = [
            ("pool", pool, present.pool.clone()),
            ("kind", volume.kind.map(|kind| kind.to_string()), present.kind.to_string()),
            ("block-size", volume.block_size.map(|bytes| bytes.to_string()), present.block_size.to_string()),
            (
                "physical-block-size",
                volume.physical_block_size.map(|bytes| bytes.to_string()),
                present.physical_block_size.to_string(),
            ),
            ("slices", volume.slices.map(|slices| slices.to_string()), present.slices.to_string()),
            (
                "checksums",
                volume.checksums.filter(|_| present.checksums.is_some()).map(|shall| shall.to_string()),
                present.checksums.unwrap_or_default().to_string(),
            ),
        ];
        for (what, shall, is) in fixed {
            if let Some(shall) = shall.filter(|shall| *shall != is) {
                self.conflicts
                    .push(format!("volume {name:?}: its {what} is {is}, and cannot be changed to {shall}"));
            }
        }
        // The node rounds sizes up to whole blocks.
        let block = u64::from(present.block_size).max(1);
        let to = volume.size.0.div_ceil(block).saturating_mul(block);
        match present.size.cmp(&to) {
            std::cmp::Ordering::Less => {
                self.plan.steps.push(Step::Resize { volume: name.clone(), from: present.size, to });
            }
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.conflicts.push(format!(
                "volume {name:?}: its size is {}, and volumes can only grow: the file says {}",
                size(present.size),
                size(to)
            )),
        }
        // After the resize: a reserve may be as large as the volume is then.
        self.settings(volume, present);
        self.copies(volume, present);
        let chosen =
            present.split_brain_policy.as_ref().map_or(SplitBrainPolicy::Prefer, |chosen| chosen.policy);
        if let Some(policy) = volume.split_brain_policy.filter(|policy| *policy != chosen) {
            self.plan.steps.push(choose(volume, policy));
        }
    }

    /// Plans the settings that only log volumes have.
    fn settings(&mut self, volume: &VolumeDeclared, present: &Volume) {
        if !self.can_have_settings(volume, present.kind) {
            return;
        }
        let when_full = volume.when_full.filter(|shall| Some(*shall) != present.when_full);
        let reserve = volume.reserve.map(|reserve| reserve.0).filter(|shall| *shall != present.reserved);
        let mut what = Vec::new();
        if let Some(shall) = when_full {
            let is = present.when_full.unwrap_or_default();
            what.push(format!("when-full from {is} to {shall}"));
        }
        if let Some(shall) = reserve {
            what.push(format!("reserve from {} to {}", size(present.reserved), size(shall)));
        }
        let compression = volume.compression.filter(|shall| Some(*shall) != present.compression);
        if let (Some(shall), Some(is)) = (compression, present.compression) {
            what.push(format!("compression from {is} to {shall}"));
        }
        if !what.is_empty() {
            let change = VolumeChange { when_full, reserve, compression, ..VolumeChange::default() };
            let name = volume.name.clone();
            self.plan.steps.push(Step::ChangeVolume { name, change, what: what.join(", ") });
        }
    }

    /// Whether a volume of this kind can have the settings that the file names.
    fn can_have_settings(&mut self, volume: &VolumeDeclared, kind: VolumeKind) -> bool {
        let is_named = volume.when_full.is_some() || volume.reserve.is_some() || volume.compression.is_some();
        if is_named && !kind.is_thin() {
            self.conflicts.push(format!(
                "volume {:?}: only volumes of kind log have `when-full`, `reserve` and `compression`",
                volume.name
            ));
            return false;
        }
        true
    }

    /// Plans the nodes of its copies. A copy that is being removed does not count.
    fn copies(&mut self, volume: &VolumeDeclared, present: &Volume) {
        let name = &volume.name;
        let is: BTreeSet<u16> =
            present.copies.iter().filter(|copy| !copy.leaves).map(|copy| copy.node).collect();
        let on = numbers(&is.iter().copied().collect::<Vec<_>>());
        let several = volume.copies.is_some_and(|copies| copies > 1);
        if present.copies.is_empty() && (several || !volume.on.is_empty()) {
            self.conflicts.push(format!(
                "volume {name:?}: it is not in the cluster's record, so it cannot have copies"
            ));
            return;
        }
        if volume.copies.is_some_and(|copies| usize::from(copies) != is.len().max(1)) {
            self.conflicts.push(format!(
                "volume {name:?}: it has copies on nodes {on}: to change their number, list all nodes (on)"
            ));
            return;
        }
        if volume.on.is_empty() {
            return;
        }
        let shall: BTreeSet<u16> = volume.on.iter().copied().collect();
        let mut surplus: Vec<u16> = is.difference(&shall).copied().collect();
        for node in shall.difference(&is).copied() {
            // A copy that is no longer wanted moves: it is removed when the new one is in sync.
            let instead_of = if self.prune { surplus.pop() } else { None };
            let copy = CopyCreate { node, pool: volume.pool.clone(), instead_of };
            self.plan.steps.push(Step::AddCopy { volume: name.clone(), copy });
        }
        // A surplus copy is removed only when all copies that the file names are in sync; until then it may
        // be needed.
        let is_good = |node: &u16| {
            let mut copies = present.copies.iter().filter(|copy| !copy.leaves);
            copies.any(|copy| copy.node == *node && copy.state == CopyState::InSync)
        };
        let settled = shall.iter().all(is_good);
        for node in surplus {
            if !self.prune {
                self.plan.kept.push(format!("the copy of volume {name} on node {node}"));
            } else if settled || !is_good(&node) {
                self.copies_gone.push(Step::RemoveCopy { volume: name.clone(), node });
            } else {
                self.plan.waiting.push(format!(
                    "- copy of volume {name} on node {node}: when all copies named in the file are in sync"
                ));
            }
        }
    }

    fn map(&mut self, map: &MapDeclared) {
        let MapDeclared { target, volume, host, lun } = map;
        let what = format!("map of volume {volume:?} in {target}");
        let Declared { hosts, targets, volumes, .. } = self.declared;
        let there = [
            (
                "target",
                target,
                targets.iter().any(|other| other.name == *target)
                    || self.present.targets.iter().any(|other| other.name == *target),
            ),
            (
                "volume",
                volume,
                volumes.iter().any(|other| other.name == *volume)
                    || self.present.volumes.iter().any(|other| other.name == *volume),
            ),
            (
                "host",
                host,
                hosts.iter().any(|other| other.name == *host)
                    || self.present.hosts.iter().any(|other| other.name == *host),
            ),
        ];
        for (kind, name, there) in there {
            if !there {
                self.conflicts
                    .push(format!("{what}: {kind} {name:?} not found, neither in the file nor here"));
                return;
            }
        }
        let is_new = |step: &Step| matches!(step, Step::CreateVolume(new) if new.name == *volume);
        if self.present.volumes.iter().all(|other| other.name != *volume)
            && !self.plan.steps.iter().any(is_new)
        {
            // The conflict that keeps the target from being created is already reported.
            return;
        }
        let present = self.present.targets.iter().find(|present| present.name == *target);
        let maps = present.map_or(&[][..], |target| &target.maps);
        let of_host = |other: &&api::TargetMap| other.host == *host;
        let is_it = |other: &api::TargetMap| {
            other.volume.as_ref() == Some(volume) && lun.is_none_or(|lun| other.lun == lun)
        };
        if maps.iter().filter(of_host).any(is_it) {
            return;
        }
        let taken = lun.and_then(|lun| maps.iter().filter(of_host).find(|other| other.lun == lun));
        if let Some(taken) = taken {
            let goes = self.maps_gone.iter().any(|step| {
                matches!(step, Step::DeleteMap { target: t, lun, host: h, .. } if t == target && *lun == taken.lun && h == host)
            });
            if !goes {
                self.conflicts.push(format!(
                    "{what}: LUN {} is volume {} for host {host}: choose another LUN, or use --prune to remove that map",
                    taken.lun,
                    taken.volume.as_deref().unwrap_or(&taken.volume_id)
                ));
                return;
            }
        }
        let create = MapCreate { volume: volume.clone(), host: Some(host.clone()), lun: *lun };
        self.plan.steps.push(Step::CreateMap { target: target.clone(), map: create });
    }

    /// Addresses come last: by then, what hosts find there exists.
    fn addresses(&mut self) {
        let Compared { added, surplus, conflicts } =
            addresses::compare(&self.declared.addresses, self.present);
        self.plan.steps.extend(added);
        self.conflicts.extend(conflicts);
        // A file without addresses may be older than they are.
        match self.prune && !self.declared.addresses.is_empty() {
            true => self.addresses_gone = surplus,
            false => self.plan.kept.extend(surplus.iter().map(kept)),
        }
    }

    /// Plans the removal of what the file does not name.
    fn surplus(&mut self) {
        let declared = self.declared;
        let mut surplus = Vec::new();
        for target in &self.present.targets {
            for map in &target.maps {
                // The name of its volume is unknown, because its pool is not open: the map stays, whatever
                // the file says.
                let Some(volume) = &map.volume else { continue };
                let named = declared.maps.iter().any(|other| {
                    (&other.target, &other.host, &other.volume) == (&target.name, &map.host, volume)
                        && other.lun.is_none_or(|lun| lun == map.lun)
                });
                if !named {
                    surplus.push(Step::DeleteMap {
                        target: target.name.clone(),
                        lun: map.lun,
                        host: map.host.clone(),
                        volume: volume.clone(),
                    });
                }
            }
        }
        let of_maps = surplus.len();
        for volume in &self.present.volumes {
            if declared.volumes.iter().all(|other| other.name != volume.name) {
                surplus.push(Step::DeleteVolume {
                    id: volume.id.clone(),
                    name: volume.name.clone(),
                    size: volume.size,
                });
            }
        }
        for target in &self.present.targets {
            let is_needed = target.maps.iter().any(|map| map.volume.is_none());
            if !is_needed && declared.targets.iter().all(|other| other.name != target.name) {
                surplus.push(Step::DeleteTarget(target.name.clone()));
            }
        }
        for host in self.present.hosts.iter().filter(|host| !host.built_in) {
            let mut maps = self.present.targets.iter().flat_map(|target| &target.maps);
            let is_needed = maps.any(|map| map.volume.is_none() && map.host == host.name);
            if !is_needed && declared.hosts.iter().all(|other| other.name != host.name) {
                surplus.push(Step::DeleteHost(host.name.clone()));
            }
        }
        if self.prune {
            self.gone = surplus.split_off(of_maps);
            self.maps_gone = surplus;
        } else {
            self.plan.kept.extend(surplus.iter().map(kept));
        }
    }
}

/// Describes what stays, from the step that would remove it.
fn kept(step: &Step) -> String {
    step.line().trim_start_matches("- ").replace(" with all its data", "")
}

/// Whether the volume is in one pool only, and which one is known. With copies on several nodes, each has its
/// own, and which one is reported depends on the node that is asked.
pub(super) fn has_one_pool(volume: &Volume) -> bool {
    volume.copies.len() < 2 && !volume.pool.is_empty()
}

fn choose(volume: &VolumeDeclared, policy: SplitBrainPolicy) -> Step {
    let accept_split_brain = policy == SplitBrainPolicy::Heartbeat && volume.accept_split_brain;
    let choice = PolicyChoice { policy, accept_split_brain, by: "ursa apply".into() };
    Step::SetSplitBrainPolicy { volume: volume.name.clone(), choice }
}

/// The differences of a host group. The order of names does not matter.
fn differences(host: &HostDeclared, present: &Host) -> Vec<String> {
    let mut what = Vec::new();
    for (name, is, shall) in [
        ("initiators", &present.initiators, &host.initiators),
        ("addresses", &present.addresses, &host.addresses),
    ] {
        let set = |items: &[String]| items.iter().cloned().collect::<BTreeSet<String>>();
        let (is, shall) = (set(is), set(shall));
        if is != shall {
            let shown = |set: BTreeSet<String>| match set.is_empty() {
                true => "any".to_owned(),
                false => set.into_iter().collect::<Vec<_>>().join(" "),
            };
            what.push(format!("{name} from {} to {}", shown(is), shown(shall)));
        }
    }
    if host.chap_user != present.chap_user {
        let [is, shall] = [&present.chap_user, &host.chap_user].map(|user| user.as_deref().unwrap_or("none"));
        what.push(format!("CHAP name from {is} to {shall}"));
    }
    what
}
