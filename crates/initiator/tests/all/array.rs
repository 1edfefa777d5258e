//! A simulated storage array: one unit behind several controllers, built on the brains of `proto`.
//!
//! It is as slow and as persistent as a scenario requires: it executes whatever has reached a controller,
//! even if the session ended long ago.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base::{BlockCount, BlockSize, Chain, LbaRange, SendBatch};
use proto::block::{BlockDone, BlockError, BlockOp};
use proto::iscsi::target_role::{
    CloseReason, Command, CommandId, ConnectionId, Event, Session, SessionConfig, SessionKind, TargetRecord,
    TaskResponse,
};
use proto::scsi::limits::AtomicWrites;
use proto::scsi::{
    AccessState, Identity, InitiatorPort, ItNexus, LogicalUnit, LuConfig, LuState, Lun, NexusId, Outcome,
    PortGroup, RelativePort, Request, Status, Step, TargetPort, absent,
};
use rt::sim::{NodeId, World};
use rt::sync::Notify;
use rt::{CoreId, Listener, Stream};

use crate::ram_target::{NAME, log_in};

pub(crate) const BLOCKS: u64 = 2048;
pub(crate) const BLOCK: BlockSize = BlockSize::B512;

/// The array, the world that it is in, and a client.
pub(crate) struct Array {
    pub(crate) world: World,
    pub(crate) controllers: Vec<NodeId>,
    pub(crate) client: NodeId,
    pub(crate) shared: Rc<Shared>,
    portals: Vec<Vec<SocketAddr>>,
}

/// The state that all controllers share.
pub(crate) struct Shared {
    unit: RefCell<LogicalUnit>,
    memory: RefCell<Vec<u8>>,
    sessions: RefCell<Vec<Rc<Nexus>>>,
    next: Cell<u64>,
    /// The duration of commands that change data, by controller.
    pub(crate) write_time: RefCell<Vec<Range<Duration>>>,
    /// One in this many commands that change data is executed and never answered; zero means none.
    pub(crate) swallow_one_in: Cell<u64>,
    /// Answer this many commands with BUSY.
    pub(crate) busy: Cell<u32>,
    /// TEST UNIT READY reports that the disk accepts no writes.
    pub(crate) needs_help: Cell<bool>,
    /// The portal groups that logins are told, by controller.
    pub(crate) login_groups: RefCell<Vec<u16>>,
    /// Do not end a session that a login of the same names replaces: a defect that no real array should have.
    pub(crate) forgets_to_reinstate: Cell<bool>,
    /// Commands that have changed data.
    pub(crate) writes: Cell<u64>,
}

/// A session with a controller.
struct Nexus {
    id: NexusId,
    name: ItNexus,
    controller: usize,
    stream: Stream,
    brain: RefCell<Session>,
    output: Notify,
    running: RefCell<BTreeSet<CommandId>>,
    /// Notified when a command has ended.
    ended: Notify,
    over: Cell<bool>,
}

fn config(controllers: usize, naa: u8) -> LuConfig {
    let group = |number: u16| PortGroup {
        id: number,
        state: AccessState::ActiveOptimized,
        preferred: false,
        ports: vec![TargetPort {
            relative: RelativePort(number),
            target: NAME.into(),
            portal_group: Some(number),
        }],
    };
    let mut name = [naa; 16];
    name[0] = 0x60;
    LuConfig {
        identity: Identity {
            vendor: "URSA".into(),
            product: "ARRAY".into(),
            revision: "1".into(),
            serial: "1".into(),
            naa: name,
            eui64: [naa; 8],
        },
        block_size: BLOCK,
        physical_exponent: 3,
        blocks: BlockCount(BLOCKS),
        unmap: true,
        solid_state: true,
        read_only: false,
        atomic: AtomicWrites::default(),
        thresholds: None,
        unlisted: AccessState::ActiveOptimized,
        port_groups: (1..=controllers as u16).map(group).collect(),
    }
}

impl Array {
    /// Controllers, each with this number of portals, every portal in its own network.
    pub(crate) fn new(seed: u64, portals: &[usize]) -> Array {
        let world = World::new(seed);
        let client = world.add_node("client", 1, |_| std::future::pending());
        let shared = Rc::new(Shared {
            unit: RefCell::new(LogicalUnit::new(config(portals.len(), 0x11), LuState::default())),
            memory: RefCell::new(vec![0; BLOCKS as usize * BLOCK.bytes() as usize]),
            sessions: RefCell::default(),
            next: Cell::new(1),
            write_time: RefCell::new(vec![Duration::ZERO..Duration::from_micros(1); portals.len()]),
            swallow_one_in: Cell::new(0),
            busy: Cell::new(0),
            needs_help: Cell::new(false),
            login_groups: RefCell::new((1..=portals.len() as u16).collect()),
            forgets_to_reinstate: Cell::new(false),
            writes: Cell::new(0),
        });
        let mut network = 0;
        let mut controllers = Vec::new();
        let mut addresses: Vec<Vec<SocketAddr>> = Vec::new();
        for (number, count) in portals.iter().enumerate() {
            let node = world.add_machine(&format!("controller {number}"), 1);
            controllers.push(node);
            let mut own = Vec::new();
            for _ in 0..*count {
                network += 1;
                let [array, host] = [1, 2].map(|host| IpAddr::from(Ipv4Addr::new(10, 1, network, host)));
                world.add_address(node, array);
                world.add_address(client, host);
                own.push(SocketAddr::new(array, 3260));
            }
            addresses.push(own);
        }
        let array = Array { world, controllers, client, shared, portals: addresses };
        (0..portals.len()).for_each(|number| array.start(number));
        array
    }

    /// Starts a controller, for the first time or again.
    pub(crate) fn start(&self, number: usize) {
        let node = self.controllers[number];
        let (shared, own) = (Rc::clone(&self.shared), self.portals[number].clone());
        let all: Vec<String> = (1..)
            .zip(&self.portals)
            .flat_map(|(group, portals)| portals.iter().map(move |portal| format!("{portal},{group}")))
            .collect();
        self.world.restart(node, move |_| {
            let (shared, own, all) = (Rc::clone(&shared), own.clone(), all.clone());
            async move {
                // The contents of the controller's memory are lost.
                shared.sessions.borrow_mut().retain(|nexus| nexus.controller != number);
                let serve =
                    own.into_iter().map(|portal| Rc::clone(&shared).listen(portal, number, all.clone()));
                rt::join_all(serve).await;
            }
        });
    }

    pub(crate) fn portal(&self, controller: usize, portal: usize) -> SocketAddr {
        self.portals[controller][portal]
    }

    pub(crate) fn all_portals(&self) -> Vec<SocketAddr> {
        self.portals.concat()
    }

    /// Cuts the network of a portal, in both directions.
    pub(crate) fn cut(&self, controller: usize, portal: usize) {
        let (array, host) = self.ends(controller, portal);
        self.world.cut_addresses_one_way(array, host);
        self.world.cut_addresses_one_way(host, array);
    }

    pub(crate) fn heal(&self, controller: usize, portal: usize) {
        let (array, host) = self.ends(controller, portal);
        self.world.heal_addresses_one_way(array, host);
        self.world.heal_addresses_one_way(host, array);
    }

    /// Cuts one direction: what the client sends does not arrive; what the array sends does.
    pub(crate) fn cut_requests(&self, controller: usize, portal: usize) {
        let (array, host) = self.ends(controller, portal);
        self.world.cut_addresses_one_way(host, array);
    }

    fn ends(&self, controller: usize, portal: usize) -> (IpAddr, IpAddr) {
        let IpAddr::V4(array) = self.portal(controller, portal).ip() else { unreachable!("made above") };
        let [a, b, c, _] = array.octets();
        (array.into(), Ipv4Addr::new(a, b, c, 2).into())
    }

    /// Sets the access state of a controller's group.
    pub(crate) fn set_access(&self, controller: usize, state: AccessState) {
        let mut unit = self.shared.unit.borrow_mut();
        let mut config = unit.config().clone();
        config.port_groups[controller].state = state;
        unit.reconfigure(config);
    }

    /// Replaces the unit by another one, as if an administrator had mapped it to the same LUN.
    pub(crate) fn replace_unit(&self) {
        let mut unit = self.shared.unit.borrow_mut();
        let port_groups = unit.config().port_groups.clone();
        unit.reconfigure(LuConfig { port_groups, ..config(self.controllers.len(), 0x22) });
    }

    /// Doubles the number of blocks.
    pub(crate) fn grow(&self) {
        let mut unit = self.shared.unit.borrow_mut();
        let config = LuConfig { blocks: BlockCount(BLOCKS * 2), ..unit.config().clone() };
        unit.reconfigure(config);
        self.shared.memory.borrow_mut().resize(2 * BLOCKS as usize * BLOCK.bytes() as usize, 0);
    }

    /// The content of a block.
    pub(crate) fn content(&self, block: u64) -> Vec<u8> {
        let range = LbaRange::new(base::Lba(block), BlockCount(1)).unwrap();
        self.shared.memory.borrow()[bytes(range)].to_vec()
    }

    /// Runs a client to its end.
    pub(crate) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        function: impl FnOnce() -> F + 'static,
    ) -> T {
        self.world.block_on(self.client, CoreId(0), function)
    }
}

impl Shared {
    async fn listen(self: Rc<Shared>, portal: SocketAddr, controller: usize, all: Vec<String>) {
        let listener = Listener::bind(portal).await.unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            rt::spawn(Rc::clone(&self).serve(stream.attach(), controller, all.clone())).detach();
        }
    }

    async fn serve(self: Rc<Shared>, stream: Stream, controller: usize, all: Vec<String>) {
        let group = controller as u16 + 1;
        let login_group = self.login_groups.borrow()[controller];
        let name = Rc::new(RefCell::new(None));
        let login = log_in(&stream, None, login_group, async |request| {
            let initiator =
                InitiatorPort::Iscsi { name: Arc::from(request.initiator.as_str()), isid: request.isid };
            let nexus = ItNexus { initiator, port: RelativePort(group) };
            if request.kind == SessionKind::Normal && !self.forgets_to_reinstate.get() {
                self.end_sessions(&nexus).await;
            }
            name.replace(Some(nexus));
        });
        let (Some(login), Some(name)) = (login.await, name.take()) else { return };
        let config = SessionConfig {
            tsih: 1,
            commands_max: 64,
            data_bytes_max: 16 << 20,
            nop_interval: Duration::from_secs(60),
            drain_time: Duration::from_secs(10),
        };
        let mut brain = Session::new(config, login.request.kind == SessionKind::Discovery);
        let connection = brain.expect_connection(login.request.cid).unwrap();
        brain.add_connection(connection, login.negotiated, login.stat_sn, login.exp_cmd_sn, rt::now());
        let id = NexusId(self.next.replace(self.next.get() + 1));
        let nexus = Rc::new(Nexus {
            id,
            name: name.clone(),
            controller,
            stream,
            brain: RefCell::new(brain),
            output: Notify::new(),
            running: RefCell::default(),
            ended: Notify::new(),
            over: Cell::new(false),
        });
        self.unit.borrow_mut().attach_nexus(id, name, false);
        self.sessions.borrow_mut().push(Rc::clone(&nexus));
        nexus.brain.borrow_mut().handle_bytes(connection, &login.leftover, rt::now());
        rt::spawn(Rc::clone(&nexus).send(connection)).detach();
        self.receive(&nexus, connection, &all).await;
        nexus.over.set(true);
        nexus.stream.shutdown();
        nexus.output.notify();
        // The session is forgotten when the last of its commands has ended.
        while !nexus.running.borrow().is_empty() {
            nexus.ended.notified().await;
        }
        self.sessions.borrow_mut().retain(|other| other.id != id);
        let _ = self.unit.borrow_mut().detach_nexus(id);
        nexus.ended.notify();
    }

    /// RFC 7143 6.3.5: a login replaces the session of the same names, whose commands end before the login is
    /// answered.
    async fn end_sessions(&self, name: &ItNexus) {
        let old: Vec<_> =
            self.sessions.borrow().iter().filter(|nexus| nexus.name == *name).cloned().collect();
        for nexus in old {
            nexus.over.set(true);
            nexus.stream.shutdown();
            while !nexus.running.borrow().is_empty() {
                nexus.ended.notified().await;
            }
        }
    }

    async fn receive(self: &Rc<Shared>, nexus: &Rc<Nexus>, connection: ConnectionId, all: &[String]) {
        loop {
            self.pump(nexus, all);
            let in_place = nexus.brain.borrow_mut().take_in_place(connection);
            let now = rt::now();
            match in_place {
                Some(place) => match nexus.stream.receive_exact(place.buf, place.filled).await {
                    Ok(buf) if !nexus.over.get() => {
                        nexus.brain.borrow_mut().handle_in_place(connection, buf, now)
                    }
                    _ => return,
                },
                None => match nexus.stream.receive().await {
                    Ok(bytes) if !bytes.is_empty() && !nexus.over.get() => {
                        nexus.brain.borrow_mut().handle_bytes(connection, &bytes, now);
                    }
                    _ => return,
                },
            }
        }
    }

    fn pump(self: &Rc<Shared>, nexus: &Rc<Nexus>, all: &[String]) {
        loop {
            let event = nexus.brain.borrow_mut().poll_event();
            match event {
                None => break,
                Some(Event::Command(command)) => self.execute(nexus, command),
                Some(Event::Task { id, abort, .. }) => {
                    let nexus = Rc::clone(nexus);
                    rt::spawn(async move {
                        while abort.iter().any(|id| nexus.running.borrow().contains(id)) {
                            nexus.ended.notified().await;
                        }
                        nexus.brain.borrow_mut().task_done(id, TaskResponse::Complete);
                        nexus.output.notify();
                    })
                    .detach();
                }
                Some(Event::SendTargets { id, .. }) => {
                    let record = TargetRecord { name: NAME.into(), addresses: all.to_vec() };
                    nexus.brain.borrow_mut().send_targets(id, &[record]);
                }
                Some(Event::Close { reason, .. }) => {
                    if reason != CloseReason::LoggedOut {
                        nexus.stream.shutdown();
                    }
                }
                Some(Event::Logout { id, .. }) => nexus.brain.borrow_mut().logout_done(id, true),
                Some(Event::End) => {}
            }
        }
        nexus.output.notify();
    }

    fn execute(self: &Rc<Shared>, nexus: &Rc<Nexus>, command: Command) {
        let id = command.id;
        nexus.running.borrow_mut().insert(id);
        let (shared, nexus) = (Rc::clone(self), Rc::clone(nexus));
        rt::spawn(async move {
            let outcome = shared.outcome(&nexus, command).await;
            nexus.running.borrow_mut().remove(&id);
            nexus.ended.notify();
            if let Some(outcome) = outcome {
                nexus.brain.borrow_mut().complete(id, outcome);
                nexus.output.notify();
            }
        })
        .detach();
    }

    /// The answer to a command, if there is one.
    async fn outcome(&self, nexus: &Nexus, command: Command) -> Option<Outcome> {
        if command.lun != [0; 8] {
            return Some(match absent(&command.cdb) {
                Step::ReportLuns(report) => report.answer(&[Lun::new(0).unwrap()]),
                Step::Done(outcome) => outcome,
                step => unreachable!("without a unit there is nothing to do for {step:?}"),
            });
        }
        let request = Request { nexus: nexus.id, cdb: command.cdb, data_out: command.data_out };
        let step = self.unit.borrow_mut().start(request);
        Some(match step {
            Step::Done(outcome) => outcome,
            Step::ReportLuns(report) => report.answer(&[Lun::new(0).unwrap()]),
            Step::Block(pending, BlockOp::TestReady) => {
                let ready =
                    if self.needs_help.get() { Err(BlockError::Offline) } else { Ok(BlockDone::Done) };
                self.unit.borrow_mut().finish(pending, ready)
            }
            Step::Block(pending, operation) => {
                if self.busy.get() > 0 {
                    self.busy.set(self.busy.get() - 1);
                    return Some(Outcome::status(Status::Busy));
                }
                let changes = !matches!(operation, BlockOp::Read { .. } | BlockOp::Flush);
                if changes {
                    let time = self.write_time.borrow()[nexus.controller].clone();
                    let spread = (time.end - time.start).as_nanos() as u64;
                    rt::sleep(time.start + Duration::from_nanos(rt::random() % spread.max(1))).await;
                    self.writes.set(self.writes.get() + 1);
                }
                let result = self.perform(operation);
                let one_in = self.swallow_one_in.get();
                if changes && one_in > 0 && rt::random().is_multiple_of(one_in) {
                    return None;
                }
                self.unit.borrow_mut().finish(pending, result)
            }
            Step::Change(change) => {
                let mut unit = self.unit.borrow_mut();
                let decision = unit.decide(&change);
                unit.install(decision.state, &decision.notices);
                decision.outcome
            }
            Step::Copy(..) => unreachable!("no scenario copies"),
        })
    }

    /// Simulates a write of another host.
    pub(crate) fn overwrite(&self, block: u64, data: &Chain) {
        let range = LbaRange::new(base::Lba(block), BlockCount(1)).unwrap();
        data.copy_to(&mut self.memory.borrow_mut()[bytes(range)]);
    }

    fn perform(&self, operation: BlockOp) -> Result<BlockDone, BlockError> {
        let mut memory = self.memory.borrow_mut();
        match operation {
            BlockOp::Read { range, .. } => {
                return Ok(BlockDone::Data(Chain::copy_of(&memory[bytes(range)])));
            }
            BlockOp::Write { range, data, .. } => data.copy_to(&mut memory[bytes(range)]),
            BlockOp::CompareAndWrite { range, compare, write, .. } => {
                let place = &mut memory[bytes(range)];
                let compare = compare.to_vec();
                if let Some(at) = place.iter().zip(&compare).position(|(a, b)| a != b) {
                    return Err(BlockError::Miscompare(at as u64));
                }
                write.copy_to(place);
            }
            BlockOp::Unmap { ranges, .. } => {
                ranges.into_iter().for_each(|range| memory[bytes(range)].fill(0));
            }
            BlockOp::Flush => {}
            other => unreachable!("no scenario does {other:?}"),
        }
        Ok(BlockDone::Done)
    }
}

fn bytes(range: LbaRange) -> Range<usize> {
    let size = BLOCK.bytes() as usize;
    range.start.0 as usize * size..range.end().0 as usize * size
}

impl Nexus {
    async fn send(self: Rc<Nexus>, connection: ConnectionId) {
        let mut batch = SendBatch::new();
        while !self.over.get() {
            self.brain.borrow_mut().poll_transmit(connection, &mut batch, 1 << 20);
            if batch.is_empty() {
                if self.brain.borrow().connections_open() == 0 {
                    self.stream.shutdown();
                    return;
                }
                self.output.notified().await;
                continue;
            }
            match self.stream.send(std::mem::take(&mut batch)).await {
                Ok(sent) => batch = sent,
                Err(_) => return,
            }
        }
    }
}
