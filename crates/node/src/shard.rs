//! The state of one core: its part of every volume, its sessions, its copy of the access rules.
//!
//! A message from another core starts at [`Shard::current`] and never keeps what it finds there.

use std::cell::{Cell, RefCell};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use proto::scsi::{ItNexus, LuState};
use rt::sync::{Notify, Semaphore, oneshot};
use rt::{CoreId, Task};
use slab::Slab;
use store::{CoreDisks, HeldSnapshot, PoolId};

use crate::attach::access::{Access, Concerned};
use crate::attach::port_numbers::NodeNumber;
use crate::attach::unit::{Unit, Waiting};
use crate::config::Config;
use crate::control::Control;
use crate::copies::Copies;
use crate::data::{TakenRange, Volume, VolumeId};
use crate::iscsi::session::Session;

/// The portals of another node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePortals {
    /// The addresses that it listens at.
    pub addresses: Vec<SocketAddr>,
    /// Their portal group.
    pub group: u16,
}

/// A portal of a floating address that is on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatingPortal {
    /// Where initiators connect.
    pub(crate) portal: SocketAddr,
    /// Its portal group.
    pub(crate) group: u16,
}

impl FloatingPortal {
    /// Its TargetAddress (RFC 7143 13.8).
    pub(crate) fn target_address(&self) -> String {
        format!("{},{}", self.portal, self.group)
    }
}

/// One core's state.
pub struct Shard {
    config: Arc<Config>,
    units: RefCell<BTreeMap<VolumeId, Rc<Unit>>>,
    /// How many removed units of a volume are still in use.
    leaving: RefCell<BTreeMap<VolumeId, usize>>,
    /// Notified when one of them is gone.
    left: Notify,
    /// Volumes that will be back soon: see [`Shard::expect_back`].
    expected: RefCell<BTreeSet<VolumeId>>,
    access: RefCell<Arc<Access>>,
    sessions: RefCell<BTreeMap<u16, Rc<Session>>>,
    /// Ranges of this core's slices that commands of other cores have taken, until those cores release them.
    /// They stay here even if the volume is closed meanwhile.
    taken: RefCell<Slab<TakenRange>>,
    /// Snapshots of this core's slices of which clones are being created, by a number of core 0's.
    held: RefCell<BTreeMap<u64, Vec<HeldSnapshot>>>,
    /// On the home core: one change per unit at a time.
    turns: RefCell<BTreeMap<VolumeId, Rc<Semaphore>>>,
    /// The node is about to stop and refuses logins.
    draining: Cell<bool>,
    /// The pools' disks, opened on this core.
    disks: RefCell<BTreeMap<PoolId, CoreDisks>>,
    /// The addresses that the node listens at.
    portals: RefCell<Vec<SocketAddr>>,
    /// The floating addresses on this node, and their portals.
    floating: RefCell<BTreeMap<IpAddr, Vec<FloatingPortal>>>,
    /// The portal group of the addresses that the node listens at.
    portal_group: Cell<u16>,
    /// The portals of the other nodes of the cluster.
    peer_portals: RefCell<BTreeMap<NodeNumber, NodePortals>>,
    /// On core 0, once control has started.
    control: RefCell<Option<Rc<Control>>>,
    /// This core's part of the replicated volumes, once a life of the node in its cluster has begun.
    copies: RefCell<Option<Rc<Copies>>>,
    /// The periodic work of these copies.
    work_of_copies: RefCell<Vec<Task<()>>>,
    /// The node's number in a cluster that it cannot take part in now. It counts until the node has copies of
    /// that cluster.
    place: Cell<Option<NodeNumber>>,
    /// On core 0: notified when the node is to stop.
    stopping: Notify,
}

impl Shard {
    /// Installs an empty shard on this core, for [`Shard::current`] to find.
    pub fn install(config: Arc<Config>) -> Rc<Shard> {
        let shard = Rc::new(Shard {
            config,
            units: RefCell::default(),
            leaving: RefCell::default(),
            left: Notify::new(),
            expected: RefCell::default(),
            access: RefCell::default(),
            sessions: RefCell::default(),
            taken: RefCell::default(),
            held: RefCell::default(),
            turns: RefCell::default(),
            draining: Cell::new(false),
            disks: RefCell::default(),
            portals: RefCell::default(),
            floating: RefCell::default(),
            portal_group: Cell::default(),
            peer_portals: RefCell::default(),
            control: RefCell::default(),
            copies: RefCell::default(),
            work_of_copies: RefCell::default(),
            place: Cell::new(None),
            stopping: Notify::new(),
        });
        rt::set_local(Rc::clone(&shard));
        shard
    }

    /// The shard of the calling core.
    pub fn current() -> Rc<Shard> {
        Shard::try_current().expect("every core of a node installs its shard before it takes messages")
    }

    /// The shard of the calling core, if it is already installed.
    pub fn try_current() -> Option<Rc<Shard>> {
        rt::local()
    }

    /// The node's configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The node's control: only on core 0, once it has started.
    pub fn control(&self) -> Option<Rc<Control>> {
        self.control.borrow().clone()
    }

    /// Sets the node's control, on core 0.
    pub fn set_control(&self, control: Rc<Control>) {
        self.control.replace(Some(control));
    }

    /// This core's part of the replicated volumes; `None` if the node does not take part in its cluster.
    pub fn copies(&self) -> Option<Rc<Copies>> {
        self.copies.borrow().clone()
    }

    /// Notes that a life of the node in a cluster begins, and starts the periodic work of its copies. That of
    /// an earlier life ends.
    pub fn set_copies(&self, copies: Rc<Copies>) {
        let before = self.number();
        let work = vec![
            rt::spawn(Rc::clone(&copies).sync()),
            rt::spawn(Rc::clone(&copies).acknowledge()),
            rt::spawn(Rc::clone(&copies).tick()),
        ];
        drop(self.work_of_copies.replace(work));
        self.copies.replace(Some(copies));
        self.place.set(None);
        self.renumber(before);
    }

    /// Notified on core 0 when the node is to stop.
    pub fn stopping(&self) -> &Notify {
        &self.stopping
    }

    /// The addresses that the node listens at.
    pub fn portals(&self) -> Vec<SocketAddr> {
        self.portals.borrow().clone()
    }

    /// Sets the addresses that the node listens at.
    pub fn set_portals(&self, portals: Vec<SocketAddr>) {
        self.portals.replace(portals);
    }

    /// The portals of the floating addresses on this node.
    pub(crate) fn floating(&self) -> Vec<FloatingPortal> {
        self.floating.borrow().values().flatten().copied().collect()
    }

    /// The portal group of a floating address on this node; `None` if `address` is not one.
    pub(crate) fn floating_group(&self, address: IpAddr) -> Option<u16> {
        self.floating.borrow().get(&address)?.first().map(|portal| portal.group)
    }

    /// Sets the portals of a floating address on this node; an empty list means that it is not here.
    pub(crate) fn set_floating(&self, address: IpAddr, portals: Vec<FloatingPortal>) {
        let mut floating = self.floating.borrow_mut();
        match portals.is_empty() {
            true => drop(floating.remove(&address)),
            false => drop(floating.insert(address, portals)),
        }
    }

    /// The node's number, from which those of its ports derive.
    pub fn number(&self) -> NodeNumber {
        let in_cluster = self.copies().and_then(|copies| NodeNumber::new(copies.me().0.into()));
        // The copies may still be those of a cluster that the node has left for that place.
        self.place.get().or(in_cluster).unwrap_or(self.config.node_number)
    }

    /// Sets the node's number in a cluster that it cannot take part in now.
    pub fn set_place(&self, number: Option<NodeNumber>) {
        let before = self.number();
        self.place.set(number);
        self.renumber(before);
    }

    /// Lets sessions and units follow the node's number, in one step of this core.
    ///
    /// The cores do this one after the other. So whatever one core tells another about a unit, the receiver
    /// brings the names in it up to date ([`Unit::up_to_date`]).
    fn renumber(&self, before: NodeNumber) {
        let number = self.number();
        if number == before {
            return;
        }
        // Units first: they know their sessions by the names that these have had.
        self.units().iter().for_each(|unit| unit.renumber());
        self.sessions().iter().for_each(|session| session.renumber(number));
    }

    /// The portal group of the addresses that the node listens at. Floating addresses have their own.
    pub fn portal_group(&self) -> u16 {
        self.portal_group.get()
    }

    /// Sets the portal group of the addresses that the node listens at. Sessions keep that of their login.
    pub fn set_portal_group(&self, group: u16) {
        if self.portal_group.replace(group) != group {
            let access = self.access();
            self.units().iter().for_each(|unit| unit.look_at_targets(&access));
        }
    }

    /// The portal group of a node, if it is known.
    pub fn portal_group_of(&self, node: NodeNumber) -> Option<u16> {
        match node == self.number() {
            true => Some(self.portal_group()),
            false => self.peer_portals.borrow().get(&node).map(|portals| portals.group),
        }
    }

    /// The portals of another node.
    pub fn peer_portals(&self, node: NodeNumber) -> Option<NodePortals> {
        self.peer_portals.borrow().get(&node).cloned()
    }

    /// Sets the portals of the other nodes of the cluster.
    ///
    /// SendTargets returns them with each target that leads to a volume of those nodes, and the names of
    /// these nodes' ports contain their portal groups.
    pub fn set_peer_portals(&self, portals: BTreeMap<NodeNumber, NodePortals>) {
        let before = self.peer_portals.replace(portals);
        let is_new =
            |node: &NodeNumber| before.get(node).map(|portals| portals.group) != self.portal_group_of(*node);
        let access = self.access();
        for unit in self.units() {
            if unit.paths().others.keys().any(is_new) {
                unit.look_at_targets(&access);
            }
        }
    }

    /// A pool's disks on this core.
    pub fn disks(&self, pool: PoolId) -> Option<CoreDisks> {
        self.disks.borrow().get(&pool).cloned()
    }

    /// Adds the disks of a pool that was opened.
    pub fn add_disks(&self, pool: PoolId, disks: CoreDisks) {
        self.disks.borrow_mut().insert(pool, disks);
    }

    /// Removes the disks of a pool that was closed.
    pub fn remove_disks(&self, pool: PoolId) {
        let removed = self.disks.borrow_mut().remove(&pool);
        drop(removed);
    }

    /// One logical unit, on this core.
    pub fn unit(&self, id: VolumeId) -> Option<Rc<Unit>> {
        self.units.borrow().get(&id).cloned()
    }

    /// One volume, on this core.
    pub fn volume(&self, id: VolumeId) -> Option<Rc<Volume>> {
        self.units.borrow().get(&id).map(|unit| Rc::clone(unit.volume()))
    }

    /// The identities of all units.
    pub fn unit_ids(&self) -> Vec<VolumeId> {
        self.units.borrow().keys().copied().collect()
    }

    /// All units, by identity.
    pub fn units(&self) -> Vec<Rc<Unit>> {
        self.units.borrow().values().cloned().collect()
    }

    /// Adds a unit.
    pub fn add_unit(&self, unit: Rc<Unit>) {
        self.units.borrow_mut().insert(unit.id(), unit);
    }

    /// Removes a unit, waits until no command uses it, and returns its last state; `None` if another caller
    /// has removed it.
    ///
    /// That caller may have given up since, but its unit's commands may still be at a disk that hangs. So
    /// each caller waits for them: afterwards the blocks may belong to somebody else.
    pub async fn remove_unit(&self, id: VolumeId) -> Option<LuState> {
        let removed = self.units.borrow_mut().remove(&id);
        self.turns.borrow_mut().remove(&id);
        let state = match removed {
            Some(unit) => self.let_go(unit).await,
            None => None,
        };
        self.left.until(|| !self.leaving.borrow().contains_key(&id)).await;
        state
    }

    /// Waits until no command uses a removed unit, and none is at a disk; returns its last state.
    ///
    /// Sessions that see the unit look up their LUNs again: otherwise an idle session would keep the unit
    /// until it ends.
    async fn let_go(&self, removed: Rc<Unit>) -> Option<LuState> {
        for session in self.sessions() {
            let sees = session.view().luns().values().any(|unit| Rc::ptr_eq(unit, &removed));
            if sees {
                session.look_again();
            }
        }
        let id = removed.id();
        *self.leaving.borrow_mut().entry(id).or_default() += 1;
        let (gone, state) = oneshot();
        // In a task, because the caller may give up.
        rt::spawn(async move {
            let volume = Rc::clone(removed.volume());
            let state = removed.gone().await;
            volume.late_ended().await;
            drop(volume);
            Shard::current().note_left(id);
            gone.send(state);
        })
        .detach();
        state.await.ok().flatten()
    }

    fn note_left(&self, id: VolumeId) {
        if let Entry::Occupied(mut leaving) = self.leaving.borrow_mut().entry(id) {
            *leaving.get_mut() -= 1;
            if *leaving.get() == 0 {
                leaving.remove();
            }
        }
        self.left.notify();
    }

    /// Keeps a range of a slice of this core for a command of another core, which releases it by the returned
    /// number.
    pub fn keep_taken(&self, taken: TakenRange) -> usize {
        self.taken.borrow_mut().insert(taken)
    }

    /// Removes an entry of [`Shard::keep_taken`].
    pub fn give_back(&self, entry: usize) -> Option<TakenRange> {
        self.taken.borrow_mut().try_remove(entry)
    }

    /// Holds snapshots of this core's slices until [`Shard::drop_held`] is called with this number.
    pub fn keep_held(&self, number: u64, held: Vec<HeldSnapshot>) {
        self.held.borrow_mut().insert(number, held);
    }

    /// Lets snapshots go that are held under this number.
    pub fn drop_held(&self, number: u64) {
        let held = self.held.borrow_mut().remove(&number);
        drop(held);
    }

    /// Notes volumes whose pool is about to be reopened.
    ///
    /// Sessions that look up their LUNs meanwhile find them busy instead of missing.
    pub fn expect_back(&self, volumes: &BTreeSet<VolumeId>) {
        self.expected.borrow_mut().extend(volumes);
    }

    /// Notes that these volumes are back, or will not come back.
    pub fn stop_expecting(&self, volumes: &BTreeSet<VolumeId>) {
        self.expected.borrow_mut().retain(|volume| !volumes.contains(volume));
    }

    /// Whether a volume's pool is about to be reopened.
    pub fn is_expected(&self, volume: VolumeId) -> bool {
        self.expected.borrow().contains(&volume)
    }

    /// The current access rules.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access.borrow())
    }

    /// Installs new access rules. The sessions of this core that they concern look up their LUNs again.
    pub fn set_access(&self, access: Arc<Access>, concerned: &Concerned) {
        self.access.replace(access);
        for session in self.sessions() {
            if session.target().is_some_and(|target| concerned.target(target)) {
                session.look_again();
            }
        }
    }

    /// The sessions of this core, by TSIH.
    pub fn sessions(&self) -> Vec<Rc<Session>> {
        self.sessions.borrow().values().cloned().collect()
    }

    /// The session with this TSIH.
    pub fn session(&self, tsih: u16) -> Option<Rc<Session>> {
        self.sessions.borrow().get(&tsih).cloned()
    }

    /// Adds a session.
    pub fn add_session(&self, session: Rc<Session>) {
        self.sessions.borrow_mut().insert(session.tsih(), session);
        self.share_memory();
    }

    /// Removes a session.
    pub fn remove_session(&self, tsih: u16) {
        let removed = self.sessions.borrow_mut().remove(&tsih);
        drop(removed);
        self.share_memory();
    }

    /// Gives every session of this core its share of the core's memory for data.
    fn share_memory(&self) {
        let sessions = self.sessions.borrow();
        let share = self.config.data_bytes_max / rt::cores() / sessions.len().max(1);
        sessions.values().for_each(|session| session.set_data_bytes(share));
    }

    /// Whether the node is about to stop.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Refuses new logins from now on.
    pub fn drain(&self) {
        self.draining.set(true);
    }

    /// Waits for this unit's turn to change. The next change waits until the guard is dropped.
    pub async fn changes(&self, id: VolumeId) -> Turn {
        let turns =
            Rc::clone(self.turns.borrow_mut().entry(id).or_insert_with(|| Rc::new(Semaphore::new(1))));
        turns.acquire(1).await;
        Turn(turns)
    }

    /// Aborts the commands of these nexuses on a unit on this core, and waits until none of them can take
    /// effect.
    pub async fn abort_commands_of(&self, id: VolumeId, victims: &[ItNexus]) {
        let Some(unit) = self.unit(id) else { return };
        let victims: Vec<ItNexus> =
            victims.iter().map(|victim| victim.clone().renumbered(unit.up_to_date())).collect();
        let mut sessions = self.sessions();
        sessions.retain(|session| victims.contains(&session.name()));
        // All before the first wait: while it lasts their names may change, and their commands may end.
        let copies: Vec<_> = sessions.iter().map(|session| session.abort_on(&unit)).collect();
        for (session, copies) in sessions.iter().zip(&copies) {
            unit.drained(Waiting::Of(session.nexus())).await;
            session.ended(copies).await;
        }
        unit.volume().orphans_ended().await;
    }

    /// Aborts the commands of all sessions of this core on a unit (a reset), and waits until none of them can
    /// take effect.
    pub async fn abort_all(&self, id: VolumeId) {
        let Some(unit) = self.unit(id) else { return };
        let sessions = self.sessions();
        let copies: Vec<_> = sessions.iter().map(|session| session.abort_on(&unit)).collect();
        unit.drained(Waiting::All).await;
        for (session, copies) in sessions.iter().zip(&copies) {
            session.ended(copies).await;
        }
        unit.volume().orphans_ended().await;
    }
}

/// A unit's turn to change.
pub struct Turn(Rc<Semaphore>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

/// Runs an async function on every core, including this one, concurrently. Returns the results by core.
pub async fn on_all_cores<T, F>(function: impl FnOnce() -> F + Clone + Send + 'static) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let cores = (0..rt::cores()).map(|core| CoreId(core as u16));
    rt::join_all(cores.map(|core| rt::call(core, function.clone()))).await
}

/// How long a core may take to answer a question. No question takes that long: a core that exceeds it hangs.
const CORE_DEADLINE: Duration = Duration::from_secs(10);

/// A core does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} of the node has not responded for {seconds} seconds: this is a bug in Ursa, please report it; restart the node", seconds = CORE_DEADLINE.as_secs()
)]
pub struct SilentCore(CoreId);

/// Like [`on_all_cores`], for questions: fails if a core does not answer in time.
pub async fn ask_all_cores<T, F>(
    function: impl FnOnce() -> F + Clone + Send + 'static,
) -> Result<Vec<T>, SilentCore>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let answers = ask_each_core(CORE_DEADLINE, function).await;
    answers.into_iter().map(|(core, answer)| answer.ok_or(SilentCore(core))).collect()
}

/// Like [`on_all_cores`], for questions.
///
/// Returns what each core answers within `deadline`, by core; `None` if it does not answer.
pub async fn ask_each_core<T, F>(
    deadline: Duration,
    function: impl FnOnce() -> F + Clone + Send + 'static,
) -> Vec<(CoreId, Option<T>)>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let ask = |core| {
        let answer = rt::call(core, function.clone());
        async move { (core, rt::timeout(deadline, answer).await.ok()) }
    };
    let cores = (0..rt::cores()).map(|core| CoreId(core as u16));
    rt::join_all(cores.map(ask)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_does_not_answer_is_named_and_what_the_others_answer_is_kept() {
        const DEADLINE: Duration = Duration::from_secs(1);
        let world = rt::sim::World::new(1);
        let node = world.add_node("node", 3, |_| std::future::pending());
        let (answers, took) = world.block_on(node, CoreId(0), || async {
            let began = rt::now();
            let answers = ask_each_core(DEADLINE, || async {
                if rt::core() == CoreId(1) {
                    std::future::pending::<()>().await;
                }
                rt::core().0
            });
            (answers.await, rt::now() - began)
        });
        assert_eq!(answers, [(CoreId(0), Some(0)), (CoreId(1), None), (CoreId(2), Some(2))]);
        assert!((DEADLINE..2 * DEADLINE).contains(&took), "{took:?}");
    }
}
