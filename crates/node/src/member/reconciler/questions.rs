//! Questions that nodes ask each other, and the answers.

use std::rc::Rc;
use std::time::Duration;

use link::{Frame, Link};
use replica::NodeId;
use rt::sync::oneshot;

use super::{ClusterError, Reconciler, json};
use crate::control::Control;
use crate::copies::ask::{Answer, Ask};
use crate::copies::message;
use crate::copies::refused::Refused;

/// How long another node may take to answer.
const ASK_DEADLINE: Duration = Duration::from_secs(30);
/// How often the node checks whether an answer still matters.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Reconciler {
    /// Asks a node, which may be this one, for something.
    ///
    /// # Errors
    /// [`ClusterError::Unreached`], [`ClusterError::Unanswered`], [`ClusterError::Refused`],
    /// [`ClusterError::Strange`].
    pub async fn ask(self: &Rc<Self>, node: NodeId, ask: Ask) -> Result<Answer, ClusterError> {
        self.ask_within(node, ask, ASK_DEADLINE).await
    }

    /// Like [`Reconciler::ask`], with a deadline of the caller's.
    ///
    /// # Errors
    /// As [`Reconciler::ask`].
    pub async fn ask_within(
        self: &Rc<Self>,
        node: NodeId,
        ask: Ask,
        deadline: Duration,
    ) -> Result<Answer, ClusterError> {
        self.ask_while(node, ask, deadline, || true).await
    }

    /// Like [`Reconciler::ask_within`], but waits for the answer only while `matters` returns true.
    ///
    /// # Errors
    /// As [`Reconciler::ask`].
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
            Ok(Ok(Some(answer))) => answer.map_err(refused),
            Ok(Ok(None)) => Err(ClusterError::Strange(node)),
            Ok(Err(rt::sync::Closed)) => Err(ClusterError::Unreached(node)),
            Err(rt::Elapsed) => Err(ClusterError::Unanswered { node, after: deadline }),
        }
    }

    /// Whether there is a link to the other node, over which a question is sent at once.
    pub fn reaches(&self, node: NodeId) -> bool {
        self.peers.borrow().get(&node).is_some_and(|peer| peer.link.is_some())
    }

    pub(super) async fn answer(self: &Rc<Self>, link: &Link, frame: Frame) {
        let answer: Result<Answer, Refused> = match serde_json::from_slice(&frame.head) {
            Ok(ask) => self.carry_out(ask).await,
            Err(error) => {
                tracing::debug!(%error, "a request of another node cannot be read");
                Err(Refused::UnknownRequest)
            }
        };
        let payload = answer.as_ref().map(Answer::payload).unwrap_or_default();
        let answer = message::frame(message::ANSWER, frame.channel, json(&answer));
        link.send(Frame { payload, ..answer });
    }

    pub(super) fn handle_answer(&self, from: NodeId, frame: &Frame) {
        let waiting = self.questions.borrow_mut().remove(&frame.channel);
        let Some((_, waiting)) = waiting.filter(|(asked, _)| *asked == from) else { return };
        // What cannot be read says nothing about whether the request was executed.
        let answer = serde_json::from_slice::<Result<Answer, Refused>>(&frame.head);
        let answer = answer.inspect_err(|error| {
            tracing::warn!(node = from.0, %error, "the answer of another node cannot be read");
        });
        let answer = answer.map(|answer| answer.map(|answer| answer.with_payload(frame.payload.clone())));
        waiting.send(answer.ok());
    }

    async fn carry_out(&self, ask: Ask) -> Result<Answer, Refused> {
        let control = Control::try_current().ok_or(Refused::Starting)?;
        Ok(control.carry_out_ask(ask).await?)
    }
}
