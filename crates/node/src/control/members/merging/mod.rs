//! What a joining node has already becomes the cluster's.
//!
//! The node tells the member its targets, LUN maps, host groups, users, API tokens and floating IPs, and the
//! names of its volumes. The member checks all of it against the cluster's record before it uses up the
//! token. If anything collides ([`Collision`]; why: `docs/why/record.md`, *What a joining node has*), the
//! member lists all collisions and changes nothing. Otherwise it adds what does not depend on the node's
//! number ([`people`], targets, host groups) to the record, and then the node with its floating IPs
//! ([`addresses`]): when the node begins to follow the record, its hosts find there what they have used. The
//! volumes follow on their own (`control/copies/adoption.rs`), since they stay where they are.
//!
//! A pool that both nodes have open was cloned with a machine. The record has one mark for both, so each of
//! them would look as if it had been set back whenever the other one was written (`docs/why/pool.md`).
//!
//! A node that was in the cluster before, and has its volumes still, joins only when its old number has been
//! removed. As long as the record has the volumes there, it would have to stop serving them: the cluster does
//! not know whether the old node is gone, or this one is a clone of it.

pub(super) mod addresses;
mod people;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use replica::NodeId;
use serde::{Deserialize, Serialize};

use self::people::People;
use super::super::access::{HOSTS, TARGETS};
use super::super::cluster::KnownAccess;
use super::super::{Control, ControlError};
use super::JoinRefusal;
use super::collision::Collision;
use crate::attach::access::{HostGroup, HostName, LunMap, Target, TargetName};
use crate::attach::port_numbers::NodeNumber;
use crate::copies::{VolumeEntry, volume_key, volume_name_key};
use crate::data::VolumeId;
use crate::member::floating::{AddressEntry, address_key};
use crate::member::{ClusterError, Reconciler};
use crate::record::{Change, set};

/// How many entries one transaction adds, as when a cluster is created.
const MERGED_AT_ONCE: usize = 50;
/// How long adding them may take if others change the record at the same time: the joining node waits.
const MERGED_WITHIN: Duration = Duration::from_secs(10);
/// The pause before the member tries again after somebody else has changed an entry.
const MERGE_AGAIN: Duration = Duration::from_millis(50);

/// What a joining node has in its own record, and what moves to the cluster's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::control) struct OwnEntries {
    /// Its targets and host groups.
    pub access: KnownAccess,
    /// Its users and API tokens.
    pub people: People,
    /// Its floating addresses.
    pub addresses: Vec<AddressEntry>,
}

/// What a joining node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Belongings {
    /// What is in its own record.
    pub entries: OwnEntries,
    /// The identities of its volumes, by name.
    pub volumes: BTreeMap<String, String>,
    /// The identities of its volumes, if their names would take too much space.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unnamed: Vec<String>,
    /// The names of its open pools, by identity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, String>,
}

/// A joining node, to the member that lets it in.
pub(super) struct Joiner {
    /// It would be a witness.
    pub witness: bool,
    /// The numbers that earlier attempts to join have given it, or that it had before.
    pub former: BTreeSet<u16>,
}

impl Belongings {
    /// Leaves out the names of the volumes, which take most of the space: with 35 bytes for each, what may be
    /// sent ([`link::ABOUT_MAX`]) is enough for more than 20,000, those of five full pools.
    ///
    /// If one of the names is taken, the node finds that when it adds the volume to the record.
    pub(super) fn omit_names(&mut self) {
        self.unnamed.extend(std::mem::take(&mut self.volumes).into_values());
    }

    /// The identities of its volumes.
    fn ids(&self) -> impl Iterator<Item = &str> {
        self.volumes.values().chain(&self.unnamed).map(String::as_str)
    }
}

impl Control {
    /// What this node has that would become the cluster's if it joined it.
    ///
    /// Access rules that the node took over from this cluster when it left are in the cluster already.
    pub(super) fn belongings(&self, cluster: &str) -> Belongings {
        Belongings {
            entries: self.own_entries(cluster),
            volumes: self.sole_names(),
            unnamed: Vec::new(),
            pools: self.pool_ids(),
        }
    }

    /// What this node's own record has that would move to the record of this cluster.
    pub(in crate::control) fn own_entries(&self, cluster: &str) -> OwnEntries {
        OwnEntries {
            access: self.own_rules(cluster),
            people: People { users: self.users(), tokens: self.api_tokens() },
            addresses: self.own_addresses(),
        }
    }

    /// The names of the open pools of this node, by identity.
    pub(super) fn pool_ids(&self) -> BTreeMap<String, String> {
        self.open_pools().into_iter().map(|pool| (pool.id().to_string(), pool.name())).collect()
    }

    /// The identities of the volumes that only this node has, by name.
    pub(super) fn sole_names(&self) -> BTreeMap<String, String> {
        let mut volumes = BTreeMap::new();
        for pool in self.open_pools() {
            let infos = pool.sole_volumes().into_iter().filter_map(|id| pool.volume(id));
            volumes.extend(infos.map(|info| (info.name, info.id.to_string())));
        }
        volumes
    }

    /// The targets and host groups of this node that this cluster has not had yet.
    pub(in crate::control) fn own_rules(&self, cluster: &str) -> KnownAccess {
        let taken_over = self.taken_over(cluster).into_iter();
        let taken_over: BTreeSet<String> = taken_over.chain(self.known_of_lost(cluster)).collect();
        let KnownAccess { mut targets, mut hosts } = self.all_rules();
        targets.retain(|target| !taken_over.contains(&target_key(target)));
        hosts.retain(|host| !taken_over.contains(&host_key(host)));
        KnownAccess { targets, hosts }
    }

    /// All targets and host groups that this node acts by.
    pub(in crate::control) fn all_rules(&self) -> KnownAccess {
        let access = self.access();
        KnownAccess {
            targets: access.targets().cloned().collect(),
            hosts: access.hosts().filter(|host| !host.is_built_in()).cloned().collect(),
        }
    }
}

/// Adds a joining node's users, API tokens, targets and host groups to the cluster's record.
///
/// If somebody else adds an object of the same name at the same time, this may be refused when a part has
/// been added. That part does no harm: targets lead only to volumes of the joining node, and users are those
/// of a node that the cluster's administrator wanted to join. It is found to be the same when the node tries
/// again.
///
/// # Errors
/// As [`check`]; the record did not take the change.
pub(super) async fn add_to_record(
    reconciler: &Reconciler,
    here: &BTreeMap<String, String>,
    has: &Belongings,
    joiner: &Joiner,
) -> Result<(), JoinRefusal> {
    let until = rt::now() + MERGED_WITHIN;
    loop {
        let mut changes = check(reconciler, here, has, joiner)?;
        if changes.is_empty() {
            return Ok(());
        }
        changes.truncate(MERGED_AT_ONCE);
        let transaction = changes.iter().fold(Reconciler::transaction(), |transaction, (key, value)| {
            let transaction = transaction.expect(key, reconciler.revision_of(key));
            match value {
                Some(value) => transaction.put(key, value.get()),
                None => transaction,
            }
        });
        match reconciler.commit(transaction).await {
            Ok(()) => {}
            Err(ClusterError::Conflict(_)) if rt::now() < until => rt::sleep(MERGE_AGAIN).await,
            Err(error) => return Err(ControlError::from(error).into()),
        }
    }
}

/// Checks that a joining node has none of the pools of this node.
///
/// # Errors
/// [`JoinRefusal::Collides`].
pub(super) fn check_pools(here: &BTreeMap<String, String>, has: &Belongings) -> Result<(), JoinRefusal> {
    let cloned = has.pools.iter().filter(|(id, _)| here.contains_key(*id));
    let collisions: Vec<Collision> = cloned.map(|(_, name)| Collision::Pool { name: name.clone() }).collect();
    if collisions.is_empty() { Ok(()) } else { Err(JoinRefusal::collides(collisions)) }
}

/// The entries of the record that have to change for what a joining node has, without its floating addresses:
/// users come first, then host groups.
///
/// `here` are volumes of this node, by name, which may not be in the record yet.
///
/// # Errors
/// [`JoinRefusal::Collides`]. The cluster has an entry that this version cannot read.
pub(super) fn check(
    reconciler: &Reconciler,
    here: &BTreeMap<String, String>,
    has: &Belongings,
    joiner: &Joiner,
) -> Result<Vec<Change>, JoinRefusal> {
    let OwnEntries { access, people, addresses } = &has.entries;
    let keys = access.hosts.iter().map(host_key).chain(access.targets.iter().map(target_key));
    let keys = keys.chain(people.keys()).chain(addresses.iter().map(|entry| address_key(entry.address)));
    for key in keys {
        reconciler.check_entry(&key).map_err(ControlError::from)?;
    }
    let ours = KnownAccess { targets: reconciler.list(TARGETS), hosts: reconciler.list(HOSTS) };
    let (KnownAccess { targets, hosts }, mut collisions) = merged(&ours, access);
    let (people, of_people) = people::merged(&People::of_record(reconciler), people);
    collisions.extend(of_people);
    let is_taken = |name: &str, id: &str| {
        let recorded = reconciler.get::<String>(&volume_name_key(name)).map(|(known, _)| known);
        recorded.as_ref().or(here.get(name)).is_some_and(|known| known != id)
    };
    let taken = has.volumes.iter().filter(|(name, id)| is_taken(name, id));
    collisions.extend(taken.map(|(name, _)| Collision::Volume { name: name.clone() }));
    let entry_of = |volume: VolumeId| Some(reconciler.get::<VolumeEntry>(&volume_key(volume))?.0);
    collisions.extend(elsewhere(has.ids(), entry_of, |node| reconciler.hears(node)));
    let own: BTreeSet<&str> = has.ids().collect();
    let is_own = |volume: VolumeId| {
        let entry = reconciler.get::<VolumeEntry>(&volume_key(volume));
        let may_be = entry.is_some_and(|(entry, _)| has_left(&entry, |node| reconciler.hears(node)));
        may_be && own.contains(&*volume.to_string())
    };
    let is_foreign = |volume: VolumeId| reconciler.has(volume) && !is_own(volume);
    collisions.extend(foreign_maps(&ours.targets, &targets, is_foreign));
    collisions.extend(common_ports(&ours.targets, &targets));
    collisions.extend(addresses::check(reconciler, addresses, joiner)?);
    if !collisions.is_empty() {
        return Err(JoinRefusal::collides(collisions));
    }
    let hosts = hosts.iter().map(|host| set(host_key(host), host));
    let targets = targets.iter().map(|target| set(target_key(target), target));
    Ok(people.in_record().into_iter().chain(hosts).chain(targets).collect())
}

/// Whether a volume of the record may be that of a joining node, which says that nobody else has ever had it:
/// it was in the cluster before, on a node that is gone. Otherwise the node has a clone of it, or the volume
/// as it was before others got copies.
fn has_left(entry: &VolumeEntry, is_heard: impl Fn(NodeId) -> bool) -> bool {
    entry.sole && !entry.copies.iter().any(|copy| is_heard(NodeId(copy.node)))
}

/// The volumes of a joining node that the cluster has on a node that is gone.
fn elsewhere<'a>(
    volumes: impl Iterator<Item = &'a str>,
    entry_of: impl Fn(VolumeId) -> Option<VolumeEntry>,
    is_heard: impl Fn(NodeId) -> bool,
) -> Vec<Collision> {
    let entries = volumes.filter_map(|id| entry_of(VolumeId::parse(id)?));
    let left = entries.filter(|entry| has_left(entry, &is_heard));
    let collision = |entry: VolumeEntry| {
        let node = entry.copies.first()?.node;
        Some(Collision::Elsewhere { volume: entry.name, node })
    };
    left.filter_map(collision).collect()
}

fn target_key(target: &Target) -> String {
    format!("{TARGETS}{}", target.name)
}

fn host_key(host: &HostGroup) -> String {
    format!("{HOSTS}{}", host.name)
}

/// What the cluster's targets and host groups (`ours`) lack of a joining node's, and what collides.
fn merged(ours: &KnownAccess, theirs: &KnownAccess) -> (KnownAccess, Vec<Collision>) {
    let (mut new, mut collisions) = (KnownAccess::default(), Vec::new());
    let built_in = HostGroup::built_in();
    let (hosts, their_hosts) = (by_name(&ours.hosts, &built_in), by_name(&theirs.hosts, &built_in));
    for host in &theirs.hosts {
        match hosts.get(&host.name) {
            None => new.hosts.push(host.clone()),
            Some(known) if *known == host => {}
            Some(_) => collisions.push(Collision::Host { name: host.name.to_string() }),
        }
    }
    let targets: BTreeMap<&TargetName, &Target> =
        ours.targets.iter().map(|target| (&target.name, target)).collect();
    for target in &theirs.targets {
        match targets.get(&target.name) {
            None => new.targets.push(target.clone()),
            Some(known) if *known == target => {}
            Some(known) => {
                let (before, added) = (groups(known, &hosts), groups(target, &their_hosts));
                let secrets = new_secrets(&before, &added).chain(new_secrets(&added, &before));
                collisions.extend(secrets.map(|host| Collision::Chap {
                    target: target.name.to_string(),
                    host: host.name.to_string(),
                }));
                match with_maps_of(known, target) {
                    Ok(both) if both == **known => {}
                    Ok(both) => new.targets.push(both),
                    Err(found) => collisions.extend(found),
                }
            }
        }
    }
    collisions.extend(common_secrets(&ours.targets, &theirs.hosts));
    collisions.extend(common_secrets(&theirs.targets, &ours.hosts));
    (new, collisions)
}

fn by_name<'a>(hosts: &'a [HostGroup], built_in: &'a [HostGroup]) -> BTreeMap<&'a HostName, &'a HostGroup> {
    hosts.iter().chain(built_in).map(|host| (&host.name, host)).collect()
}

/// The host groups that the target has LUNs for.
fn groups<'a>(target: &Target, hosts: &BTreeMap<&HostName, &'a HostGroup>) -> Vec<&'a HostGroup> {
    let names: BTreeSet<&HostName> = target.maps.iter().map(|map| &map.host).collect();
    names.into_iter().filter_map(|name| hosts.get(name).copied()).collect()
}

/// The host groups of `added` with a secret that a target with the groups of `before` does not require of all
/// their members. An initiator in several groups of a target needs the secret of one of them, if any has one.
fn new_secrets<'a>(before: &[&HostGroup], added: &[&'a HostGroup]) -> impl Iterator<Item = &'a HostGroup> {
    added.iter().copied().filter(move |host| {
        let was_there = before.iter().any(|known| known.name == host.name);
        let needs_none = |known: &&HostGroup| known.chap.is_none() && known.may_share_members(host);
        host.chap.is_some() && !was_there && before.iter().any(needs_none)
    })
}

/// The cluster's target, with the maps of a joining node's target of the same name.
fn with_maps_of(known: &Target, other: &Target) -> Result<Target, Vec<Collision>> {
    let name = known.name.to_string();
    if (known.port, &known.alias, &known.chap) != (other.port, &other.alias, &other.chap) {
        return Err(vec![Collision::Target { name }]);
    }
    let mut both = known.clone();
    both.maps.extend(other.maps.iter().filter(|map| !known.maps.contains(map)).cloned());
    let new = &both.maps[known.maps.len()..];
    let is_other =
        |lun: u16, volume: VolumeId| known.maps.iter().any(|map| map.lun == lun && map.volume != volume);
    let luns: BTreeSet<u16> =
        new.iter().filter(|map| is_other(map.lun, map.volume)).map(|map| map.lun).collect();
    if !luns.is_empty() {
        return Err(luns.into_iter().map(|lun| Collision::Lun { target: name.clone(), lun }).collect());
    }
    both.maps.sort_by(|a, b| (a.lun, &a.host).cmp(&(b.lun, &b.host)));
    Ok(both)
}

/// The maps of `new` that the cluster's targets do not have, and whose volume `is_foreign`.
fn foreign_maps(ours: &[Target], new: &[Target], is_foreign: impl Fn(VolumeId) -> bool) -> Vec<Collision> {
    let is_known = |target: &Target, map: &LunMap| {
        ours.iter().any(|known| known.name == target.name && known.maps.contains(map))
    };
    let foreign = |target: &Target| {
        let maps = target.maps.iter().filter(|map| is_foreign(map.volume) && !is_known(target, map));
        let luns: BTreeSet<u16> = maps.map(|map| map.lun).collect();
        luns.into_iter()
            .map(|lun| Collision::Foreign { target: target.name.to_string(), lun })
            .collect::<Vec<_>>()
    };
    new.iter().flat_map(foreign).collect()
}

/// The pairs of targets, one of them of `new`, that lead to one volume and have the same port number on each
/// node. `new` replaces targets of the same names.
fn common_ports(ours: &[Target], new: &[Target]) -> Vec<Collision> {
    let changed: BTreeSet<&TargetName> = new.iter().map(|target| &target.name).collect();
    let kept = ours.iter().filter(|target| !changed.contains(&target.name));
    let mut by_port: BTreeMap<(VolumeId, u8), BTreeSet<&TargetName>> = BTreeMap::new();
    for target in kept.chain(new) {
        for map in &target.maps {
            let port = (map.volume, NodeNumber::in_port(target.port));
            by_port.entry(port).or_default().insert(&target.name);
        }
    }
    let mut pairs: BTreeSet<(&TargetName, &TargetName)> = BTreeSet::new();
    for targets in by_port.values() {
        let Some(first) = targets.iter().find(|target| changed.contains(*target)) else { continue };
        pairs.extend(targets.iter().filter(|other| *other != first).map(|other| (*first, *other)));
    }
    let collision = |(target, other): (&TargetName, &TargetName)| Collision::Port {
        target: target.to_string(),
        other: other.to_string(),
    };
    pairs.into_iter().map(collision).collect()
}

/// RFC 7143 12.1.3: a secret that authenticates a target must not authenticate an initiator.
fn common_secrets(targets: &[Target], hosts: &[HostGroup]) -> impl Iterator<Item = Collision> {
    let of_hosts: BTreeMap<&str, &HostName> =
        hosts.iter().filter_map(|host| Some((host.chap.as_ref()?.secret.as_str(), &host.name))).collect();
    targets.iter().filter_map(move |target| {
        let host = of_hosts.get(target.chap.as_ref()?.secret.as_str())?;
        Some(Collision::Secret { target: target.name.to_string(), host: host.to_string() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::access::ChapSecret;
    use crate::copies::StandingEntry;

    fn map(lun: u16, volume: u8, host: &str) -> LunMap {
        LunMap { lun, volume: VolumeId([volume; 16]), host: host.parse().unwrap() }
    }

    fn target(name: &str, maps: &[LunMap]) -> Target {
        let name = format!("iqn.2026-11.io.ursa:{name}").parse().unwrap();
        Target { name, port: 1, alias: None, chap: None, maps: maps.to_vec(), made_with: None }
    }

    fn host(name: &str, initiator: &str) -> HostGroup {
        let initiators = vec![format!("iqn.2026-11.io.ursa:{initiator}")];
        HostGroup { name: name.parse().unwrap(), initiators, addresses: Vec::new(), chap: None }
    }

    fn secret(secret: &str) -> Option<ChapSecret> {
        Some(ChapSecret { user: "ursa".into(), secret: secret.into() })
    }

    #[test]
    fn objects_of_one_side_are_added_and_those_of_both_stay() {
        let ours = KnownAccess {
            targets: vec![target("both", &[map(0, 1, "any")]), target("ours", &[])],
            hosts: vec![host("both", "a")],
        };
        let theirs = KnownAccess {
            targets: vec![target("both", &[map(0, 1, "any")]), target("theirs", &[map(0, 2, "theirs")])],
            hosts: vec![host("both", "a"), host("theirs", "a")],
        };
        let (new, collisions) = merged(&ours, &theirs);
        assert!(collisions.is_empty(), "{collisions:?}");
        assert_eq!(
            (new.targets, new.hosts),
            (vec![theirs.targets[1].clone()], vec![theirs.hosts[1].clone()])
        );
        let (again, collisions) = merged(&theirs, &theirs);
        assert_eq!((again, collisions), (KnownAccess::default(), Vec::new()));
    }

    #[test]
    fn a_target_of_both_sides_gets_the_maps_of_both() {
        let known = target("a", &[map(0, 1, "any"), map(3, 3, "web")]);
        let other = target("a", &[map(0, 1, "any"), map(1, 2, "any")]);
        let both = with_maps_of(&known, &other).unwrap();
        assert_eq!(both.maps, [map(0, 1, "any"), map(1, 2, "any"), map(3, 3, "web")]);
        assert_eq!(with_maps_of(&both, &other).unwrap(), both);
    }

    /// A host may be in both groups.
    #[test]
    fn no_lun_becomes_a_different_volume_for_any_host() {
        let known = target("a", &[map(0, 1, "web"), map(1, 2, "web")]);
        let other = target("a", &[map(0, 3, "any"), map(1, 4, "web"), map(2, 5, "web")]);
        let found = with_maps_of(&known, &other).unwrap_err();
        let lun = |lun| Collision::Lun { target: known.name.to_string(), lun };
        assert_eq!(found, [lun(0), lun(1)]);
    }

    #[test]
    fn no_map_of_the_node_gives_access_to_a_volume_of_the_cluster() {
        let ours = [target("a", &[map(0, 1, "any")])];
        let new = [target("a", &[map(0, 1, "any"), map(1, 2, "any")]), target("b", &[map(5, 1, "any")])];
        let foreign = |target: &Target, lun| Collision::Foreign { target: target.name.to_string(), lun };
        let found = |of: u8| foreign_maps(&ours, &new, |volume| volume == VolumeId([of; 16]));
        assert_eq!(found(1), [foreign(&new[1], 5)]);
        assert_eq!(found(2), [foreign(&new[0], 1)]);
        assert!(found(3).is_empty());
    }

    /// As `Access::admit` decides: a secret in any group of the target must be proved.
    #[test]
    fn no_host_needs_a_secret_that_it_has_not_needed() {
        let with_secret = |host: HostGroup| HostGroup { chap: secret("secret-of-host"), ..host };
        let side = |groups: &[&HostGroup]| {
            let maps: Vec<LunMap> = groups.iter().map(|host| map(0, 1, host.name.as_str())).collect();
            let hosts = groups.iter().filter(|host| !host.is_built_in()).map(|host| (*host).clone());
            KnownAccess { targets: vec![target("both", &maps)], hosts: hosts.collect() }
        };
        let [any, _] = HostGroup::built_in();
        let (open, guarded) = (host("open", "a"), with_secret(host("guarded", "a")));
        let apart = with_secret(host("apart", "b"));
        let found = |ours: &[&HostGroup], theirs: &[&HostGroup]| merged(&side(ours), &side(theirs)).1;
        let name = target("both", &[]).name.to_string();
        let needed = [Collision::Chap { target: name, host: "guarded".into() }];
        for (one, other) in [(&open, &guarded), (&any, &guarded)] {
            assert_eq!(found(&[one], &[other]), needed);
            assert_eq!(found(&[other], &[one]), needed);
            assert_eq!(found(&[one, other], &[one]), needed, "hosts of the other side have not needed it");
            assert!(found(&[one, other], &[other]).is_empty());
        }
        assert!(found(&[&open], &[&apart]).is_empty(), "no initiator is in both");
        assert!(found(&[&guarded], &[&apart]).is_empty());
    }

    /// Whatever it is called there.
    #[test]
    fn a_node_with_a_clone_of_a_pool_does_not_join() {
        let pools = |all: &[(&str, &str)]| {
            let pools = all.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned()));
            pools.collect::<BTreeMap<String, String>>()
        };
        let here = pools(&[("1", "default"), ("2", "fast")]);
        let with = |all: &[(&str, &str)]| Belongings { pools: pools(all), ..Belongings::default() };
        assert_eq!(check_pools(&here, &with(&[("3", "default")])), Ok(()));
        let collision = Collision::Pool { name: "slow".into() };
        let refusal = check_pools(&here, &with(&[("2", "slow"), ("4", "other")]));
        assert_eq!(refusal, Err(JoinRefusal::collides(vec![collision])));
    }

    #[test]
    fn a_volume_that_the_cluster_still_has_is_not_the_nodes_own() {
        let entry =
            |sole, node| VolumeEntry { sole, ..VolumeEntry::with_copies(&[(node, StandingEntry::InSync)]) };
        let is_heard = |node| node == NodeId(1);
        assert!(has_left(&entry(true, 2), is_heard), "its node is gone");
        assert!(!has_left(&entry(true, 1), is_heard), "it is served there");
        assert!(!has_left(&entry(false, 2), is_heard), "others have had copies");
        let has = |id: VolumeId| {
            let volumes = BTreeMap::from([("db".to_owned(), id.to_string())]);
            Belongings { volumes, ..Belongings::default() }
        };
        let found = |entry: VolumeEntry| {
            let mut has = has(VolumeId([1; 16]));
            let found = elsewhere(has.ids(), |_| Some(entry.clone()), is_heard);
            has.omit_names();
            assert_eq!(elsewhere(has.ids(), |_| Some(entry.clone()), is_heard), found, "its name is long");
            found
        };
        assert_eq!(found(entry(true, 2)), [Collision::Elsewhere { volume: "db".into(), node: 2 }]);
        assert!(found(entry(true, 1)).is_empty() && found(entry(false, 2)).is_empty());
        let has = has(VolumeId([1; 16]));
        assert!(elsewhere(has.ids(), |_| None, is_heard).is_empty(), "its old number was removed");
    }

    #[test]
    fn no_two_targets_of_a_volume_get_the_same_port_number() {
        let with_port = |name: &str, port, volume| Target { port, ..target(name, &[map(0, volume, "any")]) };
        let pair = |one: &Target, other: &Target| {
            [Collision::Port { target: one.name.to_string(), other: other.name.to_string() }]
        };
        let (first, far) = (with_port("first", 1, 1), with_port("far", 257, 1));
        assert_eq!(common_ports(&[], &[first.clone(), far.clone()]), pair(&far, &first));
        assert_eq!(
            common_ports(std::slice::from_ref(&first), std::slice::from_ref(&far)),
            pair(&far, &first)
        );
        assert!(common_ports(&[first.clone(), far.clone()], &[]).is_empty(), "nothing changes");
        // Of another volume, as the targets of two nodes usually are.
        assert!(common_ports(std::slice::from_ref(&first), &[with_port("other", 1, 2)]).is_empty());
        assert!(common_ports(&[first], &[with_port("other", 2, 1)]).is_empty());
        let moved = with_port("far", 2, 1);
        assert!(common_ports(&[far], &[moved]).is_empty(), "it takes the place of the cluster's");
    }

    #[test]
    fn all_that_differs_is_listed() {
        let (web, other_web) = (host("web", "a"), host("web", "b"));
        let with = |name: &str, change: fn(&mut Target)| {
            let mut changed = target(name, &[]);
            change(&mut changed);
            changed
        };
        let ours = KnownAccess {
            targets: ["port", "alias", "chap"].map(|name| target(name, &[])).into(),
            hosts: vec![web, HostGroup { chap: secret("secret-of-host"), ..host("db", "c") }],
        };
        let theirs = KnownAccess {
            targets: vec![
                with("port", |target| target.port = 2),
                with("alias", |target| target.alias = Some("x".into())),
                with("chap", |target| target.chap = secret("secret-of-target")),
                with("new", |target| target.chap = secret("secret-of-host")),
            ],
            hosts: vec![other_web],
        };
        let differs = |index: usize| Collision::Target { name: theirs.targets[index].name.to_string() };
        let one_way = Collision::Secret { target: theirs.targets[3].name.to_string(), host: "db".to_owned() };
        let expected = [Collision::Host { name: "web".into() }, differs(0), differs(1), differs(2), one_way];
        assert_eq!(merged(&ours, &theirs).1, expected);
    }
}
