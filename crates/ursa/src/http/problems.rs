//! What somebody should look after, in sentences: on the node that is asked, or on all nodes of its cluster.
//!
//! Most of it the node's control knows; of its audit log and its certificate the HTTP interface itself. Other nodes ask over links, which may be there before the
//! interface is: until then they are told what control knows.

use std::rc::Rc;
use std::sync::{Arc, OnceLock, Weak};

use ::node::Control;
use ::node::control::Trouble;
use api::{List, NodeProblem, Problem};
use axum::extract::State as Extracted;

use super::access::Access;
use super::beginnings::Beginnings;
use super::events::{AUDIT_UNAVAILABLE, CERTIFICATE_UNAVAILABLE};
use super::input::Parameters;
use super::peers::{self, Whose};
use super::refusal::Refusal;
use super::state::State;
use crate::clock::unix_now;

/// Current problems of the queried node; with `node=all`, of all nodes.
///
/// A node that does not answer is in `missing`: its state is unknown.
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
    let opened = Arc::clone(&state.opened);
    let own = move |control: Rc<Control>| async move { Ok(all(&control, &opened)) };
    Ok(axum::Json(peers::list(&state, whose.asked()?, peers::PROBLEMS, own).await?))
}

/// The problems of this node.
pub(super) fn all(control: &Control, opened: &Opened) -> Vec<NodeProblem> {
    let (node, node_name) = control.number_and_name();
    let now = unix_now();
    let of_node = |trouble: Trouble| NodeProblem {
        since: opened.beginnings.of(now, &trouble),
        code: Some(trouble.code.to_owned()),
        subject: Some(trouble.subject).filter(|subject| !subject.is_empty()),
        text: trouble.text,
        node,
        node_name: node_name.clone(),
    };
    troubles(control, opened).into_iter().map(of_node).collect()
}

/// What is the matter, without whose it is.
pub(super) fn troubles(control: &Control, opened: &Opened) -> Vec<Trouble> {
    let mut troubles = control.troubles();
    if let Some(access) = opened.access() {
        let audit = access.audit.known_trouble();
        troubles.extend(audit.map(|why| Trouble::new(AUDIT_UNAVAILABLE.as_str(), "", why)));
        let certificate = access.no_certificate.clone();
        troubles.extend(certificate.map(|why| Trouble::new(CERTIFICATE_UNAVAILABLE.as_str(), "", why)));
    }
    troubles
}

/// What the HTTP interface knows, for nodes that ask over links, too: nothing before it is open, and when it has ended.
#[derive(Default)]
pub struct Opened {
    access: OnceLock<Weak<Access>>,
    pub(super) beginnings: Beginnings,
}

impl Opened {
    /// The interface is open. Said once.
    pub fn tell(&self, access: &Arc<Access>) {
        // It is not opened twice.
        let _ = self.access.set(Arc::downgrade(access));
    }

    fn access(&self) -> Option<Arc<Access>> {
        self.access.get()?.upgrade()
    }
}
