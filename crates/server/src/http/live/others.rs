//! Current rates and latencies of the other nodes of the cluster. Each is asked once per second while there
//! are readers, and all readers get its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use ::node::Control;
use api::{LiveSample, Missing};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast};
use tokio::task::JoinSet;

use super::EVERY;
use crate::http::peers::{self, PeerQuery, QueriedNodes};
use crate::http::state::State;
use crate::http::stream::Gone;

/// The number of messages that may wait for a reader, some seconds of a large cluster. A slower reader misses
/// some.
const WAITING_MAX: usize = 64;

/// A message about another node.
pub(super) enum PeerMessage {
    Sample(LiveSample),
    /// The node no longer answers, so its samples are missing from now on.
    Missing(Missing),
    /// The node answers again.
    Back(Back),
}

/// A node that answers again.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Back {
    node: u16,
    node_name: String,
}

/// The messages to readers, and the nodes that are missing now.
pub(super) struct Others {
    told: broadcast::Sender<Arc<PeerMessage>>,
    known: Mutex<Known>,
    /// Notified when a reader arrives.
    wanted: Notify,
}

#[derive(Default)]
struct Known {
    missing: BTreeMap<u16, Missing>,
    /// The last sample of each node, which may be asked again before it has a new one.
    last: BTreeMap<u16, LiveSample>,
}

impl Default for Others {
    fn default() -> Others {
        Others { told: broadcast::Sender::new(WAITING_MAX), known: Mutex::default(), wanted: Notify::new() }
    }
}

/// A reader of these messages; `None`: the reader wants only the queried node.
pub(super) type Follower = Option<broadcast::Receiver<Arc<PeerMessage>>>;

impl Others {
    /// A reader of the messages from now on, and the nodes that are missing already.
    pub(super) fn follow(&self) -> (Follower, Vec<Missing>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let follower = self.told.subscribe();
        self.wanted.notify_one();
        (Some(follower), known.missing.values().cloned().collect())
    }

    /// Sends what is new in a node's answer.
    fn note(&self, node: u16, name: &str, answer: Result<Option<LiveSample>, Missing>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let told = match answer {
            Err(missing) => {
                known.last.remove(&node);
                let before = known.missing.insert(node, missing.clone());
                before.is_none().then_some(PeerMessage::Missing(missing))
            }
            Ok(sample) => {
                if known.missing.remove(&node).is_some() {
                    let _ = self
                        .told
                        .send(Arc::new(PeerMessage::Back(Back { node, node_name: name.to_owned() })));
                }
                let new = sample.filter(|sample| known.last.get(&node) != Some(sample));
                new.inspect(|sample| drop(known.last.insert(node, sample.clone()))).map(PeerMessage::Sample)
            }
        };
        // Sent while the lock is held, so that a new reader gets it exactly once: from the map or as a
        // message. An error means that there are no readers.
        if let Some(told) = told {
            let _ = self.told.send(Arc::new(told));
        }
    }

    /// Forgets nodes that no longer exist.
    fn keep(&self, nodes: &BTreeMap<u16, String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.missing.retain(|node, _| nodes.contains_key(node));
        known.last.retain(|node, _| nodes.contains_key(node));
    }
}

/// The next message; never returns without a follower.
pub(super) async fn next(follower: &mut Follower) -> Result<Arc<PeerMessage>, Gone> {
    let Some(follower) = follower else { return std::future::pending().await };
    loop {
        match follower.recv().await {
            Ok(told) => return Ok(told),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return Err(Gone),
        }
    }
}

/// Asks the other nodes while there are readers, for as long as the node runs.
pub(in crate::http) async fn ask_all(state: State) {
    let live = Arc::clone(&state.live);
    let others = &live.others;
    loop {
        others.wanted.notified().await;
        // A slow node is asked again only after it has answered, and delays no other.
        let mut asking: JoinSet<u16> = JoinSet::new();
        let mut asked = BTreeSet::new();
        while others.told.receiver_count() > 0 {
            let there = |control: Rc<Control>| async move {
                let (_, others) = QueriedNodes::All.of(&control);
                let names = control.node_names();
                let named = |node: u16| (node, names.get(&node).cloned().unwrap_or_default());
                Ok(others.into_iter().map(named).collect::<BTreeMap<u16, String>>())
            };
            let Ok(nodes) = state.call(there).await else { break };
            others.keep(&nodes);
            while let Some(done) = asking.try_join_next() {
                // A node whose task has panicked is not asked again.
                asked.remove(&done.unwrap_or_default());
            }
            for (node, name) in nodes {
                if asked.insert(node) {
                    asking.spawn(ask(state.clone(), node, name));
                }
            }
            tokio::time::sleep(EVERY).await;
        }
        *others.known.lock().unwrap_or_else(PoisonError::into_inner) = Known::default();
    }
}

async fn ask(state: State, node: u16, name: String) -> u16 {
    let query = move |control: Rc<Control>| async move {
        peers::ask(&control, [(node, PeerQuery::Live)].into()).await
    };
    // The node has just been removed, or this node has stopped.
    let Ok(answers) = state.call(query).await else { return node };
    let (samples, missing) = answers.read::<LiveSample>();
    let answer = match missing.into_iter().next() {
        Some(missing) => Err(missing),
        None => Ok(samples.into_iter().next()),
    };
    state.live.others.note(node, &name, answer);
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(follower: &mut Follower) -> Vec<String> {
        let follower = follower.as_mut().unwrap();
        let text = |told: Arc<PeerMessage>| match &*told {
            PeerMessage::Sample(sample) => format!("sample {}", sample.at),
            PeerMessage::Missing(missing) => format!("missing {}: {}", missing.node, missing.reason),
            PeerMessage::Back(back) => format!("back {} {}", back.node, back.node_name),
        };
        std::iter::from_fn(|| follower.try_recv().ok()).map(text).collect()
    }

    fn sample(at: u64) -> Result<Option<LiveSample>, Missing> {
        Ok(Some(LiveSample { at, node: 2, ..LiveSample::default() }))
    }

    fn missing(reason: &str) -> Result<Option<LiveSample>, Missing> {
        Err(Missing { node: 2, node_name: "b".into(), reason: reason.into() })
    }

    #[test]
    fn each_event_is_sent_once_and_late_subscribers_learn_which_nodes_are_missing() {
        let others = Others::default();
        let (mut follower, known) = others.follow();
        assert!(known.is_empty());
        others.note(2, "b", Ok(None));
        others.note(2, "b", sample(7));
        others.note(2, "b", sample(7));
        others.note(2, "b", missing("silent"));
        others.note(2, "b", missing("still silent"));
        assert_eq!(told(&mut follower), ["sample 7", "missing 2: silent"]);
        let (mut later, known) = others.follow();
        assert_eq!((known.len(), known[0].reason.as_str()), (1, "still silent"));
        others.note(2, "b", sample(9));
        assert_eq!(told(&mut follower), ["back 2 b", "sample 9"]);
        assert_eq!(told(&mut later), ["back 2 b", "sample 9"]);
        others.note(2, "b", missing("silent"));
        others.keep(&BTreeMap::new());
        assert!(others.follow().1.is_empty(), "it is no node of the cluster any more");
    }

    #[tokio::test]
    async fn a_slow_subscriber_misses_events_and_continues() {
        let others = Others::default();
        let (mut follower, _) = others.follow();
        (0..2 * WAITING_MAX as u64).for_each(|at| others.note(2, "b", sample(at)));
        let first = next(&mut follower).await.ok().unwrap();
        assert!(matches!(&*first, PeerMessage::Sample(sample) if sample.at == WAITING_MAX as u64));
    }
}
