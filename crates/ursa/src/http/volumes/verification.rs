//! Whether the copies of a volume are equal.

use std::collections::BTreeSet;

use ::node::control::CheckedCopy;
use ::node::copies::StandingEntry;
use api::{CopyCheck, Problem, Verification};
use axum::extract::State as Extracted;

use super::copies::state as copy_state;
use crate::http::input::Segments;
use crate::http::refusal::Refusal;
use crate::http::state::State;

/// Reads all copies of a volume, on all of their nodes, and compares them.
///
/// What hosts write meanwhile may be in one copy's checksum and not in the other's: ask while nobody writes.
#[utoipa::path(
    post, path = "/v1/volumes/{name}/verify", tag = "volumes", operation_id = "verify_volume",
    params(("name" = String, Path, description = "The volume's name or identity")),
    responses(
        (status = OK, description = "What was found", body = Verification),
        (status = NOT_FOUND, description = "`volume_not_found`", body = Problem, content_type = Problem::MEDIA_TYPE),
        (status = CONFLICT, description = "`not_replicated`", body = Problem, content_type = Problem::MEDIA_TYPE),
    ),
)]
pub(in crate::http) async fn verify(
    Extracted(state): Extracted<State>,
    Segments(name): Segments<String>,
) -> Result<axum::Json<Verification>, Refusal> {
    let checked = state.call(move |control| async move { control.verify_copies(&name).await }).await?;
    Ok(axum::Json(compared(checked)))
}

/// Compares what was found in copies that are in sync: others differ, and may.
fn compared(checked: Vec<CheckedCopy>) -> Verification {
    let in_sync = || checked.iter().filter(|checked| checked.copy.standing == StandingEntry::InSync);
    let found: Vec<&Vec<u32>> = in_sync().filter_map(|checked| checked.found.as_ref().ok()).collect();
    let complete = !found.is_empty() && found.len() == in_sync().count();
    let slices = found.iter().map(|found| found.len()).max().unwrap_or_default();
    let differs =
        |slice: &usize| found.iter().map(|found| found.get(*slice)).collect::<BTreeSet<_>>().len() > 1;
    let different_slices: Vec<u16> =
        (0..slices).filter(differs).filter_map(|slice| u16::try_from(slice).ok()).collect();
    Verification { equal: complete && different_slices.is_empty(), different_slices, copies: checks(checked) }
}

fn checks(checked: Vec<CheckedCopy>) -> Vec<CopyCheck> {
    let check = |CheckedCopy { copy, found }| {
        let (checksums, problem) = match found {
            Ok(checksums) => (checksums, None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        CopyCheck { node: copy.node, state: copy_state(copy.standing), checksums, problem }
    };
    checked.into_iter().map(check).collect()
}

#[cfg(test)]
mod tests {
    use ::node::copies::CopyEntry;
    use api::CopyState;

    use super::*;

    fn checked(node: u16, standing: StandingEntry, found: Result<&[u32], &str>) -> CheckedCopy {
        let copy = CopyEntry { slot: node as u8 - 1, node, standing, incarnation: 1, made: 1, leaves: None };
        CheckedCopy { copy, found: found.map(<[u32]>::to_vec).map_err(str::to_owned) }
    }

    #[test]
    fn copies_in_sync_are_compared_and_no_others() {
        use StandingEntry::{InSync, Joining};
        let same = [
            checked(1, InSync, Ok(&[7, 8])),
            checked(2, InSync, Ok(&[7, 8])),
            checked(3, Joining, Ok(&[0, 0])),
        ];
        let found = compared(same.to_vec());
        assert!(found.equal && found.different_slices.is_empty(), "{found:?}");
        assert_eq!(found.copies[2].state, CopyState::Joining);

        let other = compared(vec![checked(1, InSync, Ok(&[7, 8])), checked(2, InSync, Ok(&[7, 9]))]);
        assert_eq!((other.equal, other.different_slices), (false, vec![1]));
        let shorter = compared(vec![checked(1, InSync, Ok(&[7, 8])), checked(2, InSync, Ok(&[7]))]);
        assert_eq!((shorter.equal, shorter.different_slices), (false, vec![1]));
    }

    #[test]
    fn a_copy_that_was_not_read_is_not_called_equal() {
        use StandingEntry::{InSync, Outside};
        let silent = compared(vec![checked(1, InSync, Ok(&[7])), checked(2, InSync, Err("it is down"))]);
        assert_eq!((silent.equal, silent.different_slices.len()), (false, 0));
        assert_eq!(silent.copies[1].problem.as_deref(), Some("it is down"));
        assert!(!compared(vec![checked(1, Outside, Ok(&[7]))]).equal, "nothing was compared");
        assert!(compared(vec![checked(1, InSync, Ok(&[7])), checked(2, Outside, Err("it is down"))]).equal);
    }
}
