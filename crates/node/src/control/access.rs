//! Targets, LUN maps and host groups.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::Transaction;

use super::change::{Changing, WaitsFor, Work};
use super::cluster::{KNOWN_ACCESS, KnownAccess};
use super::doing::Doing;
use super::predecessor::outlive;
use super::turns::Thing;
use super::{Control, ControlError};
use crate::access::{
    Access, AccessChange, AddressRange, ChapSecret, Concerned, HostGroup, HostName, LUN_MAX, LunMap, Target,
    TargetName,
};
use crate::copies::Keeper;
use crate::record::{Change, delete, set};
use crate::shard::{Shard, on_all_cores};
use crate::volume::VolumeId;

pub(crate) const TARGETS: &str = "target/";
pub(crate) const HOSTS: &str = "host/";

fn target_key(name: &TargetName) -> String {
    format!("{TARGETS}{name}")
}

fn host_key(name: &HostName) -> String {
    format!("{HOSTS}{name}")
}

/// A target to be made.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// Its iSCSI name.
    pub name: String,
    /// A name for people.
    pub alias: Option<String>,
    /// What it proves itself with (mutual CHAP).
    pub chap: Option<ChapSecret>,
}

/// What of a target shall be otherwise. `None`: as it is.
#[derive(Clone, Debug, Default)]
pub struct TargetChange {
    /// A name for people, or none.
    pub alias: Option<Option<String>>,
    /// What it proves itself with (mutual CHAP), or nothing.
    pub chap: Option<Option<ChapSecret>>,
}

/// Where a volume is to be mapped.
#[derive(Clone, Debug)]
pub struct MapSpec {
    /// The target's iSCSI name.
    pub target: String,
    /// Who sees it.
    pub host: String,
    /// The LUN; `None`: the lowest that is free.
    pub lun: Option<u16>,
}

/// A place for a volume, found free.
pub(super) struct Place {
    target: Target,
    /// The target is to be made.
    new: bool,
    host: HostName,
    lun: u16,
}

impl Place {
    /// Maps `volume` there.
    pub(super) fn taken_by(self, volume: VolumeId) -> AccessChange {
        let Place { mut target, new, host, lun } = self;
        if new {
            target.made_with = Some(volume);
        }
        target.maps.push(LunMap { lun, volume, host });
        target.maps.sort_by(|a, b| (a.lun, &a.host).cmp(&(b.lun, &b.host)));
        AccessChange::SetTarget(target)
    }
}

/// How often it is tried to write a record again that could not be written.
const REPAIR_EVERY: Duration = Duration::from_secs(5);

/// RFC 7143 12.1.3 asks for at least 96 bits unless the connection is encrypted; Windows refuses more than
/// 16 bytes. In characters, as JSON Schema counts what the API's document promises: each has 8 bits or more.
const SECRET_CHARACTERS_MIN: usize = 12;
const SECRET_BYTES_MAX: usize = 255;

/// RFC 7143 6.1: a text value has at most 255 bytes unless something else is said, and nothing is said of
/// TargetAlias (13.6), which is UTF-8 without null characters.
const ALIAS_BYTES_MAX: usize = 255;

fn check_alias(alias: Option<&str>) -> Result<(), ControlError> {
    match alias {
        Some(alias) if alias.len() > ALIAS_BYTES_MAX || alias.contains('\0') => {
            let reason = "an alias has at most 255 bytes and no null characters";
            Err(ControlError::Invalid { field: "alias", reason })
        }
        _ => Ok(()),
    }
}

fn check_host(host: &HostGroup) -> Result<(), ControlError> {
    if host.is_built_in() {
        return Err(ControlError::BuiltIn(host.name.to_string()));
    }
    check_chap(host.chap.as_ref())?;
    for initiator in &host.initiators {
        let _: TargetName = initiator.parse()?;
    }
    Ok(())
}

fn check_chap(chap: Option<&ChapSecret>) -> Result<(), ControlError> {
    let Some(chap) = chap else { return Ok(()) };
    if chap.secret.chars().count() < SECRET_CHARACTERS_MIN || chap.secret.len() > SECRET_BYTES_MAX {
        let reason =
            "a CHAP secret has at least 12 characters and at most 255 bytes (Windows accepts at most 16)";
        return Err(ControlError::Invalid { field: "chap secret", reason });
    }
    if chap.user.is_empty() || chap.user.len() > 255 || chap.user.contains('\0') {
        return Err(ControlError::Invalid { field: "chap user", reason: "a CHAP name has 1 to 255 bytes" });
    }
    Ok(())
}

/// RFC 7143 12.1.3: a secret that proves a target is none that proves an initiator, of whatever target.
/// Whoever has to know the one could answer for the other.
fn check_one_way(chap: Option<&ChapSecret>, used: &[&ChapSecret]) -> Result<(), ControlError> {
    match chap {
        Some(chap) if used.iter().any(|used| used.secret == chap.secret) => {
            let reason = "the same secret is set for the other direction: the secrets of targets and of initiators must differ";
            Err(ControlError::Invalid { field: "chap secret", reason })
        }
        _ => Ok(()),
    }
}

impl Control {
    /// The access rules of the moment.
    pub fn access(&self) -> Arc<Access> {
        Shard::current().access()
    }

    /// Makes a target.
    ///
    /// # Errors
    /// A name that is none or taken, an alias or a secret that cannot be.
    pub async fn create_target(self: &Rc<Control>, spec: TargetSpec) -> Result<(), ControlError> {
        let control = Rc::clone(self);
        self.change(Work::new(Doing::MakeTarget, &spec.name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            let target = control.new_target(spec)?;
            control.change_access(&changing, vec![AccessChange::SetTarget(target)]).await
        })
        .await
    }

    /// Gives a target another alias, or another secret to prove itself with. Sessions go on: the secret
    /// counts from the next login on.
    ///
    /// # Errors
    /// [`ControlError::NotFound`], an alias or a secret that cannot be.
    pub async fn change_target(
        self: &Rc<Control>,
        name: &str,
        change: TargetChange,
    ) -> Result<(), ControlError> {
        let (control, name) = (Rc::clone(self), name.to_owned());
        self.change(Work::new(Doing::ChangeTarget, &name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            let (before, after) = control.check_changed_target(&name, change)?;
            let changes = if after == before { Vec::new() } else { vec![AccessChange::SetTarget(after)] };
            control.change_access(&changing, changes).await
        })
        .await
    }

    /// What a target is, and what it would be with `change`.
    ///
    /// # Errors
    /// As [`Control::change_target`].
    pub fn check_changed_target(
        &self,
        name: &str,
        change: TargetChange,
    ) -> Result<(Target, Target), ControlError> {
        let before = self.target_named(name)?;
        // What it has already stays: an older version may have taken a longer one.
        check_alias(change.alias.as_ref().and_then(Option::as_deref))?;
        let after = Target {
            alias: change.alias.unwrap_or_else(|| before.alias.clone()),
            chap: change.chap.unwrap_or_else(|| before.chap.clone()),
            ..before.clone()
        };
        check_chap(after.chap.as_ref())?;
        if after.chap != before.chap {
            check_one_way(after.chap.as_ref(), &self.access().initiator_secrets())?;
        }
        Ok((before, after))
    }

    /// Deletes a target. `force`: with its maps; its sessions end.
    ///
    /// # Errors
    /// [`ControlError::HasLuns`].
    pub async fn delete_target(self: &Rc<Control>, name: &str, force: bool) -> Result<(), ControlError> {
        let (control, name) = (Rc::clone(self), name.to_owned());
        self.change(Work::new(Doing::DeleteTarget, &name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            let target = control.target_named(&name)?;
            if !force && !target.maps.is_empty() {
                return Err(ControlError::HasLuns { target: name, luns: target.maps.len() });
            }
            control.change_access(&changing, vec![AccessChange::DeleteTarget(target.name)]).await
        })
        .await
    }

    /// Makes a volume a LUN of a target for a host group; gives the LUN.
    ///
    /// # Errors
    /// Names of nothing, a LUN that is taken or too high.
    pub async fn map(self: &Rc<Control>, volume: &str, spec: MapSpec) -> Result<u16, ControlError> {
        let (control, (pool, volume)) = (Rc::clone(self), self.volume_named(volume)?);
        self.change(Work::new(Doing::MapVolume, &volume.name), |changing| async move {
            changing.concerns(volume.id);
            let _volume = changing.hold([Thing::Volume(volume.id), Thing::VolumesOf(pool.name())]).await?;
            let _record = changing.hold([Thing::Record]).await?;
            let target = control.target_named(&spec.target)?;
            let (_, volume) = control.volume_still(&volume)?;
            let place = control.place_in(target, &spec, Some(volume.id))?;
            let lun = place.lun;
            control.change_access(&changing, vec![place.taken_by(volume.id)]).await?;
            Ok(lun)
        })
        .await
    }

    /// Takes a LUN away: from one host group, or from all.
    ///
    /// # Errors
    /// [`ControlError::NotFound`].
    pub async fn unmap(
        self: &Rc<Control>,
        target: &str,
        lun: u16,
        host: Option<&str>,
    ) -> Result<(), ControlError> {
        let (control, name, host) = (Rc::clone(self), target.to_owned(), host.map(str::to_owned));
        self.change(Work::new(Doing::Unmap, target), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            let mut target = control.target_named(&name)?;
            let before = target.maps.len();
            let stays =
                |map: &LunMap| map.lun != lun || host.as_ref().is_some_and(|host| map.host.as_str() != host);
            if let Some(gone) = target.maps.iter().find(|map| !stays(map)) {
                changing.concerns(gone.volume);
            }
            target.maps.retain(stays);
            if target.maps.len() == before {
                return Err(ControlError::not_found("map", &format!("{} LUN {lun}", target.name)));
            }
            control.change_access(&changing, vec![AccessChange::SetTarget(target)]).await
        })
        .await
    }

    /// Makes a host group, or changes one.
    ///
    /// # Errors
    /// Names and addresses that are none, a secret that cannot be; with `new`, a name that is taken.
    pub async fn set_host(self: &Rc<Control>, host: HostGroup, new: bool) -> Result<(), ControlError> {
        check_host(&host)?;
        let control = Rc::clone(self);
        let doing = if new { Doing::MakeHost } else { Doing::ChangeHost };
        self.change(Work::new(doing, host.name.as_str()), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            match (new, control.access().host(host.name.as_str()).is_some()) {
                (true, true) => Err(ControlError::Exists { kind: "host", name: host.name.into() }),
                (false, false) => Err(ControlError::not_found("host", host.name.as_str())),
                _ => {
                    check_one_way(host.chap.as_ref(), &control.access().target_secrets())?;
                    control.change_access(&changing, vec![AccessChange::SetHost(host)]).await
                }
            }
        })
        .await
    }

    /// Whether a host group could be changed to this; gives how many LUNs are mapped for it.
    ///
    /// # Errors
    /// As [`Control::set_host`].
    pub fn check_changed_host(&self, host: &HostGroup) -> Result<usize, ControlError> {
        check_host(host)?;
        let access = self.access();
        let name = host.name.as_str();
        access.host(name).ok_or_else(|| ControlError::not_found("host", name))?;
        check_one_way(host.chap.as_ref(), &access.target_secrets())?;
        Ok(access.targets().flat_map(|target| &target.maps).filter(|map| map.host == host.name).count())
    }

    /// Deletes a host group.
    ///
    /// # Errors
    /// [`ControlError::HostInUse`].
    pub async fn delete_host(self: &Rc<Control>, name: &str) -> Result<(), ControlError> {
        let (control, name) = (Rc::clone(self), name.to_owned());
        self.change(Work::new(Doing::DeleteHost, &name), |changing| async move {
            let _record = changing.hold([Thing::Record]).await?;
            let change = AccessChange::DeleteHost(control.unused_host(&name)?);
            control.change_access(&changing, vec![change]).await
        })
        .await
    }

    /// A host group of this name that can be deleted.
    ///
    /// # Errors
    /// As [`Control::delete_host`].
    pub fn unused_host(&self, name: &str) -> Result<HostName, ControlError> {
        let access = self.access();
        let host = access.host(name).ok_or_else(|| ControlError::not_found("host", name))?;
        if host.is_built_in() {
            return Err(ControlError::BuiltIn(name.to_owned()));
        }
        match access.targets().find(|target| target.maps.iter().any(|map| map.host == host.name)) {
            Some(target) => {
                Err(ControlError::HostInUse { host: name.to_owned(), target: target.name.to_string() })
            }
            None => Ok(host.name.clone()),
        }
    }

    /// An address or a range of addresses from its text.
    ///
    /// # Errors
    /// [`ControlError::Invalid`].
    pub fn parse_address(text: &str) -> Result<AddressRange, ControlError> {
        let reason = "write addresses as 10.1.2.3 or 10.1.0.0/16, fd00::1 or fd00::/8";
        text.parse().map_err(|_| ControlError::Invalid { field: "addresses", reason })
    }

    /// A place for a volume that is to be made, in a target that need not be there yet.
    pub(super) fn place_for_new(&self, spec: &MapSpec) -> Result<Place, ControlError> {
        if let Some(target) = self.access().target(&spec.target) {
            return self.place_in(target.clone(), spec, None);
        }
        let target = self.new_target(TargetSpec { name: spec.target.clone(), alias: None, chap: None })?;
        Ok(Place { new: true, ..self.place_in(target, spec, None)? })
    }

    fn place_in(
        &self,
        target: Target,
        spec: &MapSpec,
        volume: Option<VolumeId>,
    ) -> Result<Place, ControlError> {
        let host: HostName = spec.host.parse()?;
        if self.access().host(host.as_str()).is_none() {
            return Err(ControlError::not_found("host", &spec.host));
        }
        let lun = free_lun(&target, &host, volume, spec.lun)?;
        if let Some(volume) = volume {
            self.check_port(&target, volume)?;
        }
        Ok(Place { target, new: false, host, lun })
    }

    /// That no other target leads to the volume by the same port: reservations could not tell the two from
    /// each other.
    fn check_port(&self, target: &Target, volume: VolumeId) -> Result<(), ControlError> {
        let (access, numbers) = (self.access(), Shard::current().port_numbers());
        let meets = |other: &Target| {
            other.name != target.name && numbers.port(other.port) == numbers.port(target.port)
        };
        match access.targets_of(volume).any(meets) {
            true => Err(ControlError::Invalid {
                field: "target",
                reason: "another target of this volume has the same port number in the cluster: map the volume in a new target",
            }),
            false => Ok(()),
        }
    }

    fn new_target(&self, spec: TargetSpec) -> Result<Target, ControlError> {
        let name: TargetName = spec.name.parse()?;
        check_alias(spec.alias.as_deref())?;
        check_chap(spec.chap.as_ref())?;
        let access = self.access();
        check_one_way(spec.chap.as_ref(), &access.initiator_secrets())?;
        if access.target(name.as_str()).is_some() {
            return Err(ControlError::Exists { kind: "target", name: name.into() });
        }
        // The lowest number that no target has.
        let taken: BTreeSet<u16> = access.targets().map(|target| target.port).collect();
        let port = (1..=u16::MAX).find(|port| !taken.contains(port));
        let port = port
            .ok_or(ControlError::Invalid { field: "target", reason: "a node has at most 65,535 targets" })?;
        Ok(Target { name, port, alias: spec.alias, chap: spec.chap, maps: Vec::new(), made_with: None })
    }

    /// What takes volumes out of all maps. `deleted`: for good, so that targets that were made with them go,
    /// too, if that is all that they were for.
    pub(super) fn unmapping(&self, volumes: &BTreeSet<VolumeId>, deleted: bool) -> Vec<AccessChange> {
        let access = self.access();
        let goes = |target: &Target| deleted && target.goes_with(volumes);
        let without = |target: &Target| {
            if goes(target) {
                return AccessChange::DeleteTarget(target.name.clone());
            }
            let mut target = target.clone();
            target.maps.retain(|map| !volumes.contains(&map.volume));
            AccessChange::SetTarget(target)
        };
        // Also those that are without maps already.
        let made = access.targets().filter(|target| goes(target));
        let mapping = volumes.iter().flat_map(|volume| access.targets_of(*volume));
        let targets: BTreeMap<&TargetName, &Target> =
            mapping.chain(made).map(|target| (&target.name, target)).collect();
        targets.into_values().map(without).collect()
    }

    /// Makes changes of targets and hosts durable, all or none, and gives every core the new picture. The
    /// caller holds the record.
    pub(super) async fn change_access(
        &self,
        changing: &Changing,
        changes: Vec<AccessChange>,
    ) -> Result<(), ControlError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.change_record(changing, changes, Vec::new()).await
    }

    /// As [`Control::change_access`], together with changes of what else the record has.
    pub(super) async fn change_record(
        &self,
        changing: &Changing,
        changes: Vec<AccessChange>,
        others: Vec<Change>,
    ) -> Result<(), ControlError> {
        if !changes.is_empty() {
            self.check_cluster()?;
        }
        if let Some(keeper) = self.keeper().filter(|_| !changes.is_empty()) {
            changing.waits_for(WaitsFor::ClusterRecord);
            // The cores get it from there, as those of all other nodes do.
            keeper.commit(in_cluster(&keeper, &changes)).await?;
            return if others.is_empty() { Ok(()) } else { self.commit(changing, others).await };
        }
        self.commit(changing, changes.iter().map(in_record).chain(others).collect()).await?;
        let (access, concerned) = self.access().with(&changes);
        announce(access, concerned).await;
        Ok(())
    }

    /// Makes changes of the record durable. The caller holds it.
    pub(super) async fn commit(&self, changing: &Changing, changes: Vec<Change>) -> Result<(), ControlError> {
        self.repair_record().await?;
        // Only its holder writes it; readers come between two awaits.
        let prepared = self.record.borrow().prepare(changes)?;
        changing.waits_for(WaitsFor::Record(self.record.borrow().path().to_owned()));
        let written = prepared.write().await;
        changing.waits_for(WaitsFor::Cores);
        Ok(self.record.borrow_mut().finish(prepared, written)?)
    }

    /// Has the record take changes again, if one could not be written. The caller holds it.
    async fn repair_record(&self) -> Result<(), ControlError> {
        let Some(repair) = self.record.borrow().repair()? else { return Ok(()) };
        let disk = outlive(async || repair.write().await).await?;
        self.record.borrow_mut().repaired(repair, disk);
        tracing::info!("the node's record accepts changes again");
        Ok(())
    }

    /// Repairs the record when it has to be, for ever: nobody may want to change it for long.
    pub(super) async fn keep_record_writable(self: Rc<Control>) {
        loop {
            rt::sleep(REPAIR_EVERY).await;
            if !self.record.borrow().is_latched() {
                continue;
            }
            let control = Rc::clone(&self);
            let repair =
                self.change(Work::new(Doing::RepairRecord, &self.host.name), |changing| async move {
                    let _record = changing.hold([Thing::Record]).await?;
                    control.repair_record().await
                });
            if let Err(error) = repair.await {
                tracing::debug!(%error, "the node's record still accepts no changes");
            }
        }
    }

    /// Gives every core the targets and hosts of the record. Only now are they parsed: from here on each
    /// change of the record is made in what the cores have, too.
    pub(super) async fn announce_record(&self) {
        let access = match self.keeper() {
            Some(keeper) => Access::new(keeper.list(TARGETS), keeper.list(HOSTS)),
            None => {
                let record = self.record.borrow();
                let KnownAccess { mut targets, mut hosts } = match self.cluster_failure() {
                    Some(_) => record.get(KNOWN_ACCESS).unwrap_or_default(),
                    None => KnownAccess::default(),
                };
                // Those that are still to be moved to the cluster that this node has made are there, too.
                let own = record.list::<Target>(TARGETS).into_iter();
                let own: Vec<Target> =
                    own.filter(|own| !targets.iter().any(|known| known.name == own.name)).collect();
                targets.extend(own);
                let own = record.list::<HostGroup>(HOSTS).into_iter();
                let own: Vec<HostGroup> =
                    own.filter(|own| !hosts.iter().any(|known| known.name == own.name)).collect();
                hosts.extend(own);
                Access::new(targets, hosts)
            }
        };
        announce(access, Concerned::every_target()).await;
    }

    /// Has all sessions look at their LUNs again: volumes have come. The caller holds the record.
    pub(super) async fn announce_volumes(&self) {
        announce(Access::clone(&self.access()), Concerned::every_target()).await;
    }

    fn target_named(&self, name: &str) -> Result<Target, ControlError> {
        self.access().target(name).cloned().ok_or_else(|| ControlError::not_found("target", name))
    }
}

/// A change as the record keeps it.
fn in_record(change: &AccessChange) -> Change {
    match change {
        AccessChange::SetTarget(target) => set(target_key(&target.name), target),
        AccessChange::DeleteTarget(name) => delete(target_key(name)),
        AccessChange::SetHost(host) => set(host_key(&host.name), host),
        AccessChange::DeleteHost(name) => delete(host_key(name)),
    }
}

/// Changes as the cluster's record takes them: if what they were made from is still so.
fn in_cluster(keeper: &Keeper, changes: &[AccessChange]) -> Transaction {
    changes.iter().map(in_record).fold(Keeper::transaction(), |transaction, (key, value)| {
        let transaction = transaction.expect(&key, keeper.revision_of(&key));
        match value {
            Some(value) => transaction.put(&key, value.get()),
            None => transaction.delete(&key),
        }
    })
}

/// Gives every core new access rules. Whom they do not concern does not look at them.
pub(super) async fn announce(access: Access, concerned: Concerned) {
    let (access, concerned) = (Arc::new(access), Arc::new(concerned));
    on_all_cores(move || {
        let (access, concerned) = (Arc::clone(&access), Arc::clone(&concerned));
        async move {
            let shard = Shard::current();
            for unit in concerned.volumes().filter_map(|volume| shard.unit(volume)) {
                unit.look_at_targets(&access);
            }
            shard.set_access(access, &concerned);
        }
    })
    .await;
}

/// The LUN to give. A volume has one number in a target, whoever looks; two hosts may see different volumes
/// at one number. `volume` is `None` for one that is not mapped anywhere yet.
fn free_lun(
    target: &Target,
    host: &HostName,
    volume: Option<VolumeId>,
    wanted: Option<u16>,
) -> Result<u16, ControlError> {
    let taken = |lun| target.maps.iter().any(|map| map.lun == lun && map.host == *host);
    match wanted {
        Some(lun) if lun > LUN_MAX => {
            Err(ControlError::Invalid { field: "lun", reason: "LUNs go from 0 to 255" })
        }
        Some(lun) if taken(lun) => {
            Err(ControlError::LunTaken { lun, target: target.name.to_string(), host: host.to_string() })
        }
        Some(lun) => Ok(lun),
        None => {
            let of_other_hosts = |map: &&LunMap| Some(map.volume) == volume && map.host != *host;
            let used = target.maps.iter().find(of_other_hosts).map(|map| map.lun);
            let used = used.filter(|lun| !taken(*lun));
            let lowest = (0..=LUN_MAX).find(|lun| !target.maps.iter().any(|map| map.lun == *lun));
            used.or(lowest).ok_or_else(|| ControlError::NoLunFree(target.name.to_string()))
        }
    }
}
