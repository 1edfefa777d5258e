//! Volumes that a node has alone: made without copies, in no record of the cluster. Each node tells the others of its own, whenever somebody asks for all.
//!
//! Their names are a node's own: what is called so on the node that is asked, or in the cluster's record, goes first. Only then the others are asked, so that what is here can be worked with whoever else is
//! there. If several of them have one of that name nobody guesses: see [`Named`].

use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::time::Instant;

use ::node::control::{ControlError, Passage, Request, SHOW_DEADLINE};
use ::node::{Control, VolumeId, parts};
use api::{Candidate, Missing, Volume};
use axum::http::StatusCode;
use base::ByteLen;

use super::{named, seen_from_here, shown};
use crate::http::peers::{self, ALONE, CALLED};
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// So many are told at a time, some 100 KiB: what a core writes and reads of it in one go takes some tenths of a millisecond.
const A_PAGE: usize = 128;

/// What this node has alone behind this identity, for another one that asks: [`A_PAGE`] of them, or all that are left.
pub(in crate::http) async fn page(control: &Control, after: &str) -> String {
    let volumes = control.volumes_alone(VolumeId::parse(after), A_PAGE).await;
    let (me, names) = (control.number(), control.node_names());
    let written = |volume| serde_json::to_string(&shown(volume, me, &names)).ok();
    format!("[{}]", parts::filter_map(volumes, written).await.join(","))
}

/// What this node calls so, for another one that asks.
pub(in crate::http) fn called(control: &Control, name: &str) -> Vec<Volume> {
    control.volume(name).ok().map(|volume| named(control, volume)).into_iter().collect()
}

/// What other nodes have alone, and who has not said, or not all of it.
///
/// # Errors
/// What the node's control says.
pub(super) async fn of_others(state: &State) -> Result<(Vec<Volume>, Vec<Missing>), Refusal> {
    let until = Instant::now() + SHOW_DEADLINE;
    let first = |control: Rc<Control>| async move { Ok((others(&control, ALONE), control.node_names())) };
    let (mut questions, names) = state.call(first).await?;
    let (mut items, mut missing) = (Vec::new(), Vec::new());
    while !questions.is_empty() && Instant::now() < until {
        let asked = mem::take(&mut questions);
        let ask = |control: Rc<Control>| async move { still_there(&control, asked).await };
        let (page, silent) = state.call(ask).await?.read::<Volume>();
        questions = next(&page);
        items.extend(page.into_iter().map(seen_from_here));
        missing.extend(silent);
    }
    missing.extend(questions.into_keys().map(|node| Missing {
        node,
        node_name: names.get(&node).cloned().unwrap_or_default(),
        reason: format!("it did not list all of them within {} s", SHOW_DEADLINE.as_secs()),
    }));
    Ok((items, missing))
}

/// The same question for each other node that has pools.
fn others(control: &Control, question: &str) -> BTreeMap<u16, String> {
    let Some(keeper) = control.keeper() else { return BTreeMap::new() };
    let nodes = keeper.nodes().into_iter().map(|(node, _)| node);
    let others = nodes.filter(|node| !node.witness && node.id != keeper.me().0);
    others.map(|node| (node.id, question.to_owned())).collect()
}

/// Asks those of them that are still nodes of the cluster.
async fn still_there(
    control: &Rc<Control>,
    mut questions: BTreeMap<u16, String>,
) -> Result<peers::Answers, ControlError> {
    let names = control.node_names();
    questions.retain(|node, _| names.contains_key(node));
    peers::ask(control, questions).await
}

/// What has to be asked next: who has told of a whole page may have more.
fn next(page: &[Volume]) -> BTreeMap<u16, String> {
    let mut told: BTreeMap<u16, (usize, &str)> = BTreeMap::new();
    for volume in page {
        if let Some(node) = volume.node {
            let (count, last) = told.entry(node).or_default();
            *count += 1;
            *last = (*last).max(&volume.id);
        }
    }
    let full = told.into_iter().filter(|(_, (count, _))| *count >= A_PAGE);
    full.map(|(node, (_, last))| (node, format!("{ALONE} {last}"))).collect()
}

/// What another node calls so, or why that is not known.
///
/// # Errors
/// Without a cluster; a node that is none of it.
pub(super) async fn called_at(
    control: &Rc<Control>,
    node: u16,
    name: &str,
) -> Result<Result<Volume, Refusal>, ControlError> {
    let answers = peers::ask(control, [(node, format!("{CALLED} {name}"))].into()).await?;
    let (told, silent) = answers.read::<Volume>();
    Ok(match (told.into_iter().next(), silent.first()) {
        (Some(volume), _) => Ok(seen_from_here(volume)),
        (None, None) => Err(ControlError::not_found("volume", name).into()),
        (None, Some(silent)) => {
            let Missing { node_name, reason, .. } = silent;
            let detail = format!("the volumes of node {node} ({node_name}) are unknown: {reason}");
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", detail)
                .hint("see `ursa node list`, and bring the node back or repair its links"))
        }
    })
}

/// What other nodes have alone of a name or identity.
#[derive(Debug)]
pub(super) struct Named {
    name: String,
    /// One of each node that has one.
    volumes: Vec<Volume>,
    /// Who has not said.
    missing: Vec<Missing>,
}

impl Named {
    /// Asks all others.
    ///
    /// # Errors
    /// What the node's control says.
    pub(super) async fn of_others(control: &Rc<Control>, name: &str) -> Result<Named, ControlError> {
        let questions = others(control, &format!("{CALLED} {name}"));
        let (told, missing) = still_there(control, questions).await?.read::<Volume>();
        // What has copies is in the record, where it was looked for.
        let alone = told.into_iter().filter(|volume| volume.node.is_some());
        Ok(Named { name: name.to_owned(), volumes: alone.map(seen_from_here).collect(), missing })
    }

    /// The one that is meant, to be shown.
    ///
    /// # Errors
    /// 404 as it is given: there is none. 409: several nodes have one.
    pub(super) fn only_or(mut self, not_found: ControlError) -> Result<Volume, Refusal> {
        match (self.volumes.len(), self.volumes.pop()) {
            (1, Some(only)) => Ok(only),
            (_, Some(last)) => {
                self.volumes.push(last);
                Err(self.ambiguous())
            }
            (_, None) => Err(self.not_found(not_found.into())),
        }
    }

    /// The node whose it is, to be changed; `None`: none has it.
    ///
    /// # Errors
    /// 409: several nodes have one. 503: others, who do not answer, may have one of that name, too; or, if it is to be changed, the only one.
    fn holder(&self, changes: bool) -> Result<Option<u16>, Refusal> {
        match self.volumes.as_slice() {
            [] if changes && !self.missing.is_empty() => Err(self.unknown()),
            [] => Ok(None),
            [only] if self.missing.is_empty() || VolumeId::parse(&self.name).is_some() => Ok(only.node),
            [only] => Err(self.uncertain(only)),
            _ => Err(self.ambiguous()),
        }
    }

    /// Why a volume that the cluster's record does not have has no copies to be worked with: another node has it alone, or it is not found.
    fn without_copies(&self, not_found: Refusal) -> Refusal {
        if self.volumes.is_empty() {
            return self.not_found(not_found);
        }
        let candidates: Vec<Candidate> = self.volumes.iter().map(candidate).collect();
        let detail = format!(
            "volume {:?} has no copies: it is local to {}; nothing was done",
            self.name,
            named_nodes(&candidates)
        );
        Refusal::new(StatusCode::CONFLICT, "not_replicated", detail)
            .hint("`ursa volume delete` deletes a volume with all its data")
            .candidates(candidates)
    }

    fn not_found(&self, refusal: Refusal) -> Refusal {
        match self.missing.as_slice() {
            [] => refusal,
            missing => {
                refusal.hint(format!("{}; it may have the volume: see `ursa node list`", silent(missing)))
            }
        }
    }

    /// Nobody who answers has it.
    fn unknown(&self) -> Refusal {
        let Named { name, missing, .. } = self;
        let detail = format!(
            "no node that answers has a volume {name:?}, but {}: it may have the volume; nothing was done",
            silent(missing)
        );
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", detail)
            .hint("see `ursa node list`, bring the node back or repair its links, and try again")
    }

    fn ambiguous(&self) -> Refusal {
        let name = &self.name;
        let candidates: Vec<Candidate> = self.volumes.iter().map(candidate).collect();
        let nodes = named_nodes(&candidates);
        let detail = format!("several nodes have a local volume {name:?}: {nodes}; nothing was done");
        Refusal::new(StatusCode::CONFLICT, "volume_ambiguous", detail)
            .hint("choose a node (`--node`, `?node=`), or give the volume ID (`ursa volume show`)")
            .candidates(candidates)
    }

    fn uncertain(&self, only: &Volume) -> Refusal {
        let Named { name, missing, .. } = self;
        let node = only.node.unwrap_or_default();
        let detail = format!(
            "node {node} has a volume {name:?}, but {}: it may have a volume of that name, too; nothing was done",
            silent(missing)
        );
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "node_unreachable", detail)
            .hint(format!(
                "if you mean the one on node {node}, say so (`--node {node}`, `?node={node}`) or give the volume ID"
            ))
            .candidates(vec![candidate(only)])
    }
}

/// Who has not said what it has.
fn silent(missing: &[Missing]) -> String {
    let each = |Missing { node, node_name, reason }: &Missing| {
        format!("node {node} ({node_name}) does not answer ({reason})")
    };
    missing.iter().map(each).collect::<Vec<_>>().join(", ")
}

fn named_nodes(candidates: &[Candidate]) -> String {
    let node = |of: &Candidate| format!("node {} ({})", of.node.unwrap_or_default(), of.node_name);
    candidates.iter().map(node).collect::<Vec<_>>().join(", ")
}

fn candidate(volume: &Volume) -> Candidate {
    Candidate {
        node: volume.node,
        node_name: volume.node_name.clone().unwrap_or_default(),
        pool: Some(volume.pool.clone()),
        rule: None,
        text: format!("{}, volume ID {}", ByteLen(volume.size), volume.id),
    }
}

/// What is said of a call about copies which the cluster's record alone decides: not that there is no such volume, if another node has it alone.
pub(super) async fn or_without_copies(state: &State, name: String, refusal: Refusal) -> Refusal {
    if refusal.code() != "volume_not_found" {
        return refusal;
    }
    let look = move |control: Rc<Control>| async move { Named::of_others(&control, &name).await };
    match state.call(look).await {
        Ok(found) => found.without_copies(refusal),
        // It is not known what others have.
        Err(_) => refusal,
    }
}

/// Has the node that alone has the volume of this name or identity carry out a request, unless it is this one, or nobody has it.
///
/// # Errors
/// What the node's control says.
pub(in crate::http) async fn pass_on(
    control: &Rc<Control>,
    volume: &str,
    request: &Request,
) -> Result<Result<Passage, Refusal>, ControlError> {
    if control.keeper().is_none() || control.volume(volume).is_ok() {
        return Ok(Ok(Passage::Stays));
    }
    Ok(match Named::of_others(control, volume).await?.holder(request.changes) {
        Ok(Some(node)) => Ok(control.pass_on_to(node, request).await?),
        Ok(None) => Ok(Passage::Stays),
        Err(refusal) => Err(refusal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn of_node(node: u16, id: &str) -> Volume {
        Volume {
            id: id.into(),
            node: Some(node),
            node_name: Some(format!("server{node}")),
            ..samples::volume("db", Vec::new())
        }
    }

    fn found(name: &str, nodes: &[u16], silent: &[u16]) -> Named {
        let missing =
            |node: &u16| Missing { node: *node, node_name: "x".into(), reason: "it is late".into() };
        Named {
            name: name.into(),
            volumes: nodes.iter().map(|node| of_node(*node, &node.to_string())).collect(),
            missing: silent.iter().map(missing).collect(),
        }
    }

    #[test]
    fn who_has_told_of_a_whole_page_is_asked_for_what_is_behind_it() {
        let page = |node, count: usize| (0..count).map(move |at| of_node(node, &format!("{at:032x}")));
        let told: Vec<Volume> = page(2, A_PAGE).chain(page(3, A_PAGE - 1)).collect();
        let last = format!("{ALONE} {:032x}", A_PAGE - 1);
        assert_eq!(next(&told), [(2, last)].into());
        assert!(next(&[]).is_empty());
    }

    #[test]
    fn what_fits_several_is_not_guessed() {
        let not_found = || ControlError::not_found("volume", "db");
        let code = |refused: Refusal| (refused.status().as_u16(), refused.code().to_owned());
        assert_eq!(found("db", &[2], &[]).only_or(not_found()).map_err(code).unwrap().node, Some(2));
        let refused = found("db", &[2, 3], &[]).only_or(not_found()).unwrap_err();
        let nodes: Vec<Option<u16>> = refused.problem().candidates.iter().map(|one| one.node).collect();
        assert_eq!((nodes, code(refused)), (vec![Some(2), Some(3)], (409, "volume_ambiguous".into())));
        let refused = found("db", &[], &[4]).only_or(not_found()).unwrap_err();
        assert!(refused.problem().hint.as_ref().unwrap().contains("node 4"), "{refused:?}");
        assert_eq!(code(refused), (404, "volume_not_found".into()));
        let without =
            |nodes: &[u16], silent: &[u16]| found("db", nodes, silent).without_copies(not_found().into());
        let refused = without(&[2], &[4]);
        assert!(refused.problem().detail.contains("node 2 (server2)"), "{refused:?}");
        assert_eq!(code(refused), (409, "not_replicated".into()));
        let refused = without(&[], &[4]);
        assert!(refused.problem().hint.as_ref().unwrap().contains("node 4"), "{refused:?}");
        assert_eq!(code(refused), (404, "volume_not_found".into()));
    }

    #[test]
    fn what_is_changed_is_certain() {
        let holder = |name: &str, nodes: &[u16], silent: &[u16]| {
            let holder = found(name, nodes, silent).holder(true);
            holder.map_err(|refused| refused.code().to_owned())
        };
        assert_eq!(holder("db", &[2], &[]), Ok(Some(2)));
        assert_eq!(holder("db", &[], &[]), Ok(None));
        assert_eq!(holder("db", &[], &[3]), Err("node_unreachable".into()), "node 3 may have it");
        let refused = found("db", &[], &[3, 4]).holder(true).unwrap_err();
        let detail = &refused.problem().detail;
        for said in ["node 3", "node 4", "nothing was done"] {
            assert!(detail.contains(said), "{detail}");
        }
        let shown = found("db", &[], &[3]).holder(false).unwrap();
        assert_eq!(shown, None, "what is only shown is said not to be found");
        assert_eq!(holder("db", &[2, 3], &[]), Err("volume_ambiguous".into()));
        assert_eq!(holder("db", &[2], &[3]), Err("node_unreachable".into()), "node 3 may have one, too");
        assert_eq!(holder(&"a1".repeat(16), &[2], &[3]), Ok(Some(2)), "there is one of an identity");
    }
}
