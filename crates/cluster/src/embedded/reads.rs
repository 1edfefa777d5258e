//! Linearizable reads. The node asks the leader how far the log was committed, and the leader confirms that
//! it still leads. Then all reads that arrived before the question may be answered from a record that has
//! applied that much. Only one question is under way at a time, for all waiting reads.

use base::Instant;

use super::engine::CallId;
use crate::limits::READ_RETRY_TICKS;

#[derive(Default)]
pub(super) struct Reads {
    /// Reads that arrived after the question was asked.
    waiting: Vec<(CallId, Instant)>,
    round: Option<Round>,
    asked: u64,
}

struct Round {
    /// The question's ID, which is unique among all nodes.
    name: Vec<u8>,
    calls: Vec<(CallId, Instant)>,
    /// When it was last asked.
    tick: u64,
    /// The answer: how far the record must have been applied.
    index: Option<u64>,
}

impl Reads {
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.round.as_ref().map_or(0, |round| round.calls.len())
    }

    pub(super) fn push(&mut self, call: CallId, deadline: Instant) {
        self.waiting.push((call, deadline));
    }

    /// The ID of a question to ask now, for the first time or again.
    ///
    /// `life` is unique for this life of this node.
    pub(super) fn ask(&mut self, life: &[u8], tick: u64) -> Option<Vec<u8>> {
        match &mut self.round {
            Some(round) if round.index.is_none() && tick >= round.tick + READ_RETRY_TICKS => {
                round.tick = tick;
                Some(round.name.clone())
            }
            Some(_) => None,
            None if self.waiting.is_empty() => None,
            None => {
                self.asked += 1;
                let name = [life, &self.asked.to_le_bytes()].concat();
                let calls = std::mem::take(&mut self.waiting);
                self.round = Some(Round { name: name.clone(), calls, tick, index: None });
                Some(name)
            }
        }
    }

    /// The leader has answered the question with this ID.
    pub(super) fn answered(&mut self, name: &[u8], index: u64) {
        if let Some(round) = self.round.as_mut().filter(|round| round.name == name) {
            round.index.get_or_insert(index);
        }
    }

    /// The calls that may be answered from a record that is applied up to `applied`.
    pub(super) fn ready(&mut self, applied: u64) -> Vec<CallId> {
        let round = self.round.take_if(|round| round.index.is_some_and(|index| index <= applied));
        round.into_iter().flat_map(|round| round.calls).map(|(call, _)| call).collect()
    }

    /// The calls whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<CallId> {
        let round = self.round.as_mut().map(|round| &mut round.calls);
        let mut expired = Vec::new();
        for calls in round.into_iter().chain([&mut self.waiting]) {
            expired.extend(calls.extract_if(.., |(_, deadline)| *deadline <= now).map(|(call, _)| call));
        }
        self.round.take_if(|round| round.calls.is_empty());
        expired
    }
}
