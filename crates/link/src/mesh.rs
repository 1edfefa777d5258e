//! What core 0 knows of all links: the members, the lives of them that were seen, and the connections that
//! are up.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use replica::{Incarnation, NodeId};
use rt::CoreId;
use rt::sync::{Notify, Semaphore, oneshot};

use crate::endpoint::Endpoint;
use crate::hello::{Hello, Refusal, Refused};
use crate::join::Admission;
use crate::link::{End, Identity};
use crate::log_throttle::LogThrottle;
use crate::tls::Configs;
use crate::wire::{DetachedWire, Wire};
use crate::{ClusterId, Limits, LinkName, LinkTrouble, Peer, PeerState, Protocol, Role, dialler};

/// Core 0's state of all links; [`rt::local`] finds it there.
pub(crate) struct Mesh {
    pub(crate) me: NodeId,
    pub(crate) cluster: ClusterId,
    pub(crate) generation: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) cores: u16,
    pub(crate) protocol: Protocol,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Configs>,
    /// What was logged and need not be logged again.
    pub(crate) log_throttle: LogThrottle,
    members: RefCell<BTreeMap<NodeId, Rc<Member>>>,
    /// The latest life of each node that was seen, including removed nodes.
    lives: RefCell<BTreeMap<NodeId, Incarnation>>,
    next_serial: Cell<u64>,
    next_attempt: Cell<u64>,
    stopped: Cell<bool>,
    /// A node of a later generation of the cluster was heard: this node's cluster was abandoned.
    outdated: Cell<bool>,
    /// Whether other nodes know several addresses of this one, as far as this node knows.
    may_be_doubted: Cell<bool>,
    /// Decides which nodes may join; `None` if none may.
    admission: RefCell<Option<Admission>>,
}

/// Another member of the cluster.
pub(crate) struct Member {
    pub(crate) id: NodeId,
    pub(crate) peer: RefCell<Peer>,
    /// Whether it is no longer a member.
    removed: Cell<bool>,
    /// The links that are up, or about to be.
    live: RefCell<BTreeMap<(Role, u16), Live>>,
    /// Only one connection at a time becomes a link, or ends.
    turn: Semaphore,
    /// Notified when a link has ended, and when the peer's addresses have changed.
    pub(crate) changed: Notify,
    /// Why the last attempt failed, if none has succeeded since.
    trouble: Cell<Option<LinkTrouble>>,
    /// Why the peer refused the last attempt, if it did.
    refusal: Cell<Option<Refusal>>,
    /// The tasks that connect, by link, if this node is the one that connects.
    diallers: RefCell<BTreeMap<(Role, u16), rt::Task<()>>>,
}

/// A connection that is a link.
#[derive(Clone, Copy)]
struct Live {
    serial: u64,
    incarnation: Incarnation,
    attempt: u64,
}

impl Member {
    fn new(peer: Peer) -> Rc<Member> {
        Rc::new(Member {
            id: peer.id,
            peer: RefCell::new(peer),
            removed: Cell::new(false),
            live: RefCell::default(),
            turn: Semaphore::new(1),
            changed: Notify::new(),
            trouble: Cell::new(None),
            refusal: Cell::new(None),
            diallers: RefCell::default(),
        })
    }

    /// Forgets that the peer refused this node.
    pub(crate) fn forget_refusal(&self) {
        self.refusal.set(None);
    }

    /// Whether any link is up.
    pub(crate) fn is_linked(&self) -> bool {
        !self.live.borrow().is_empty()
    }

    /// Whether the link still uses this connection.
    pub(crate) fn has(&self, role: Role, number: u16, serial: u64) -> bool {
        self.live.borrow().get(&(role, number)).is_some_and(|live| live.serial == serial)
    }
}

/// The parameters of a mesh.
pub(crate) struct Identification {
    pub(crate) me: NodeId,
    pub(crate) cluster: ClusterId,
    pub(crate) generation: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) protocol: Protocol,
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Configs>,
}

impl Mesh {
    pub(crate) fn new(identification: Identification) -> Rc<Mesh> {
        let Identification { me, cluster, generation, incarnation, protocol, limits, tls } = identification;
        Rc::new(Mesh {
            me,
            cluster,
            generation,
            incarnation,
            cores: u16::try_from(rt::cores()).unwrap_or(u16::MAX),
            protocol,
            limits,
            tls,
            log_throttle: LogThrottle::default(),
            members: RefCell::default(),
            lives: RefCell::default(),
            next_serial: Cell::new(0),
            next_attempt: Cell::new(0),
            stopped: Cell::new(false),
            outdated: Cell::new(false),
            may_be_doubted: Cell::new(true),
            admission: RefCell::new(None),
        })
    }

    /// Whether this node has heard from a later generation of the cluster.
    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated.get()
    }

    /// Whether a node that has not heard this one for a moment would try another address of it
    /// ([`Limits::doubt`]): then this node has to be heard often.
    pub(crate) fn may_be_doubted(&self) -> bool {
        self.may_be_doubted.get()
    }

    pub(crate) fn let_join(&self, admission: Option<Admission>) {
        self.admission.replace(admission);
    }

    pub(crate) fn admission(&self) -> Option<Admission> {
        self.admission.borrow().clone().filter(|_| !self.stopped.get())
    }

    /// Sets the other members.
    pub(crate) fn set_peers(self: &Rc<Mesh>, peers: Vec<Peer>) {
        let mut wanted: BTreeMap<NodeId, Peer> = peers.into_iter().map(|peer| (peer.id, peer)).collect();
        // The others follow the same record. They may know of another address a moment before this node does:
        // then a doubt may turn out to be a false alarm.
        let own = wanted.remove(&self.me);
        self.may_be_doubted.set(own.is_none_or(|own| own.addresses_of(Role::Control, 0).len() > 1));
        let gone: Vec<Rc<Member>> = {
            let mut members = self.members.borrow_mut();
            let gone: Vec<NodeId> = members.keys().filter(|id| !wanted.contains_key(id)).copied().collect();
            gone.iter().filter_map(|id| members.remove(id)).collect()
        };
        gone.into_iter().for_each(|member| self.dismiss(member));
        for (id, peer) in wanted {
            let known = self.members.borrow().get(&id).cloned();
            if let Some(member) = known {
                if member.peer.replace(peer.clone()) != peer {
                    member.changed.notify();
                }
                continue;
            }
            let member = Member::new(peer);
            self.members.borrow_mut().insert(id, Rc::clone(&member));
            self.dial(&member, Role::Control, 0);
        }
    }

    pub(crate) fn peers(&self) -> Vec<PeerState> {
        let members = self.members.borrow();
        let state = |member: &Rc<Member>| PeerState {
            id: member.id,
            incarnation: self.lives.borrow().get(&member.id).copied(),
            links: member.live.borrow().len(),
            trouble: member.trouble.get(),
            refusal: member.refusal.get(),
        };
        members.values().map(state).collect()
    }

    /// Notes that an attempt to make a link with this node has failed.
    pub(crate) fn note_trouble(&self, node: NodeId, trouble: LinkTrouble) {
        if let Some(member) = self.member(node) {
            member.refusal.set(trouble.refusal_of_peer());
            member.trouble.set(Some(trouble));
        }
    }

    pub(crate) fn member(&self, id: NodeId) -> Option<Rc<Member>> {
        self.members.borrow().get(&id).cloned()
    }

    /// Ends all links with a node that is no longer a member.
    fn dismiss(&self, member: Rc<Member>) {
        member.removed.set(true);
        drop(member.diallers.take());
        let cores = self.cores;
        rt::spawn(async move {
            let _turn = Turn::take(&member).await;
            member.retire(cores, |_| true, || End::Removed).await;
        })
        .detach();
    }

    /// Ends all links, and lets none come up again.
    pub(crate) async fn stop(&self) {
        self.stopped.set(true);
        let members: Vec<Rc<Member>> = self.members.borrow().values().cloned().collect();
        for member in &members {
            drop(member.diallers.take());
        }
        for core in 0..self.cores {
            rt::call(CoreId(core), || async { Endpoint::current().close() }).await;
        }
    }

    /// Starts to connect, if this node is the one that connects and does not do so yet.
    fn dial(self: &Rc<Mesh>, member: &Rc<Member>, role: Role, number: u16) {
        if self.stopped.get() || member.removed.get() {
            return;
        }
        if self.me < member.id {
            if role == Role::Control {
                let asking = dialler::ask_for_membership(Rc::clone(self), Rc::clone(member));
                member.diallers.borrow_mut().entry((role, number)).or_insert_with(|| rt::spawn(asking));
            }
            return;
        }
        member
            .diallers
            .borrow_mut()
            .entry((role, number))
            .or_insert_with(|| rt::spawn(dialler::keep_up(Rc::clone(self), Rc::clone(member), role, number)));
    }

    /// Starts to connect the replication links, now that the peer has said how many cores it has: there are
    /// as many links as the side with more cores has cores.
    fn dial_replication(self: &Rc<Mesh>, member: &Rc<Member>, peer_cores: u16) {
        let links = self.cores.max(peer_cores);
        (0..links).for_each(|number| self.dial(member, Role::Replication, number));
        let too_many = member.diallers.borrow_mut().split_off(&(Role::Replication, links));
        drop(too_many);
    }

    pub(crate) fn next_attempt(&self) -> u64 {
        self.next_attempt.set(self.next_attempt.get() + 1);
        self.next_attempt.get()
    }

    /// The refusal of this peer's hello, for display.
    pub(crate) fn refused(&self, refusal: Refusal, hello: &Hello) -> Refused {
        self.outdated.set(self.outdated.get() || hello.generation > self.generation);
        Refused { refusal, ours: self.protocol.versions, theirs: hello.protocol.versions }
    }

    /// This node's hello for a link.
    pub(crate) fn hello(&self, name: LinkName, attempt: u64) -> Hello {
        Hello {
            role: name.role,
            number: name.number,
            refusal: None,
            cluster: self.cluster,
            from: self.me,
            to: name.peer,
            cores: self.cores,
            incarnation: self.incarnation,
            attempt,
            generation: self.generation,
            protocol: self.protocol,
        }
    }

    /// Whether this node wants a link with the sender of this hello, as far as the hello shows.
    pub(crate) fn judge_link(&self, hello: &Hello, wire: &Wire) -> Result<(), Refusal> {
        let same = hello.generation == self.generation;
        self.judge(hello, wire).and(if same { Ok(()) } else { Err(Refusal::Generation) })
    }

    /// Whether this hello is from a member, to this node.
    pub(crate) fn judge(&self, hello: &Hello, wire: &Wire) -> Result<(), Refusal> {
        let links = match hello.role {
            Role::Control => 1,
            Role::Replication => self.cores.max(hello.cores),
        };
        if self.protocol.negotiate(hello.protocol).is_none() {
            Err(Refusal::Version)
        } else if hello.cluster != self.cluster {
            Err(Refusal::Cluster)
        } else if hello.to != self.me {
            Err(Refusal::OtherNode)
        } else if wire.tls().is_some_and(|tls| !tls.peer_is(self.cluster, hello.from)) {
            Err(Refusal::Certificate)
        } else if self.member(hello.from).is_none() || self.stopped.get() {
            Err(Refusal::Membership)
        } else if hello.number >= links {
            Err(Refusal::Name)
        } else if self.lives.borrow().get(&hello.from).is_some_and(|seen| hello.incarnation < *seen) {
            Err(Refusal::Incarnation)
        } else {
            Ok(())
        }
    }

    /// Turns a connection that both sides want into a link, and returns its number. `hello` is the other
    /// side's.
    ///
    /// This runs to its end even if the caller is dropped.
    pub(crate) async fn admit(self: &Rc<Mesh>, wire: Wire, hello: Hello) -> Result<u64, Refusal> {
        let mesh = Rc::clone(self);
        let (reply, result) = oneshot();
        rt::spawn(async move { reply.send(mesh.admit_in_turn(wire, hello).await) }).detach();
        result.await.unwrap_or(Err(Refusal::Membership))
    }

    async fn admit_in_turn(self: Rc<Mesh>, wire: Wire, hello: Hello) -> Result<u64, Refusal> {
        let member = self.member(hello.from).ok_or(Refusal::Membership)?;
        let _turn = Turn::take(&member).await;
        if member.removed.get() || self.stopped.get() {
            return Err(Refusal::Membership);
        }
        self.judge_link(&hello, &wire)?;
        let negotiated = self.protocol.negotiate(hello.protocol).ok_or(Refusal::Version)?;
        let key = (hello.role, hello.number);
        let newer = |live: &Live| live.incarnation == hello.incarnation && live.attempt > hello.attempt;
        if member.live.borrow().get(&key).is_some_and(newer) {
            return Err(Refusal::Superseded);
        }
        self.lives.borrow_mut().insert(hello.from, hello.incarnation);
        self.log_throttle.forget(hello.from);
        member.trouble.set(None);
        member.refusal.set(None);
        // Links with an earlier life of the peer are dead, and no handler may see both.
        member.retire(self.cores, |live| live.incarnation < hello.incarnation, || End::Restarted).await;
        let serial = self.next_serial.get();
        self.next_serial.set(serial + 1);
        let live = Live { serial, incarnation: hello.incarnation, attempt: hello.attempt };
        member.live.borrow_mut().insert(key, live);
        let name = LinkName { peer: hello.from, role: hello.role, number: hello.number };
        let identity = Identity {
            name,
            peer_incarnation: hello.incarnation,
            peer_cores: hello.cores,
            negotiated,
            serial,
        };
        let wire = wire.detach().await;
        bring_up(name.core(self.cores), identity, wire).await;
        self.dial_replication(&member, hello.cores);
        Ok(serial)
    }

    /// A link is down.
    pub(crate) fn ended(&self, name: LinkName, serial: u64) {
        let Some(member) = self.member(name.peer) else { return };
        if member.has(name.role, name.number, serial) {
            member.live.borrow_mut().remove(&(name.role, name.number));
            member.changed.notify();
        }
    }
}

async fn bring_up(core: CoreId, identity: Identity, wire: DetachedWire) {
    rt::call(core, move || async move { Endpoint::current().bring_up(identity, wire) }).await;
}

impl Member {
    /// Ends the links that `which` selects, and waits until their handlers were notified.
    async fn retire(
        &self,
        cores: u16,
        which: impl Fn(&Live) -> bool,
        end: impl Fn() -> End + Copy + Send + 'static,
    ) {
        let retired: Vec<((Role, u16), Live)> = {
            let live = self.live.borrow();
            live.iter().filter(|(_, live)| which(live)).map(|(key, live)| (*key, *live)).collect()
        };
        for ((role, number), live) in retired {
            let name = LinkName { peer: self.id, role, number };
            let serial = live.serial;
            rt::call(
                name.core(cores),
                move || async move { Endpoint::current().retire(name, serial, end()) },
            )
            .await;
            // `ended` comes later, or never if the link has ended before; the dialler waits for the removal.
            if self.has(role, number, serial) {
                self.live.borrow_mut().remove(&(role, number));
                self.changed.notify();
            }
        }
    }
}

/// The right to create or end links with a member.
struct Turn<'a>(&'a Semaphore);

impl Turn<'_> {
    async fn take(member: &Member) -> Turn<'_> {
        member.turn.acquire(1).await;
        Turn(&member.turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}
