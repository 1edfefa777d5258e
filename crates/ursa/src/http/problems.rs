//! What somebody should look after, in sentences: on the node that is asked, or on all nodes of its cluster.
//!
//! Most of it the node's control knows; of its audit log and its certificate the HTTP interface itself. Other nodes ask over links, which may be there before the
//! interface is: until then they are told what control knows.

use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};

use ::node::Control;
use api::{List, NodeProblem, Problem};
use axum::extract::State as Extracted;

use super::access::Access;
use super::input::Parameters;
use super::peers::{self, Whose};
use super::refusal::Refusal;
use super::state::State;

/// What somebody should look after on the node that is asked; with `node=all` on all nodes.
///
/// A node that does not answer is in `missing`: nobody knows how it is.
#[utoipa::path(
    get, path = "/v1/problems", tag = "node", operation_id = "list_problems",
    params(Whose),
    responses(
        (status = OK, description = "All of them", body = List<NodeProblem>),
        (status = BAD_REQUEST, description = "`query_invalid`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = NOT_FOUND, description = "`node_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`no_cluster`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(super) async fn list(
    Extracted(state): Extracted<State>,
    Parameters(whose): Parameters<Whose>,
) -> Result<axum::Json<List<NodeProblem>>, Refusal> {
    let access = Arc::clone(&state.access);
    let own = move |control: Rc<Control>| async move { Ok(all(&control, Some(&access))) };
    Ok(axum::Json(peers::list(&state, whose.asked()?, peers::PROBLEMS, own).await?))
}

/// The problems of this node.
pub(super) fn all(control: &Control, access: Option<&Access>) -> Vec<NodeProblem> {
    let (node, node_name) = control.number_and_name();
    let of_node = |text| NodeProblem { text, node, node_name: node_name.clone() };
    sentences(control, access).into_iter().map(of_node).collect()
}

/// The same, without whose they are.
pub(super) fn sentences(control: &Control, access: Option<&Access>) -> Vec<String> {
    let mut problems = control.problems();
    if let Some(access) = access {
        problems.extend(access.audit.known_trouble());
        problems.extend(access.no_certificate.clone());
    }
    problems
}

/// What the HTTP interface knows, for nodes that ask over links: nothing before it is open, and when it has ended.
#[derive(Default)]
pub struct Opened(OnceLock<Weak<Access>>);

impl Opened {
    /// The interface is open. Said once.
    pub fn tell(&self, access: &Arc<Access>) {
        // It is not opened twice.
        let _ = self.0.set(Arc::downgrade(access));
    }

    pub(super) fn access(&self) -> Option<Arc<Access>> {
        self.0.get()?.upgrade()
    }
}
