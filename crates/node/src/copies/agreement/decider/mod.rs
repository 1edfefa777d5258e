//! The node that decides a change (U1 to U6), or only learns what the members have agreed on (U11).

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use base::Instant;
use proto::scsi::{Abort, Decision, Outcome};
use replica::{Epoch, NodeId};

use super::super::HOLD_MAX;
use super::{Agreed, MemberReport, Members, Offer, Version};
use crate::canary::{Canary, makes};

#[cfg(test)]
mod tests;

/// How long a node may take to decide a change (U2).
///
/// Longer than it takes to give up a lost node. And shorter than initiators wait before they give up a path
/// and use another one: what they requested here must not take effect after what they request there.
const DECIDE_MAX: Duration = HOLD_MAX;

/// How long a node tries to bring a change that it has decided to all members (U6).
const AGREE_MAX: Duration = Duration::from_secs(10);

/// A question to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number. No number is used again, so a late answer counts for no other question.
    pub number: u64,
    /// The member, which may be this node.
    pub to: NodeId,
    /// What it is asked.
    pub question: Question,
}

/// What a member is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What it knows, if it acts in this epoch.
    Tell(Epoch),
    /// To take this.
    Take(Box<Offer>),
}

impl Question {
    /// The epoch in which it is asked. When this node acts in another one, no answer is waited for.
    pub fn epoch(&self) -> Epoch {
        match self {
            Question::Tell(epoch) => *epoch,
            Question::Take(offer) => offer.epoch,
        }
    }
}

/// What a member has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// What it knows.
    MemberReport(Box<MemberReport>),
    /// Whether it has taken the offer.
    Taken(bool),
    /// Nothing: not in time, or not while the members were the same. Whether it has taken an offer is
    /// unknown.
    Nothing,
}

/// What the driver does next.
#[derive(Debug)]
pub enum Next {
    /// Ask all of these at once, and report each answer with [`Decider::handle_reply`].
    Ask(Vec<Query>),
    /// Decide the change against the state that is installed here, and report the decision with
    /// [`Decider::handle_decision`].
    Decide,
    /// The attempt has failed: begin another one after a moment.
    TryAgain,
    /// The change is agreed on, or there was none to be made: answer this.
    Done(Outcome),
    /// The time is over.
    Abandoned,
    /// All members have the newest state; of a decider that only learns.
    Settled,
}

/// Decides one change of a unit together with all other members.
///
/// [`Decider::begin`] begins an attempt. Then the driver does what [`Decider::poll`] returns, and reports
/// back, until that is an end; after [`Next::TryAgain`] it begins another attempt.
#[derive(Debug)]
pub struct Decider {
    me: NodeId,
    /// When the change was requested; `None`: there is none, and the node only learns.
    requested: Option<Instant>,
    /// The members in the present attempt.
    members: Members,
    step: Step,
    /// The questions of this step that are not answered yet, by number.
    open: BTreeMap<u64, NodeId>,
    /// A member has not answered a question of this step as it should.
    failed: bool,
    /// The number of the last question.
    last: u64,
    /// The greatest number that this node has given to earlier changes of the unit.
    after: u64,
    /// The greatest number that this node has given to a change of the unit.
    numbered: u64,
    /// The change that an earlier attempt has decided, and that some members may have.
    decided: Option<Decided>,
    next: Option<Next>,
}

#[derive(Debug)]
enum Step {
    /// No attempt is under way.
    Rests,
    /// All members are asked what they know; these have answered.
    Asks(BTreeMap<NodeId, MemberReport>),
    /// The newest state is brought to the members that lack it.
    Settles { newest: Agreed, stored: bool },
    /// The change is being decided against the newest state.
    Decides { newest: Agreed, stored: bool },
    /// The first member is asked to take the change.
    Offers { agreed: Agreed, outcome: Outcome },
    /// The change, which the first member has, is brought to the others.
    Brings(Outcome),
}

/// A change that this node has decided, and that some members may have.
#[derive(Debug)]
struct Decided {
    version: Version,
    outcome: Outcome,
    abort: Abort,
    /// The first member has answered: it is known what it did with the change, and no other member had been
    /// asked before.
    answered: bool,
}

impl Decider {
    /// For a change that was requested of node `me` now. `after`: what [`Decider::numbered`] returned last.
    pub fn new(me: NodeId, now: Instant, after: u64) -> Decider {
        Decider { requested: Some(now), after, numbered: after, ..Decider::to_learn(me) }
    }

    /// Changes nothing: ends with [`Next::Settled`].
    pub fn to_learn(me: NodeId) -> Decider {
        Decider {
            me,
            requested: None,
            members: Members::default(),
            step: Step::Rests,
            open: BTreeMap::new(),
            failed: false,
            last: 0,
            after: 0,
            numbered: 0,
            decided: None,
            next: None,
        }
    }

    /// Begins an attempt with the members of the epoch that this node acts in; `None`: it is no member.
    pub fn begin(&mut self, now: Instant, members: Option<Members>) {
        if self.is_late(now) {
            return self.end(Next::Abandoned);
        }
        let Some(members) = members else { return self.end(Next::TryAgain) };
        self.open.clear();
        let (nodes, question) = (members.nodes.clone(), Question::Tell(members.epoch));
        (self.members, self.step) = (members, Step::Asks(BTreeMap::new()));
        self.ask(nodes, &question);
    }

    /// The greatest number that this node has given to a change of the unit: the next one gets a greater one.
    pub fn numbered(&self) -> u64 {
        self.numbered
    }

    /// What to do next; `None`: a question is not answered yet.
    pub fn poll(&mut self) -> Option<Next> {
        self.next.take()
    }

    /// A member has answered the question with this number, or will not answer it.
    pub fn handle_reply(&mut self, number: u64, reply: Reply) {
        let Some(from) = self.open.remove(&number) else { return };
        if let (Step::Offers { .. }, Some(decided)) = (&self.step, &mut self.decided) {
            decided.answered = matches!(reply, Reply::Taken(_));
        }
        match (&mut self.step, reply) {
            (Step::Asks(told), Reply::MemberReport(knows)) => {
                told.insert(from, *knows);
            }
            (Step::Settles { .. } | Step::Offers { .. } | Step::Brings(_), Reply::Taken(true)) => {}
            _ => self.failed = true,
        }
        if self.open.is_empty() {
            self.proceed();
        }
    }

    /// The change was decided against the state that is installed here, whose version is `installed`; `None`:
    /// another change is being installed here.
    pub fn handle_decision(&mut self, now: Instant, installed: Option<Version>, decision: Decision) {
        let Step::Decides { newest, stored } = &self.step else { return };
        let (newest, stored) = (newest.clone(), *stored);
        let is_late = self.requested.is_none_or(|requested| now > requested + DECIDE_MAX);
        // What is being installed here is in effect in part, and it is not agreed on yet. Nor is what came
        // since the members said what they know: not all of them may have it (U2).
        if is_late || installed != Some(newest.version) && !makes(Canary::DecideBeside) {
            return self.end(Next::TryAgain);
        }
        // A pool that failed to store a change may turn out to have it after a restart. So while there is
        // such a pool, what changes nothing is stored as a change is.
        let changes =
            decision.state.is_some() || !decision.notices.is_empty() || decision.abort != Abort::NONE;
        if !changes && stored {
            return self.end(Next::Done(decision.outcome));
        }
        let Some(first) = self.members.first() else { return self.end(Next::TryAgain) };
        let epoch = self.members.epoch;
        // The first member may still be taking an earlier change of this node, which has given it up (U6).
        let number = newest.version.number.max(self.after) + 1;
        self.numbered = self.numbered.max(number);
        let version = Version { epoch: epoch.0, number, by: self.me.0 };
        let agreed = Agreed {
            version,
            contains: newest.contains_with(version),
            state: decision.state.unwrap_or(newest.state),
            notices: decision.notices,
            abort: decision.abort,
        };
        let (outcome, abort) = (decision.outcome.clone(), agreed.abort.clone());
        self.decided = Some(Decided { version, outcome, abort, answered: false });
        let offer = Offer { epoch, expected: Some(newest.version), agreed: agreed.clone() };
        self.step = Step::Offers { agreed, outcome: decision.outcome };
        self.ask(vec![first], &Question::Take(Box::new(offer)));
    }

    /// Whether the time for another attempt is over (U6).
    fn is_late(&self, now: Instant) -> bool {
        let length = if self.decided.is_some() { AGREE_MAX } else { DECIDE_MAX };
        self.requested.is_some_and(|requested| now >= requested + length)
    }

    /// Ends the attempt.
    fn end(&mut self, next: Next) {
        self.open.clear();
        (self.step, self.next) = (Step::Rests, Some(next));
    }

    /// Asks all of these nodes; if there is none, the step has ended.
    fn ask(&mut self, nodes: Vec<NodeId>, question: &Question) {
        self.failed = false;
        let mut queries = Vec::new();
        for to in nodes {
            self.last += 1;
            self.open.insert(self.last, to);
            queries.push(Query { number: self.last, to, question: question.clone() });
        }
        if queries.is_empty() {
            return self.proceed();
        }
        self.next = Some(Next::Ask(queries));
    }

    /// All questions of the step are answered.
    fn proceed(&mut self) {
        if self.failed {
            return self.end(Next::TryAgain);
        }
        match mem::replace(&mut self.step, Step::Rests) {
            Step::Asks(told) => self.settle(&told),
            Step::Settles { newest, stored } => self.consider(newest, stored),
            Step::Offers { agreed, outcome } => {
                let (nodes, first) = (self.members.nodes.iter().copied(), self.members.first());
                let others = nodes.filter(|node| Some(*node) != first).collect();
                let offer = Offer { epoch: self.members.epoch, expected: None, agreed };
                self.step = Step::Brings(outcome);
                self.ask(others, &Question::Take(Box::new(offer)));
            }
            Step::Brings(outcome) => self.end(Next::Done(outcome)),
            Step::Rests | Step::Decides { .. } => {}
        }
    }

    /// Brings the newest state to the members that lack it (U1).
    fn settle(&mut self, told: &BTreeMap<NodeId, MemberReport>) {
        let newest_of = |nodes: &[NodeId], known: bool| {
            let those = nodes.iter().filter_map(|node| told.get(node)).filter(|told| told.known == known);
            those.max_by_key(|told| told.agreed.version).map(|told| told.agreed.clone())
        };
        let Members { nodes, in_sync, .. } = &self.members;
        // If no member knows, all have been away. What must survive is on the disk of each copy that is in
        // sync. A joiner's disk may lack it, whatever the version that its process remembers.
        let newest = newest_of(nodes, true).or_else(|| newest_of(in_sync, false));
        let Some(newest) = newest else { return self.end(Next::TryAgain) };
        let lacks = |told: &MemberReport| !told.known || told.agreed.version != newest.version;
        let nodes = self.members.nodes.iter().copied();
        let lacking = nodes.filter(|node| told.get(node).is_none_or(lacks)).collect();
        let offer = Offer { epoch: self.members.epoch, expected: None, agreed: newest.clone() };
        self.step = Step::Settles { newest, stored: told.values().all(|told| told.stored) };
        self.ask(lacking, &Question::Take(Box::new(offer)));
    }

    /// All members have the newest state.
    fn consider(&mut self, newest: Agreed, stored: bool) {
        if self.requested.is_none() {
            return self.end(Next::Settled);
        }
        let epoch = self.members.epoch;
        if let Some(decided) = self.decided.as_ref().filter(|it| newest.contains.contains(&it.version)) {
            // A lost member may have left writes that the change aborts with other members, which complete
            // them in this epoch: wait until they have (U5).
            let waits = decided.abort != Abort::NONE && decided.version.epoch != epoch.0;
            let nodes = if waits { self.members.nodes.clone() } else { Vec::new() };
            let again = Agreed { abort: decided.abort.clone(), ..newest };
            self.step = Step::Brings(decided.outcome.clone());
            let offer = Offer { epoch, expected: None, agreed: again };
            return self.ask(nodes, &Question::Take(Box::new(offer)));
        }
        // No member of this epoch has the change, and none will take it: members take nothing of an earlier
        // epoch, and what the first one has refused goes to no other. There is nothing to wait for (U6).
        let is_over = |decided: &Decided| decided.answered || decided.version.epoch != epoch.0;
        if self.decided.as_ref().is_some_and(is_over) {
            self.decided = None;
        }
        self.step = Step::Decides { newest, stored };
        self.next = Some(Next::Decide);
    }
}
