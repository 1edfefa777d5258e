//! Split brain: a volume's policy, and the decision which data to keep.

use std::collections::BTreeMap;
use std::rc::Rc;

use ::node::Control;
use ::node::control::{ForkDecision, PolicyChange};
use ::node::copies;
use ::node::member::{CopiesStatus, ForkState};
use api::{ChosenPolicy, DryRun, ForkResolution, PolicyChoice, PolicyChosen, SplitBrainPolicy, VolumeFork};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::super::dry_run::{self, Answer, DryRunParam};
use super::super::input::{Json, Parameters, Segments};
use super::super::refusal::{Refusal, Reply};
use super::super::state::State;

/// Sets the split-brain policy of a volume: what a node does when no other node and no quorum is reachable.
///
/// With `heartbeat`, a node of two continues alone after about six seconds. The other node may do the same:
/// then the copies diverge, and an administrator must choose which one to keep. This is why
/// `accept_split_brain` is required.
#[utoipa::path(
    put, path = "/v1/volumes/{name}/split-brain-policy", tag = "volumes", operation_id = "set_split_brain_policy",
    params(("name" = String, Path, description = "Volume name or ID"), DryRunParam),
    request_body = PolicyChoice,
    responses(
        (status = OK, description = "Done; with `dry_run`: what would be done", body = Answer<PolicyChosen>),
        (status = NOT_FOUND, description = "`volume_not_found`"),
        (status = CONFLICT, description = "`not_replicated`, `not_of_two`, `node_refused`, `changed_meanwhile`, `record_in_etcd`"),
        (status = UNPROCESSABLE_ENTITY, description = "`risk_not_accepted`"),
    ),
)]
pub(in super::super) async fn set_split_brain_policy(
    state: State,
    Segments(name): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(choice): Json<PolicyChoice>,
) -> Reply<Answer<PolicyChosen>> {
    let PolicyChoice { policy, accept_split_brain, by } = choice;
    let policy = match policy {
        SplitBrainPolicy::Prefer => copies::SplitBrainPolicy::Prefer,
        SplitBrainPolicy::Heartbeat if accept_split_brain => copies::SplitBrainPolicy::Heartbeat,
        SplitBrainPolicy::Heartbeat => {
            let detail = "if only the link between the nodes is lost, both continue (split brain), and the writes of one of them are discarded later";
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "risk_not_accepted", detail)
                .hint("accept this with accept_split_brain, or --accept-split-brain")
                .field("accept_split_brain"));
        }
    };
    let volume = name.clone();
    let answer = if dry_run {
        let check = move |control: Rc<Control>| async move {
            control.check_split_brain_policy(&volume, policy).await
        };
        let change = state.call(check).await;
        change.map(|change| {
            let steps = would_choose(&name, policy, change);
            Answer::Would(DryRun { would: steps, candidates: Vec::new() })
        })
    } else {
        let choose = move |control: Rc<Control>| async move {
            control.set_split_brain_policy(&volume, policy, &by).await
        };
        let change = state.call(choose).await;
        change.map(|change| Answer::Done(PolicyChosen { one_way: change.one_way }))
    };
    answer.map(axum::Json)
}

fn would_choose(volume: &str, policy: copies::SplitBrainPolicy, change: PolicyChange) -> Vec<String> {
    let mut steps = vec![match policy {
        copies::SplitBrainPolicy::Prefer if change.etcd_decides => {
            format!(
                "no change: the cluster's record is in etcd, which decides which nodes continue with volume {volume}"
            )
        }
        copies::SplitBrainPolicy::Prefer => {
            format!("volume {volume} waits for quorum: only the preferred node, or a majority, continues")
        }
        copies::SplitBrainPolicy::Heartbeat => format!(
            "a node that reaches no other node continues alone with volume {volume} after about six seconds; if only the link is lost, both do (split brain), and the writes of one of them are discarded later"
        ),
    }];
    if policy == copies::SplitBrainPolicy::Heartbeat && change.one_way {
        steps.push(
            "each node knows only one address of the other: if that network is lost, both continue".into(),
        );
    }
    steps
}

/// Resolves a split brain: chooses which node's data of a volume to keep.
///
/// Writes made only on the other node are discarded permanently: this is why `discard_other` is required. Its
/// copy is resynced.
#[utoipa::path(
    put, path = "/v1/volumes/{name}/split-brain", tag = "volumes", operation_id = "resolve_fork",
    params(("name" = String, Path, description = "Volume name or ID"), DryRunParam),
    request_body = ForkResolution,
    responses(
        (status = OK, description = "With `dry_run`: what would be done", body = DryRun),
        (status = NO_CONTENT, description = "Decided"),
        (status = NOT_FOUND, description = "`volume_not_found`, `copy_not_found`"),
        (status = CONFLICT, description = "`not_replicated`, `no_fork`, `node_refused`, `changed_meanwhile`"),
        (status = UNPROCESSABLE_ENTITY, description = "`loss_not_accepted`"),
    ),
)]
pub(in super::super) async fn resolve_fork(
    state: State,
    Segments(volume): Segments<String>,
    Parameters(DryRunParam { dry_run }): Parameters<DryRunParam>,
    Json(ForkResolution { keep, discard_other }): Json<ForkResolution>,
) -> Result<Response, Refusal> {
    if !discard_other {
        let detail = "writes made only on the other node are discarded";
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "loss_not_accepted", detail)
            .hint("accept this with discard_other, or --discard-other")
            .field("discard_other"));
    }
    if dry_run {
        let check = move |control: Rc<Control>| async move {
            Ok((control.check_fork(&volume, keep).await?, control.node_names()))
        };
        let would = state.call(check).await;
        would.map(|(decision, names)| dry_run::would(would_resolve(&decision, keep, &names), Vec::new()))
    } else {
        let resolve = move |control: Rc<Control>| async move { control.resolve_fork(&volume, keep).await };
        state.call(resolve).await.map(|()| StatusCode::NO_CONTENT.into_response())
    }
}

fn would_resolve(decision: &ForkDecision, keep: u16, names: &BTreeMap<u16, String>) -> Vec<String> {
    let named = |node: u16| match names.get(&node) {
        Some(name) => format!("node {node} ({name})"),
        None => format!("node {node}"),
    };
    let ForkDecision { volume, given_up, stops } = decision;
    let others = given_up.iter().copied().map(named).collect::<Vec<_>>().join(", ");
    let mut steps = vec![
        format!("the data of {} is kept for volume {volume}", named(keep)),
        format!("writes made only on {others} are discarded permanently"),
    ];
    steps.extend(
        stops.map(|node| format!("{} stops serving it, and {} takes over", named(node), named(keep))),
    );
    steps.push(format!("the copy on {others} is resynced"));
    steps
}

/// The policy that an administrator has chosen.
pub(super) fn chosen(copies: &CopiesStatus) -> Option<ChosenPolicy> {
    let entry = copies.policy.as_ref()?;
    let policy = match entry.policy {
        copies::SplitBrainPolicy::Prefer => SplitBrainPolicy::Prefer,
        copies::SplitBrainPolicy::Heartbeat => SplitBrainPolicy::Heartbeat,
    };
    Some(ChosenPolicy { policy, by: entry.by.clone(), at: entry.at })
}

/// The node that has continued alone.
pub(super) fn fork(copies: &CopiesStatus) -> Option<VolumeFork> {
    let fork = copies.fork.as_ref()?;
    Some(VolumeFork { node: fork.node, since: fork.since, split: fork.state == ForkState::Split })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_of_a_choice_depends_on_the_node_that_is_kept() {
        let would = |policy, one_way, etcd_decides| {
            would_choose("db", policy, PolicyChange { one_way, etcd_decides })
        };
        let nodes = "volume db waits for quorum: only the preferred node, or a majority, continues";
        assert_eq!(would(copies::SplitBrainPolicy::Prefer, true, false), [nodes]);
        let etcd =
            "no change: the cluster's record is in etcd, which decides which nodes continue with volume db";
        assert_eq!(would(copies::SplitBrainPolicy::Prefer, true, true), [etcd]);
        assert_eq!(would(copies::SplitBrainPolicy::Heartbeat, false, false).len(), 1);
        assert!(would(copies::SplitBrainPolicy::Heartbeat, true, false)[1].contains("only one address"));
    }

    #[test]
    fn resolving_a_split_brain_names_the_data_that_is_discarded() {
        let names: BTreeMap<u16, String> = [(1, "san1".into()), (2, "san2".into())].into();
        let would =
            |stops| would_resolve(&ForkDecision { volume: "db".into(), given_up: vec![1], stops }, 2, &names);
        let told = would(None);
        let [kept, lost, last] = &told[..] else { panic!("{told:?}") };
        assert_eq!(kept, "the data of node 2 (san2) is kept for volume db");
        assert_eq!(lost, "writes made only on node 1 (san1) are discarded permanently");
        assert_eq!(last, "the copy on node 1 (san1) is resynced");
        assert_eq!(would(Some(1))[2], "node 1 (san1) stops serving it, and node 2 (san2) takes over");
    }
}
