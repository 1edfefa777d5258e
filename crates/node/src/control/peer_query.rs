//! Requests by which nodes show each other what they have, so that any node can show everything.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use replica::NodeId;

use super::{Control, ControlError, Result};
use crate::copies::{Answer, Ask, NodeEntry, node_key};
use crate::member::ClusterError;

/// How long another node may take to respond. A user is waiting for the page meanwhile.
pub const QUERY_DEADLINE: Duration = Duration::from_secs(2);

/// Why another node did not show something.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum QueryFailed {
    #[error("heartbeat timeout")]
    Silent,
    #[error("its version does not support this")]
    Unknown,
    /// It did not answer, or refused.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

impl Control {
    /// Asks several nodes at once to show something: `questions` has one question for each node.
    ///
    /// Returns each node's answer, or why there is none.
    ///
    /// # Errors
    /// This node does not take part in its cluster; a node is not in it.
    pub async fn ask_to_show(
        self: &Rc<Control>,
        questions: BTreeMap<u16, String>,
    ) -> Result<Vec<(u16, Result<String, QueryFailed>)>> {
        let reconciler = self.reconciler()?;
        for node in questions.keys() {
            if reconciler.get::<NodeEntry>(&node_key(NodeId(*node))).is_none() {
                return Err(ControlError::not_found("node", &node.to_string()));
            }
        }
        let ask = |(node, what): (u16, String)| {
            let reconciler = Rc::clone(&reconciler);
            async move {
                if !reconciler.hears(NodeId(node)) {
                    return (node, Err(QueryFailed::Silent));
                }
                let answer = reconciler.ask_within(NodeId(node), Ask::Show { what }, QUERY_DEADLINE).await;
                let shown = match answer {
                    Ok(Answer::Shown(Some(text))) => Ok(text),
                    Ok(_) => Err(QueryFailed::Unknown),
                    Err(error) => Err(QueryFailed::Cluster(error)),
                };
                (node, shown)
            }
        };
        Ok(rt::join_all(questions.into_iter().map(ask)).await)
    }
}
