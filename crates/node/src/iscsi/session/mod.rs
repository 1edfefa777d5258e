//! iSCSI sessions: bytes to commands, commands to units, responses to bytes.
//!
//! A session and all its connections live on one core. Its brain, [`proto::iscsi::target_role::Session`],
//! makes the decisions of the protocol; this module moves bytes and runs commands. A command that need not
//! wait (all of a RAM volume's) ends in the turn in which it arrived, so the responses to everything in one
//! receive leave in one send.

mod budget;
mod caller;
mod connection;
mod join;
mod task;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use base::Instant;
use proto::iscsi::target_role::{
    self as iscsi, CloseReason, Command, CommandId, ConnectionId, Event, TargetRecord, TaskCensus,
};
use proto::scsi::limits::TRANSFER_BYTES_MAX;
use proto::scsi::{
    InitiatorPort, ItNexus, Lun, NexusId, Outcome, RelativePort, Request, Status, Step, UnitAttention, absent,
};
use rt::sync::Notify;

use self::budget::Budget;
pub use self::caller::{Aborted, Caller};
use self::connection::Connection;
pub use self::join::{ConnectionSlot, NoConnectionSlot};
pub use self::view::View;
use crate::attach::access::{Barred, Claim, HostName, Target};
use crate::attach::port_numbers::NodeNumber;
use crate::attach::unit::Unit;
use crate::control::{SessionStatus, Traffic};
use crate::iscsi::portal;
use crate::shard::{FloatingPortal, Shard};

/// What every session may hold of write data, and again of responses: one command of the largest size.
const DATA_BYTES_MIN: usize = TRANSFER_BYTES_MAX as usize;

/// The operation code of EXTENDED COPY (SPC-4).
const EXTENDED_COPY: u8 = 0x83;

/// The initiator of a session, and the target that it logged in to.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The names of both ports at the login. Reservations belong to them.
    pub name: ItNexus,
    /// InitiatorAlias.
    pub alias: Option<String>,
    /// The target's name; `None` for discovery.
    pub target: Option<String>,
    /// The address of the first connection.
    pub address: SocketAddr,
    /// What its login has proved.
    pub claim: Claim,
}

/// The parameters of a new session.
#[derive(Clone, Debug)]
pub struct SessionParameters {
    /// Its number in the node.
    pub tsih: u16,
    /// Its number for units.
    pub nexus: NexusId,
    /// The initiator, and its target.
    pub peer: Peer,
    /// It follows an earlier session of the same names.
    pub again: bool,
}

/// A command that runs as a task of its own.
struct Running {
    /// The unit that it runs on.
    on: Rc<Unit>,
    /// The connection that it came on.
    cid: u16,
    /// It is a copy. A copy waits for no other command, and ends soon after it is aborted, so whatever aborts
    /// it can wait for its end.
    is_copy: bool,
    /// It must begin no further step.
    aborted: bool,
}

/// One session on its core.
pub struct Session {
    parameters: SessionParameters,
    /// The present number of its target port.
    port: Cell<RelativePort>,
    brain: RefCell<iscsi::Session>,
    /// The connections, including closed ones that still send what is left.
    connections: RefCell<BTreeMap<ConnectionId, Rc<Connection>>>,
    view: RefCell<Rc<View>>,
    /// The host groups whose LUNs it sees. If a group gets a secret later, the session stays in it until the
    /// next login.
    entered: RefCell<BTreeSet<HostName>>,
    /// What its commands may hold in addition to the data that came with them.
    budget: Budget,
    /// Commands that run as tasks of their own, including those that the brain has forgotten.
    running: RefCell<BTreeMap<CommandId, Running>>,
    /// Why the most recently closed connection was closed.
    closed_by: Cell<Option<CloseReason>>,
    /// Notified when running commands were aborted.
    aborted: Notify,
    /// Notified when a command has ended.
    command_ended: Notify,
    /// Notified when data may have arrived.
    arrived: Notify,
    /// Notified when the deadline may have become earlier.
    deadline_changed: Notify,
    /// The brain has reported the end of the session.
    ended: Cell<bool>,
    began: Instant,
}

impl Session {
    /// Creates a session on this core, and starts its timer.
    pub fn begin(parameters: SessionParameters) -> Rc<Session> {
        let shard = Shard::current();
        let config = shard.config();
        let brain = iscsi::Session::new(
            iscsi::SessionConfig {
                tsih: parameters.tsih,
                commands_max: config.commands_max,
                data_bytes_max: DATA_BYTES_MIN,
                nop_interval: config.nop_interval,
                drain_time: config.drain_deadline,
            },
            parameters.peer.target.is_none(),
        );
        let view = View::empty(parameters.peer.name.clone());
        let port = parameters.peer.name.port;
        // The node may have got another number during the login. A discovery session has no port.
        let port = if parameters.peer.target.is_some() { shard.number().same_port(port) } else { port };
        let session = Rc::new(Session {
            view: RefCell::new(Rc::new(view)),
            entered: RefCell::default(),
            budget: Budget::new(DATA_BYTES_MIN),
            parameters,
            port: Cell::new(port),
            brain: RefCell::new(brain),
            connections: RefCell::default(),
            running: RefCell::default(),
            closed_by: Cell::new(None),
            aborted: Notify::new(),
            command_ended: Notify::new(),
            arrived: Notify::new(),
            deadline_changed: Notify::new(),
            ended: Cell::new(false),
            began: rt::now(),
        });
        shard.add_session(Rc::clone(&session));
        session.look_again();
        rt::spawn(Rc::clone(&session).keep_time()).detach();
        session
    }

    /// Its number in the node.
    pub fn tsih(&self) -> u16 {
        self.parameters.tsih
    }

    /// Its number for units.
    pub fn nexus(&self) -> NexusId {
        self.parameters.nexus
    }

    /// The names of both ports.
    pub fn name(&self) -> ItNexus {
        ItNexus { port: self.port.get(), ..self.parameters.peer.name.clone() }
    }

    /// Gives its target port the number that it has on the node of this number.
    pub fn renumber(self: &Rc<Session>, node: NodeNumber) {
        if self.target().is_some() {
            self.port.set(node.same_port(self.port.get()));
            // For a view with that name.
            self.look_again();
        }
    }

    /// The name of its target; `None` for discovery.
    pub fn target(&self) -> Option<&str> {
        self.parameters.peer.target.as_deref()
    }

    /// Whether a login with the names of this session and this claim may act for it: join it, or replace one
    /// of its connections or all of it.
    ///
    /// # Errors
    /// The login would not enter all host groups that this session has entered.
    pub fn admits(&self, claim: &Claim) -> Result<(), Barred> {
        Shard::current().access().acts_for(self.name().initiator.name(), &self.entered.borrow(), claim)
    }

    /// Its state, for administrators.
    pub fn status(&self) -> SessionStatus {
        let counters = self.brain.borrow().counters();
        let InitiatorPort::Iscsi { name, isid } = &self.parameters.peer.name.initiator;
        SessionStatus {
            tsih: self.parameters.tsih,
            initiator: name.to_string(),
            alias: self.parameters.peer.alias.clone(),
            isid: *isid,
            target: self.parameters.peer.target.clone(),
            core: rt::core(),
            addresses: self
                .connections
                .borrow()
                .values()
                .filter(|connection| !connection.is_finishing())
                .map(|connection| connection.peer_address())
                .collect(),
            age: rt::now().since(self.began),
            traffic: Traffic {
                commands: counters.commands,
                bytes_received: counters.bytes_received,
                bytes_sent: counters.bytes_sent,
            },
        }
    }

    /// How many of its commands have arrived and are not completely answered.
    pub fn commands_under_way(&self) -> usize {
        let TaskCensus { collecting, refusing, running, answering } = self.brain.borrow().census();
        collecting + refusing + running + answering
    }

    /// Its current view.
    pub fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// Whether one of its connections uses this address of the node.
    pub fn comes_through(&self, address: IpAddr) -> bool {
        let connections = self.connections.borrow();
        connections.values().any(|connection| connection.local_address().ip().to_canonical() == address)
    }

    /// Ends the session, for this reason.
    pub fn end(self: &Rc<Session>, reason: CloseReason) {
        self.brain.borrow_mut().end(reason, rt::now());
        self.deadline_changed.notify();
        self.pump();
    }

    /// Sets how much it may hold from now on, of write data and of responses each.
    pub fn set_data_bytes(&self, bytes: usize) {
        let bytes = bytes.max(DATA_BYTES_MIN);
        self.brain.borrow_mut().set_data_bytes_max(bytes);
        self.budget.set_max(bytes);
    }

    fn empty_view(&self) -> View {
        View::empty(self.name())
    }

    /// Looks up its LUNs again, after the access rules have changed.
    pub fn look_again(self: &Rc<Session>) {
        let Some(target) = self.target() else { return };
        if self.ended.get() {
            return;
        }
        let shard = Shard::current();
        let access = shard.access();
        let (initiator, claim) = (self.parameters.peer.name.initiator.name(), &self.parameters.peer.claim);
        let address = claim.address;
        let mut addresses: Vec<IpAddr> =
            self.connections.borrow().values().map(|connection| connection.peer_address().ip()).collect();
        addresses.push(address);
        if addresses.iter().any(|address| access.admit(target, initiator, *address).is_err()) {
            // It has time to log out, but sees no LUNs from now on.
            self.end(CloseReason::Drained);
        }
        let luns = {
            let mut entered = self.entered.borrow_mut();
            entered.retain(|host| {
                access.host(host.as_str()).is_some_and(|host| host.contains(initiator, address))
            });
            entered.extend(access.enters(target, initiator, claim));
            access.luns(target, initiator, address, &entered)
        };
        let luns = luns.into_iter().filter_map(|(lun, volume)| Some((Lun::new(lun)?, volume)));
        let old = self.view();
        let new = Rc::new(self.empty_view().of(luns, &shard));
        let is_other_list = old.inventory() != new.inventory();
        let seen = |view: &View, unit: &Rc<Unit>| view.luns().values().any(|other| Rc::ptr_eq(other, unit));
        let nexus = self.parameters.nexus;
        for unit in old.luns().values().filter(|unit| !seen(&new, unit)) {
            let unit = Rc::clone(unit);
            rt::spawn(async move { unit.detach(nexus).await }).detach();
        }
        for unit in new.luns().values() {
            if !seen(&old, unit) {
                // Unflushed writes to a volume whose pool was reopened may be lost, as after a power cut.
                // Report that, and not only that the session is new.
                let again =
                    self.parameters.again && !old.inventory().values().any(|volume| *volume == unit.id());
                unit.attach(self.parameters.nexus, self.name(), again);
            } else if is_other_list {
                unit.brain()
                    .borrow_mut()
                    .attention(self.parameters.nexus, UnitAttention::ReportedLunsChanged);
            }
        }
        self.view.replace(new);
    }

    /// Aborts the commands to `unit`.
    ///
    /// A step that has not begun will not begin. What is at the volume runs to its end, and is then answered
    /// with TASK ABORTED. Returns the commands whose end the caller can await in addition to what is at the
    /// volume ([`Session::ended`]).
    pub fn abort_on(self: &Rc<Session>, unit: &Rc<Unit>) -> Vec<CommandId> {
        let is_on = |running: &Running| Rc::ptr_eq(&running.on, unit);
        let ids: Vec<(CommandId, bool)> = {
            let running = self.running.borrow();
            let on = running.iter().filter(|(_, running)| is_on(running));
            on.map(|(id, running)| (*id, running.is_copy)).collect()
        };
        ids.iter().for_each(|(id, _)| self.brain.borrow_mut().abort(*id, true));
        self.stop(is_on);
        let view = self.view();
        for (lun, _) in view.luns().iter().filter(|(_, other)| Rc::ptr_eq(other, unit)) {
            self.brain.borrow_mut().abort_waiting(*lun);
        }
        self.pump();
        ids.into_iter().filter(|(_, is_copy)| *is_copy).map(|(id, _)| id).collect()
    }

    /// Marks running commands so that they begin no further step.
    fn stop(&self, which: impl Fn(&Running) -> bool) {
        self.running
            .borrow_mut()
            .values_mut()
            .filter(|running| which(running))
            .for_each(|running| running.aborted = true);
        self.aborted.notify();
    }

    /// Handles all events of the brain, and lets the connections send.
    fn pump(self: &Rc<Session>) {
        loop {
            let event = self.brain.borrow_mut().poll_event();
            let Some(event) = event else { break };
            match event {
                Event::Command(command) => self.run(command),
                Event::Task { id, function, lun, abort } => {
                    rt::spawn(Rc::clone(self).manage_task(id, function, lun, abort)).detach();
                }
                Event::SendTargets { id, target } => {
                    let targets = self.visible_targets(target.as_deref());
                    self.brain.borrow_mut().send_targets(id, &targets);
                }
                Event::Logout { id, cid } => {
                    self.stop(|running| cid.is_none_or(|cid| running.cid == cid));
                    rt::spawn(Rc::clone(self).log_out(id, cid)).detach();
                }
                // Commands whose responses have no recipient any more still run to their end. They stay in
                // `running`, so that others can wait for it.
                Event::Close { id, reason } => {
                    self.closed_by.set(Some(reason));
                    self.stop(|running| running.cid == id.cid);
                    tracing::debug!(tsih = self.parameters.tsih, cid = id.cid, ?reason, "connection closes");
                    let connection = self.connections.borrow().get(&id).cloned();
                    match connection {
                        Some(connection) if reason == CloseReason::Reinstated => connection.cut(),
                        Some(connection) => connection.finish(),
                        // The connection broke before the brain closed it.
                        None => self.brain.borrow_mut().remove_connection(id),
                    }
                }
                Event::End => self.remove_after_last_command(),
            }
        }
        self.count_answers();
        self.arrived.notify();
        for connection in self.connections.borrow().values() {
            connection.look();
        }
    }

    /// Updates the budget with the size of the responses that are not sent.
    fn count_answers(&self) {
        self.budget.set_queued(self.brain.borrow().answer_bytes());
    }

    /// Runs one command: to its end if it need not wait, otherwise as a task.
    fn run(self: &Rc<Session>, command: Command) {
        let Command { id, cid, lun, cdb, data_out } = command;
        let view = self.view();
        let Some(unit) = view.unit(lun).cloned() else {
            let outcome = match absent(&cdb) {
                Step::ReportLuns(report) => view.report(self.parameters.nexus, &report),
                // So that the initiator tries again and does not consider the unit gone.
                _ if view.is_away(lun) => Outcome::status(Status::Busy),
                Step::Done(outcome) => outcome,
                step => unreachable!("without a unit there is nothing to do for {step:?}"),
            };
            self.brain.borrow_mut().complete(id, outcome);
            return;
        };
        let is_copy = cdb.0[0] == EXTENDED_COPY;
        let request = Request { nexus: self.parameters.nexus, cdb, data_out };
        let on = Rc::clone(&unit);
        let caller = Caller::new(Rc::clone(self), id, cid);
        let mut execution = Box::pin(async move { unit.execute(&caller, request).await });
        match execution.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => self.brain.borrow_mut().complete(id, outcome),
            Poll::Pending => {
                self.running.borrow_mut().insert(id, Running { on, cid, is_copy, aborted: false });
                let session = Rc::clone(self);
                rt::spawn(async move { session.finish(id, execution.await) }).detach();
            }
        }
    }

    fn ask_for_word(self: &Rc<Session>, cid: u16) {
        self.brain.borrow_mut().ask_for_word(cid, rt::now());
        self.deadline_changed.notify();
        for connection in self.connections.borrow().values() {
            connection.look();
        }
    }

    fn finish(self: &Rc<Session>, id: CommandId, outcome: Outcome) {
        let ended = self.running.borrow_mut().remove(&id);
        drop(ended);
        self.brain.borrow_mut().complete(id, outcome);
        self.command_ended.notify();
        self.pump();
    }

    fn visible_targets(&self, one: Option<&str>) -> Vec<TargetRecord> {
        let shard = Shard::current();
        let peer = &self.parameters.peer;
        // A host that asks at a floating address must use that address alone, on whichever node it is: other
        // portals do not move with it. A host that asks at another portal gets those of all nodes; with a
        // floating one it would reach one of them twice.
        let floating = self.floating_portals(&shard);
        let local: Vec<SocketAddr> =
            self.connections.borrow().values().map(|connection| connection.local_address()).collect();
        let own = match floating.is_empty() {
            true => portal::addresses(&shard.portals(), &local, shard.portal_group()),
            false => floating.iter().map(FloatingPortal::target_address).collect(),
        };
        let access = shard.access();
        let (initiator, claim) = (peer.name.initiator.name(), &peer.claim);
        let targets: Vec<&Target> = match shard.config().discovery_chap {
            true => access.visible_with(initiator, claim).collect(),
            false => access.visible(initiator, claim.address).collect(),
        };
        targets
            .into_iter()
            .filter(|target| one.is_none_or(|one| one == target.name.as_str()))
            .map(|target| {
                let mut addresses = own.clone();
                if floating.is_empty() {
                    addresses.extend(peer_addresses(&shard, target));
                }
                TargetRecord { name: target.name.to_string(), addresses }
            })
            .collect()
    }

    /// The portals of floating addresses that its connections use.
    fn floating_portals(&self, shard: &Shard) -> Vec<FloatingPortal> {
        let mut portals = shard.floating();
        portals.retain(|portal| self.comes_through(portal.portal.ip()));
        portals
    }

    /// Removes the session, which is over, when the last of its commands has returned from its volume.
    fn remove_after_last_command(self: &Rc<Session>) {
        if self.ended.replace(true) {
            return;
        }
        // Do not keep the units: one that is closed before the last command has ended needs no detach.
        let units = self.view.replace(Rc::new(self.empty_view())).units();
        self.deadline_changed.notify();
        self.stop(|_| true);
        let session = Rc::clone(self);
        rt::spawn(async move {
            // A write that is still at a disk must not land after what the initiator writes in its next
            // session, so that one begins (see `portal`) when the last command of this one has ended.
            session.quiet(None).await;
            for unit in units {
                unit.detach(session.parameters.nexus).await;
            }
            // Only now may a login of the same names begin: otherwise what the new session acquires could be
            // dropped as the old one's.
            Shard::current().remove_session(session.parameters.tsih);
            portal::session_ended(session.parameters.tsih, session.closed_by.get());
        })
        .detach();
        tracing::info!(
            tsih = self.parameters.tsih,
            initiator = %self.parameters.peer.name.initiator,
            target = self.parameters.peer.target,
            "session ended"
        );
    }

    /// Calls the brain when its deadlines pass.
    async fn keep_time(self: Rc<Session>) {
        while !self.ended.get() {
            let deadline = self.brain.borrow().deadline();
            let changed = pin!(self.deadline_changed.notified());
            match deadline {
                None => changed.await,
                Some(deadline) => {
                    let until = deadline.since(rt::now());
                    if rt::timeout(until, changed).await.is_err() {
                        self.brain.borrow_mut().handle_timeout(rt::now());
                        self.pump();
                    }
                }
            }
        }
    }
}

/// The portals of other nodes that lead to a target: of the nodes that have a copy of one of its volumes.
fn peer_addresses(shard: &Shard, target: &Target) -> Vec<String> {
    let units = target.maps.iter().filter_map(|map| shard.unit(map.volume));
    let nodes: BTreeSet<NodeNumber> = units.flat_map(|unit| unit.paths().others.into_keys()).collect();
    let portals = nodes.into_iter().filter_map(|node| shard.peer_portals(node));
    portals.flat_map(|portals| portal::target_addresses(&portals.addresses, portals.group)).collect()
}
