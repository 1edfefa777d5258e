//! Targets, LUN maps and host groups.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::change::{Changing, WaitsFor};
use super::cluster::{KNOWN_ACCESS, KnownAccess};
use super::doing::Doing;
use super::previous_run::retry_while_held;
use super::turns::Thing;
use super::{Control, ControlError, Result};
use crate::attach::access::{
    Access, AccessChange, AddressRange, ChapSecret, Concerned, HostGroup, HostName, LUN_MAX, LunMap, Target,
    TargetName,
};
use crate::attach::port_numbers::NodeNumber;
use crate::data::VolumeId;
use crate::record::{Change, delete, set};
use crate::shard::{Shard, on_all_cores};

pub(crate) const TARGETS: &str = "target/";
pub(crate) const HOSTS: &str = "host/";

fn target_key(name: &TargetName) -> String {
    format!("{TARGETS}{name}")
}

fn host_key(name: &HostName) -> String {
    format!("{HOSTS}{name}")
}

/// A target to be created.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// Its iSCSI name.
    pub name: String,
    /// A name for administrators.
    pub alias: Option<String>,
    /// Its CHAP secret, with which it authenticates to initiators (mutual CHAP).
    pub chap: Option<ChapSecret>,
}

/// A change of a target; `None` leaves a field as it is.
#[derive(Clone, Debug, Default)]
pub struct TargetChange {
    /// A name for administrators, or none.
    pub alias: Option<Option<String>>,
    /// Its CHAP secret, with which it authenticates to initiators (mutual CHAP), or none.
    pub chap: Option<Option<ChapSecret>>,
}

/// Where a volume is to be mapped.
#[derive(Clone, Debug)]
pub struct MapSpec {
    /// The target's iSCSI name.
    pub target: String,
    /// The host group that sees it.
    pub host: String,
    /// The LUN; `None` for the lowest free one.
    pub lun: Option<u16>,
}

/// A free place for a volume.
pub(super) struct Place {
    target: Target,
    /// The target is yet to be created.
    new: bool,
    host: HostName,
    lun: u16,
}

impl Place {
    /// The change that maps `volume` there.
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

/// How often the node tries to repair a record that could not be written.
const REPAIR_EVERY: Duration = Duration::from_secs(5);

/// RFC 7143 12.1.3 requires at least 96 bits unless the connection is encrypted; Windows refuses more than 16
/// bytes. The minimum is in characters, each of which has at least 8 bits, because the API's document
/// promises it and JSON Schema counts characters.
const SECRET_CHARACTERS_MIN: usize = 12;
const SECRET_BYTES_MAX: usize = 255;

/// RFC 7143 6.1: a text value has at most 255 bytes unless specified otherwise, and nothing is specified for
/// TargetAlias (13.6), which is UTF-8 without null characters.
const ALIAS_BYTES_MAX: usize = 255;

fn check_alias(alias: Option<&str>) -> Result<()> {
    match alias {
        Some(alias) if alias.len() > ALIAS_BYTES_MAX || alias.contains('\0') => {
            let reason = "an alias has at most 255 bytes and no null characters";
            Err(ControlError::Invalid { field: "alias", reason })
        }
        _ => Ok(()),
    }
}

fn check_host(host: &HostGroup) -> Result<()> {
    if host.is_built_in() {
        return Err(ControlError::BuiltIn(host.name.to_string()));
    }
    check_chap(host.chap.as_ref())?;
    for initiator in &host.initiators {
        let _: TargetName = initiator.parse()?;
    }
    Ok(())
}

fn check_chap(chap: Option<&ChapSecret>) -> Result<()> {
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

/// Checks a secret against those of the other direction.
///
/// RFC 7143 12.1.3: a secret that authenticates a target must not authenticate an initiator, of whatever
/// target. Otherwise a party that knows the secret of one could impersonate the other.
fn check_one_way(chap: Option<&ChapSecret>, used: &[&ChapSecret]) -> Result<()> {
    match chap {
        Some(chap) if used.iter().any(|used| used.secret == chap.secret) => {
            let reason = "the same secret is set for the other direction: the secrets of targets and of initiators must differ";
            Err(ControlError::Invalid { field: "chap secret", reason })
        }
        _ => Ok(()),
    }
}

impl Control {
    /// The current access rules.
    pub fn access(&self) -> Arc<Access> {
        Shard::current().access()
    }

    /// Creates a target.
    ///
    /// # Errors
    /// The name is invalid or taken; the alias or the secret is invalid.
    pub async fn create_target(self: &Rc<Control>, spec: TargetSpec) -> Result<()> {
        self.change(Doing::MakeTarget.of(&spec.name), [Thing::Record], |control, changing| async move {
            let target = control.new_target(spec)?;
            control.change_access(&changing, vec![AccessChange::SetTarget(target)]).await
        })
        .await
    }

    /// Changes a target's alias or CHAP secret. Sessions continue: the new secret applies from the next login
    /// on.
    ///
    /// # Errors
    /// [`ControlError::NotFound`]; the alias or the secret is invalid.
    pub async fn change_target(self: &Rc<Control>, name: &str, change: TargetChange) -> Result<()> {
        let name = name.to_owned();
        self.change(Doing::ChangeTarget.of(&name), [Thing::Record], |control, changing| async move {
            let (before, after) = control.check_changed_target(&name, change)?;
            let changes = if after == before { Vec::new() } else { vec![AccessChange::SetTarget(after)] };
            control.change_access(&changing, changes).await
        })
        .await
    }

    /// The target before and after `change`.
    ///
    /// # Errors
    /// As [`Control::change_target`].
    pub fn check_changed_target(&self, name: &str, change: TargetChange) -> Result<(Target, Target)> {
        let before = self.target_named(name)?;
        let after = Target {
            alias: change.alias.unwrap_or_else(|| before.alias.clone()),
            chap: change.chap.unwrap_or_else(|| before.chap.clone()),
            ..before.clone()
        };
        check_alias(after.alias.as_deref())?;
        check_chap(after.chap.as_ref())?;
        if after.chap != before.chap {
            check_one_way(after.chap.as_ref(), &self.access().initiator_secrets())?;
        }
        Ok((before, after))
    }

    /// Deletes a target. `force` also deletes its maps; its sessions end.
    ///
    /// # Errors
    /// [`ControlError::HasLuns`].
    pub async fn delete_target(self: &Rc<Control>, name: &str, force: bool) -> Result<()> {
        let name = name.to_owned();
        self.change(Doing::DeleteTarget.of(&name), [Thing::Record], |control, changing| async move {
            let target = control.target_named(&name)?;
            if !force && !target.maps.is_empty() {
                return Err(ControlError::HasLuns { target: name, luns: target.maps.len() });
            }
            control.change_access(&changing, vec![AccessChange::DeleteTarget(target.name)]).await
        })
        .await
    }

    /// Maps a volume as a LUN of a target for a host group; returns the LUN.
    ///
    /// # Errors
    /// A name does not exist; the LUN is taken or too high.
    pub async fn map(self: &Rc<Control>, volume: &str, spec: MapSpec) -> Result<u16> {
        let volume = self.volume_named(volume)?.1;
        // If several pools hold the volume, any of them may be the one that it is served from. None is closed
        // meanwhile: another one, with older data, would take its place under a host that uses it already.
        let pools = self.copies_of(volume.id).into_iter().map(|(pool, _)| Thing::VolumesOf(pool.name()));
        let things: Vec<Thing> = pools.chain([Thing::Volume(volume.id)]).collect();
        self.change(Doing::MapVolume.of(&volume.name), things, |control, changing| async move {
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

    /// Unmaps a LUN, from one host group or from all.
    pub async fn unmap(self: &Rc<Control>, target: &str, lun: u16, host: Option<&str>) -> Result<()> {
        let (name, host) = (target.to_owned(), host.map(str::to_owned));
        self.change(Doing::Unmap.of(target), [Thing::Record], |control, changing| async move {
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

    /// Creates a host group, or changes one.
    ///
    /// # Errors
    /// An invalid name, address or secret; with `new`, a name that is taken.
    pub async fn set_host(self: &Rc<Control>, host: HostGroup, new: bool) -> Result<()> {
        check_host(&host)?;
        let doing = if new { Doing::MakeHost } else { Doing::ChangeHost };
        self.change(doing.of(host.name.as_str()), [Thing::Record], |control, changing| async move {
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

    /// Checks whether a host group could be changed to this; returns the number of LUNs that are mapped for
    /// it.
    ///
    /// # Errors
    /// As [`Control::set_host`].
    pub fn check_changed_host(&self, host: &HostGroup) -> Result<usize> {
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
    pub async fn delete_host(self: &Rc<Control>, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.change(Doing::DeleteHost.of(&name), [Thing::Record], |control, changing| async move {
            let change = AccessChange::DeleteHost(control.unused_host(&name)?);
            control.change_access(&changing, vec![change]).await
        })
        .await
    }

    /// The name of this host group, if it can be deleted.
    ///
    /// # Errors
    /// As [`Control::delete_host`].
    pub fn unused_host(&self, name: &str) -> Result<HostName> {
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

    /// Parses an address or a range of addresses.
    ///
    /// # Errors
    /// [`ControlError::Invalid`].
    pub fn parse_address(text: &str) -> Result<AddressRange> {
        let reason = "write addresses as 10.1.2.3 or 10.1.0.0/16, fd00::1 or fd00::/8";
        text.parse().map_err(|_| ControlError::Invalid { field: "addresses", reason })
    }

    /// A place for a volume that is to be created, in a target that may not exist yet.
    pub(super) fn place_for_new(&self, spec: &MapSpec) -> Result<Place> {
        if let Some(target) = self.access().target(&spec.target) {
            return self.place_in(target.clone(), spec, None);
        }
        let target = self.new_target(TargetSpec { name: spec.target.clone(), alias: None, chap: None })?;
        Ok(Place { new: true, ..self.place_in(target, spec, None)? })
    }

    fn place_in(&self, target: Target, spec: &MapSpec, volume: Option<VolumeId>) -> Result<Place> {
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

    /// Checks that no other target leads to the volume through the same port: reservations could not tell the
    /// two apart.
    fn check_port(&self, target: &Target, volume: VolumeId) -> Result<()> {
        let access = self.access();
        let number = |target: &Target| NodeNumber::in_port(target.port);
        let meets = |other: &Target| other.name != target.name && number(other) == number(target);
        match access.targets_of(volume).any(meets) {
            true => Err(ControlError::Invalid {
                field: "target",
                reason: "another target of this volume has the same port number (the numbers of the two are a multiple of 256 apart): map the volume in a new target",
            }),
            false => Ok(()),
        }
    }

    fn new_target(&self, spec: TargetSpec) -> Result<Target> {
        let name: TargetName = spec.name.parse()?;
        check_alias(spec.alias.as_deref())?;
        check_chap(spec.chap.as_ref())?;
        let access = self.access();
        check_one_way(spec.chap.as_ref(), &access.initiator_secrets())?;
        if access.target(name.as_str()).is_some() {
            return Err(ControlError::Exists { kind: "target", name: name.into() });
        }
        // The lowest port number that no target has.
        let taken: BTreeSet<u16> = access.targets().map(|target| target.port).collect();
        let port = (1..=u16::MAX).find(|port| !taken.contains(port));
        let port = port.ok_or(ControlError::Invalid {
            field: "target",
            reason: "a node or a cluster has at most 65,535 targets",
        })?;
        Ok(Target { name, port, alias: spec.alias, chap: spec.chap, maps: Vec::new(), made_with: None })
    }

    /// The changes that unmap these volumes everywhere.
    ///
    /// `deleted`: the volumes are gone for good, so a target that was created with one of them is deleted,
    /// too, if it has no other use.
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
        // This includes targets that have no maps any more.
        let made = access.targets().filter(|target| goes(target));
        let mapping = volumes.iter().flat_map(|volume| access.targets_of(*volume));
        let targets: BTreeMap<&TargetName, &Target> =
            mapping.chain(made).map(|target| (&target.name, target)).collect();
        targets.into_values().map(without).collect()
    }

    /// Makes changes of targets and hosts durable, all or none. When this returns, every core has them. The
    /// caller holds the record.
    pub(super) async fn change_access(&self, changing: &Changing, changes: Vec<AccessChange>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.change_record(changing, changes, Vec::new()).await
    }

    /// As [`Control::change_access`], together with other changes of the record.
    pub(super) async fn change_record(
        &self,
        changing: &Changing,
        changes: Vec<AccessChange>,
        others: Vec<Change>,
    ) -> Result<()> {
        // The cores receive it from the record, as on all other nodes.
        self.commit_shared(changing, changes.iter().map(in_record).collect(), others).await?;
        self.access_changed.notify();
        Ok(())
    }

    /// Makes changes of the node's record durable. The caller holds it.
    pub(super) async fn commit(&self, changing: &Changing, changes: Vec<Change>) -> Result<()> {
        self.repair_record().await?;
        // Only the holder writes the record; other code reads it only between two awaits.
        let prepared = self.record.borrow().prepare(changes)?;
        changing.waits_for(WaitsFor::Record(self.record.borrow().path().to_owned()));
        let written = prepared.write().await;
        changing.waits_for(WaitsFor::Cores);
        Ok(self.record.borrow_mut().finish(prepared, written)?)
    }

    /// Repairs the record after a failed write, so that it accepts changes again. The caller holds it.
    async fn repair_record(&self) -> Result<()> {
        let Some(repair) = self.record.borrow().repair()? else { return Ok(()) };
        let disk = retry_while_held(async || repair.write().await).await?;
        self.record.borrow_mut().repaired(repair, disk);
        tracing::info!("the node's record accepts changes again");
        Ok(())
    }

    /// Repairs the record whenever necessary, until the node stops: it may be long before the next change.
    pub(super) async fn keep_record_writable(self: Rc<Control>) {
        loop {
            rt::sleep_until(rt::now().beat_after(REPAIR_EVERY)).await;
            if !self.record.borrow().is_latched() {
                continue;
            }
            let work = Doing::RepairRecord.of(self.name());
            let repair =
                self.change(work, [Thing::Record], |control, _| async move { control.repair_record().await });
            if let Err(error) = repair.await {
                tracing::debug!(%error, "the node's record still accepts no changes");
            }
        }
    }

    /// Gives every core the targets and hosts of the record.
    ///
    /// They are parsed only here. From now on each change of the record is also applied to what the cores
    /// have.
    pub(super) async fn announce_record(&self) {
        let reconciler = self.reconciler().ok().filter(|reconciler| reconciler.acts_by().0 > 0);
        let access = match (self.rules_to_take_over(), reconciler) {
            // The cluster's record does not have them all yet.
            (Some(left), _) => left,
            (None, Some(reconciler)) => {
                KnownAccess { targets: reconciler.list(TARGETS), hosts: reconciler.list(HOSTS) }
            }
            // The node cannot read the cluster's record, or has not read it yet.
            (None, None) => self.record.borrow().get(KNOWN_ACCESS).unwrap_or_default(),
        };
        let access = Access::new(access.targets, access.hosts);
        announce(access, Concerned::every_target()).await;
    }

    /// Makes all sessions look at their LUNs again, because volumes have come. The caller holds the record.
    pub(super) async fn announce_volumes(&self) {
        announce(Access::clone(&self.access()), Concerned::every_target()).await;
    }

    fn target_named(&self, name: &str) -> Result<Target> {
        self.access().target(name).cloned().ok_or_else(|| ControlError::not_found("target", name))
    }
}

/// A change in the form of a record.
fn in_record(change: &AccessChange) -> Change {
    match change {
        AccessChange::SetTarget(target) => set(target_key(&target.name), target),
        AccessChange::DeleteTarget(name) => delete(target_key(name)),
        AccessChange::SetHost(host) => set(host_key(&host.name), host),
        AccessChange::DeleteHost(name) => delete(host_key(name)),
    }
}

/// Gives every core new access rules. Sessions and units that they do not concern are not disturbed.
pub(super) async fn announce(access: Access, concerned: Concerned) {
    let (access, concerned) = (Arc::new(access), Arc::new(concerned));
    on_all_cores(move || async move {
        let shard = Shard::current();
        for unit in concerned.volumes().filter_map(|volume| shard.unit(volume)) {
            unit.look_at_targets(&access);
        }
        shard.set_access(access, &concerned);
    })
    .await;
}

/// Chooses the LUN of a map.
///
/// In one target a volume has the same LUN for all hosts, but two hosts may see different volumes at the same
/// LUN. `volume` is `None` if it is not mapped anywhere yet.
fn free_lun(target: &Target, host: &HostName, volume: Option<VolumeId>, wanted: Option<u16>) -> Result<u16> {
    let taken = |lun| target.maps.iter().any(|map| map.lun == lun && map.host == *host);
    match wanted {
        Some(lun) if lun > LUN_MAX => {
            Err(ControlError::Invalid { field: "lun", reason: "a LUN is a number from 0 to 255" })
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
