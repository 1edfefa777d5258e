//! Handles what comes from other nodes: control links that come up or break, deaths of processes, and the
//! frames of control links.

use std::rc::Rc;

use link::{Frame, Link};
use replica::{Incarnation, NodeId};

use super::Reconciler;
use crate::copies::SliceCopy;
use crate::copies::core::{Copies, on_every_core};
use crate::copies::message::{self, Heartbeat};

impl Reconciler {
    /// Handles a control link that has come up.
    pub(crate) fn link_up(&self, link: Rc<Link>) {
        let peer = link.name().peer;
        // Before any lease that is granted over this link.
        self.say_forks(&link);
        self.say_record_state(&link);
        {
            let mut peers = self.peers.borrow_mut();
            let state = peers.entry(peer).or_default();
            (state.link, state.word) = (Some(Rc::clone(&link)), None);
        }
        // The last request may have left over a network that has fallen silent. The one over this link
        // counts.
        if !self.stopping.get() {
            self.ask_for_leases(&[link], true);
        }
    }

    /// Handles a control link that broke, and returns it.
    pub(crate) fn link_down(&self, node: NodeId) -> Option<Rc<Link>> {
        let link = self.peers.borrow_mut().get_mut(&node).and_then(|peer| peer.link.take());
        // Callers that wait for this node's answers learn that none will come.
        self.questions.borrow_mut().retain(|_, (asked, _)| *asked != node);
        self.with_engine(|engine| engine.unreachable(node));
        link
    }

    /// Stops waiting for a life of another node whose process is certainly dead.
    pub(crate) fn handle_death(self: &Rc<Self>, of: NodeId, life: Incarnation) {
        tracing::warn!(node = %of, incarnation = life.0, "the process of another node died");
        self.note_death(of);
        self.note_end_of(of, life);
        self.copies.with_leases(|leases| leases.handle_death(of, life));
        for kept in self.volumes_mut().values_mut() {
            if let Some((slot, _)) = kept.entry.copy_on(of) {
                kept.membership_policy.handle_death(slot, life);
            }
        }
        self.with_engine(|engine| engine.died(of));
        let reconciler = Rc::clone(self);
        rt::spawn(async move {
            reconciler.propose().await;
        })
        .detach();
        // A configuration without that life may exist already, waiting for its leases to expire.
        self.work.notify();
    }

    /// Sends a message of the record's engine; without a link it is lost.
    ///
    /// Heartbeats of the engine leave with those of this node.
    pub fn send_record(&self, to: NodeId, bytes: Vec<u8>) {
        let Some(link) = self.control_link(to) else { return };
        let may_wait = cluster::embedded::may_wait(&bytes);
        let frame = message::frame(message::RECORD, 0, bytes);
        if may_wait { link.send_with_next(frame) } else { link.send(frame) }
    }

    /// Sends a frame over the control link; without a link it is lost.
    pub fn send_frame(&self, to: NodeId, frame: Frame) {
        if let Some(link) = self.control_link(to) {
            link.send(frame);
        }
    }

    fn control_link(&self, to: NodeId) -> Option<Rc<Link>> {
        self.peers.borrow().get(&to).and_then(|peer| peer.link.clone())
    }

    /// Handles the report that another node does not know a kind of frame that this node has sent.
    ///
    /// A caller that waits for the answer learns that none will come.
    fn handle_unknown(&self, from: NodeId, frame: &Frame) {
        let kind = message::unknown_in(frame);
        tracing::warn!(node = %from, kind, "another node's version does not know a frame that this node sent");
        if kind == Some(message::ASK) {
            let mut questions = self.questions.borrow_mut();
            if questions.get(&frame.channel).is_some_and(|(asked, _)| *asked == from) {
                questions.remove(&frame.channel);
            }
        }
    }

    /// Handles a frame of a control link.
    pub(crate) fn frame(self: &Rc<Self>, link: &Rc<Link>, frame: Frame) {
        let from = link.name().peer;
        match frame.kind {
            message::HEARTBEAT => match Heartbeat::parse(&frame.head) {
                Some(heartbeat) => self.handle_heartbeat(link, heartbeat),
                None => link.close("it sent a heartbeat that cannot be read"),
            },
            message::RECORD => self.with_engine(|engine| engine.deliver(from, frame.head)),
            message::ASK => {
                let (reconciler, link) = (Rc::clone(self), Rc::clone(link));
                rt::spawn(async move { reconciler.answer(&link, frame).await }).detach();
            }
            message::ANSWER => self.handle_answer(from, &frame),
            message::SYNCS => self.handle_syncs(rt::now(), from, &frame),
            message::RECORD_STATE => self.handle_record_state(from, &frame),
            message::FORKS => self.handle_forks(from, &frame),
            message::LEAVING => {
                let life = link.peer_incarnation();
                self.peers.borrow_mut().entry(from).or_default().leaving = Some(life);
                on_every_core(|| Copies::current().slices().iter().for_each(SliceCopy::settle));
                self.work.notify();
            }
            message::UNKNOWN => self.handle_unknown(from, &frame),
            _ => message::answer_unknown(link, &frame),
        }
    }
}
