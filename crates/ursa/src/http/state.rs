//! What handlers reach.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use ::node::control::ControlError;
use ::node::{Control, Handle};
use rt::uring::CoreStats;

use super::access::Access;
use super::errands::Errands;
use super::events::Ring as EventRing;
use super::findings::Opened;
use super::inquiries::Inquiries;
use super::live::Live;
use super::once::Answers;
use super::refusal::Refusal;
use super::stream::Streams;
use super::volumes::Elsewhere;
use crate::history::History;

/// What the HTTP interface knows of the node. Cheap to clone.
#[derive(Clone)]
pub struct State {
    /// The way to its control.
    pub node: Handle,
    /// Its name.
    pub name: String,
    /// Whether other nodes confirm its reads.
    pub read_confirm: api::ReadConfirm,
    /// Where it listens for iSCSI.
    pub portals: Vec<SocketAddr>,
    /// When it began to serve.
    pub started: SystemTime,
    /// What its cores have done so far: `Running::stats`.
    pub core_stats: Arc<dyn Fn() -> Vec<CoreStats> + Send + Sync>,
    /// Who may ask.
    pub access: Arc<Access>,
    /// What is asked of the interface on the node's cores.
    pub opened: Arc<Opened>,
    /// What has happened.
    pub events: Arc<EventRing>,
    /// What other nodes have said of their volumes.
    pub elsewhere: Elsewhere,
    /// What other nodes have this one carry out.
    pub errands: Arc<Errands>,
    /// What other nodes ask for of events and of the audit log.
    pub inquiries: Arc<Inquiries>,
    /// What was answered to requests that may come again.
    pub answers: Arc<Answers>,
    /// What goes on now.
    pub live: Arc<Live>,
    /// What has gone on.
    pub history: History,
    /// Answers that go on.
    pub streams: Streams,
}

impl State {
    /// Runs an async function with the node's control. It runs twice if it does not find something while the
    /// node is behind the cluster's record.
    ///
    /// # Errors
    /// What the function refuses, and a node that does not run.
    pub async fn call<T, F>(
        &self,
        function: impl FnOnce(Rc<Control>) -> F + Clone + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + 'static,
    {
        let call = |control: Rc<Control>| async move {
            control.certainly(|control| function.clone()(control)).await
        };
        Ok(self.node.call(call).await??)
    }
}
