//! Questions that nodes ask each other, and the answers.

use std::rc::Rc;
use std::time::Duration;

use link::{Frame, Link};
use replica::NodeId;
use rt::sync::oneshot;

use super::super::ask::{Answer, Ask};
use super::super::message;
use super::{ClusterError, Keeper, json};
use crate::control::Control;

/// How long another node may take to answer.
const ASK_DEADLINE: Duration = Duration::from_secs(30);
/// How often the node checks whether an answer still matters.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Keeper {
    /// Asks a node, which may be this one, for something.
    ///
    /// # Errors
    /// [`ClusterError::Unreached`], [`ClusterError::Unanswered`], [`ClusterError::Refused`].
    pub async fn ask(self: &Rc<Self>, node: NodeId, ask: Ask) -> Result<Answer, ClusterError> {
        self.ask_within(node, ask, ASK_DEADLINE).await
    }

    /// Like [`Keeper::ask`], with a deadline of the caller's.
    ///
    /// # Errors
    /// As [`Keeper::ask`].
    pub async fn ask_within(
        self: &Rc<Self>,
        node: NodeId,
        ask: Ask,
        deadline: Duration,
    ) -> Result<Answer, ClusterError> {
        self.ask_while(node, ask, deadline, || true).await
    }

    /// Like [`Keeper::ask_within`], but waits for the answer only while `matters` returns true.
    ///
    /// # Errors
    /// As [`Keeper::ask`].
    pub(super) async fn ask_while(
        self: &Rc<Self>,
        node: NodeId,
        ask: Ask,
        deadline: Duration,
        matters: impl Fn() -> bool,
    ) -> Result<Answer, ClusterError> {
        let refused = |reason| ClusterError::Refused { node, reason };
        if node == self.me() {
            return self.carry_out(ask).await.map_err(refused);
        }
        let link = self.peers.borrow().get(&node).and_then(|peer| peer.link.clone());
        let Some(link) = link else { return Err(ClusterError::Unreached(node)) };
        let (sender, mut answer) = oneshot();
        let number = self.last_question.get() + 1;
        self.last_question.set(number);
        self.questions.borrow_mut().insert(number, (node, sender));
        link.send(message::frame(message::ASK, number, json(&ask)));
        let until = rt::now() + deadline;
        let answer = loop {
            let answered = rt::timeout(LOOK_AGAIN.min(until.since(rt::now())), &mut answer).await;
            if answered.is_ok() || !matters() || rt::now() >= until {
                break answered;
            }
        };
        self.questions.borrow_mut().remove(&number);
        match answer {
            Ok(Ok(answer)) => answer.map_err(refused),
            Ok(Err(rt::sync::Closed)) => Err(ClusterError::Unreached(node)),
            Err(rt::Elapsed) => Err(ClusterError::Unanswered { node, after: deadline }),
        }
    }

    /// Whether there is a link to the other node, over which a question is sent at once.
    pub fn reaches(&self, node: NodeId) -> bool {
        self.peers.borrow().get(&node).is_some_and(|peer| peer.link.is_some())
    }

    pub(super) async fn answer(self: &Rc<Self>, link: &Link, frame: Frame) {
        let answer: Result<Answer, String> = match serde_json::from_slice(&frame.head) {
            Ok(ask) => self.carry_out(ask).await,
            Err(error) => Err(format!("this node's version does not know this request: {error}")),
        };
        link.send(message::frame(message::ANSWER, frame.channel, json(&answer)));
    }

    pub(super) fn handle_answer(&self, from: NodeId, frame: &Frame) {
        let waiting = self.questions.borrow_mut().remove(&frame.channel);
        let Some((_, waiting)) = waiting.filter(|(asked, _)| *asked == from) else { return };
        let answer = serde_json::from_slice(&frame.head);
        waiting.send(answer.unwrap_or_else(|error| Err(format!("its answer cannot be read: {error}"))));
    }

    async fn carry_out(&self, ask: Ask) -> Result<Answer, String> {
        let control = Control::try_current().ok_or("the node is starting: try again in a moment")?;
        control.carry_out_ask(ask).await.map_err(|error| error.to_string())
    }
}
