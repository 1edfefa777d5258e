//! Queries by which nodes show each other what they have, so that any node can show everything.

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
    /// Asks several nodes at once to show something: `queries` has one query for each node, which
    /// [`Config::peer_requests`](crate::Config::peer_requests) of that node answers.
    ///
    /// Returns each node's answer, or why there is none.
    ///
    /// # Errors
    /// This node does not take part in its cluster; a node is not in it.
    pub async fn ask_to_show(
        self: &Rc<Control>,
        queries: BTreeMap<u16, String>,
    ) -> Result<Vec<(u16, Result<String, QueryFailed>)>> {
        let reconciler = self.reconciler()?;
        for node in queries.keys() {
            if reconciler.get::<NodeEntry>(&node_key(NodeId(*node))).is_none() {
                return Err(ControlError::not_found("node", &node.to_string()));
            }
        }
        let ask = |(node, request): (u16, String)| {
            let reconciler = Rc::clone(&reconciler);
            async move {
                if !reconciler.hears(NodeId(node)) {
                    return (node, Err(QueryFailed::Silent));
                }
                let ask = Ask::CarryOut { volume: None, revision: 0, request };
                let shown = match reconciler.ask_within(NodeId(node), ask, QUERY_DEADLINE).await {
                    Ok(Answer::CarriedOut(Ok(done))) => Ok(done.answer),
                    Ok(_) => Err(QueryFailed::Unknown),
                    Err(error) => Err(QueryFailed::Cluster(error)),
                };
                (node, shown)
            }
        };
        Ok(rt::join_all(queries.into_iter().map(ask)).await)
    }
}
