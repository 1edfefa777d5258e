//! Creating clones of snapshots: the node that coordinates, the copies on each node, and what any node does
//! about clones whose coordinator is lost.
//!
//! What must never happen: a pool keeps a clone that nobody knows, and with it the snapshot; or the record
//! has a clone of which a copy was not created. The steps: `docs/why/snapshots.md`, *Clones*.

use std::rc::Rc;
use std::time::Duration;

use base::{ByteLen, Instant};
use replica::NodeId;
use store::{CloneOf, CloneSpec, Pool, STRIPE_UNIT, SpacePolicy, StoreError, VolumeSpec};

use super::super::change::{Changing, WaitsFor};
use super::super::copies::{Made, NewEntry, once_heard};
use super::super::doing::Doing;
use super::super::relocation::{TRIES_MAX, entry_named};
use super::super::tidying::TIDY_EVERY;
use super::super::turns::{NOTHING, Thing};
use super::super::{Control, ControlError, NEXT_NUMBER, Placement, Result};
use super::clones::is_being_cloned;
use super::scheduled::unix_now;
use super::taking::{KNOWN_WITHIN, check_volume};
use super::tidying::is_lost;
use super::{numbered, part_of, volume_entry};
use crate::attach::access::VolumeName;
use crate::copies::{
    Answer, Ask, CLONES_AT_ONCE, Cause, DeletedVolume, NEW_CLONES, NewClone, NewClones, NewCopy, Origin,
    Refused, ShapeEntry, SnapshotEntry, SnapshotObstacle, SnapshotOf, VolumeEntry, deleted_key, pool_number,
    volume_key, volume_name_key,
};
use crate::data::VolumeId;
use crate::member::{ClusterError, Reconciler, json};
use crate::shard::{Shard, on_all_cores};
use crate::under_way::Begun;

/// How many clones one request creates at most.
pub const CLONES_MAX: u16 = 1000;

/// How long a request for clones waits. The HTTP interface gives up after two minutes; then it continues.
const CLONES_DEADLINE: Duration = Duration::from_secs(110);

/// How long a node's slices may take to hold a snapshot: a log may have to be recovered first. The node that
/// asked waits for 30 seconds.
const HELD_WITHIN: Duration = Duration::from_secs(20);

/// How long a request that failed waits until all nodes have deleted what they had created.
const LEFT_WITHIN: Duration = Duration::from_secs(3);

/// Clones to be created.
#[derive(Clone, Debug)]
pub struct ClonesSpec {
    /// The name or number of the snapshot.
    pub snapshot: String,
    /// The name or identity of the volume; `None`: the only one that the snapshot has.
    pub volume: Option<String>,
    /// The name of the clone. Several have the names `NAME-1`, `NAME-2`, ….
    pub name: String,
    /// How many; `None`: one, with exactly that name.
    pub count: Option<u16>,
    /// On which nodes, of those whose copies have the snapshot. [`Placement::Default`]: on all of these.
    pub copies: Placement,
}

/// What clones would be.
#[derive(Clone, Debug)]
pub struct ClonesPlan {
    /// The snapshot.
    pub snapshot: SnapshotEntry,
    /// The volume that it has.
    pub volume: VolumeEntry,
    /// Their names.
    pub names: Vec<String>,
    /// The nodes of their copies, by slot.
    pub nodes: Vec<u16>,
}

/// Clones that were created.
#[derive(Clone, Debug)]
pub struct ClonesCreated {
    /// The name of the snapshot.
    pub snapshot: String,
    /// The name of the volume.
    pub volume: String,
    /// Their names and identities.
    pub clones: Vec<(String, VolumeId)>,
    /// How long that took.
    pub took: Duration,
    /// How many bytes they take in the pool of this node; `None`: it has no copies of them.
    pub used: Option<u64>,
}

/// Clones that are created together.
struct Batch<'a> {
    /// The volume of whose snapshot they are clones.
    volume: &'a VolumeEntry,
    /// Their shape.
    shape: ShapeEntry,
    new: &'a NewClones,
}

fn not_cloned(volume: &str, node: Option<u16>, obstacle: SnapshotObstacle) -> ControlError {
    ControlError::NotCloned { volume: volume.to_owned(), node, obstacle }
}

impl Control {
    /// What clones would be.
    ///
    /// # Errors
    /// They would be refused: the snapshot or the volume is not found; a name is invalid or taken;
    /// [`ControlError::SnapshotPreparing`], [`ControlError::NotInSnapshot`], [`ControlError::NotCloned`],
    /// [`ControlError::NoCopyHasSnapshot`], [`ControlError::NodeNotThere`], [`ControlError::Copies`].
    pub async fn plan_clones(&self, spec: &ClonesSpec) -> Result<ClonesPlan> {
        let reconciler = self.reconciler()?;
        let snapshot = super::complete(&reconciler, &spec.snapshot)?;
        let volume = match (&spec.volume, snapshot.volumes.as_slice()) {
            (Some(volume), _) => entry_named(&reconciler, volume)?.1,
            (None, [only]) => {
                let entry = volume_entry(&reconciler, &only.id).map(|(entry, _)| entry);
                entry.ok_or_else(|| ControlError::not_found("volume", &only.name))?
            }
            (None, _) => {
                let reason = "the snapshot has several volumes: name one of them";
                return Err(ControlError::Invalid { field: "volume", reason });
            }
        };
        check_volume(&reconciler, &volume)?;
        let names = names(&spec.name, spec.count)?;
        for name in &names {
            let _valid: VolumeName = name.parse()?;
            let is_taken = reconciler.revision_of(&volume_name_key(name)).is_some();
            if is_taken || self.volume_named(name).is_ok() {
                return Err(ControlError::Exists { kind: "volume", name: name.clone() });
            }
        }
        let place = || place(&reconciler, &snapshot, &volume, &spec.copies);
        let nodes = once_heard(&reconciler, place).await?;
        Ok(ClonesPlan { snapshot, volume, names, nodes })
    }

    /// Creates clones of a snapshot: volumes that begin as what it has of a volume, and can be written. It
    /// takes no longer for a large volume, and no space but for what is written to them.
    ///
    /// # Errors
    /// Those of [`Control::plan_clones`], of other nodes, of pools and of the record: nothing was created.
    /// [`ControlError::ClonesIncomplete`]: some were. If the record did not answer, they may have been.
    pub async fn create_clones(self: &Rc<Control>, spec: ClonesSpec) -> Result<ClonesCreated> {
        let began = rt::now();
        let ClonesPlan { snapshot, names, .. } = self.plan_clones(&spec).await?;
        let work = Doing::CloneSnapshot.of(&snapshot.name);
        self.change_within(CLONES_DEADLINE, work, NOTHING, move |control, changing| async move {
            let names: Vec<Thing> = names.into_iter().map(Thing::VolumeName).collect();
            let _names = changing.hold(names).await?;
            // Somebody may have taken a name meanwhile.
            let plan = control.plan_clones(&spec).await?;
            let reconciler = control.reconciler()?;
            let mut ids = Vec::new();
            for names in plan.names.chunks(CLONES_AT_ONCE) {
                match control.create_some(&changing, &reconciler, &plan, names).await {
                    Ok(some) => ids.extend(some),
                    Err(error) if ids.is_empty() => return Err(error),
                    Err(error) => {
                        return Err(ControlError::ClonesIncomplete {
                            created: ids.len(),
                            wanted: plan.names.len(),
                            source: Box::new(error),
                        });
                    }
                }
            }
            // The caller may use them at once.
            changing.waits_for(WaitsFor::Cores);
            reconciler.until_all_serve(&ids).await;
            let is_here = plan.nodes.contains(&reconciler.me().0);
            Ok(ClonesCreated {
                snapshot: plan.snapshot.name,
                volume: plan.volume.name,
                used: is_here.then(|| ids.iter().map(|id| control.used_by(*id)).sum()),
                clones: plan.names.into_iter().zip(ids).collect(),
                took: rt::now().since(began),
            })
        })
        .await
    }

    /// How many bytes this node's copy of a volume takes in its pool.
    fn used_by(&self, id: VolumeId) -> u64 {
        self.volume_named(&id.to_string()).map_or(0, |(_, info)| info.reserved.0)
    }

    /// Creates some clones, or none of them.
    async fn create_some(
        &self,
        changing: &Changing,
        reconciler: &Rc<Reconciler>,
        plan: &ClonesPlan,
        names: &[String],
    ) -> Result<Vec<VolumeId>> {
        changing.waits_for(WaitsFor::ClusterRecord);
        let (new, _cloning) = self.reserve_clones(reconciler, plan, names).await?;
        let ids: Vec<VolumeId> = new.clones.iter().filter_map(|new| VolumeId::parse(&new.id)).collect();
        changing.waits_for(WaitsFor::Nodes(new.nodes.clone()));
        let shape = ShapeEntry { created: unix_now(), ..plan.volume.shape };
        let batch = Batch { volume: &plan.volume, shape, new: &new };
        let made = make_copies(reconciler, &batch).await;
        changing.waits_for(WaitsFor::ClusterRecord);
        let recorded = match made {
            Ok(made) => record(reconciler, &batch, &made).await,
            Err(error) => Err(error),
        };
        let Err(error) = recorded else { return Ok(ids) };
        // If the record did not answer, they may have been created all the same.
        if undo(reconciler, &new).await {
            return Ok(ids);
        }
        // The caller may use the names again at once. A node that is down deletes its copies later.
        let are_gone = || !ids.iter().any(|id| reconciler.is_deleted(*id));
        reconciler.until(LEFT_WITHIN, are_gone).await;
        Err(error)
    }

    /// Writes to the record which clones are about to be created. They are this node's as long as the second
    /// result exists.
    async fn reserve_clones(
        &self,
        reconciler: &Reconciler,
        plan: &ClonesPlan,
        names: &[String],
    ) -> Result<(NewClones, Begun<u32>)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let gone = || ControlError::not_found("snapshot", &plan.snapshot.name);
            let (snapshot, of_snapshot) = numbered(reconciler, plan.snapshot.number).ok_or_else(gone)?;
            let snapshot_key = snapshot.key();
            // It may have been deleted meanwhile, or a copy be about to leave.
            super::complete(reconciler, &snapshot.number.to_string())?;
            let gone = || ControlError::not_found("volume", &plan.volume.name);
            let (volume, of_volume) = volume_entry(reconciler, &plan.volume.id).ok_or_else(gone)?;
            let has_it = nodes_with(part_of(&snapshot, &volume)?, &volume);
            if let Some(node) = plan.nodes.iter().find(|node| !has_it.contains(node)) {
                return Err(not_cloned(&volume.name, Some(*node), SnapshotObstacle::Absent));
            }
            let key = volume_key(VolumeId::parse(&volume.id).ok_or_else(gone)?);
            let drawn = reconciler.get::<u32>(NEXT_NUMBER);
            let first = drawn.map_or(1, |(number, _)| number);
            let revision = reconciler.revision_of(NEXT_NUMBER);
            if drawn.is_none() && revision.is_some() {
                return Err(ClusterError::Unreadable(NEXT_NUMBER.to_owned()).into());
            }
            let next = first.checked_add(names.len() as u32);
            let next = next.ok_or(ControlError::Internal("the numbers of volumes are used up"))?;
            let clone = |name: &String| NewClone { id: VolumeId::random().to_string(), name: name.clone() };
            let new = NewClones {
                of: Origin {
                    volume: volume.id.clone(),
                    snapshot: pool_number(reconciler.cluster(), snapshot.number),
                },
                first,
                node: reconciler.me().0,
                incarnation: reconciler.incarnation().0,
                clones: names.iter().map(clone).collect(),
                nodes: plan.nodes.clone(),
            };
            let Some(cloning) = self.snapshots.cloning.begin(first) else {
                // Another request to this node is just getting the number.
                reconciler.until_changed(TIDY_EVERY, NEXT_NUMBER, revision).await;
                continue;
            };
            let mut transaction = Reconciler::transaction()
                .expect(NEXT_NUMBER, revision)
                .expect(&snapshot_key, Some(of_snapshot))
                .expect(&key, Some(of_volume))
                .expect(&new.key(), None)
                .put(NEXT_NUMBER, json(&next))
                .put(&new.key(), json(&new));
            for name in names {
                transaction = transaction.expect(&volume_name_key(name), None);
            }
            let before = [
                (NEXT_NUMBER, revision),
                (snapshot_key.as_str(), Some(of_snapshot)),
                (key.as_str(), Some(of_volume)),
            ];
            match reconciler.commit(transaction).await {
                Ok(()) => return Ok((new, cloning)),
                Err(ClusterError::Conflict(conflict)) => {
                    drop(cloning);
                    if let Some(name) = names.iter().find(|name| volume_name_key(name) == conflict) {
                        return Err(ControlError::Exists { kind: "volume", name: name.clone() });
                    }
                    let changed = before.iter().find(|(key, _)| *key == conflict);
                    let Some((changed, revision)) = changed.filter(|_| tries < TRIES_MAX) else {
                        return Err(ClusterError::Conflict(conflict).into());
                    };
                    reconciler.until_changed(TIDY_EVERY, changed, *revision).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The name of the pool that has this node's copy of the volume of which a copy of a clone is to be
    /// created.
    pub(in crate::control) fn pool_of_origin(&self, origin: &Origin) -> Result<String> {
        let gone = || ControlError::not_found("volume", &origin.volume);
        let pool = self.pool_of(VolumeId::parse(&origin.volume).ok_or_else(gone)?)?;
        Ok(pool.name())
    }

    /// Creates this node's copy of a clone. The caller holds the volume and the volumes of the pool
    /// ([`Thing`]), and has said that its change is about it: so it is not looked for meanwhile among those
    /// that were given up.
    ///
    /// # Errors
    /// [`ClusterError::Conflict`]: the clones were given up. [`ControlError::NotCloned`]; those of the pool.
    pub(in crate::control) async fn create_clone_here(
        &self,
        reconciler: &Reconciler,
        pool: &Pool,
        spec: VolumeSpec,
        origin: &Origin,
    ) -> Result<()> {
        let VolumeSpec { name, id, created, copy, space, compression, .. } = spec;
        let is_wanted = || id.is_some_and(|id| is_being_cloned(reconciler, id));
        reconciler.until(KNOWN_WITHIN, is_wanted).await;
        if !is_wanted() {
            return Err(ClusterError::Conflict(name).into());
        }
        let gone = || ControlError::not_found("volume", &origin.volume);
        let volume = VolumeId::parse(&origin.volume).ok_or_else(gone)?;
        let of = CloneOf { volume, snapshot: origin.snapshot };
        let refused = |obstacle| {
            let volume = volume_entry(reconciler, &origin.volume).map(|(volume, _)| volume.name);
            not_cloned(volume.as_ref().unwrap_or(&origin.volume), None, obstacle)
        };
        // If its pool was set back, it may have another snapshot under this number.
        let copy_there = pool.volume(volume).and_then(|info| info.copy);
        if copy_there.is_some_and(|copy| copy.state.is_untrusted()) {
            return Err(refused(SnapshotObstacle::NotServed));
        }
        let held = self.hold_snapshot(of).await.map_err(refused)?;
        let created = pool.create_clone(CloneSpec { of, name, created, id, copy, space, compression }).await;
        let_go(held).await;
        match created {
            Ok(_) => Ok(()),
            Err(StoreError::CloneTooDeep(_)) => Err(refused(SnapshotObstacle::TooDeep)),
            Err(StoreError::BeingConverted(_) | StoreError::NotCloneable(_)) => {
                Err(refused(SnapshotObstacle::Converting))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps a snapshot from being deleted on all slices of this node's copy, until [`let_go`] is called with
    /// the result.
    async fn hold_snapshot(&self, of: CloneOf) -> Result<u64, SnapshotObstacle> {
        let number = self.snapshots.last_held.get() + 1;
        self.snapshots.last_held.set(number);
        let until = rt::now() + HELD_WITHIN;
        let held = on_all_cores(move || async move { hold_on_core(of, number, until).await }).await;
        let refused = match held.into_iter().sum::<Result<usize, SnapshotObstacle>>() {
            // Fewer if a slice could not be opened.
            Ok(slices) if slices == self.slices_of_copy(of.volume) => return Ok(number),
            Ok(_) => SnapshotObstacle::NotServed,
            Err(obstacle) => obstacle,
        };
        let_go(number).await;
        Err(refused)
    }

    /// Gives up clones whose node does not create them any more, in a task of its own: the record may not
    /// respond.
    pub(in crate::control) fn tidy_clones(self: &Rc<Control>, reconciler: &Rc<Reconciler>) {
        let all: Vec<NewClones> = reconciler.list(NEW_CLONES);
        if all.is_empty() {
            return;
        }
        let (control, reconciler) = (Rc::clone(self), Rc::clone(reconciler));
        self.snapshots.giving_up.start((), async move {
            for new in all {
                let is_busy = || control.snapshots.cloning.has(&new.first);
                if is_lost(&reconciler, new.node, new.incarnation, is_busy) {
                    undo(&reconciler, &new).await;
                }
            }
        });
    }
}

/// The names of clones.
fn names(name: &str, count: Option<u16>) -> Result<Vec<String>> {
    match count {
        None => Ok(vec![name.to_owned()]),
        Some(count) if (1..=CLONES_MAX).contains(&count) => {
            Ok((1..=count).map(|number| format!("{name}-{number}")).collect())
        }
        Some(_) => {
            let reason = "1 to 1000 clones are created at a time";
            Err(ControlError::Invalid { field: "count", reason })
        }
    }
}

/// The nodes of a volume's copies that have a snapshot, and are not to be removed.
fn nodes_with(of: &SnapshotOf, volume: &VolumeEntry) -> Vec<u16> {
    let stays = |node: &u16| {
        let copy = volume.copy_on(NodeId(*node));
        copy.is_some_and(|(_, copy)| copy.leaves.is_none())
    };
    super::nodes_with(of, volume).filter(stays).collect()
}

/// The nodes that get the copies of clones.
fn place(
    reconciler: &Reconciler,
    snapshot: &SnapshotEntry,
    volume: &VolumeEntry,
    copies: &Placement,
) -> Result<Vec<u16>> {
    let mut have_it = nodes_with(part_of(snapshot, volume)?, volume);
    if have_it.is_empty() {
        let (volume, snapshot) = (volume.name.clone(), snapshot.name.clone());
        return Err(ControlError::NoCopyHasSnapshot { volume, snapshot });
    }
    let is_there = |node: u16| {
        let node = NodeId(node);
        node == reconciler.me() || reconciler.hears(node) && !reconciler.is_in_maintenance(node)
    };
    let wanted = match copies {
        Placement::Default => have_it.len(),
        Placement::Count(count) => usize::from(*count),
        Placement::Nodes(nodes) => {
            if let Some(lacks) = nodes.iter().find(|node| !have_it.contains(node)) {
                return Err(not_cloned(&volume.name, Some(*lacks), SnapshotObstacle::Absent));
            }
            if let Some(missing) = nodes.iter().find(|node| !is_there(**node)) {
                return Err(ControlError::NodeNotThere(*missing));
            }
            have_it.retain(|node| nodes.contains(node));
            nodes.len()
        }
    };
    have_it.retain(|node| is_there(*node));
    have_it.sort_by_key(|node| NodeId(*node) != reconciler.me());
    if wanted == 0 || have_it.len() < wanted {
        return Err(ControlError::Copies { wanted, there: have_it.len(), refused: Vec::new() });
    }
    have_it.truncate(wanted);
    Ok(have_it)
}

/// Has the nodes create their copies of clones: each node one after the other, all nodes at the same time.
async fn make_copies(reconciler: &Rc<Reconciler>, batch: &Batch<'_>) -> Result<Made> {
    let Batch { volume, shape, new } = batch;
    let copy = |clone: &NewClone, slot: usize| NewCopy {
        id: clone.id.clone(),
        slot: slot as u8,
        name: clone.name.clone(),
        pool: None,
        kind: shape.kind,
        compression: volume.compression,
        checksums: false,
        size: volume.size,
        block_bytes: shape.block_bytes,
        physical_exponent: shape.physical_exponent,
        slices: shape.slices,
        // The pool takes that of the other volume.
        stripe_unit: STRIPE_UNIT.0 as u32,
        created: shape.created,
        blank: false,
        sole: new.nodes.len() == 1,
        asker: rt::random(),
        space: space(volume).into(),
        clone_of: Some(new.of.clone()),
    };
    let copies = |slot: usize| -> Vec<NewCopy> { new.clones.iter().map(|clone| copy(clone, slot)).collect() };
    let nodes = new.nodes.iter().enumerate();
    let all = nodes.map(|(slot, node)| create_on(reconciler, NodeId(*node), copies(slot)));
    let made: Result<Vec<(NodeId, u64)>> = rt::join_all(all).await.into_iter().collect();
    Ok(Made::on(made?))
}

/// Has a node create copies of clones. Returns the life in which it has.
async fn create_on(reconciler: &Rc<Reconciler>, node: NodeId, copies: Vec<NewCopy>) -> Result<(NodeId, u64)> {
    let mut life = None;
    for copy in copies {
        let made = match reconciler.ask(node, Ask::MakeCopy(copy)).await {
            Ok(Answer::Done { incarnation }) => incarnation,
            Ok(_) => return Err(ClusterError::Strange(node).into()),
            Err(ClusterError::Refused { reason: Refused::NoSnapshot { volume, obstacle }, .. }) => {
                return Err(not_cloned(&volume, Some(node.0), obstacle));
            }
            Err(error) => return Err(error.into()),
        };
        // A copy of an earlier life would not be in sync.
        if life.is_some_and(|life| life != made) {
            return Err(ClusterError::Unreached(node).into());
        }
        life = Some(made);
    }
    let life = life.ok_or(ControlError::Internal("no clone is to be created"))?;
    Ok((node, life))
}

/// How clones share the space of their pools: as the volume, but without its reserve, which each of them
/// would take.
fn space(volume: &VolumeEntry) -> SpacePolicy {
    SpacePolicy { reserve: ByteLen(0), ..SpacePolicy::from(volume.space) }
}

/// Adds clones to the record, all of whose copies have been created, unless they were given up.
async fn record(reconciler: &Reconciler, batch: &Batch<'_>, made: &Made) -> Result<()> {
    let Batch { volume, shape, new } = batch;
    let key = new.key();
    let known = reconciler.get::<NewClones>(&key).filter(|(known, _)| known == *new);
    let (_, revision) = known.ok_or_else(|| ClusterError::Conflict(key.clone()))?;
    let mut transaction = Reconciler::transaction().expect(&key, Some(revision)).delete(&key);
    for (number, clone) in (new.first..).zip(&new.clones) {
        let id = VolumeId::parse(&clone.id).ok_or(ControlError::Internal("a clone without identity"))?;
        let entry = NewEntry {
            id,
            name: &clone.name,
            size: volume.size,
            shape: *shape,
            space: space(volume),
            compression: volume.compression.known().unwrap_or_default(),
            reason: Cause::VolumeCreated,
            clone_of: Some(new.of.clone()),
            made,
        };
        let (volume_key, name_key) = (volume_key(id), volume_name_key(&clone.name));
        transaction = transaction
            .expect(&volume_key, None)
            .expect(&name_key, None)
            .put(&volume_key, json(&entry.numbered(number)))
            .put(&name_key, json(&clone.id));
    }
    Ok(reconciler.commit(transaction).await?)
}

/// Gives up clones that are being created: the nodes that may have copies delete them, whenever they follow
/// the record. Returns whether all of them have been created all the same.
async fn undo(reconciler: &Reconciler, new: &NewClones) -> bool {
    let key = new.key();
    let ids: Vec<VolumeId> = new.clones.iter().filter_map(|clone| VolumeId::parse(&clone.id)).collect();
    for _ in 0..TRIES_MAX {
        let Some((known, revision)) = reconciler.get::<NewClones>(&key) else {
            return ids.iter().all(|id| reconciler.has(*id));
        };
        // Otherwise a node that is down would keep its copies.
        if !reconciler.remembers_deleted() {
            return false;
        }
        let mut transaction = Reconciler::transaction().expect(&key, Some(revision)).delete(&key);
        for (id, clone) in ids.iter().zip(&new.clones) {
            let (id_key, deleted_key) = (volume_key(*id), deleted_key(*id));
            let deleted =
                DeletedVolume { id: clone.id.clone(), name: clone.name.clone(), nodes: known.nodes.clone() };
            transaction = transaction
                .expect(&id_key, None)
                .expect(&deleted_key, None)
                .put(&deleted_key, json(&deleted));
        }
        match reconciler.commit(transaction).await {
            Ok(()) => return false,
            Err(ClusterError::Conflict(_)) => {
                reconciler.until_changed(TIDY_EVERY, &key, Some(revision)).await;
            }
            Err(error) => {
                // Whoever looks after them tries again.
                tracing::debug!(key, %error, "clones that were not created are still in the record");
                return false;
            }
        }
    }
    false
}

/// Holds a snapshot on this core's slices of a volume; returns their number.
async fn hold_on_core(of: CloneOf, number: u64, until: Instant) -> Result<usize, SnapshotObstacle> {
    let shard = Shard::current();
    let volume = shard.volume(of.volume).ok_or(SnapshotObstacle::NotServed)?;
    let mut held = Vec::new();
    for slice in volume.own_slices() {
        // A slice without blocks has no snapshots, and so no clone.
        if slice.len().0 == 0 {
            return Err(SnapshotObstacle::TooSmall);
        }
        let snapshot = rt::timeout_at(until, slice.layout().hold_snapshot(of.snapshot)).await;
        held.push(snapshot.map_err(|_late| SnapshotObstacle::Slow)??);
    }
    let slices = held.len();
    shard.keep_held(number, held);
    Ok(slices)
}

/// Lets a snapshot go that this node has held.
async fn let_go(number: u64) {
    on_all_cores(move || async move { Shard::current().drop_held(number) }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_clones_are_numbered() {
        assert_eq!(names("test", None).unwrap(), ["test"]);
        assert_eq!(names("vm", Some(1)).unwrap(), ["vm-1"]);
        assert_eq!(names("vm", Some(3)).unwrap(), ["vm-1", "vm-2", "vm-3"]);
        assert_eq!(names("vm", Some(CLONES_MAX)).unwrap().len(), 1000, "as the error says");
        for count in [0, CLONES_MAX + 1] {
            assert!(matches!(names("vm", Some(count)), Err(ControlError::Invalid { field: "count", .. })));
        }
    }
}
