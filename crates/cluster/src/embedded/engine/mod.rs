//! The engine of one node, without I/O: raft-rs, the record, and the calls that wait.

mod apply;
mod batch;
mod doubt;
mod idle;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use base::{Instant, Rng};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use thiserror::Error;

use batch::{Deferred, Unconfirmed};
use doubt::Doubt;
use unreadable::Unreadable;

use super::entry::{self, Command, Content, Proposal};
use super::message::{self, Content as Sent};
use super::pending::{Pending, What};
use super::promise::Promise;
use super::reads::Reads;
use super::saved::{Batch, Position, Saved, Vote};
use crate::error;
use crate::limits::{
    APPEND_BYTES_MAX, APPENDS_MAX, CALL_BYTES_MAX, CALLS_MAX, COMMITTED_BYTES_MAX, DEFERRED_TICKS,
    ELECTION_TICKS_MAX, ELECTION_TICKS_MIN, HEARTBEAT_TICKS, LOG_ENTRIES_MAX, PROMOTION_LAG_MAX,
    SNAPSHOT_TICKS, SUCCESSION_TICKS, UNCOMMITTED_BYTES_MAX, WITNESS_PATIENCE_TICKS,
};
use crate::members::{MemberChange, Members};
use crate::node_id::NodeId;
use crate::record::Record;
use crate::stall::Stall;
use crate::store::Status;
use crate::transaction::{Outcome, Transaction};
use crate::watch::Change;

/// The caller's ID for a call.
pub type CallId = u64;

/// The settings of a node's engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// It leads only if no other node can.
    pub witness: bool,
    /// The seed for election timeouts and IDs; different in each life of each node.
    pub seed: u64,
    /// The number of entries above which the log is shortened to a quarter of it; [`LOG_ENTRIES_MAX`] outside
    /// of tests.
    pub log_entries: usize,
}

impl Settings {
    /// The settings of a node with volumes.
    pub fn new(seed: u64) -> Settings {
        Settings { witness: false, seed, log_entries: LOG_ENTRIES_MAX }
    }
}

/// A call's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The call.
    pub call: CallId,
    /// Its result.
    pub result: Result<Answered, error::Error>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The caller may read [`Engine::record`], now or later.
    Read,
    /// The outcome of a transaction.
    Outcome(Outcome),
    /// The members are as requested.
    Members,
}

/// What watches receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notification {
    /// The next change.
    Change(Change),
    /// The record was replaced by a snapshot.
    Replaced,
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum Refused {
    #[error("a malformed message")]
    Malformed,
    #[error("an addition to the log that this version of Ursa cannot read")]
    Unreadable,
    #[error("a message from another cluster")]
    OtherCluster,
    #[error(
        "a message from another generation of this cluster: one of the nodes belongs to a cluster that was abandoned"
    )]
    OtherGeneration,
    #[error("a message from a node that was removed from the cluster")]
    Gone,
    #[error(
        "this node has lost entries that it had confirmed: its disk was set back to an earlier state, and it no longer votes; remove it from the cluster and let it join again"
    )]
    Forgotten,
}

/// The engine of one node.
///
/// After each input (`handle_*`) and each command, the caller repeats until no batch is left: take messages
/// and send them, take a batch, make it durable, confirm that with [`Engine::handle_persisted`]. Then it
/// takes messages, replies and changes for watches. Whatever depends on a batch is only returned after the
/// batch was confirmed. If a batch cannot be made durable, the engine must be dropped; another one starts
/// from the content of the file, as after a crash.
pub struct Engine {
    raft: RawNode<Saved>,
    rng: Rng,
    settings: Settings,
    /// A unique ID of this life of this node.
    life: [u8; 10],
    ticks: u64,
    /// The current election timeout, and the term and role that it is for.
    timeout: (usize, u64, StateRole),
    /// When this node last heard from the leader, and the leader and its term.
    heard: u64,
    leader: (u64, u64),
    /// When this node last knew a leader.
    leaderless: u64,
    pending: Pending,
    reads: Reads,
    /// Changes that are neither durable nor on their way to the disk.
    deferred: Deferred,
    /// The batch that is being made durable.
    unconfirmed: Option<Unconfirmed>,
    /// Results of changes of members, which wait for the next batch.
    member_replies: Vec<Reply>,
    /// The number of ticks after which this node stands for election, and the term of the dead leader. It
    /// applies if there is no successor by then.
    succession: Option<(u64, u64)>,
    /// Present while it is unknown whether this node's disk was set back.
    doubt: Option<Doubt>,
    /// The newest end of a log that this node may have had before it started, according to others. It votes
    /// as if its own log ended there.
    floor: Position,
    /// The followers that are receiving a snapshot, and since when.
    snapshots: BTreeMap<u64, u64>,
    /// What other nodes want to add to the log here, and this node cannot read.
    unreadable: Unreadable,
    messages: VecDeque<(NodeId, Vec<u8>)>,
    replies: VecDeque<Reply>,
    told: VecDeque<Notification>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (raft, saved) = (&self.raft.raft, self.saved());
        f.debug_struct("Engine")
            .field("role", &raft.state)
            .field("term", &raft.term)
            .field("last", &saved.last())
            .field("voters", &saved.members.voters)
            .field("doubted", &self.doubt.is_some())
            .field("floor", &self.floor)
            .field("set_back", &saved.set_back)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine that continues from `saved`.
    pub fn new(saved: Saved, settings: Settings) -> Engine {
        let config = Config {
            id: saved.identity.node.raft(),
            election_tick: ELECTION_TICKS_MIN,
            min_election_tick: ELECTION_TICKS_MIN,
            max_election_tick: ELECTION_TICKS_MAX,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: saved.applied,
            max_size_per_msg: APPEND_BYTES_MAX,
            max_inflight_msgs: APPENDS_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            priority: if settings.witness { -1 } else { 0 },
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            max_committed_size_per_ready: COMMITTED_BYTES_MAX,
            ..Config::default()
        };
        let mut rng = Rng::new(settings.seed);
        let mut life = [0; 10];
        life[..2].copy_from_slice(&saved.identity.node.get().to_le_bytes());
        rng.fill(&mut life[2..]);
        let sequence = saved.record.sequence();
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, saved, &silent)
            .expect("the configuration is right and memory does not fail");
        let mut engine = Engine {
            timeout: (0, u64::MAX, StateRole::Follower),
            raft,
            rng,
            settings,
            life,
            ticks: 0,
            heard: 0,
            leader: (0, 0),
            leaderless: 0,
            pending: Pending::default(),
            reads: Reads::default(),
            deferred: Deferred { sequence, ..Deferred::default() },
            unconfirmed: None,
            member_replies: Vec::new(),
            succession: None,
            doubt: None,
            floor: Position::default(),
            snapshots: BTreeMap::new(),
            unreadable: Unreadable::default(),
            messages: VecDeque::new(),
            replies: VecDeque::new(),
            told: VecDeque::new(),
        };
        // In a cluster of one no other node can lead, or tell what this node has forgotten.
        let decides_alone = engine.members().voters.len() == 1 && engine.is_voter();
        if decides_alone && !engine.has_forgotten() {
            engine.raft.campaign().expect("a voter may stand for election");
        } else if !decides_alone && !engine.members().voters.is_empty() {
            engine.doubt = Some(Doubt { name: engine.rng.next(), answered: BTreeSet::new() });
            engine.settle_doubt();
        }
        engine.settle();
        engine
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.saved().identity.node
    }

    /// The record as far as this node has applied it.
    pub fn record(&self) -> &Record {
        &self.saved().record
    }

    /// Whether this node has forgotten what it had confirmed to others, so that it no longer takes part.
    pub fn has_forgotten(&self) -> bool {
        self.saved().set_back
    }

    /// The members as far as this node has applied their changes.
    pub fn members(&self) -> &Members {
        &self.saved().members
    }

    /// The state of the record.
    pub fn status(&self) -> Status {
        let leader = self.known_leader();
        let numbers = |nodes: &BTreeSet<NodeId>| nodes.iter().map(|node| node.raft()).collect();
        Status {
            node: Some(self.node()),
            leader,
            term: self.raft.raft.term,
            quorum: leader.is_some() && !self.has_forgotten(),
            forgotten: self.has_forgotten(),
            revision: self.record().revision(),
            generation: self.saved().identity.generation,
            voters: numbers(&self.members().voters),
            learners: numbers(&self.members().learners),
            trouble: None,
            stalled: self.stalled(),
        }
    }

    /// Why the log of this node does not grow although its disk is well.
    pub fn stalled(&self) -> Option<Stall> {
        self.unreadable.stall(self.ticks, self.saved().last())
    }

    /// Another [`TICK`](crate::limits::TICK) has passed.
    pub fn handle_tick(&mut self, now: Instant) {
        self.ticks += 1;
        let standing = self.raft.raft.election_elapsed;
        if self.may_stand() {
            self.raft.tick();
        } else if self.raft.raft.election_elapsed < ELECTION_TICKS_MIN {
            // The node does not stand for election, but notices that the leader is missing: otherwise it
            // would stay with a dead leader, and vote for no other node.
            self.raft.raft.election_elapsed += 1;
        }
        if self.raft.raft.election_elapsed < standing {
            // The timeout was over: the next election needs another one, even in the same term.
            self.timeout.1 = u64::MAX;
        }
        self.succeed();
        self.settle();
        self.settle_doubt();
        self.resend_lost_snapshots();
        for call in self.reads.expire(now) {
            let error =
                if self.known_leader().is_some() { error::Error::NoQuorum } else { error::Error::NoLeader };
            self.replies.push_back(Reply { call, result: Err(error) });
        }
        for (call, error) in self.pending.expire(now, self.known_leader().is_some()) {
            self.replies.push_back(Reply { call, result: Err(error) });
        }
        self.hand_on();
    }

    /// Handles a message that the node `from` has sent.
    pub fn handle_message(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), Refused> {
        let identity = self.saved().identity;
        let (envelope, content) = match message::decode(bytes) {
            Ok(decoded) => decoded,
            Err(_) if self.members().gone.contains(&from) => return Err(Refused::Gone),
            Err(_) if message::is_for_the_log(&identity, bytes) => {
                let end = self.saved().last();
                self.unreadable.handle_refused(self.ticks, end);
                return Err(Refused::Unreadable);
            }
            Err(_) => return Err(Refused::Malformed),
        };
        if envelope.cluster != identity.cluster {
            return Err(Refused::OtherCluster);
        }
        if envelope.generation != identity.generation {
            return Err(Refused::OtherGeneration);
        }
        if envelope.from != from || envelope.to != identity.node {
            return Err(Refused::Malformed);
        }
        if self.members().gone.contains(&from) {
            return Err(Refused::Gone);
        }
        if !envelope.promised.is_kept_by(self.saved()) {
            self.find_set_back();
        }
        if self.has_forgotten() {
            return Err(Refused::Forgotten);
        }
        let mut message = match content {
            Sent::Raft(message) => message,
            Sent::Question(name) => {
                self.post(from, &Sent::Answer(name));
                return Ok(());
            }
            Sent::Answer(name) => {
                if let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.name == name) {
                    doubt.answered.insert(from);
                    self.floor = self.floor.max(envelope.promised.sent);
                }
                self.settle_doubt();
                return Ok(());
            }
        };
        // Messages from a leader are always accepted: it was elected without what this node may have
        // forgotten.
        if !self.may_heed(&message) {
            return Ok(());
        }
        if message.get_msg_type() == MessageType::MsgPropose {
            let entries = message.take_entries().into_iter().filter(|entry| self.admits(entry)).collect();
            message.set_entries(entries);
            if message.entries.is_empty() {
                return Ok(());
            }
        }
        let promise = Promise::of(&message);
        // Fails for an unknown peer, or a proposal that cannot be accepted now: the sender tries again.
        let _ = self.raft.step(message);
        self.remember(from, promise);
        if self.raft.raft.leader_id == from.raft() {
            self.heard = self.ticks;
        }
        self.settle();
        self.hand_on();
        Ok(())
    }

    /// Messages to `node` may have been lost.
    pub fn handle_unreachable(&mut self, node: NodeId) {
        self.raft.report_unreachable(node.raft());
        if self.snapshots.remove(&node.raft()).is_some() {
            self.raft.report_snapshot(node.raft(), SnapshotStatus::Failure);
        }
        self.settle();
    }

    /// The process of `node` is dead.
    ///
    /// If it led, one voter stands for election at once, and the others follow one after the other if it does
    /// not succeed: simultaneous candidates would split the votes. Any node may stand at any time safely.
    pub fn handle_death(&mut self, node: NodeId) {
        if !self.may_stand() || self.raft.raft.leader_id != node.raft() || !self.is_voter() {
            return;
        }
        let others = self.members().voters.iter().filter(|voter| **voter != node && **voter < self.node());
        // The witness leads only if no other node can.
        let rank = if self.settings.witness { self.members().voters.len() } else { others.count() };
        self.succession = Some((rank as u64 * SUCCESSION_TICKS, self.raft.raft.term));
        self.succeed();
        self.settle();
        self.hand_on();
    }

    /// Stands for election to replace a dead leader when it is this node's turn.
    fn succeed(&mut self) {
        let Some((left, term)) = self.succession else { return };
        if self.raft.raft.term != term || self.raft.raft.state != StateRole::Follower {
            self.succession = None;
            return;
        }
        if left > 0 {
            self.succession = Some((left - 1, term));
            return;
        }
        self.succession = None;
        // As if the leader had handed over before it died: voters need not wait for their timeout.
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgTimeoutNow);
        (message.from, message.to, message.term) = (self.raft.raft.leader_id, self.node().raft(), term);
        // If the node cannot stand now, it does so when it misses the leader.
        let _ = self.raft.step(message);
    }

    /// Executes `transaction`, whose limits were checked. A reply will have the outcome.
    pub fn propose(&mut self, call: CallId, transaction: Transaction, deadline: Instant) {
        if self.is_busy() {
            return self.replies.push_back(Reply { call, result: Err(error::Error::Busy) });
        }
        let (op_id, seen) = (transaction.op_id, self.record().sequence());
        self.pending
            .push(op_id, call, deadline, || What::Transaction(Command { seen, transaction }.encode()));
        self.hand_on();
    }

    /// Requests a read. A reply will say when the record may be read.
    pub fn read(&mut self, call: CallId, deadline: Instant) {
        if self.is_busy() {
            return self.replies.push_back(Reply { call, result: Err(error::Error::Busy) });
        }
        self.reads.push(call, deadline);
        self.hand_on();
    }

    /// Changes the members. A reply will say when the change is in effect.
    pub fn change_members(&mut self, call: CallId, change: MemberChange, deadline: Instant) {
        if self.is_busy() {
            return self.replies.push_back(Reply { call, result: Err(error::Error::Busy) });
        }
        let op_id = u128::from(self.rng.next()) << 64 | u128::from(self.rng.next());
        let generation = self.saved().identity.generation;
        self.pending.push(op_id, call, deadline, || What::Members(Proposal { op_id, generation, change }));
        self.hand_on();
    }

    /// The next batch to make durable. A batch that only records what was applied is deferred for a moment,
    /// because the log has it.
    pub fn poll_batch(&mut self) -> Option<Batch> {
        while self.unconfirmed.is_none() && self.raft.has_ready() {
            let mut ready = self.raft.ready();
            let number = ready.number();
            let committed = ready.take_committed_entries();
            // Applied state is in the log and need not be durable as such. But membership must be durable
            // before any node acts on it. Otherwise the last of two voters could forget that the other was
            // removed and switched off, and wait for its vote.
            let members = committed.iter().any(|entry| entry.get_entry_type() == EntryType::EntryConfChange);
            // According to Raft, a leader's messages need not wait for its disk. But they must wait for the
            // vote that made it leader, which is its own if it is the only voter: a learner must not learn of
            // a term that may start over with other entries.
            let voted = Vote::of(&self.raft.raft.hard_state());
            let saved = self.saved().vote;
            let elected = (voted.term, voted.vote) != (saved.term, saved.vote);
            let must_sync = ready.must_sync() || members;
            let mut messages = ready.take_messages();
            if !members && !elected {
                self.send(std::mem::take(&mut messages));
            }
            messages.extend(ready.take_persisted_messages());
            if !ready.snapshot().is_empty() {
                let snapshot = ready.snapshot().clone();
                self.restore(&snapshot);
            }
            let entries = ready.take_entries();
            self.saved_mut().append(&entries);
            if !entries.is_empty() {
                let kept = self.deferred.entries.partition_point(|it| it.index < entries[0].index);
                self.deferred.entries.truncate(kept);
                self.deferred.entries.extend(entries);
            }
            if let Some(state) = ready.hs() {
                let vote = Vote::of(state);
                self.saved_mut().vote = vote;
                self.deferred.since.get_or_insert(self.ticks);
            }
            for read in ready.take_read_states() {
                self.reads.answered(&read.request_ctx, read.index);
            }
            self.raft.advance_append_async(ready);
            self.apply(committed);
            self.settle();
            if must_sync {
                return Some(self.take_batch(number, messages));
            }
            self.raft.on_persist_ready(number);
            self.send(messages);
        }
        self.answer_reads();
        let late = |since: u64| self.ticks >= since + DEFERRED_TICKS;
        let due = self.unconfirmed.is_none() && self.deferred.since.is_some_and(late);
        if due { self.poll_rest() } else { None }
    }

    /// The deferred batch, at the end.
    pub fn poll_rest(&mut self) -> Option<Batch> {
        if self.unconfirmed.is_some() || self.deferred.since.is_none() {
            return None;
        }
        Some(self.take_batch(0, Vec::new()))
    }

    /// The batch that was taken is durable.
    pub fn handle_persisted(&mut self) {
        let done = self.unconfirmed.take().expect("a batch was taken");
        if done.number > 0 {
            self.raft.on_persist_ready(done.number);
        }
        self.send(done.messages);
        self.replies.extend(done.replies);
        // A snapshot counts as applied when it is durable.
        let applied = self.saved().applied;
        if self.raft.raft.raft_log.applied < applied {
            self.raft.advance_apply_to(applied);
        }
        self.settle();
    }

    /// The next message to send. It may be lost.
    pub fn poll_message(&mut self) -> Option<(NodeId, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// The next result of a call.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// The next change for watches.
    pub fn poll_notification(&mut self) -> Option<Notification> {
        self.told.pop_front()
    }

    /// The whole state that the engine saves.
    pub fn saved(&self) -> &Saved {
        self.raft.store()
    }

    /// Asserts that the parts are consistent.
    pub fn check(&self) {
        self.saved().check();
        let raft = &self.raft.raft;
        assert!(self.saved().applied <= raft.raft_log.committed);
        let counted: BTreeSet<u64> = raft.prs().conf().voters().ids().iter().collect();
        let voters: BTreeSet<u64> = self.members().voters.iter().map(|node| node.raft()).collect();
        assert_eq!(counted, voters, "raft-rs counts the voters that we do");
    }

    fn saved_mut(&mut self) -> &mut Saved {
        self.raft.mut_store()
    }

    fn is_voter(&self) -> bool {
        self.members().voters.contains(&self.node())
    }

    /// Whether there is no other member.
    fn is_alone(&self) -> bool {
        let members = self.members();
        members.voters.len() == 1 && members.learners.is_empty() && self.is_voter()
    }

    fn is_leader(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    fn is_busy(&self) -> bool {
        self.pending.calls() + self.reads.len() >= CALLS_MAX || self.pending.bytes() >= CALL_BYTES_MAX
    }

    fn known_leader(&self) -> Option<u64> {
        let raft = &self.raft.raft;
        let lately = self.ticks <= self.heard + ELECTION_TICKS_MAX as u64;
        (raft.leader_id != 0 && (self.is_leader() || lately)).then_some(raft.leader_id)
    }

    /// Restores our election timeout after each call of raft-rs, which draws it from the thread's random
    /// numbers.
    fn settle(&mut self) {
        let (term, role) = (self.raft.raft.term, self.raft.raft.state);
        if (self.timeout.1, self.timeout.2) != (term, role) {
            let range = (ELECTION_TICKS_MAX - ELECTION_TICKS_MIN) as u64;
            self.timeout = (ELECTION_TICKS_MIN + self.rng.below(range) as usize, term, role);
        }
        self.raft.raft.set_randomized_election_timeout(self.timeout.0);
        let leader = (self.raft.raft.leader_id, term);
        if leader != self.leader {
            self.leader = leader;
            self.heard = self.ticks;
            self.pending.all_due();
        }
        if leader.0 != 0 {
            self.leaderless = self.ticks;
        }
        // A witness may have entries that no other voter has. Then only the witness can be elected, but the
        // others have a higher priority and do not vote for it.
        if self.settings.witness {
            let patient = self.ticks < self.leaderless + WITNESS_PATIENCE_TICKS;
            self.raft.set_priority(if patient { -1 } else { 0 });
        }
    }

    /// Forwards the changes and reads that are due.
    fn hand_on(&mut self) {
        for (op_id, what) in self.pending.due(self.ticks) {
            let entry = match what {
                What::Transaction(bytes) => Entry { data: bytes.into(), ..Entry::default() },
                What::Members(proposal) => proposal.entry(),
            };
            if self.raft.raft.leader_id == 0 || (self.is_leader() && !self.admits(&entry)) {
                continue;
            }
            let mut message = Message::default();
            message.set_msg_type(MessageType::MsgPropose);
            message.from = self.node().raft();
            message.set_entries(vec![entry].into());
            if self.raft.step(message).is_ok() {
                self.pending.handed_on(op_id, self.ticks);
            }
        }
        if let Some(name) = self.reads.ask(&self.life, self.ticks) {
            self.raft.read_index(name);
        }
        self.settle();
    }

    /// Whether a leader proposes `entry` now. Otherwise the node that requested it tries again.
    fn admits(&mut self, entry: &Entry) -> bool {
        if !self.is_leader() || entry.get_entry_type() != EntryType::EntryConfChange {
            return true;
        }
        let Ok(Content::Members(proposal)) = entry::content(entry) else { return false };
        let (me, change) = (self.node(), proposal.change);
        let raft = &self.raft.raft;
        if change.ends_vote() && change.node() == me {
            // Another node must lead first.
            let matched = |node: &&NodeId| raft.prs().get(node.raft()).map_or(0, |it| it.matched);
            let others = self.members().voters.iter().filter(|node| **node != me);
            let Some(next) = others.max_by_key(matched).copied() else { return true };
            self.raft.transfer_leader(next.raft());
            return false;
        }
        if let MemberChange::Promote(node) = change
            && self.members().learners.contains(&node)
        {
            let last = raft.raft_log.last_index();
            return raft.prs().get(node.raft()).is_some_and(|it| it.matched + PROMOTION_LAG_MAX >= last);
        }
        true
    }

    fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                self.snapshots.insert(message.to, self.ticks);
            }
            if let Some(to) = NodeId::of_raft(message.to) {
                self.post(to, &Sent::Raft(message));
            }
        }
    }

    /// raft-rs waits forever for the outcome of a snapshot.
    fn resend_lost_snapshots(&mut self) {
        let late: Vec<u64> = {
            let late = self.snapshots.iter().filter(|(_, since)| self.ticks >= *since + SNAPSHOT_TICKS);
            late.map(|(node, _)| *node).collect()
        };
        for node in late {
            self.snapshots.remove(&node);
            self.raft.report_snapshot(node, SnapshotStatus::Failure);
        }
    }

    fn answer_reads(&mut self) {
        let mut answered = self.reads.ready(self.saved().applied);
        while !answered.is_empty() {
            let replies = answered.into_iter().map(|call| Reply { call, result: Ok(Answered::Read) });
            self.replies.extend(replies);
            answered = Vec::new();
            if let Some(name) = self.reads.ask(&self.life, self.ticks) {
                self.raft.read_index(name);
            }
        }
    }
}
