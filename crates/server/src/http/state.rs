//! What handlers have access to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use ::node::control::ControlError;
use ::node::{Control, Handle};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use rt::uring::CoreStats;

use super::access::Access;
use super::events::Ring as EventRing;
use super::findings::Opened;
use super::forwarding::Forwarding;
use super::idempotency::Answers;
use super::inquiries::Inquiries;
use super::live::Live;
use super::refusal::Refusal;
use super::stream::Streams;
use super::volumes::Elsewhere;
use crate::history::History;

/// What the HTTP interface knows of the node. Cheap to clone.
#[derive(Clone)]
pub struct State {
    /// The node's control, on core 0.
    pub node: Handle,
    pub name: String,
    /// Whether other nodes confirm the node's reads.
    pub read_confirm: api::ReadConfirm,
    pub portals: Vec<SocketAddr>,
    pub started: SystemTime,
    /// Counters of the node's cores: `Running::stats`.
    pub core_stats: Arc<dyn Fn() -> Vec<CoreStats> + Send + Sync>,
    pub access: Arc<Access>,
    /// What the node's cores need of the HTTP interface to report faults.
    pub opened: Arc<Opened>,
    pub events: Arc<EventRing>,
    /// What other nodes have reported about their volumes.
    pub elsewhere: Elsewhere,
    /// Changes that other nodes forward to this one.
    pub forwarding: Arc<Forwarding>,
    /// Questions of other nodes about events and the audit log.
    pub inquiries: Arc<Inquiries>,
    /// Responses to requests with an `Idempotency-Key`, which may be repeated.
    pub answers: Arc<Answers>,
    /// Current rates and latencies.
    pub live: Arc<Live>,
    /// The rates and latencies of the last seven days.
    pub history: History,
    /// Responses that have no end.
    pub streams: Streams,
}

impl FromRequestParts<State> for State {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &State) -> Result<State, Infallible> {
        Ok(state.clone())
    }
}

impl State {
    /// Runs an async function with the node's control. If the function does not find something while the node
    /// is behind the cluster's record, it runs a second time.
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

    /// As [`State::call`], for an object of a node: refused if that is another node than this one.
    pub async fn call_on<T, F>(
        &self,
        node: Option<u16>,
        function: impl FnOnce(Rc<Control>) -> F + Clone + Send + 'static,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ControlError>> + 'static,
    {
        let call = move |control: Rc<Control>| async move {
            control.check_is_here(node)?;
            function(control).await
        };
        self.call(call).await
    }
}
